"""The cache of documents: cleaning against a plain loop over the rules, in memory and in a folder."""

import hashlib
import json
import random

import numpy as np
import pytest

from vmsst_jax.data import document_cache
from vmsst_jax.data.document_cache import Cleaning, DocumentCache
from vmsst_jax.data.languages import Languages
from vmsst_jax.data.tokenizer_xlmr import XlmrTokenizer


@pytest.fixture(scope="module")
def documents(examples):
    """Documents of 0 to 12 sentences, some of them repeated, from the made-up corpus."""
    draw = random.Random(0)
    texts = [e["source"] for e in examples] + [e["target"] for e in examples if e["target"]]
    return [
        {
            "text": "\n".join(draw.choices(texts[7 * i : 7 * i + 9], k=draw.randint(1, 12))),
            "lang": draw.choice(["cs", "de", "el"]),
            "document_id": 10**12 + 3 * i,
        }
        for i in range(120)
    ]


@pytest.fixture(scope="module")
def framed(examples):
    """A tokenizer with tokens before and after every sentence."""
    return XlmrTokenizer.train([e[side] for e in examples for side in ("source", "target")], 400)


def cleaned(documents, pieces, rules):
    """(kept [(document, rows of pieces)], dropped), by the rules as METHODS 3.1 words them."""
    kept, dropped = [], dict.fromkeys(document_cache.DROPPED, 0)
    for document in documents:
        seen, rows = set(), []
        for sentence in document["text"].split("\n"):
            row = pieces(sentence)
            if sentence in seen:
                dropped["duplicate"] += 1
            elif len(row) < rules.min_pieces:
                dropped["short"] += 1
            elif rules.max_pieces is not None and len(row) > rules.max_pieces:
                dropped["long"] += 1
            else:
                rows.append(row)
            seen.add(sentence)
        if len(rows) < rules.min_sentences:
            dropped["documents"] += 1
        elif rows:
            kept.append((document, rows))
    return kept, dropped


def assert_holds(cache, kept, languages):
    assert len(cache) == len(kept)
    assert cache.document_ids(np.arange(len(cache))).tolist() == [d["document_id"] for d, _ in kept]
    assert cache.lang.tolist() == [languages.id(d["lang"]) for d, _ in kept]
    for i, (_, rows) in enumerate(kept):
        first, last = cache.starts[i : i + 2].tolist()
        assert last - first == len(rows)
        tokens, lengths, cut = cache.pieces(np.arange(first, last), 10**6)
        assert [r.tolist() for r in np.split(tokens, np.cumsum(lengths)[:-1])] == rows and not cut.any()
        assert cache.text(i).tolist() == [p for row in rows for p in row]


@pytest.mark.parametrize("rules", [Cleaning(5, 15), Cleaning(1, None, 1), Cleaning(8, 20, 4)], ids=str)
@pytest.mark.parametrize("kept_in", ["memory", "folder"])
def test_cleaning(documents, framed, tokenizer, languages, rules, kept_in, tmp_path, monkeypatch):
    monkeypatch.setattr(document_cache, "BLOCK", 50)  # several blocks, the last one incomplete
    # One tokenizer with a frame on both sides, one with an end only.
    chosen = framed if kept_in == "memory" else tokenizer
    strip = slice(1, -1) if kept_in == "memory" else slice(0, -1)
    kept, dropped = cleaned(documents, lambda text: chosen.encode([text], 10**6)[0][0].tolist()[strip], rules)
    folder = None if kept_in == "memory" else tmp_path / "a" / "cache"
    cache = DocumentCache.build(iter(documents), chosen, languages, rules, folder, "made up")
    assert_holds(cache, kept, languages)
    assert cache.meta["dropped"] == dropped
    text = "".join(f"{d['lang']}\n{d['text']}\n\n" for d in documents)  # all that was read, whatever is kept of it
    assert cache.meta["sha256"] == hashlib.sha256(text.encode()).hexdigest()
    assert rules.min_pieces == 1 or all(dropped.values())
    sizes = {}
    for document, rows in kept:
        size = sizes.setdefault(document["lang"], [0, 0, 0])
        size[:] = [size[0] + 1, size[1] + len(rows), size[2] + sum(map(len, rows))]
    assert cache.meta["per_language"] == sizes
    if folder:
        wider = Languages(("ar", *languages.codes[::-1]))
        assert_holds(DocumentCache.open(folder, chosen, wider), kept, wider)
        assert json.loads((folder / "meta.json").read_text())["source"] == "made up"


def test_long_sentences_are_cut_where_they_are_read(documents, framed, languages):
    cache = DocumentCache.build(documents, framed, languages)
    index = np.array([5, 0, 5, 17])
    tokens, lengths, cut = cache.pieces(index, 9)
    whole, full, _ = cache.pieces(index, 10**6)
    assert lengths.tolist() == np.minimum(full, 9).tolist() and cut.tolist() == (full > 9).tolist()
    rows = np.split(whole, np.cumsum(full)[:-1])
    assert tokens.tolist() == [t for row in rows for t in row[:9].tolist()]


def test_nothing_left(documents, framed, languages, tmp_path):
    with pytest.raises(ValueError, match=r"no documents in made up"):
        DocumentCache.build([], framed, languages, source="made up")
    single = [{**d, "text": "nr1 nr2 nr3 nr4"} for d in documents[:3]]
    message = r"of the 3 documents in made up cleaning leaves none: left out 0 repeated, 0 short and 0 long sentences, "
    with pytest.raises(ValueError, match=message + "then 3 documents with too few sentences. Give documents of more"):
        DocumentCache.build(single, framed, languages, folder=tmp_path / "cache", source="made up")
    assert list(tmp_path.iterdir()) == []


def test_refusals(documents, framed, tokenizer, languages, tmp_path):
    with pytest.raises(ValueError, match=r"web, document 3 \(.*\): unknown language 'xx'"):
        DocumentCache.build([*documents[:2], {**documents[2], "lang": "xx"}], framed, languages, source="web")
    folder = tmp_path / "cache"
    DocumentCache.build(documents, framed, languages, folder=folder)
    with pytest.raises(FileExistsError, match="cache exists"):
        DocumentCache.build(documents, framed, languages, folder=folder)
    with pytest.raises(ValueError, match="was built with the tokenizer"):
        DocumentCache.open(folder, tokenizer, languages)
    with pytest.raises(FileNotFoundError, match="no cache in .*: build it first"):
        DocumentCache.open(tmp_path / "other", framed, languages)
    for name in ("lang", "tokens", "documents"):  # a byte of it changes on the disk
        file = folder / f"{name}.npy"
        content = file.read_bytes()
        file.write_bytes(content[:-3] + bytes([content[-3] ^ 64]) + content[-2:])
        with pytest.raises(ValueError, match=rf"{name}.npy is damaged .*CRC-32.*: remove the folder"):
            DocumentCache.open(folder, framed, languages)
        file.write_bytes(content)
    np.save(folder / "documents.npy", np.zeros(3, np.int64))
    with pytest.raises(ValueError, match=r"documents.npy has shape \(3,\)"):
        DocumentCache.open(folder, framed, languages)


@pytest.mark.parametrize("values", [(0, 5), (5, 4), (5, 128, 0), (2.5, None)])
def test_impossible_rules(values):
    with pytest.raises(ValueError, match="wanted a whole number"):
        Cleaning(*values)
