"""Masking: exact properties of every row, and the law of the draws against XLM's rates."""

import jax
import numpy as np
import pytest
from scipy import stats

from vmsst_jax.objectives.masking import mask_tokens, max_targets

VOCAB, MASK, SPECIAL = 100, 99, (0, 1, 2)


def rows(count, length, seed=0):
    """Rows in the frame <s> ... </s>, the rest padding; ordinary tokens are 3 .. 98."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(3, MASK, (count, length)).astype(np.int32)
    tokens[:, 0] = 0
    ends = rng.integers(2, length, count)
    tokens[np.arange(count), ends] = 2
    tokens[np.arange(length) > ends[:, None]] = 1
    return tokens


def masked(tokens, key=0, **options):
    options = {"mask_id": MASK, "vocab_size": VOCAB, "special_ids": SPECIAL, **options}
    return [np.asarray(x) for x in jax.jit(lambda t: mask_tokens(jax.random.key(key), t, **options))(tokens)]


@pytest.mark.parametrize("rate", [0.15, 0.5, 1.0])
def test_every_row(rate):
    tokens = rows(64, 40)
    inputs, positions, ids, weights = masked(tokens, rate=rate)
    size = max_targets(40, rate)
    assert inputs.shape == tokens.shape and inputs.dtype == np.int32
    assert positions.shape == ids.shape == weights.shape == (64, size)
    for before, after, where, target, weight in zip(tokens, inputs, positions, ids, weights, strict=True):
        chosen = where[weight > 0].tolist()
        candidates = [i for i in range(1, 40) if before[i] not in SPECIAL]
        assert set(weight.tolist()) <= {0.0, 1.0} and len(set(where.tolist())) == size
        assert set(chosen) <= set(candidates)
        assert int(rate * len(candidates)) <= len(chosen) <= int(np.ceil(rate * len(candidates)))
        assert target.tolist() == before[where].tolist()
        others = np.setdiff1d(np.arange(40), chosen)
        assert after[others].tolist() == before[others].tolist()


def test_the_rates():
    tokens = np.full((4000, 33), 50, np.int32)  # of 32 candidates each
    inputs, positions, _, weights = masked(tokens)
    chosen = positions[weights > 0]
    # Each position with probability 0.15; sampling without repetition only makes the counts closer to it.
    counts = np.bincount(chosen, minlength=33)
    assert counts[0] == 0
    assert np.abs(counts[1:] - 600).max() < 5 * np.sqrt(4000 * 0.15 * 0.85)
    assert weights.sum() == pytest.approx(4000 * 32 * 0.15, rel=0.01)
    shown = np.take_along_axis(inputs, positions, axis=1)[weights > 0]
    n = len(shown)
    for share, found in ((0.8 + 0.1 / VOCAB, shown == MASK), (0.1 + 0.1 / VOCAB, shown == 50)):
        assert stats.binomtest(int(found.sum()), n, share).pvalue > 1e-4
    random = np.bincount(shown[(shown != MASK) & (shown != 50)], minlength=VOCAB)
    assert stats.chisquare(np.delete(random, [MASK, 50])).pvalue > 1e-4  # the whole vocabulary, special tokens too


def test_translation_pairs_may_hide_the_ends_of_sentences():
    tokens = rows(500, 12)
    _, positions, ids, weights = masked(tokens, special_ids=(1,), rate=0.5)
    assert (ids[weights > 0] == 2).any() and not (ids[weights > 0] == 1).any()
    assert not (positions[weights > 0] == 0).any()


def test_keys():
    tokens = rows(8, 40)
    first, again, other = masked(tokens, 0), masked(tokens, 0), masked(tokens, 1)
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert (first[0] != other[0]).any()


def test_nothing_to_guess():
    tokens = np.array([[0, 2, 1, 1]], np.int32)
    inputs, _, _, weights = masked(tokens, rate=0.9)
    assert inputs.tolist() == tokens.tolist() and not weights.any()


@pytest.mark.parametrize("rate", [0, 1.5, -0.1])
def test_impossible_rates(rate):
    with pytest.raises(ValueError, match="rate of masked tokens"):
        masked(rows(1, 8), rate=rate)
