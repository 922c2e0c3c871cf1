"""Documents and MaskedText: what they refuse, what they share, and what they make of a kept cache."""

import json
import logging
import re
import sys
import types

import numpy as np
import pytest

from vmsst_jax.data import documents, registered
from vmsst_jax.data.languages import Languages


@pytest.fixture
def mixture(examples, monkeypatch):
    """A mixture "both" of two tasks in a registry without seqio: {task: documents}, to be changed by a test."""
    rows = [
        {"text": "\n".join(e["source"] for e in examples[7 * i : 7 * i + 7]), "lang": code, "document_id": i}
        for i, code in enumerate(["cs", "de", "el"] * 20)
    ]
    corpora = {"first": rows[:30], "second": rows[30:]}
    names = types.SimpleNamespace(names=lambda: ["both", "first", "second"])
    monkeypatch.setitem(sys.modules, "seqio", types.SimpleNamespace(TaskRegistry=names, MixtureRegistry=names))
    monkeypatch.setattr(registered, "task_names", lambda name, split: list(corpora) if name == "both" else [name])

    def examples_of(name, split, fields):
        assert fields is registered.DOCUMENT
        return (row for task in registered.task_names(name, split) for row in corpora[task])

    monkeypatch.setattr(registered, "examples_of", examples_of)
    return corpora


def pairs(**options):
    return documents.Documents(**{"task": "both", "pairs": 4, "max_length": 24, "max_pieces": 60, **options})


def blocks(**options):
    return documents.MaskedText(**{"task": "both", "batch_size": 4, "length": 32, **options})


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (pairs, {"groups": 0}, "Documents.groups is 0; wanted a whole number"),
        (pairs, {"window": 0}, "Documents.window is 0"),
        (pairs, {"pairs": 2.5}, "Documents.pairs is 2.5"),
        (pairs, {"max_pieces": 4}, "Documents.max_pieces is 4; wanted a whole number of 5"),
        (pairs, {"exponent": -1}, "Documents.exponent is -1"),
        (pairs, {"task": ""}, "Documents.task is ''"),
        (pairs, {"cache": None}, "Documents.cache is None; wanted text"),
        (blocks, {"length": 2}, "MaskedText.length is 2; wanted a whole number of 3"),
        (blocks, {"batch_size": "x"}, "MaskedText.batch_size is 'x'"),
        (blocks, {"min_sentences": 0}, "MaskedText.min_sentences is 0"),
    ],
)
def test_settings(make, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make(**options)


def test_a_language_that_the_table_lacks(mixture, languages):
    for data in (pairs(), blocks()):
        data.check(languages)
        data.check(Languages([*languages.codes, "cy"]))
        with pytest.raises(
            ValueError, match="In the documents but not in LANGUAGES: cs, el; in LANGUAGES but .*: cy, en"
        ):
            data.check(Languages(["en", "de", "cy"]))


def test_shards(mixture, languages, caplog):
    pairs(groups=4).check(languages, 4)
    assert not caplog.records
    pairs(groups=1).check(languages, 8)
    assert "groups is 1, which does not divide over 8 batch shards: every device gets all" in caplog.text
    blocks(batch_size=16).check(languages, 8)
    with pytest.raises(
        ValueError, match="MaskedText.batch_size is 12, .* over 8 batch shards. Nearest that work: 8 or 16"
    ):
        blocks(batch_size=12).check(languages, 8)


@pytest.mark.parametrize("make", [pairs, blocks])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_global_batch_is_the_same_on_any_number_of_devices(mixture, tokenizer, languages, make, accumulate):
    one, eight = (make().open(tokenizer, languages, 3, shards, accumulate) for shards in (1, 8))
    for _ in range(5):
        (a, _), (b, _) = one.next(), eight.next()
        assert all(np.array_equal(a[k], b[k]) for k in a)
        assert {k: v.shape for k, v in a.items()} == make().shapes(8, accumulate)


def test_a_kept_cache_needs_no_registry_and_serves_both(mixture, tokenizer, languages, tmp_path, monkeypatch, caplog):
    options = {"cache": str(tmp_path), "max_pieces": 60}
    wanted = pairs().open(tokenizer, languages, 0).next()[0]
    pairs(**options).open(tokenizer, languages, 0)
    assert not caplog.records
    monkeypatch.delitem(sys.modules, "seqio")
    monkeypatch.delattr(registered, "task_names")
    with caplog.at_level(logging.WARNING):
        found = pairs(**options).open(tokenizer, languages, 0).next()[0]
    assert all(np.array_equal(wanted[k], found[k]) for k in wanted)
    assert f"reading the documents of both from the cache in {tmp_path}" in caplog.text
    blocks(**options, min_pieces=5, min_sentences=2).open(tokenizer, languages, 0).next()
    with pytest.raises(ValueError, match="not in LANGUAGES: cs, el"):
        pairs(**options).check(Languages(["de"]))


def test_another_mixture_is_refused(mixture, tokenizer, languages, tmp_path):
    data = pairs(cache=str(tmp_path))
    data.open(tokenizer, languages, 0)
    mixture["third"] = mixture["first"]
    with pytest.raises(ValueError, match=r"made with the tasks \['first', 'second'\], now it has .*'third'\]; remove "):
        data.open(tokenizer, languages, 0)
    (tmp_path / "both-train-5-60-2.json").unlink()  # as the message says
    assert len(data.open(tokenizer, languages, 0).corpus) == 90


@pytest.mark.parametrize("contents", ['["../../first"]', "", "{", "[]", "{}", "3", "[3]"])
def test_a_damaged_listing_is_an_error(mixture, tokenizer, languages, tmp_path, contents):
    (tmp_path / "both-train-5-60-2.json").write_text(contents)
    with pytest.raises(ValueError, match="both-train-5-60-2.json is damaged; wanted the names of tasks"):
        pairs(cache=str(tmp_path)).open(tokenizer, languages, 0)


def test_a_damaged_cache_is_an_error(mixture, tokenizer, languages, tmp_path):
    data = pairs(cache=str(tmp_path))
    data.open(tokenizer, languages, 0)
    meta = tmp_path / "first-train-5-60-2" / "meta.json"
    meta.write_text(json.dumps({**json.loads(meta.read_text()), "per_language": 3}))
    for read in (lambda: data.check(languages), lambda: data.open(tokenizer, languages, 0)):
        with pytest.raises(ValueError, match="meta.json is damaged"):
            read()


@pytest.mark.parametrize("limit", [10_000, 60])
def test_a_vocabulary_of_documents(mixture, limit):
    tokenizer = documents.train_xlmr_sentencepiece("both", 300, max_sentences=limit)
    assert tokenizer.vocab_size == 300 and tokenizer.mask_id == 299
    row = tokenizer.encode(["nr1 nr2"], 20)[0][0].tolist()
    assert row[0] == 0 and row[-1] == 2 and tokenizer.decode(row) == "nr1 nr2"


def test_vocabularies_that_can_t_be(mixture):
    with pytest.raises(ValueError, match="train_xlmr_sentencepiece.vocab_size is 5"):
        documents.train_xlmr_sentencepiece("both", 5)
    with pytest.raises(ValueError, match="yields at most"):
        documents.train_xlmr_sentencepiece("both", 100_000)
