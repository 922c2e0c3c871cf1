"""Both directions from one pass: the answers of a stable sort, whatever the block, the devices or an interruption."""

import jax
import numpy as np
import pytest

from vmsst_jax.retrieval import neighbours, tiles
from vmsst_jax.retrieval.exact import normalize, top_k
from vmsst_jax.retrieval.neighbours import two_way


def sorted_top_k(queries, corpus, k):
    # Rounded, as a BLAS may give equal rows products that differ in their last bit, by where the rows stand.
    scores = np.round(queries.astype(np.float64) @ corpus.astype(np.float64).T, 12)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, order, axis=1), order


def whole_numbers(rows, seed):
    """Products of these are exact in float32, and many are equal."""
    x = np.random.default_rng(seed).integers(-2, 3, (rows, 6)).astype(np.float32)
    x[:, 0] = 1  # no row of zeros
    return x


@pytest.fixture
def small_tiles(monkeypatch):
    """So that a small problem has many tiles, groups and blocks."""
    monkeypatch.setattr(tiles, "TILE", 32)
    monkeypatch.setattr(tiles, "STEP", 16)
    monkeypatch.setattr(tiles, "GROUP", 4)


@pytest.mark.parametrize(("devices", "k"), [(1, 1), (1, 4), (8, 4), (3, 70)])
def test_equals_a_stable_sort_whatever_the_devices_and_blocks(small_tiles, monkeypatch, devices, k):
    some = jax.local_devices()[:devices]
    monkeypatch.setattr(jax, "local_devices", lambda: some)
    x, y = whole_numbers(70, seed=0), whole_numbers(201, seed=1)
    wanted = [*sorted_top_k(x, y, k), *sorted_top_k(y, x, k)]
    for block in (32, 1000):
        for found, right in zip(two_way(x, y, k, block=block), wanted, strict=True):
            np.testing.assert_array_equal(found, right)
    for one, other in ((x, y), (y, x)):
        for found, right in zip(top_k(one, other, k, block=32), sorted_top_k(one, other, k), strict=True):
            np.testing.assert_array_equal(found, right)


def test_real_tiles_against_two_searches():
    draw = np.random.default_rng(2)
    x, y = (normalize(draw.normal(size=(rows, 24))) for rows in (2500, 700))
    y[600:] = y[:100]  # equal rows tie
    found = two_way(x, y, 4)
    for scores, ids, one, other in ((found[0], found[1], x, y), (found[2], found[3], y, x)):
        right_scores, right = sorted_top_k(one, other, 4)
        np.testing.assert_allclose(scores, right_scores, atol=1e-6)
        np.testing.assert_array_equal(ids, right)


def test_an_interrupted_search_goes_on(small_tiles, monkeypatch, tmp_path):
    x, y = whole_numbers(70, seed=0), whole_numbers(900, seed=1)
    whole = two_way(x, y, 4)
    monkeypatch.setattr(neighbours, "SECONDS_BETWEEN_SAVES", 0)
    options = {"block": 32, "saved": tmp_path / "kept.npz", "identity": {"of": "this"}}
    search, offsets = neighbours._search_block, []

    def dies(x, y, k, offset, *rest):
        if offset in offsets or len(offsets) == 2:
            raise KeyboardInterrupt
        offsets.append(offset)
        search(x, y, k, offset, *rest)

    monkeypatch.setattr(neighbours, "_search_block", dies)
    with pytest.raises(KeyboardInterrupt):
        two_way(x, y, 4, **options)
    assert len(offsets) == 2
    with pytest.raises(ValueError, match="kept.npz is of an interrupted run that differs in: of;"):
        two_way(x, y, 4, **{**options, "identity": {"of": "that"}})
    some = jax.local_devices()[:2]
    monkeypatch.setattr(jax, "local_devices", lambda: some)  # on another machine
    monkeypatch.setattr(neighbours, "_search_block", search)
    for found, right in zip(two_way(x, y, 4, **options), whole, strict=True):
        np.testing.assert_array_equal(found, right)
    monkeypatch.setattr(neighbours, "_search_block", None)  # all is there
    for found, right in zip(two_way(x, y, 4, **options), whole, strict=True):
        np.testing.assert_array_equal(found, right)
    (tmp_path / "kept.npz").write_bytes((tmp_path / "kept.npz").read_bytes()[:-100])
    with pytest.raises(ValueError, match="kept.npz is damaged .*remove it"):
        two_way(x, y, 4, **options)


@pytest.mark.parametrize("bad", [0.0, np.nan, np.inf])
def test_names_the_row_that_is_no_vector(bad):
    x = np.ones((40, 3), np.float32)
    broken = x.copy()
    broken[[21, 37]] = bad
    with pytest.raises(ValueError, match="row 21 of y is no usable vector"):
        two_way(x, broken, 2)
    with pytest.raises(ValueError, match="row 21 of x is no usable vector"):
        two_way(broken, x, 2)


def test_refuses_what_cannot_be_searched():
    x = np.ones((3, 2), np.float32)
    for one, other, name in ((x, x[:2], "y"), (x[:2], x, "x")):
        with pytest.raises(ValueError, match=f"k is 3 but {name} has 2 rows"):
            two_way(one, other, 3)
    with pytest.raises(ValueError, match=r"x \(3, 2\) and y \(3, 5\); wanted .* same D"):
        two_way(x, np.ones((3, 5), np.float32), 1)
    with pytest.raises(ValueError, match="block is 0"):
        two_way(x, x, 1, block=0)
    with pytest.raises(ValueError, match="row 0 of x has a score beyond float32"):
        two_way(np.full((2, 2), 3e38, np.float32), np.full((3, 2), 3e38, np.float32), 1)
