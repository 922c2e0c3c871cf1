"""From a command's options to a plan: the table's rows, the files they name, the test sentences, the vocabulary."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.resources
import os
import pathlib
from collections.abc import Sequence

from vmsst_jax import checks
from vmsst_jax.data import tokenizers
from vmsst_jax.data.text_pairs import CorpusError, expand
from vmsst_jax.preparation import documents, pairs
from vmsst_jax.preparation import plan as plans
from vmsst_jax.preparation.cleaning import PairRules, TestSentences
from vmsst_jax.preparation.plan import Plan

TABLES = {True: "opus_92.tsv", False: "common_crawl_108.tsv"}
# Of ``plan``, as the command's flags are called.
OPTIONS = (
    *("table", "name", "languages", "missing", "test", "vocabulary", "seed", "max_characters", "max_ratio"),
    *("max_documents", "max_length", "cleanings", "partition_mb"),
)


def rows(table: str | None, is_opus: bool, languages: Sequence[str] | None) -> list[dict]:
    """The rows of a table (None: the one that ships), of some ``languages`` or all; CorpusError as ``read_rows``."""
    kind, amount = (pairs, "thousand_pairs") if is_opus else (documents, "megabytes")
    return plans.read_rows(_table(table, is_opus), kind.COLUMNS, amount, languages)


def _table(table: str | None, is_opus: bool) -> str:
    return table or str(importlib.resources.files("vmsst_jax.tasks") / TABLES[is_opus])


def addresses(of: Sequence[dict]) -> list[str]:
    """Where OPUS has the archives of rows."""
    return pairs.addresses(of)


def plan(
    root: str,
    of: Sequence[dict],
    *,
    is_opus: bool,
    table: str | None = None,
    name: str | None = None,
    languages: Sequence[str] | None = None,
    missing: str = "error",
    test: Sequence[str] = (),
    vocabulary: str | None = None,
    seed: int = 0,
    max_characters: int = 1000,
    max_ratio: float = 6.0,
    max_documents: int | None = None,
    max_length: int = 32,
    cleanings: Sequence[str] = ("5-128-2", "1-any-1"),
    partition_mb: int = 64,
) -> tuple[Plan, TestSentences, object | None]:
    """(the plan, the test sentences, the tokenizer if there is a vocabulary); see the command for the options.

    Raises ValueError or OSError for what can't be prepared like that; reads no corpus but the archives' directories.
    """
    table = _table(table, is_opus)
    own = _token_settings(is_opus, max_length, cleanings)
    if is_opus:
        sets, without = pairs.find(root, of, missing == "skip")
        rules = dataclasses.asdict(PairRules(max_characters, max_ratio))
    else:
        sets, without = documents.find(root, of, max_documents, missing == "skip")
        rules = dataclasses.asdict(documents.DocumentRules())
    tests = _tests(test)
    tokenizer = None if vocabulary is None else load_vocabulary(vocabulary)
    tokens = {}
    if tokenizer is not None:
        codes = sorted({code for entry in sets for code in entry.languages})
        tokens = {"tokenizer": tokenizer.sha256, "languages": codes, **own}
    made = Plan(
        kind="pairs" if is_opus else "documents",
        name=_name(name, of, languages is not None, without),
        seed=seed,
        partition_bytes=partition_mb * 2**20,
        rules=rules,
        table=hashlib.sha256(pathlib.Path(table).read_bytes()).hexdigest(),
        tests=tests.describe(),
        tokens=tokens,
        skip_empty=missing == "skip",
        sets=tuple(sets),
        missing=tuple(without),
    )
    return made, tests, tokenizer


def _token_settings(is_opus: bool, max_length: int, cleanings: Sequence[str]) -> dict:
    """What the kind's caches are told; ValueError now, not when all else is done."""
    if is_opus:
        checks.whole("max_length", max_length, 2)  # one token and the end of the sentence
        return {"max_length": max_length}
    if not cleanings:
        raise ValueError("no cleaning is named; wanted one or more between commas, as in 5-128-2,1-any-1")
    return {"cleanings": [str(documents.cleaning_of(c)) for c in cleanings]}


def _tests(files: Sequence[str]) -> TestSentences:
    """The sentences of ``--test``, none for "none" alone."""
    if list(files) == ["none"]:
        return TestSentences()
    if "none" in files:
        raise ValueError("--test=none stands beside other test files; leave it out, or them")
    for pattern in files:
        try:
            expand(pattern)
        except CorpusError:
            raise CorpusError(
                f"--test={pattern}: there is no such file (looked from {os.getcwd()}); correct the path or pattern, or "
                "give --test=none for a corpus that no test set could be in"
            ) from None
    return TestSentences.read(expand(files))


def _name(name: str | None, of: Sequence[dict], is_part: bool, without: Sequence[str]) -> str:
    """The mixture's name; ValueError where a part of a table would get the name of the whole."""
    whole = plans.mixture_name(of)
    if name is not None and not plans.CODE.fullmatch(name):
        raise ValueError(f"--name={name!r} is no name; wanted letters and digits, with _ or - between them")
    if (is_part or without) and name in (None, whole):
        what = "not all rows of the table are taken"
        if without:
            shown = ", ".join(without[:5]) + (", ..." if len(without) > 5 else "")
            what = f"{len(without):,} of the table's sources are missing ({shown})"
        raise ValueError(f"{what}, so the mixture is not {whole}: give it another name by --name")
    return name or whole


def load_vocabulary(path: str):
    """A checkpoint's tokenizer, or that of a file or folder in Hugging Face's form; OSError or ValueError if none."""
    if not os.path.exists(path):
        raise FileNotFoundError(
            f"there is no {path}; wanted a SentencePiece model, a model folder in Hugging Face's form, or a checkpoint"
        )
    if os.path.isdir(path) and not any(map(os.path.isfile, _tokenizer_files(path))):
        from vmsst_jax.training.encoder_start import checkpoint_tokenizer

        return checkpoint_tokenizer(path)
    return tokenizers.load(path)


def _tokenizer_files(folder: str) -> list[str]:
    names = (*tokenizers.SENTENCEPIECE_FILES, "tokenizer.json", "vocab.txt", "vocab.json")
    return [os.path.join(folder, name) for name in names]
