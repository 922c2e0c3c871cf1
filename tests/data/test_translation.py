"""Batches for translation models: rows against rows made by hand; every sentence and pair of its language, no other."""

import numpy as np
import pytest

from vmsst_jax.data.cache import TokenCache
from vmsst_jax.data.document_cache import Cleaning, DocumentCache
from vmsst_jax.data.document_pool import Corpus
from vmsst_jax.data.documents import DocumentSet
from vmsst_jax.data.languages import Languages
from vmsst_jax.data.noise import Noise, disturb
from vmsst_jax.data.shuffle import draws
from vmsst_jax.data.tokenizer_xlm import SPECIALS, XlmTokenizer
from vmsst_jax.data.tokenizer_xlmr import XlmrTokenizer
from vmsst_jax.data.translation import (
    NoisyText,
    RoundTripText,
    SentenceRows,
    Sentences,
    TranslationRows,
    TranslationText,
)

LANGUAGES = Languages(["de", "en", "fr"])
EOS, PAD = 2, 1
TEXT = {
    "en": ["the red house", "a tree", "the river and the town and the ship and the bell and the bird", "a red bird"],
    "de": ["das rote haus", "ein baum", "ein roter vogel"],
}


@pytest.fixture(scope="module")
def tokenizer():
    lines = [line for lines in TEXT.values() for line in lines]
    return XlmrTokenizer.train([*lines, *(f"{line} again" for line in lines)], 40, character_coverage=1.0)


def documents(languages):
    number = 0
    for code in languages:
        for line in TEXT[code]:
            number += 1
            yield {"text": f"{line}\n{line} again", "lang": code, "document_id": 100 * number}


@pytest.fixture(scope="module")
def corpus(tokenizer):
    """Two caches that share a language."""
    parts = (list(documents(["en", "de"])), list(documents(["de"])))
    return Corpus([DocumentCache.build(p, tokenizer, LANGUAGES, Cleaning(1, None, 1)) for p in parts], LANGUAGES)


def sentences_of(code):
    return [text for line in TEXT[code] for text in (line, f"{line} again")]


def row(tokenizer, text, width):
    pieces = tokenizer.pieces([text])[0]
    return [EOS, *pieces, EOS] + [PAD] * (width - len(pieces) - 2)


def test_sentences_are_those_of_the_language(tokenizer, corpus):
    for code, times in (("en", 1), ("de", 2)):
        every = sentences_of(code) * times
        size = {text: len(tokenizer.pieces([text])[0]) for text in every}
        found = Sentences(corpus, LANGUAGES.id(code), max(size.values()) - 1, code)
        short = [text for text in every if size[text] < max(size.values())]
        assert found.dropped == len(every) - len(short) > 0
        order = np.random.default_rng(0).permutation(len(short))
        tokens, lengths = found.pieces(order)
        texts = [tokenizer.decode(part) for part in np.split(tokens, np.cumsum(lengths))[:-1]]
        assert texts == [short[i] for i in order]
        assert lengths.tolist() == found.lengths[order].tolist()
        lines = [text.removesuffix(" again") for text in texts]
        same_line = np.equal.outer(lines, lines)
        ids = found.ids(order)
        assert not (np.equal.outer(ids, ids) & ~same_line).any() and len(set(ids.tolist())) >= len(TEXT[code]) - 1


def test_noisy_and_round_trip_batches(tokenizer, corpus):
    lang, other = LANGUAGES.id("de"), LANGUAGES.id("en")
    sentences = Sentences(corpus, lang, 40, "de")
    index, width = np.array([3, 0, 5]), 40
    targets = [row(tokenizer, sentences_of("de")[i], width) for i in index]
    plain = SentenceRows(sentences, tokenizer, lang, other, 0, None).batch(index, width, 4)
    assert plain["target"].tolist() == targets and set(plain) == {"target", "target_lang", "source_lang"}
    assert plain["target_lang"].tolist() == [lang] * 3 and plain["source_lang"].tolist() == [other] * 3

    rows = SentenceRows(sentences, tokenizer, lang, lang, 0, Noise())
    batch = rows.batch(index, width, 4)
    assert batch["target"].tolist() == targets and batch["source_lang"].tolist() == [lang] * 3
    pieces = [np.array(tokenizer.pieces([sentences_of("de")[i]])[0], np.int32) for i in index]
    uniform, start = draws(0, 4, 3 * sum(map(len, pieces)), kind=5)[0].reshape(3, -1), 0
    for source, p in zip(batch["source"], pieces, strict=True):
        noisy = disturb(p, tokenizer.word_starts(p), tokenizer.mask_id, Noise(), uniform[:, start : start + len(p)])
        assert source.tolist() == [EOS, *noisy, EOS] + [PAD] * (width - len(noisy) - 2)
        start += len(p)
    again, later = rows.batch(index, width, 4), rows.batch(index, width, 5)
    np.testing.assert_array_equal(batch["source"], again["source"])
    assert (batch["source"] != later["source"]).any()


def test_round_trips_through_a_languages_own_pieces(tokenizer, corpus, monkeypatch):
    monkeypatch.setattr(DocumentSet, "open", lambda self, *args: corpus)
    for own in (False, True):
        data = RoundTripText("t", "de", batch_size=3, widths=(40,), through="en", own_pieces=own)
        stream = data.open(tokenizer, LANGUAGES, 0)
        batch, _ = stream.next()
        assert ("writable" in batch) == own
    wanted = {EOS} | {piece for text in sentences_of("en") for piece in tokenizer.pieces([text])[0]}
    assert [set(np.flatnonzero(row).tolist()) for row in batch["writable"]] == [wanted] * 3
    assert batch["writable"].shape == (3, tokenizer.vocab_size) and 3 < len(wanted) < tokenizer.vocab_size - 5
    assert f"written of {len(wanted):,} pieces" in stream.facts()[0]
    with pytest.raises(ValueError, match="there are no sentences in fr, so translations into it have no pieces"):
        RoundTripText("t", "de", batch_size=3, through="fr", own_pieces=True).open(tokenizer, LANGUAGES, 0)


def test_pairs_in_one_direction_whichever_way_they_are_stored(tokenizer):
    pairs = [("en", "de", 0, 0), ("de", "en", 1, 1), ("en", "fr", 0, 0), ("en", "de", 3, 2)]
    texts = {**TEXT, "fr": ["la maison"]}
    examples = [
        {"source": texts[a][i], "target": texts[b][j], "source_lang": a, "target_lang": b, "pair_id": n}
        for n, (a, b, i, j) in enumerate(pairs)
    ]
    caches = [TokenCache.build(e, tokenizer, LANGUAGES, 40) for e in (examples[:2], examples[2:])]
    rows = TranslationRows(caches, tokenizer, LANGUAGES.id("de"), LANGUAGES.id("en"), "de to en")
    assert rows.ids(np.arange(3)).tolist() == [0, 1, 3]
    batch = rows.batch(np.array([2, 0, 1]), 30, 0)
    for name, code, order in (("source", "de", (2, 0, 1)), ("target", "en", (3, 0, 1))):
        assert batch[name].tolist() == [row(tokenizer, TEXT[code][i], 30) for i in order]
        assert batch[f"{name}_lang"].tolist() == [LANGUAGES.id(code)] * 3
    sizes = {c: [2 + len(tokenizer.pieces([text])[0]) for text in TEXT[c]] for c in TEXT}
    assert rows.lengths.tolist() == [max(sizes["en"][i], sizes["de"][j]) for i, j in ((0, 0), (1, 1), (3, 2))]


def test_pairs_of_one_order_alone(tokenizer):
    """Of translations by a machine, those whose original is the target, or those whose original is the source."""
    pairs = [("en", "de", 0, 0), ("de", "en", 1, 1), ("en", "de", 3, 2)]
    examples = [
        {"source": TEXT[a][i], "target": TEXT[b][j], "source_lang": a, "target_lang": b, "pair_id": n}
        for n, (a, b, i, j) in enumerate(pairs)
    ]
    caches = [TokenCache.build(examples, tokenizer, LANGUAGES, 40)]
    de, en = LANGUAGES.id("de"), LANGUAGES.id("en")
    for source, target, order, ids, targets in (
        (de, en, "reversed", [0, 2], ["the red house", "a red bird"]),
        (de, en, "given", [1], ["a tree"]),
        (en, de, "reversed", [1], ["ein baum"]),
    ):
        rows = TranslationRows(caches, tokenizer, source, target, "one to another", order)
        assert rows.ids(np.arange(len(ids))).tolist() == ids == rows.ids(np.arange(len(rows.lengths))).tolist()
        batch = rows.batch(np.arange(len(ids)), 30, 0)
        assert batch["target"].tolist() == [row(tokenizer, text, 30) for text in targets]
        assert batch["source_lang"].tolist() == [source] * len(ids)
    forth = [TokenCache.build([examples[0]], tokenizer, LANGUAGES, 40)]
    with pytest.raises(ValueError, match="all 1 pairs from en to de stand the other way .*order is 'reversed'"):
        TranslationRows(forth, tokenizer, en, de, "en to de", "reversed")


def test_where_words_begin(tokenizer):
    ids = np.array(tokenizer.pieces(["the red house and the tree"])[0])
    words, starts = [], tokenizer.word_starts(ids)
    for start, end in zip(np.flatnonzero(starts), [*np.flatnonzero(starts)[1:], len(ids)], strict=True):
        words.append(tokenizer.decode(ids[start:end]))
    assert words == "the red house and the tree".split()

    pieces = [*SPECIALS, "a", "b", "a</w>", "b</w>", "ab", "ab</w>"]
    xlm = XlmTokenizer(pieces, [("a", "b"), ("a", "b</w>")])
    ids = np.array(xlm.pieces(["ab b aba"])[0])
    assert [pieces[i] for i in ids] == ["ab</w>", "b</w>", "ab", "a</w>"]
    assert xlm.word_starts(ids).tolist() == [True, True, True, False]
    assert xlm.word_starts(ids[:0]).tolist() == []


def test_a_tokenizer_without_words_is_refused(corpus):
    class Bare:
        prefix_ids, suffix_ids, pad_id = (), (2,), 1

    with pytest.raises(ValueError, match="noise moves whole words, and a tokenizer of the class Bare"):
        SentenceRows(Sentences(corpus, 0, 40, "de"), Bare(), 0, 0, 0, Noise())
    with pytest.raises(ValueError, match="puts 0 tokens before a sentence"):
        TranslationRows([], Bare(), 0, 1, "de to en")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NoisyText("t", "en"), "batch_size is None and batch_tokens None"),
        (lambda: NoisyText("t", "", batch_size=3), "NoisyText.language is ''"),
        (lambda: NoisyText("t", "en", batch_size=3, widths=(2,)), "NoisyText.widths is 2"),
        (
            lambda: TranslationText("t", batch_size=3, order="back"),
            "TranslationText.order is 'back'; use one of 'both', ",
        ),
        (lambda: RoundTripText("t", "en", batch_size=3, through="xx").check(LANGUAGES), "unknown language 'xx'"),
        (
            lambda: TranslationText("t", batch_size=3, source="en", target="yy").check(LANGUAGES),
            "unknown language 'yy'",
        ),
    ],
)
def test_settings_that_mean_nothing(make, message, monkeypatch):
    monkeypatch.setattr("vmsst_jax.data.documents.DocumentSet.check", lambda self, languages: None)
    monkeypatch.setattr("vmsst_jax.data.parallel.ParallelText.check", lambda self, *args: None)
    with pytest.raises(ValueError, match=message):
        make()


def test_shapes_are_the_longest_batch():
    assert NoisyText("t", "en", batch_tokens=1000, widths=(20, 50)).shapes(2) == {
        **dict.fromkeys(("source", "target"), (20, 50)),
        **dict.fromkeys(("source_lang", "target_lang"), (20,)),
    }
    assert RoundTripText("t", "en", batch_size=8).shapes(1, 2)["target"] == (2, 8, 102)
    assert TranslationText("t", batch_size=8).shapes()["source"] == (8, 102)
