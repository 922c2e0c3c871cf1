"""Noise on whole words: what must hold of every sentence, and how often what happens."""

import collections

import numpy as np
import pytest

from vmsst_jax.data.noise import Noise, disturb

MASK = 99
# Five words of 1, 2, 1, 3 and 1 pieces; a piece says its word and its place in it.
PIECES = np.array([10, 20, 21, 30, 40, 41, 42, 50], np.int32)
STARTS = np.array([1, 1, 0, 1, 1, 0, 0, 1], bool)
WORDS = {1: (10,), 2: (20, 21), 3: (30,), 4: (40, 41, 42), 5: (50,)}


def words_of(row):
    """The words of a row without blanks, each whole, or an error."""
    words, rest = [], row.tolist()
    while rest:
        word = rest[0] // 10
        assert tuple(rest[: len(WORDS[word])]) == WORDS[word]
        words.append(word)
        rest = rest[len(WORDS[word]) :]
    return words


def draw(count, noise, seed=0):
    uniform = np.random.default_rng(seed).random((count, 3, 9))
    return [disturb(PIECES, STARTS, MASK, noise, u) for u in uniform]


def test_no_noise_changes_nothing():
    for row in draw(20, Noise(0.0, 0.0, 0.0)):
        np.testing.assert_array_equal(row, PIECES)


@pytest.mark.parametrize("k", [1.0, 3.0])
def test_words_stay_whole_and_move_less_than_k_places(k):
    moves, orders = collections.Counter(), set()
    for row in draw(2000, Noise(k, 0.0, 0.0)):
        words = words_of(row)
        assert sorted(words) == [1, 2, 3, 4, 5]
        orders.add(tuple(words))
        moves.update(abs(words.index(w) + 1 - w) for w in words)
    assert max(moves) < k and (len(orders) > 10) == (k == 3.0)


def test_sorting_by_place_plus_a_number_below_k():
    uniform = np.random.default_rng(1).random((200, 3, 5))
    for u in uniform:
        wanted = sorted(range(5), key=lambda i, u=u: i + 3 * u[0, i])
        assert words_of(disturb(PIECES, STARTS, MASK, Noise(3.0, 0.0, 0.0), u)) == [i + 1 for i in wanted]


def test_words_vanish_but_never_all_of_them():
    rows = draw(4000, Noise(0.0, 0.1, 0.0))
    assert np.mean([len(words_of(row)) for row in rows]) == pytest.approx(4.5, abs=0.05)
    counts = collections.Counter(words_of(row)[0] for row in draw(4000, Noise(0.0, 0.999, 0.0)))
    assert sum(counts.values()) == 4000 and min(counts.values()) > 600  # the one that stays is any


def test_blanks_take_all_pieces_of_a_word():
    rows = draw(4000, Noise(0.0, 0.0, 0.2))
    blanked = np.array([row == MASK for row in rows])
    np.testing.assert_allclose(blanked.mean(axis=0), 0.2, atol=0.03)
    for a, b in ((1, 2), (4, 5), (5, 6)):
        assert (blanked[:, a] == blanked[:, b]).all()
    assert (blanked[:, 0] != blanked[:, 1]).any()
    for row in rows[:50]:
        np.testing.assert_array_equal(row[row != MASK], PIECES[row != MASK])


def test_an_empty_sentence_and_one_word():
    nothing = np.zeros(0, np.int32)
    assert len(disturb(nothing, nothing.astype(bool), MASK, Noise(), np.zeros((3, 0)))) == 0
    one = disturb(PIECES[1:3], STARTS[1:3], MASK, Noise(3.0, 0.9, 0.0), np.zeros((3, 2)))
    assert one.tolist() == [20, 21]


@pytest.mark.parametrize("options", [{"shuffle": -1.0}, {"drop": 1.0}, {"blank": 1.5}])
def test_settings_that_mean_nothing(options):
    with pytest.raises(ValueError, match=f"Noise.{next(iter(options))} is"):
        Noise(**options)
