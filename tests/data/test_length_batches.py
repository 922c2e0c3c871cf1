"""Batches of like length: every row once an epoch, the widths, what fills up, exact positions, any number of shards."""

import collections
import json

import numpy as np
import pytest

from vmsst_jax.data.length_batches import RowStream, Sizes, padded, plan_widths

PAD = 7


class Numbers:
    """Row i is the number 100 + i, as often as it is long."""

    dropped = 3

    def __init__(self, lengths):
        self.lengths = np.array(lengths)

    def batch(self, index, width, number):
        lengths = self.lengths[index]
        tokens = padded(np.repeat(100 + index, lengths).astype(np.int32), lengths, width, PAD)
        return {"tokens": tokens, "number": np.full(len(index), number, np.int32)}

    def ids(self, index):
        return 1000 + index

    def facts(self):
        return ["numbers"]

    def checksums(self):
        return {"numbers": "abc"}


LENGTHS = [3, 9, 4, 4, 8, 5, 2, 12, 11, 6, 4, 1, 10, 3, 7, 2, 5]


def stream(lengths=LENGTHS, sizes=Sizes(rows=4), widths=(4, 8, 12), **options):
    return RowStream(Numbers(lengths), widths, sizes, PAD, **{"seed": 0, "label": 5, **options})


def epoch(s):
    return [s.next() for _ in range(s.steps)]


def rows_of(batches):
    rows = [row for batch, _ in batches for row in batch["tokens"].reshape(-1, batch["tokens"].shape[-1])]
    return [row[row != PAD].tolist() for row in rows]


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("sizes", [Sizes(rows=4), Sizes(tokens=24)])
def test_an_epoch_holds_every_row_once_in_the_narrowest_width(sizes, accumulate):
    s = stream(sizes=sizes, accumulate=accumulate)
    for _ in range(2):
        batches = epoch(s)
        found = [row for row in rows_of(batches) if row]
        assert sorted(found) == sorted([100 + i] * n for i, n in enumerate(LENGTHS))
        for batch, info in batches:
            shape = batch["tokens"].shape
            assert shape[:-1] == ((2,) if accumulate == 2 else ()) + (sizes.of(shape[-1]),)
            real = [n for n in (batch["tokens"] != PAD).sum(axis=-1).ravel() if n]
            assert min(real) > {4: 0, 8: 4, 12: 8}[shape[-1]]
            assert info["real_tokens"] == sum(real) and info["padded_tokens"] == batch["tokens"].size
            assert info["pair_id"].shape == shape[:-1]
            ids = info["pair_id"].ravel()[(batch["tokens"] != PAD).any(axis=-1).ravel()]
            assert [row[0] + 900 for row in rows_of([(batch, info)]) if row] == ids.tolist()


def test_orders_differ_by_epoch_seed_and_label():
    s = stream()
    first, second = rows_of(epoch(s)), rows_of(epoch(s))
    others = [first, second, rows_of(epoch(stream(seed=1))), rows_of(epoch(stream(label=6)))]
    assert len({json.dumps(order) for order in others}) == 4
    assert rows_of(epoch(stream())) == first
    # Batches of all widths are mixed.
    firsts = collections.Counter(stream(seed=seed).next()[0]["tokens"].shape[1] for seed in range(60))
    assert all(firsts[width] > 8 for width in (4, 8, 12))


def test_a_restored_stream_goes_on_alike():
    s = stream()
    for _ in range(s.steps + 2):
        s.next()
    saved = json.loads(json.dumps(s.state()))
    wanted = [s.next() for _ in range(9)]
    other = stream()
    other.restore(saved)
    for (batch, info), (there, info_there) in zip(wanted, (other.next() for _ in range(9)), strict=True):
        for name in batch:
            np.testing.assert_array_equal(batch[name], there[name])
        assert info["real_tokens"] == info_there["real_tokens"]
    with pytest.raises(ValueError, match="the saved position belongs to .* rows of each width"):
        stream(LENGTHS[1:]).restore(saved)


def test_shards():
    assert [Sizes(tokens=100).of(width) for width in (5, 12, 24, 60, 200)] == [20, 8, 4, 1, 1]
    assert [Sizes(tokens=100).padded(width, 3) for width in (5, 12, 24, 60, 200)] == [21, 9, 6, 3, 3]
    with pytest.raises(ValueError, match="batch_size is 6, which does not divide over 4 .* work: 4 or 8"):
        Sizes(rows=6).padded(5, 4)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_any_number_of_shards_takes_the_same_rows(accumulate):
    """Also after a restart on another number: the rows of the batches to come are those of the run that went on."""
    options = {"sizes": Sizes(tokens=26), "accumulate": accumulate}
    alone, spread = stream(**options), stream(**options, shards=4)
    for _ in range(3):
        alone.next()
        spread.next()
    other = stream(**options, shards=3)
    other.restore(json.loads(json.dumps(spread.state())))
    for _ in range(2 * alone.steps):
        wanted, there = (s.next() for s in (alone, other))
        size = wanted[0]["tokens"].shape[-2]
        for name, array in there[0].items():
            kept = array[:, :size] if accumulate > 1 else array[:size]
            np.testing.assert_array_equal(kept, wanted[0][name])
        behind = there[0]["tokens"][..., size:, :]
        assert there[0]["tokens"].shape[-2] % 3 == 0 and (behind == PAD).all() and behind.shape[-2] < 3
        assert there[1]["real_tokens"] == wanted[1]["real_tokens"]
        assert there[1]["pair_id"].shape == there[0]["tokens"].shape[:-1]


def test_planned_widths_share_out_the_rows():
    lengths = np.random.default_rng(0).integers(3, 60, 4000)
    widths = plan_widths(lengths, 4)
    shares = np.bincount(np.searchsorted(widths, lengths), minlength=4) / 4000
    assert len(widths) == 4 and all(w % 4 == 0 for w in widths) and widths[-1] == 60
    assert np.abs(shares - 0.25).max() < 0.06
    assert plan_widths(np.array([5, 5, 5]), 4) == (8,)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: stream([]), "nothing to train on: numbers, 3 left out as too long"),
        (lambda: stream([13]), "a row has 13 tokens, and the widths are"),
        (lambda: Sizes(), "batch_size is None and batch_tokens None; wanted one"),
        (lambda: Sizes(8, 100), "batch_size is 8 and batch_tokens 100; wanted one"),
        (lambda: Sizes(tokens=0), "batch_tokens is 0; wanted a whole number"),
    ],
)
def test_what_can_not_be(make, message):
    with pytest.raises(ValueError, match=message):
        make()
