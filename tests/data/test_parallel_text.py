"""ParallelText: what it refuses before anything expensive, and what it makes of a kept cache."""

import logging
import re
import sys
import types

import pytest

from vmsst_jax.data import parallel, registered
from vmsst_jax.data.languages import Languages

LENGTH = 16


@pytest.fixture
def mixture(examples, monkeypatch):
    """A mixture "both" of two tasks in a registry without seqio: {task: rate}, to be changed by a test."""
    rates = {"first": 1.0, "second": 3.0}
    corpora = {"first": examples[:60], "second": examples[60:90]}
    names = types.SimpleNamespace(names=lambda: ["both", "first", "second"])
    monkeypatch.setitem(sys.modules, "seqio", types.SimpleNamespace(TaskRegistry=names, MixtureRegistry=names))
    monkeypatch.setattr(registered, "task_rates", lambda name, split: list(rates.items()))
    monkeypatch.setattr(registered, "examples_of", lambda name, split: iter(corpora[name]))
    return rates


def make(**options):
    return parallel.ParallelText(**{"task": "both", "batch_size": 8, "max_length": LENGTH, **options})


@pytest.mark.parametrize("name", ["batch_size", "max_length", "groups"])
@pytest.mark.parametrize("value", [0, -4, 2.5, "x", None])
def test_sizes_are_positive_whole_numbers(name, value):
    with pytest.raises(ValueError, match=rf"ParallelText.{name} is {value!r}; wanted a whole number of \d or more"):
        make(**{name: value})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"widths": "x"}, "ParallelText.widths is 'x'; wanted whole numbers"),
        ({"widths": 8}, "ParallelText.widths is 8"),
        ({"widths": (2.5, 8)}, "an entry of ParallelText.widths is 2.5"),
        ({"cache": None}, "ParallelText.cache is None; wanted text"),
        ({"task": ""}, "ParallelText.task is ''"),
    ],
)
def test_other_settings(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make(**options)


@pytest.mark.parametrize(
    ("options", "shards", "message"),
    [
        ({"groups": 3}, 1, "Nearest batch sizes that work: 6 or 9"),
        ({"widths": (8, 40)}, 1, "max_length 16"),
        ({"batch_size": 6}, 8, "Nearest batch sizes that work: 4 or 8"),
    ],
)
def test_batches_are_checked_before_anything_is_read(options, shards, message, languages):
    with pytest.raises(ValueError, match=message):
        make(**options).check(languages, shards)


@pytest.mark.parametrize("sample", [50_000, 1])
def test_languages_are_checked(mixture, languages, monkeypatch, sample):
    monkeypatch.setattr(parallel, "SAMPLE", sample)
    monkeypatch.setattr(parallel, "SAMPLE_OF_TASK", 10)
    make().check(languages)
    make().check(Languages([*languages.codes, "cy"]))  # one that no pair has is nothing wrong
    seen = "in no corpus" if sample > 1 else "in no pair looked at"
    message = f"'both' differ. In the corpus but not in LANGUAGES: cs, el; in LANGUAGES but {seen}: cy, gd."
    with pytest.raises(ValueError, match=message):
        make().check(Languages(["en", "de", "gd", "cy"]))


def test_a_kept_cache_needs_no_registry(mixture, tokenizer, languages, tmp_path, monkeypatch, caplog):
    text = make(cache=str(tmp_path))
    text.open(tokenizer, languages, 0)
    assert not caplog.records
    monkeypatch.delitem(sys.modules, "seqio")
    monkeypatch.delattr(registered, "task_rates")
    text.check(languages)
    with pytest.raises(ValueError, match="not in LANGUAGES: cs, el;"):
        text.check(Languages(["en", "de"]))
    with caplog.at_level(logging.WARNING):
        assert text.open(tokenizer, languages, 0).pairs == 90
    assert re.search(rf"reading the cache in {tmp_path}, made on 20..-..-.. ..:.. from first, split", caplog.text)


def test_changed_rates_are_refused(mixture, tokenizer, languages, tmp_path):
    text = make(cache=str(tmp_path))
    text.open(tokenizer, languages, 0)
    mixture["first"] = 2.0
    with pytest.raises(ValueError, match=r"rates {'first': 1.0, 'second': 3.0}, now it has {'first': 2.0,.*remove "):
        text.open(tokenizer, languages, 0)
    (tmp_path / "both-train.json").unlink()  # as the message says
    assert text.open(tokenizer, languages, 0).pairs == 90


@pytest.mark.parametrize("contents", ['{"../../first": 1.0}', "", "{", "[]", "{}", "3", '{"first": "often"}'])
def test_a_damaged_listing_is_an_error(mixture, tokenizer, languages, tmp_path, contents):
    (tmp_path / "both-train.json").write_text(contents)
    with pytest.raises(ValueError, match="both-train.json is damaged; wanted the rates"):
        make(cache=str(tmp_path)).open(tokenizer, languages, 0)


@pytest.mark.parametrize("size", [0, -1, "x", 2.5, None])
def test_the_size_of_a_vocabulary(size):
    with pytest.raises(ValueError, match=f"train_sentencepiece.vocab_size is {size!r}; wanted a whole number of 4 or"):
        parallel.train_sentencepiece("both", size)
