"""Search for a sentence: beams against all sentences that there are, on a made-up language of a few words."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vmsst_jax.models import generation
from vmsst_jax.models.generation import Decoding, longest, write

PAD, EOS, VOCAB, LIMIT = 2, 1, 6, 5  # 0 and padding are never written: three words and the end


def language(seed, scale=2.0):
    """Logits of the next token by the last two, [V, V, V]: a Markov chain whose state the cache has to carry."""
    return scale * np.random.default_rng(seed).normal(size=(VOCAB, VOCAB, VOCAB))


def step_of(logits, rows):
    """(step, cache): hypotheses of row r follow language r of ``logits`` [R, V, V, V]."""

    def step(tokens, place, cache):
        out = jnp.asarray(logits)[jnp.arange(rows)[:, None], cache, tokens]
        return out, tokens

    return step


def search(logits, limits, size=LIMIT, writable=None, pieces=None, **options):
    options = Decoding(**options)
    limits = jnp.array(limits)
    cache = jnp.full((len(limits), options.beams), EOS, jnp.int32)

    @jax.jit
    def run(key):
        step = step_of(logits, len(limits))
        keys = jax.random.split(key, len(limits))
        allowed = generation.log_likelihoods(limits, EOS, (0, PAD), pieces, writable)
        return write(step, cache, limits, size, EOS, PAD, allowed, options, keys)

    found, scores = run(jax.random.key(0))
    return [[int(t) for t in row] for row in found], np.asarray(scores)


def log_p(logits, sentence):
    """Of a whole sentence, its end at the limit not forced."""
    total, before, last = 0.0, EOS, EOS
    for token in sentence[1:]:
        row = logits[before, last].copy()
        row[[0, PAD]] = -np.inf
        total += row[token] - np.log(np.exp(row).sum())
        before, last = last, token
    return total


def exhaustive(logits, limit, penalty):
    """(score, sentence) of the best of all sentences."""
    words = [t for t in range(VOCAB) if t not in (0, PAD, EOS)]
    every = [[EOS, *w, EOS] for n in range(limit - 1) for w in itertools.product(words, repeat=n)]
    return max((log_p(logits, s) / (len(s) - 1) ** penalty, s) for s in every)


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, 2.0])
def test_a_wide_beam_finds_the_best_of_all_sentences(penalty):
    languages = np.stack([language(seed) for seed in range(12)])
    limits = [5, 5, 4, 3, 2, 5] * 2
    found, scores = search(languages, limits, beams=40, length_penalty=penalty)
    lengths = set()
    for i, limit in enumerate(limits):
        best, sentence = exhaustive(languages[i], limit, penalty)
        assert found[i] == sentence + [PAD] * (LIMIT - len(sentence))
        assert scores[i] == pytest.approx(best, rel=1e-5)
        lengths.add(len(sentence))
    assert len(lengths) > 1


def test_one_beam_is_greedy():
    """By sums: with a length penalty a beam of one may give up a finished sentence for a longer one."""
    languages = np.stack([language(seed, 3.0) for seed in range(30)])
    limits = [9, 7, 5, 4, 2] * 6
    found, scores = search(languages, limits, size=9, length_penalty=0.0)
    for i, limit in enumerate(limits):
        sentence = [EOS]
        before = EOS
        while len(sentence) < limit:
            row = languages[i][before, sentence[-1]].copy()
            row[[0, PAD]] = -np.inf
            before = sentence[-1]
            sentence.append(EOS if len(sentence) == limit - 1 else int(row.argmax()))
            if sentence[-1] == EOS:
                break
        assert found[i] == sentence + [PAD] * (9 - len(sentence))
        assert scores[i] == pytest.approx(log_p(languages[i], sentence), rel=1e-4)
    cache = jnp.full((30, 1), EOS, jnp.int32)
    allowed = generation.log_likelihoods(jnp.array(limits), EOS, (0, PAD))
    options = (9, EOS, PAD, allowed, Decoding(length_penalty=0.0))
    rows, _ = jax.jit(lambda c: generation.beam(step_of(languages, 30), c, jnp.array(limits), *options))(cache)
    assert rows.tolist() == found


@pytest.mark.parametrize("options", [{}, {"beams": 3}, {"sample": True}])
def test_every_row_has_its_own_words(options):
    """As if the others were infinitely unlikely."""
    languages, limits = np.stack([language(seed) for seed in range(12)]), [9] * 12
    writable = np.ones((12, VOCAB), bool)
    writable[np.arange(12), [3, 4, 5] * 4] = False
    found, scores = search(languages, limits, 9, jnp.array(writable), **options)
    never = np.where(writable[:, None, None], languages, -np.inf)
    wanted, wanted_scores = search(never, limits, 9, **options)
    assert found == wanted != search(languages, limits, 9, **options)[0]
    np.testing.assert_allclose(scores, wanted_scores, rtol=1e-6)
    assert not any(set(row) & {word} for row, word in zip(found, [3, 4, 5] * 4, strict=True))


@pytest.mark.parametrize("options", [{}, {"beams": 3}])
def test_ids_beyond_the_vocabulary_are_never_written(options):
    """As if the logits ended there, however likely those ids are, and with words of each row's own."""
    languages, limits = np.stack([language(seed) for seed in range(12)]), [9] * 12
    spare = np.full((12, VOCAB, VOCAB, 3), 50.0)
    wider = np.pad(np.concatenate([languages, spare], -1), ((0, 0), (0, 3), (0, 3), (0, 0)))
    writable = np.ones((12, VOCAB), bool)
    writable[np.arange(12), [3, 4, 5] * 4] = False
    for own in (None, jnp.array(writable)):
        found, scores = search(wider, limits, 9, own, VOCAB, **options)
        wanted, wanted_scores = search(languages, limits, 9, own, **options)
        assert found == wanted
        np.testing.assert_allclose(scores, wanted_scores, rtol=1e-6)
    drawn, _ = search(wider, limits, 9, pieces=VOCAB, sample=True, temperature=3.0)
    assert {t for row in drawn for t in row} <= set(range(VOCAB)) - {0}


def test_more_beams_score_better_and_length_penalties_lengthen():
    languages = np.stack([language(seed) for seed in range(40)])
    limits = [12] * 40
    narrow, wide = (search(languages, limits, size=12, beams=k)[1] for k in (1, 6))
    assert wide.mean() > narrow.mean()
    counts = []
    for penalty in (0.0, 1.0, 2.0):
        rows, _ = search(languages, limits, size=12, beams=6, length_penalty=penalty)
        counts.append(sum(t != PAD for row in rows for t in row))
    assert counts[0] < counts[1] <= counts[2]


def test_empty_rows_and_the_limit():
    never_ends = np.zeros((3, VOCAB, VOCAB, VOCAB))
    never_ends[..., EOS] = -50.0
    for options in ({}, {"beams": 3}, {"sample": True}):
        rows, scores = search(never_ends, [0, 4, 7], size=7, **options)
        assert rows[0] == [EOS] + [PAD] * 6 and scores[0] == 0
        assert (rows[1][3], rows[1][4:]) == (EOS, [PAD] * 3) and rows[2][6] == EOS
        assert EOS not in rows[2][1:6] and PAD not in rows[2]


def test_it_stops_when_all_are_finished():
    """As many steps as the longest sentence has, not as many as there is room for."""
    logits = np.full((2, VOCAB, VOCAB, VOCAB), -30.0)
    logits[0, ..., EOS] = 0
    logits[1, EOS, EOS, 3] = logits[1, EOS, 3, 3] = logits[1, 3, 3, EOS] = 0
    limits = jnp.array([90, 90])
    for options in (Decoding(), Decoding(beams=2)):
        cache, places = jnp.full((2, options.beams), EOS, jnp.int32), []

        def step(tokens, place, cache, seen=places.append):
            jax.debug.callback(lambda place: seen(int(place)), place)
            return step_of(logits, 2)(tokens, place, cache)

        allowed = generation.log_likelihoods(limits, EOS, (0, PAD))
        rows, _ = jax.jit(lambda c, o=options, s=step, a=allowed: write(s, c, limits, 90, EOS, PAD, a, o))(cache)
        jax.effects_barrier()
        assert rows[0, :2].tolist() == [EOS, EOS] and rows[1, :4].tolist() == [EOS, 3, 3, EOS]
        assert len(places) == 3


def test_limits_are_xlms():
    assert [longest(n) for n in (2, 3, 10, 33, 100)] == [int(1.3 * n + 5) for n in (2, 3, 10, 33, 100)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beams": 0}, "Decoding.beams is 0"),
        ({"length_penalty": -1.0}, "Decoding.length_penalty is -1.0"),
        ({"temperature": 0.0}, "Decoding.temperature is 0.0"),
        ({"beams": 2, "sample": True}, "Decoding.sample draws one hypothesis, and Decoding.beams is 2"),
    ],
)
def test_settings_that_mean_nothing(options, message):
    with pytest.raises(ValueError, match=message):
        Decoding(**options)
