"""Options from the command line: single values and comma lists where a sequence is wanted, errors for other types."""

import os
from collections.abc import Sequence

import pytest

from vmsst_jax.benchmarks import suite
from vmsst_jax.benchmarks.option_values import fitted


@pytest.mark.parametrize(
    ("value", "wanted", "found"),
    [
        ("swh,tam", Sequence[str] | None, ["swh", "tam"]),
        ("swh", Sequence[str] | None, ["swh"]),
        (["a", "b"], Sequence[str], ["a", "b"]),
        (2017, Sequence[int] | None, [2017]),
        ((2016, 2017), Sequence[int] | None, (2016, 2017)),
        (None, Sequence[int] | None, None),
        ("de,tr", str | Sequence[str], "de,tr"),
        ((38, 48), tuple[int, int] | None, (38, 48)),
        (3, float, 3),
        (False, bool | None, False),
        ("x", str | os.PathLike | None, "x"),
    ],
)
def test_values_that_fit(value, wanted, found):
    assert fitted("b.x", value, wanted) == found


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("many", int),
        (2.5, int),
        (True, int),
        ("2017,x", Sequence[int] | None),
        ([1], Sequence[str]),
        (5, str),
        (1, bool),
        (38, tuple[int, int] | None),
        ((1, 2, 3), tuple[int, int]),
    ],
)
def test_values_that_do_not(value, wanted):
    with pytest.raises(ValueError, match=r"the option b.x is .*; wanted"):
        fitted("b.x", value, wanted)


def test_shared_out_to_benchmarks():
    given = [("tatoeba.languages", "swh,tam"), ("years", 2017)]
    options = suite.share_out(["tatoeba", "sts"], None, given)
    assert options == {"tatoeba": {"languages": ["swh", "tam"]}, "sts": {"years": [2017]}}
    with pytest.raises(ValueError, match="the option xor_retrieve.depth is 'many'; wanted a whole number"):
        suite.share_out(["xor_retrieve"], None, [("depth", "many")])
