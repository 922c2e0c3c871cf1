"""A saved tf.data position continues exactly: tasks in memory and streamed, mixtures with rates."""

import functools

import pytest


@pytest.fixture
def corpora(tmp_path, registry):
    from vmsst_jax.tasks import parallel

    for name, count in (("small", 300), ("large", 900)):
        (tmp_path / f"{name}.tsv").write_text("".join(f"{name} text {i}\tText {i}\n" for i in range(count)))
    options = {"languages": ("en", "de")}
    parallel.register_tsv("small", tmp_path / "small.tsv", stream=False, **options)
    parallel.register_tsv("large", tmp_path / "large.tsv", stream=True, **options)
    registry.MixtureRegistry.add("by_rate", [("small", 3.0), ("large", 1.0)])
    by_size = functools.partial(registry.mixing_rate_num_examples, temperature=2.0)
    registry.MixtureRegistry.add("by_size", ["small", "large"], default_rate=by_size)


def iterator(name, batch=7):
    import seqio

    provider = seqio.get_mixture_or_task(name)
    dataset = provider.get_dataset(sequence_length=None, split="train", shuffle=True, seed=3, num_epochs=None)
    return iter(dataset.batch(batch))


def take(position, count):
    batches = [next(position) for _ in range(count)]
    return [
        [(int(i), text.decode()) for i, text in zip(batch["pair_id"], batch["source"].numpy(), strict=True)]
        for batch in batches
    ]


@pytest.mark.parametrize("name", ["small", "large", "by_rate"])
def test_position_is_saved_and_resumed_exactly(tmp_path, corpora, name):
    import tensorflow as tf

    straight = take(iterator(name), 200)  # more than four epochs of the small corpus
    for stop in (3, 100):
        before = iterator(name)
        assert take(before, stop) == straight[:stop]
        prefix = tf.train.Checkpoint(position=before).write(str(tmp_path / f"position-{stop}"))
        after = iterator(name)
        tf.train.Checkpoint(position=after).read(prefix).assert_consumed()
        assert take(after, 200 - stop) == straight[stop:]


@pytest.mark.parametrize(("name", "share"), [("by_rate", 0.75), ("by_size", 0.366)])  # 300**.5 / (300**.5 + 900**.5)
def test_mixtures_follow_their_rates(corpora, name, share):
    drawn = [text for batch in take(iterator(name, 100), 30) for _, text in batch]
    assert sum(text.startswith("small") for text in drawn) / 3000 == pytest.approx(share, abs=0.04)


def test_a_memory_position_is_small(tmp_path, corpora):
    import tensorflow as tf

    position = iterator("small")
    take(position, 1)
    tf.train.Checkpoint(position=position).write(str(tmp_path / "position"))
    assert (tmp_path / "position.data-00000-of-00001").stat().st_size < 200_000
