import zlib

import numpy as np
import pytest

from vmsst_jax.data.batching import BatchPlan, collate, plan_widths


def random_rows(rng, count, longest):
    return [rng.integers(2, 500, size=n, dtype=np.int32) for n in rng.integers(1, longest + 1, size=count)]


def assert_batch(batch, rows, lang, widths):
    """Checks one micro-batch against the definition, sentence by sentence."""
    by_length = sorted(range(len(rows)), key=lambda i: len(rows[i]))  # Python's sort is stable
    assert [g.shape for g in batch["tokens"]] == [(len(rows) // len(widths), w) for w in widths]
    assert batch["row"].tolist() == by_length
    padded = [line for group in batch["tokens"] for line in group]
    for i, row in enumerate(rows):
        line = padded[batch["slot"][i]]
        assert line.tolist() == row.tolist() + [0] * (len(line) - len(row))
        assert batch["row"][batch["slot"][i]] == i
        assert batch["lang"][i] == lang[i]
        assert batch["text_id"][i] == np.uint32(zlib.crc32(row.astype("<i4").tobytes())).astype(np.int32)
    for value in (*batch["tokens"], *(batch[k] for k in ("slot", "row", "lang", "text_id"))):
        assert value.dtype == np.int32


def test_every_sentence_lies_where_slot_says():
    rng = np.random.default_rng(0)
    rows, lang = random_rows(rng, 24, longest=12), rng.integers(0, 5, 24, np.int32)
    longest = np.sort([len(row) for row in rows])[5::6]
    plan = BatchPlan(12, tuple(longest), max_length=12, shards=2)
    batch, facts = collate(rows, lang, plan)
    assert_batch(batch, rows, lang, tuple(longest))
    assert facts == {
        "real_tokens": sum(map(len, rows)),
        "padded_tokens": sum(6 * w for w in longest),
        "fallback": False,
    }


def test_one_token_too_many_takes_the_fallback_shape():
    rng = np.random.default_rng(1)
    rows, lang = random_rows(rng, 24, longest=12), np.zeros(24, np.int32)
    longest = np.sort([len(row) for row in rows])[5::6]
    batch, facts = collate(rows, lang, BatchPlan(12, (longest[0] - 1, *longest[1:]), max_length=12))
    assert facts["fallback"] and facts["padded_tokens"] == 24 * 12
    assert_batch(batch, rows, lang, (12,) * 4)


@pytest.mark.parametrize("misfit", [False, True])
def test_micro_batches_lie_on_a_leading_axis_and_fall_back_together(misfit):
    rng = np.random.default_rng(2)
    rows, lang = random_rows(rng, 3 * 8, longest=6), rng.integers(0, 5, 24, np.int32)
    if misfit:
        rows[9] = np.arange(2, 12, dtype=np.int32)
    widths = (10, 10) if misfit else (6, 6)
    batch, facts = collate(rows, lang, BatchPlan(4, (6, 6), max_length=10, accumulate=3))
    assert facts["fallback"] is misfit
    for m in range(3):
        one = {k: tuple(g[m] for g in v) if k == "tokens" else v[m] for k, v in batch.items()}
        assert_batch(one, rows[8 * m : 8 * m + 8], lang[8 * m : 8 * m + 8], widths)


def test_equal_sentences_share_a_text_id_and_others_do_not():
    rows = [np.array(r, np.int32) for r in ([5, 1], [5, 6, 1], [5, 1], [1], [1], [6, 5, 1])]
    text_id = collate(rows, np.zeros(6), BatchPlan(3, (4,), max_length=4))[0]["text_id"]
    assert text_id[0] == text_id[2] and text_id[3] == text_id[4] and len(set(text_id.tolist())) == 4


@pytest.mark.parametrize(("batch_size", "nearest"), [(250, "240 or 256"), (5, "16"), (17, "16 or 32")])
def test_indivisible_batches_name_the_nearest_that_work(batch_size, nearest):
    with pytest.raises(ValueError, match=f"batch_size {batch_size} gives .* 4 groups x 8 .*work: {nearest}"):
        BatchPlan(batch_size, (8, 12, 16, 32), max_length=32, shards=8)


@pytest.mark.parametrize("widths", [(), (16, 8), (8, 40), (0, 8)])
def test_impossible_widths(widths):
    with pytest.raises(ValueError, match="widths is .*; wanted"):
        BatchPlan(8, widths, max_length=32)


def test_wrong_input_is_refused():
    plan = BatchPlan(1, (4,), max_length=4)
    with pytest.raises(ValueError, match="found 3 sentences.*= 2 of each"):
        collate([np.array([1], np.int32)] * 3, np.zeros(3), plan)
    with pytest.raises(ValueError, match="from 0 to 5"):
        collate([np.zeros(0, np.int32), np.ones(5, np.int32)], np.zeros(2), plan)


@pytest.mark.parametrize("paired", [False, True])
def test_proposed_widths_fit_the_promised_share_of_fresh_batches(paired):
    rng = np.random.default_rng(3)
    lengths = np.minimum(rng.geometric(0.12, size=(5000, 2)), 32)
    if paired:
        lengths[:, 1] = lengths[:, 0]
    widths = plan_widths(lengths if paired else lengths.ravel(), 64, groups=4, max_length=32, multiple=2, fit=0.9)
    assert list(widths) == sorted(widths) and widths[-1] == 32 and all(w % 2 == 0 for w in widths)
    fresh = np.sort(lengths[rng.integers(5000, size=(2000, 64))].reshape(2000, 128))[:, 31::32]
    share = (fresh <= np.array(widths)).mean(axis=0)
    assert (share > 0.87).all()
    assert ((fresh <= np.array(widths) - 2).mean(axis=0) < 0.93).all()  # and no wider than need be


def test_widths_of_bad_requests():
    with pytest.raises(ValueError, match="at least one sentence"):
        plan_widths(np.zeros(0), 8, 4, 32)
    with pytest.raises(ValueError, match="groups 3"):
        plan_widths(np.ones(9, int), 8, 3, 32)
