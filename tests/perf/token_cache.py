"""Pairs per second of training batches from a token cache against seqio with tokenisation on the way, gettext corpus.

    python tests/perf/token_cache.py

"cache" reads its memory-mapped folder. "streamed" is what recipes with ParallelText.cache = "none" do: text through
seqio, tokenised a block at a time. "seqio" is a task as seqio's own tutorials write one: its tokenize and append_eos
preprocessors, its shuffling, and tf.data's padded batches; it neither sorts nor buckets.
"""

from __future__ import annotations

import argparse
import tempfile
import time

import timing


def seqio_batches(folder, vocabulary, pairs: int, length: int, number: int):
    """A function that makes ``number`` batches by seqio's own means."""
    import pathlib

    import seqio

    model = pathlib.Path(folder) / "sentencepiece.model"
    model.write_bytes(vocabulary.serialized)
    pieces = seqio.SentencePieceVocabulary(str(model))
    source = seqio.TaskRegistry.get("gettext").source
    seqio.TaskRegistry.add(
        "gettext_tokenised",
        source=source,
        preprocessors=[seqio.preprocessors.tokenize, seqio.preprocessors.append_eos_after_trim],
        output_features={name: seqio.Feature(pieces, add_eos=True) for name in ("source", "target")},
    )
    dataset = seqio.get_mixture_or_task("gettext_tokenised").get_dataset(
        {"source": length, "target": length}, "train", shuffle=True, num_epochs=None, seed=0
    )
    dataset = dataset.map(lambda x: {name: x[name] for name in ("source", "target")})
    iterator = iter(dataset.padded_batch(pairs, {"source": [length], "target": [length]}).as_numpy_iterator())
    return lambda: [next(iterator) for _ in range(number)] and None


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--pairs", type=int, default=256)
    flags.add_argument("--batches", type=int, default=200)
    flags.add_argument("--repetitions", type=int, default=5)
    a = flags.parse_args()

    from vmsst_jax import config
    from vmsst_jax.data.languages import Languages
    from vmsst_jax.data.parallel import ParallelText, train_sentencepiece

    gettext = config.import_tasks("gettext")
    languages, vocabulary = Languages(gettext.languages()), train_sentencepiece("gettext", 8000)

    def batches(cache: str):
        stream = ParallelText("gettext", a.pairs, 32, (8, 12, 20, 32), cache=cache).open(vocabulary, languages, 0)
        return lambda: [stream.next() for _ in range(a.batches)] and None

    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        from_cache = batches(folder)
        print(timing.machine("seqio"))
        print(f"tokenising the corpus into the cache took {time.perf_counter() - begin:.1f} s, once")
        streams = {
            "cache": from_cache,
            "streamed": batches("none"),
            "seqio": seqio_batches(folder, vocabulary, a.pairs, 32, a.batches),
        }
        times = timing.take_turns(streams, a.repetitions)
    for name, seconds in times.items():
        print(f"{name}: {a.pairs * a.batches / min(seconds):,.0f} pairs/s")
    print(timing.ratios(times, "cache", "streamed"))
    print(timing.ratios(times, "cache", "seqio"))


if __name__ == "__main__":
    main()
