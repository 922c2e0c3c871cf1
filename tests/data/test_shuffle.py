import collections

import numpy as np
import pytest

from vmsst_jax.data.shuffle import Permutation, draws


@pytest.mark.parametrize("size", [1, 2, 3, 16, 17, 1000, 65537])
def test_every_number_comes_exactly_once(size):
    order = Permutation(size, seed=5, cache=0, epoch=0)(np.arange(size))
    assert np.sort(order).tolist() == list(range(size))


def test_a_part_is_the_same_as_in_the_whole():
    whole = Permutation(1000, 5, 0, 3)(np.arange(1000))
    assert Permutation(1000, 5, 0, 3)(np.array([7, 998, 13])).tolist() == whole[[7, 998, 13]].tolist()


def test_seed_cache_and_epoch_each_give_another_order():
    orders = [Permutation(1000, *key)(np.arange(1000)) for key in ((5, 0, 0), (6, 0, 0), (5, 1, 0), (5, 0, 1))]
    for i, a in enumerate(orders):
        for b in orders[:i]:
            assert (a == b).mean() < 0.02


def test_all_orders_of_four_are_about_equally_frequent():
    counts = collections.Counter(tuple(Permutation(4, 7, 0, e)(np.arange(4)).tolist()) for e in range(4800))
    chi2 = sum((n - 200) ** 2 / 200 for n in counts.values())
    assert len(counts) == 24 and chi2 < 49.7  # 99.9 % point at 23 degrees of freedom


def test_places_and_values_are_unrelated():
    order = Permutation(24000, 1, 0, 0)(np.arange(24000))
    cells = np.histogram2d(np.arange(24000), order, bins=20)[0]
    assert ((cells - 60) ** 2 / 60).sum() < 450  # 361 degrees of freedom: 99.9 % point
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.03


def test_draws_depend_on_their_place_only():
    uniform, coin = draws(3, 10, 4000)
    again = draws(3, 10, 4000)
    assert (uniform == again[0]).all() and (coin == again[1]).all()
    assert not (uniform == draws(3, 11, 4000)[0]).any()
    assert abs(uniform.mean() - 0.5) < 0.02 and abs(coin.mean() - 0.5) < 0.03
    assert abs(np.corrcoef(uniform, coin)[0, 1]) < 0.05
