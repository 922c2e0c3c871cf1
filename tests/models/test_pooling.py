"""Poolings against plain loops over rows and positions."""

import numpy as np
import pytest

from vmsst_jax.models.pooling import POOLINGS, token_mask

HIDDEN = (
    np.random.default_rng(0).normal(size=(4, 5, 3)).astype(np.float32) - 2.0
)  # mostly negative: 0 is no neutral max
MASK = np.array([[1, 1, 1, 1, 1], [0, 1, 1, 0, 0], [1, 0, 1, 0, 0], [0, 0, 0, 0, 0]])
BY_HAND = {
    "mean": lambda rows: rows.mean(axis=0),
    "max": lambda rows: rows.max(axis=0),
    "mean_sqrt_len": lambda rows: rows.sum(axis=0) / np.sqrt(len(rows)),
    "last": lambda rows: rows[-1],
}


@pytest.mark.parametrize("name", BY_HAND)
def test_each_row_by_itself(name):
    found = POOLINGS[name](HIDDEN, MASK)
    assert found.dtype == np.float32
    for row in range(3):
        expected = BY_HAND[name](HIDDEN[row][MASK[row] == 1])
        np.testing.assert_allclose(found[row], expected, rtol=1e-6, atol=1e-6)
    if name != "last":
        np.testing.assert_array_equal(found[3], 0.0)


def test_cls_is_the_first_position_whatever_the_mask():
    np.testing.assert_array_equal(POOLINGS["cls"](HIDDEN, MASK), HIDDEN[:, 0])
    np.testing.assert_array_equal(POOLINGS["last"](HIDDEN, MASK)[3], HIDDEN[3, 0])


@pytest.mark.parametrize("name", POOLINGS)
def test_what_is_masked_does_not_matter(name):
    mask = MASK[:2] | [1, 0, 0, 0, 0]  # the first position counts, as cls assumes
    noise = np.where(mask[..., None] == 1, HIDDEN[:2], 1e30).astype(np.float32)
    np.testing.assert_array_equal(POOLINGS[name](noise, mask), POOLINGS[name](HIDDEN[:2], mask))


def test_token_mask_leaves_out_padding_and_specials():
    tokens = np.array([[0, 7, 8, 2, 1], [0, 2, 1, 1, 1], [0, 5, 0, 2, 9]])
    np.testing.assert_array_equal(token_mask(tokens, 1), tokens != 1)
    found = token_mask(tokens, 1, (0, 2))
    np.testing.assert_array_equal(found, [[0, 1, 1, 0, 0], [1, 1, 0, 0, 0], [0, 1, 0, 0, 1]])  # row 1 has nothing else
