import itertools
import json
from collections import Counter

import numpy as np
import pytest

from vmsst_jax.data.batching import Share
from vmsst_jax.data.cache import TokenCache
from vmsst_jax.data.streams import CachedStream

LENGTH = 16


@pytest.fixture(scope="module")
def caches(examples, tokenizer, languages):
    return [TokenCache.build(part, tokenizer, languages, LENGTH) for part in (examples[:100], examples[100:])]


def make_stream(caches, rates=(1.0, 3.0), **options):
    defaults = {"batch_size": 16, "widths": (6, 11, 15, 16), "max_length": LENGTH, "seed": 3}
    return CachedStream(caches, list(rates[: len(caches)]), **{**defaults, **options})


def sentences_of(batch):
    """The 2B token rows in sentence order, padding removed."""
    lines = [line for group in batch["tokens"] for line in group]
    return [lines[s][lines[s] != 0].tolist() for s in batch["slot"]]


def assert_equal(first, second):
    for (a, info_a), (b, info_b) in zip(first, second, strict=True):
        assert a.keys() == b.keys() and len(a["tokens"]) == len(b["tokens"])
        for x, y in zip((*a.pop("tokens"), *a.values()), (*b.pop("tokens"), *b.values()), strict=True):
            np.testing.assert_array_equal(x, y)
        np.testing.assert_array_equal(info_a.pop("pair_id"), info_b.pop("pair_id"))
        assert info_a == info_b


def test_batches_hold_the_pairs_they_name(caches, examples, tokenizer, languages):
    by_id, stream, truncated, swapped = {e["pair_id"]: e for e in examples}, make_stream(caches), 0, 0
    for _ in range(20):
        batch, info = stream.next()
        rows = sentences_of(batch)
        for i, pair_id in enumerate(info["pair_id"].tolist()):
            example = by_id[pair_id]
            sides, cut = tokenizer.encode([example["source"], example["target"]], LENGTH)
            langs = languages.id(example["source_lang"]), languages.id(example["target_lang"])
            want = [(side.tolist(), lang) for side, lang in zip(sides, langs, strict=True)]
            found = [(rows[i], batch["lang"][i]), (rows[16 + i], batch["lang"][16 + i])]
            assert found in (want, want[::-1])
            truncated, swapped = truncated + cut, swapped + (found != want)
        assert info["real_tokens"] == sum(map(len, rows)) and info["truncated"] == truncated
        assert info["padded_tokens"] == sum(g.size for g in batch["tokens"])
    assert truncated > 0 and 120 < swapped < 200  # 320 fair coins: 160 +- 36 at four sigma


def test_every_pair_comes_once_per_epoch_in_a_new_order(caches):
    stream = make_stream(caches[:1], batch_size=8, widths=(16,))
    drawn = np.concatenate([stream.next()[1]["pair_id"] for _ in range(25)])  # two epochs of 100
    ids = np.sort(caches[0].pair_ids(np.arange(100)))
    for epoch in (drawn[:100], drawn[100:]):
        np.testing.assert_array_equal(np.sort(epoch), ids)
        assert (epoch != ids).mean() > 0.9
    assert (drawn[:100] != drawn[100:]).mean() > 0.9
    assert stream.state()["positions"] == [[2, 0]]


def test_a_batch_larger_than_the_corpus_spans_epochs(caches):
    stream = make_stream(caches[:1], batch_size=256, widths=(16,))
    assert set(Counter(stream.next()[1]["pair_id"].tolist()).values()) == {2, 3}


def test_without_shuffling_the_corpus_keeps_its_order(caches):
    stream = make_stream(caches[1:], widths=(16,), shuffle=False)
    drawn = np.concatenate([stream.next()[1]["pair_id"] for _ in range(5)])
    np.testing.assert_array_equal(drawn, caches[1].pair_ids(np.arange(80)))


def test_rates_hold(caches):
    stream = make_stream(caches, rates=(1.0, 3.0), batch_size=200, widths=(16,))
    first = set(caches[0].pair_ids(np.arange(100)).tolist())
    drawn = [i in first for _ in range(20) for i in stream.next()[1]["pair_id"].tolist()]
    assert abs(np.mean(drawn) - 0.25) < 0.028  # 4000 draws, four sigma


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_resumed_stream_goes_on_as_the_straight_one(caches, accumulate):
    straight = make_stream(caches, accumulate=accumulate)
    batches = [straight.next() for _ in range(12)]
    for cut in (0, 5):
        stream = make_stream(caches, accumulate=accumulate)
        for _ in range(cut):
            stream.next()
        state = json.loads(json.dumps(stream.state()))
        stream.next()  # what was drawn after the save is lost
        resumed = make_stream(caches, accumulate=accumulate)
        resumed.restore(state)
        copies = [({**b}, {**i}) for b, i in batches[cut:]]
        assert_equal(copies, [resumed.next() for _ in range(12 - cut)])
        assert resumed.state() == straight.state()


def test_micro_batches_are_the_draws_in_turn(caches):
    single, double = make_stream(caches, batch_size=32, widths=(16,)), make_stream(caches, accumulate=2, widths=(16,))
    (whole, whole_info), (batch, info) = single.next(), double.next()
    assert batch["tokens"][0].shape == (2, 32, 16) and info["pair_id"].shape == (2, 16)
    assert info["pair_id"].ravel().tolist() == whole_info["pair_id"].tolist()
    rows = sentences_of(whole)
    for m in range(2):
        micro = {k: tuple(g[m] for g in v) if k == "tokens" else v[m] for k, v in batch.items()}
        pairs = range(16 * m, 16 * m + 16)
        assert sentences_of(micro) == [rows[i] for i in itertools.chain(pairs, (32 + i for i in pairs))]


def test_fallbacks_are_counted(caches):
    stream = make_stream(caches, widths=(2, 16))
    infos = [stream.next() for _ in range(3)]
    assert [info["fallbacks"] for _, info in infos] == [1, 2, 3]
    assert [g.shape for g in infos[0][0]["tokens"]] == [(16, 16), (16, 16)]


def test_refusals(caches):
    with pytest.raises(ValueError, match="a positive rate per cache"):
        CachedStream(caches, [1.0], 16, (16,), LENGTH, 0)
    with pytest.raises(ValueError, match="up to 16 tokens.*max_length 32"):
        make_stream(caches, max_length=32)
    with pytest.raises(ValueError, match=r"\[100, 400\] pairs, this run has \[400, 100\]"):
        make_stream(caches[::-1]).restore(make_stream(caches).state())


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_process_reads_its_own_rows_of_the_same_batch(caches, accumulate, monkeypatch):
    """Four shards, two processes: what each reads lies where it lay, the rest is padding, and all else is equal."""
    read = []
    tokens = TokenCache.tokens
    monkeypatch.setattr(TokenCache, "tokens", lambda cache, index: read.append(len(index)) or tokens(cache, index))
    options = {"accumulate": accumulate, "batch_size": 32, "shards": 4}
    whole, first, second = (make_stream(caches, **options) for _ in range(3))
    first.share, second.share = Share(4, (0, 1)), Share(4, (2, 3))
    for _ in range(3):
        read.clear()
        (want, info), (a, info_a), (b, info_b) = (stream.next() for stream in (whole, first, second))
        assert sum(read) == 2 * 64 * accumulate  # each sentence twice: in the whole, and in one of the shares
        for group, x, y in zip(want["tokens"], a["tokens"], b["tokens"], strict=True):
            half = group.shape[-2] // 2
            np.testing.assert_array_equal(x[..., :half, :], group[..., :half, :])
            np.testing.assert_array_equal(y[..., half:, :], group[..., half:, :])
            assert not x[..., half:, :].any() and not y[..., :half, :].any()
        for other in (a, b):
            other["tokens"] = want["tokens"]
        for other in ((a, info_a), (b, info_b)):
            assert_equal([({**want}, {**info})], [other])
    assert whole.state() == first.state() == second.state()
