"""Streams from documents: what every batch must be, the laws of the draws, and exact positions."""

import collections
import json

import numpy as np
import pytest
from scipy import stats

from vmsst_jax.data.batching import Share
from vmsst_jax.data.document_cache import Cleaning, DocumentCache
from vmsst_jax.data.document_pool import Corpus, LanguageSampler
from vmsst_jax.data.document_streams import BlockStream, PairStream
from vmsst_jax.data.languages import Languages

CODES = ("cs", "de", "el", "en")
SIZES = {"cs": 40, "de": 9, "en": 3}  # documents


class Numbers:
    """A tokenizer of numbers: one piece each, <s> 1, </s> 2, padding 0."""

    prefix_ids, suffix_ids, pad_id, vocab_size, sha256 = (1,), (2,), 0, 50_000, "numbers"

    def encode_flat(self, texts, max_length):
        rows = [[1, *map(int, text.split()), 2] for text in texts]
        assert max(map(len, rows)) <= max_length
        return np.array([t for row in rows for t in row], np.int32), np.array([len(r) for r in rows]), None


def number(document, sentence):
    return 100 + 20 * document + sentence


@pytest.fixture(scope="module")
def documents():
    """Documents of 2 to 11 sentences: a sentence is its own number, repeated 2 to 7 times."""
    rows, d = [], 0
    for code, count in SIZES.items():
        for _ in range(count):
            lines = (" ".join([str(number(d, s))] * (2 + (d + s) % 6)) for s in range(2 + d % 10))
            rows.append({"text": "\n".join(lines), "lang": code, "document_id": 10**12 + d})
            d += 1
    return rows


@pytest.fixture(scope="module")
def corpus(documents):
    """Two caches with languages in common."""
    parts = (documents[:30], documents[30:])
    caches = [DocumentCache.build(p, Numbers(), Languages(CODES), Cleaning(1, None)) for p in parts]
    return Corpus(caches, Languages(CODES))


def test_documents_of_equal_text_are_drawn_once(documents):
    """Twice in a cache, again in another, and in a language of their own, where they are others."""
    own = [d for d in documents if d["lang"] == "de"]
    other = [{**d, "lang": "el", "document_id": 5} for d in own[:2]]
    again = [{**d, "document_id": d["document_id"] + 10**6} for d in own]
    parts = (documents + again[3:5] + other, again)
    caches = [DocumentCache.build(p, Numbers(), Languages(CODES), Cleaning(1, None)) for p in parts]
    found = Corpus(caches, Languages(CODES))
    expected = Corpus([DocumentCache.build([*documents, *other], Numbers(), Languages(CODES), Cleaning(1, None))],
                      Languages(CODES))  # fmt: skip
    assert found.repeated == len(own) + 2 and not expected.repeated
    for a, b in zip(found.pools, expected.pools, strict=True):
        assert (a.code, len(a), a.sentences, a.tokens) == (b.code, len(b), b.sentences, b.tokens)
        texts = [[c.text(int(d)).tolist() for d in p.ids(np.arange(len(p)))] for c, p in ((found, a), (expected, b))]
        assert texts[0] == texts[1]
    facts = " ".join(found.facts(found.pools))
    assert f"{len(own) + 2} documents have the text of another of their language and are not drawn" in facts


@pytest.fixture
def pairs(corpus):
    def make(**options):
        sizes = {"groups": 2, "pairs": 4, "max_length": 10, "window": 2, "exponent": 0.3, "seed": 0}
        return PairStream(corpus, Numbers(), **{**sizes, **options})

    return make


@pytest.fixture
def blocks(corpus):
    def make(**options):
        return BlockStream(corpus, Numbers(), **{"batch_size": 3, "length": 24, "exponent": 0.3, "seed": 0, **options})

    return make


def sentence(row):
    """The number that a row repeats, once its frame is checked."""
    length = int((row != 0).sum())
    assert row[0] == 1 and row[length - 1] == 2 and (row[length:] == 0).all()
    assert len(set(row[1 : length - 1].tolist())) == 1
    return int(row[1])


@pytest.mark.parametrize("accumulate", [1, 3])
def test_every_batch(pairs, documents, accumulate):
    stream = pairs(accumulate=accumulate)
    for _ in range(40):
        batch, info = stream.next()
        shape = (accumulate,) if accumulate > 1 else ()
        assert batch["centre"].shape == batch["context"].shape == (*shape, 2, 4, 10)
        assert batch["lang"].shape == (*shape, 2) and batch["document_id"].shape == (*shape, 2, 4)
        assert {array.dtype for array in batch.values()} == {np.dtype(np.int32)}
        assert info["padded_tokens"] == 2 * batch["centre"].size
        assert info["real_tokens"] == (batch["centre"] != 0).sum() + (batch["context"] != 0).sum()
        each = {k: v.reshape(accumulate, *v.shape[len(shape) :]) for k, v in batch.items()}
        for m in range(accumulate):
            ids = each["document_id"][m]
            assert len(set(ids.ravel().tolist())) == 8  # one pair per document
            for g in range(2):
                code = CODES[each["lang"][m, g]]
                for n in range(4):
                    d = int(ids[g, n])
                    assert documents[d]["lang"] == code  # a group is in one language
                    centre, context = (sentence(each[side][m, g, n]) - number(d, 0) for side in ("centre", "context"))
                    assert 0 <= centre < 2 + d % 10 and 0 <= context < 2 + d % 10
                    assert 1 <= abs(centre - context) <= 2
        assert (info["pair_id"] - 10**12 == batch["document_id"]).all()


def test_law_of_the_window(pairs, corpus):
    """Centre uniform in the document, context uniform in its window, for one document of 7 sentences and w = 3."""
    stream, size, window = pairs(window=3, groups=1, max_length=12, accumulate=50), 7, 3
    chosen = [d for d in range(40) if 2 + d % 10 == size]
    counts = collections.Counter()
    for _ in range(60):
        batch, _ = stream.next()
        for place in zip(*np.nonzero(np.isin(batch["document_id"], chosen)), strict=True):
            first = number(int(batch["document_id"][place]), 0)
            counts[sentence(batch["centre"][place]) - first, sentence(batch["context"][place]) - first] += 1
    law = {}
    for c in range(size):
        near = [p for p in range(size) if p != c and abs(p - c) <= window]
        law |= {(c, p): 1 / size / len(near) for p in near}
    assert set(counts) == set(law)
    total = sum(counts.values())
    assert total > 600
    assert stats.chisquare([counts[k] for k in law], [total * law[k] for k in law]).pvalue > 1e-3


@pytest.mark.parametrize("exponent", [0.0, 0.3, 1.0])
def test_law_of_languages(pairs, corpus, exponent):
    """One group a micro-batch: nothing limits how often a language is drawn. English has 3 documents, 4 are needed."""
    stream = pairs(groups=1, exponent=exponent, accumulate=50)
    drawn = np.concatenate([stream.next()[0]["lang"].ravel() for _ in range(20)])
    sizes = {p.code: p.sentences for p in corpus.pools}
    weights = np.array([sizes[code] for code in ("cs", "de")], float) ** exponent
    counts = [int((drawn == i).sum()) for i in (0, 1)]
    assert sum(counts) == len(drawn)
    assert stats.chisquare(counts, len(drawn) * weights / weights.sum()).pvalue > 1e-3


def test_a_small_language_is_drawn_as_often_as_it_has_documents(pairs):
    """German's 9 documents make two groups of 4; a micro-batch of 6 groups takes the others from Czech."""
    stream = pairs(groups=6, exponent=0.0)
    counts = collections.Counter()
    for _ in range(100):
        batch, _ = stream.next()
        counts[int((batch["lang"] == 1).sum())] += 1
        assert len(set(batch["document_id"].ravel().tolist())) == 24
    assert set(counts) == {0, 1, 2} or set(counts) == {1, 2}


def test_languages_used_up_leave_their_share_to_the_others():
    sampler = LanguageSampler([1, 1, 1], 1.0)
    assert sampler.draw(np.array([0.1, 0.1, 0.1, 0.9, 0.9]), np.array([1, 1, 3])).tolist() == [0, 1, 2, 2, 2]
    assert sampler.draw(np.array([0.9, 0.99, 0.4]), np.array([1, 1, 1])).tolist() == [2, 1, 0]
    assert sampler.draw(np.array([0.0, 0.34, 0.99])).tolist() == [0, 1, 2]


def test_an_epoch_takes_every_document_once(pairs):
    stream = pairs(groups=1, exponent=0.0)
    seen = collections.defaultdict(list)
    while len(seen[0]) < 80:
        batch, _ = stream.next()
        seen[int(batch["lang"][0])] += batch["document_id"].ravel().tolist()
    for epoch in (seen[0][:40], seen[0][40:80]):
        assert sorted(epoch) == list(range(40))
    assert seen[0][:40] != seen[0][40:80]


def test_what_a_micro_batch_can_t_hold(pairs):
    with pytest.raises(
        ValueError, match=r"1 group\(s\) x 41 pairs.*make up 0 such.*Largest: cs 40, de 9, en 3\. Lower"
    ):
        pairs(groups=1, pairs=41)
    with pytest.raises(ValueError, match=r"13 group\(s\) x 4 pairs.*make up 12 such"):
        pairs(groups=13)
    facts = "; ".join(pairs(groups=12, accumulate=2).facts())
    assert "96 pairs an update (2 micro-batches of 12 group(s) of 4 pairs)" in facts
    assert "52 documents of" in facts and "too small for a batch: en (3 documents)" in facts


def test_long_sentences_are_cut_and_counted(pairs):
    stream, cut = pairs(max_length=6), 0
    for _ in range(10):
        batch, info = stream.next()
        for ids, rows in ((batch["document_id"], batch[side]) for side in ("centre", "context")):
            for d, row in zip(ids.ravel().tolist(), rows.reshape(-1, 6), strict=True):
                full = 2 + (d + sentence(row) - number(d, 0)) % 6
                assert (row != 0).sum() == min(full + 2, 6)
                cut += full > 4
        assert info["truncated"] == cut
    with pytest.raises(ValueError, match="rows of 2 tokens have no room beside the 2 special ones: wanted 3"):
        pairs(max_length=2)


def same(a, b):
    return all((a[0][k] == b[0][k]).all() for k in a[0]) and (a[1]["pair_id"] == b[1]["pair_id"]).all()


@pytest.mark.parametrize("kind", ["pairs", "blocks"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_exact_positions(kind, accumulate, request):
    make = request.getfixturevalue(kind)
    straight = make(accumulate=accumulate)
    for _ in range(17):  # beyond the first epoch of every language
        straight.next()
    state = json.loads(json.dumps(straight.state()))
    after = [straight.next() for _ in range(8)]
    resumed = make(accumulate=accumulate)
    resumed.next()
    resumed.restore(state)
    for wanted in after:
        found = resumed.next()
        assert same(wanted, found) and wanted[1]["truncated"] == found[1]["truncated"]
    assert straight.state() == resumed.state()
    assert not same(make(seed=1).next(), make().next())


def test_a_position_of_another_corpus(pairs, documents):
    fewer = DocumentCache.build(documents[:-6], Numbers(), Languages(CODES), Cleaning(1, None))
    state = pairs().state()
    other = PairStream(
        Corpus([fewer], Languages(CODES)), Numbers(), groups=1, pairs=4, max_length=9, window=1, exponent=1, seed=0
    )
    with pytest.raises(ValueError, match="other documents .*: de 9 -> 6"):
        other.restore(state)


def test_blocks_are_the_documents_one_after_another(blocks, documents):
    """Put together, the blocks of a language are its documents in some order, each with an end, over and over."""
    stream = blocks(exponent=0.0)
    text, first = collections.defaultdict(list), {}
    for _ in range(300):
        batch, info = stream.next()
        assert batch["tokens"].shape == (3, 24) and batch["tokens"].dtype == batch["lang"].dtype == np.int32
        assert (batch["tokens"][:, 0] == 1).all() and (batch["tokens"][:, -1] == 2).all()
        assert info["real_tokens"] == info["padded_tokens"] == batch["tokens"].size
        for row, lang, begins in zip(batch["tokens"], batch["lang"].tolist(), info["pair_id"].tolist(), strict=True):
            first.setdefault(lang, begins)
            text[lang] += row[1:-1].tolist()
    assert sorted(text) == [0, 1, 3]
    for lang, tokens in text.items():
        whole = {}
        for d, document in enumerate(documents):
            if document["lang"] == CODES[lang]:
                whole[number(d, 0)] = [int(t) for t in document["text"].split()]
        order = []
        while tokens:
            wanted = [*whole[tokens[0]], 2]
            assert tokens[: len(wanted)] == wanted[: len(tokens)]
            order.append((tokens[0] - 100) // 20)
            tokens = tokens[len(wanted) :]
        assert order[0] == first[lang] - 10**12
        assert sorted(order[: len(whole)]) == sorted(order[len(whole) : 2 * len(whole)])
        assert len(whole) < 4 or order[: len(whole)] != order[len(whole) : 2 * len(whole)]


def test_blocks_larger_than_a_language(blocks):
    stream = blocks(length=100)
    assert "too small for a batch: en (3 documents)" in "; ".join(stream.facts())
    assert {int(lang) for _ in range(20) for lang in stream.next()[0]["lang"]} == {0, 1}
    with pytest.raises(ValueError, match=r"a block has 100000 tokens, and no language has as many. Largest: cs "):
        blocks(length=100_000)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_process_reads_its_own_rows_of_the_same_batch(pairs, blocks, accumulate):
    """Two shards, a process each: what each reads lies where it lay, the rest is padding, and all else is equal."""
    for make, options, names in ((pairs, {}, ("centre", "context")), (blocks, {"batch_size": 4}, ("tokens",))):
        whole, first, second = (make(accumulate=accumulate, **options) for _ in range(3))
        first.share, second.share = Share(2, (0,)), Share(2, (1,))
        axis = int(accumulate > 1)
        for _ in range(12):
            (want, info), (a, info_a), (b, info_b) = (stream.next() for stream in (whole, first, second))
            for name, array in want.items():
                (x, rest_x), (y, rest_y) = (np.split(other[name], 2, axis) for other in (a, b))
                if name in names:
                    np.testing.assert_array_equal(np.concatenate([x, rest_y], axis), array)
                    assert not rest_x.any() and not y.any()
                else:
                    np.testing.assert_array_equal(a[name], array)
                    np.testing.assert_array_equal(b[name], array)
            for other in (info_a, info_b):
                np.testing.assert_array_equal(other.pop("pair_id"), info["pair_id"])
                assert other == {k: v for k, v in info.items() if k != "pair_id"}
        assert whole.state() == first.state() == second.state()
    # Two groups don't divide over three shards: every device gets all of them.
    stream = pairs()
    stream.share = Share(3, (1,))
    np.testing.assert_array_equal(stream.next()[0]["centre"], pairs().next()[0]["centre"])


@pytest.mark.parametrize("exponent", [0.0, 0.3, 1.0, 200.0])
def test_no_exponent_is_too_large(exponent):
    sizes, uniform = [300, 70_000, 90_000_000, 5], (np.arange(20_000) + 0.5) / 20_000
    wanted = np.exp(exponent * np.log(np.array(sizes) / max(sizes)))
    found = np.bincount(LanguageSampler(sizes, exponent).draw(uniform), minlength=4) / len(uniform)
    np.testing.assert_allclose(found, wanted / wanted.sum(), atol=1e-4)
