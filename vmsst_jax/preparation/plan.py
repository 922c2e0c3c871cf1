"""What is to be prepared: sets of source files, an amount and a place for each, and the settings; kept as JSON."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import pathlib
import re
from collections.abc import Sequence

from vmsst_jax import checks
from vmsst_jax.data.text_pairs import CorpusError
from vmsst_jax.tasks import tables

CODE = re.compile(r"[A-Za-z0-9]+([_-][A-Za-z0-9]+)*")
# What an output folder has besides texts: the work, token caches, report.json and report.tsv, NAME.gin.
RESERVED = re.compile(r"work|tokens|report\..*|.*\.gin")
SEEDS = 2**128  # as many as fit into the salt of the hash that orders records


@dataclasses.dataclass(frozen=True)
class Source:
    """One file of a corpus.

    Attributes:
      corpus: what the report counts it under, such as "Europarl".
      name: its path below the input folder; path: where it lies now.
      size: bytes of its text, for compressed JSON an estimate; checksum: what tells it from another file.
      codes: of an archive, OPUS's codes of the two languages, the set's first language first.
    """

    corpus: str
    name: str
    path: str
    size: int
    checksum: str
    codes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Set:
    """What becomes one task of the mixture.

    Attributes:
      name: such as "en-de"; the task is PLAN_en_de.
      languages: their codes, of pairs the pivot's first.
      folder: where its text goes, below the output folder.
      amount: records wanted at most; None wants all.
      rate: of the mixture.
    """

    name: str
    languages: tuple[str, ...]
    folder: str
    amount: int | None
    rate: float
    sources: tuple[Source, ...]

    @property
    def size(self) -> int:
        return sum(source.size for source in self.sources)


@dataclasses.dataclass(frozen=True)
class Plan:
    """Everything that the output depends on.

    Attributes:
      kind: "pairs" or "documents".
      name: of the mixture.
      seed: of the sample and the order.
      partition_bytes: text of a set that is sorted at one time, and so the size of the output's files.
      rules: fields of the kind's rules.
      table: sha256 of the table's file.
      tests: what the test sentences are, ``cleaning.TestSentences.describe``.
      tokens: {} without token caches, else {"tokenizer": sha256, "languages": codes, ...} as the kind needs.
      skip_empty: leave sets out of which nothing is left, in place of an error.
      missing: what the table names and the mixture goes without: archives, or languages.
    """

    kind: str
    name: str
    seed: int
    partition_bytes: int
    rules: dict
    table: str
    tests: dict
    tokens: dict
    skip_empty: bool
    sets: tuple[Set, ...]
    missing: tuple[str, ...] = ()

    def __post_init__(self):
        checks.whole("seed", self.seed, 0)
        if self.seed >= SEEDS:
            raise ValueError(f"seed is {self.seed}; wanted a whole number below 2**128")
        checks.whole("partition_bytes", self.partition_bytes)

    def partitions(self, of: Set) -> int:
        """How many parts a set is cut into."""
        return max(1, math.ceil(of.size / self.partition_bytes))

    def task(self, of: Set) -> str:
        """The seqio task that the set is."""
        return "_".join((self.name, *of.languages))

    def to_json(self) -> bytes:
        return (json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=False) + "\n").encode()

    @classmethod
    def from_json(cls, contents: bytes) -> Plan:
        fields = json.loads(contents)
        fields["missing"] = tuple(fields.get("missing", ()))
        for entry in fields["sets"]:
            entry["languages"] = tuple(entry["languages"])
            entry["sources"] = tuple(Source(**s | {"codes": tuple(s["codes"])}) for s in entry["sources"])
        return cls(**fields | {"sets": tuple(Set(**entry) for entry in fields["sets"])})

    def identity(self) -> dict:
        """All of it but where the input lies, ready for JSON: equal identities give equal outputs, byte by byte."""
        fields = json.loads(self.to_json())
        for entry in fields["sets"]:
            for source in entry["sources"]:
                del source["path"]
        return fields


def read_rows(table: str, columns: tuple[str, ...], amount: str, only: Sequence[str] | None) -> list[dict]:
    """The rows of a mixture's table, of the languages in ``only`` alone if it is given.

    Raises:
      CorpusError: a malformed table; codes or file patterns that would lead out of the output folder; two rows of the
        same languages, or of which one has the other's folder; no row left; a language in ``only`` that no row has.
    """
    if only is not None and not only:
        raise CorpusError("no languages are named; wanted codes between commas, as in en,de")
    rows = tables.read_table(table, columns, amount)
    for row in rows:
        if bad := [code for code in _languages(row) if not CODE.fullmatch(code)]:
            raise CorpusError(f"{table}: {bad[0]!r} is no language code; wanted letters and digits, as in zh or zh_cn")
        row["folder"] = folder_of(table, row["files"])
    known = {code for row in rows for code in _languages(row)}
    if only is not None:
        if unknown := sorted(set(only) - known):
            raise CorpusError(f"{table} has no row of {', '.join(unknown)}; it has {', '.join(sorted(known))}")
        rows = [row for row in rows if set(_languages(row)) <= set(only)]
    if not rows:
        raise CorpusError(f"{table}: no row has both its languages among {', '.join(only)}; name the pivot too")
    _check_apart(table, rows)
    return rows


def _languages(row: dict) -> tuple[str, ...]:
    return tuple(row[column] for column in ("pivot", "language") if column in row)


def _check_apart(table: str, rows: Sequence[dict]) -> None:
    """CorpusError for rows that would become one set, or write into each other's folder."""
    names, folders = ["-".join(_languages(row)) for row in rows], [row["folder"] for row in rows]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        mend = "put their corpora into one row" if "corpora" in rows[0] else "leave one of them"
        raise CorpusError(f"two rows of {table} are {twice[0]}; {mend}")
    if twice := sorted({folder for folder in folders if folders.count(folder) > 1}):
        raise CorpusError(f"{table}: two rows have the folder {twice[0]}; give each one of its own")
    for folder in folders:
        if inside := [other for other in folders if other.startswith(folder + "/")]:
            raise CorpusError(f"{table}: the folder {inside[0]} lies inside another row's, {folder}; put it beside it")


def folder_of(table: str, pattern: str) -> str:
    """The folder of a table's file pattern such as ``opus_92/en-de/*.tsv*``; CorpusError unless it is a plain one."""
    path = pathlib.PurePosixPath(pattern)
    parts = path.parts[:-1]
    if path.is_absolute() or not parts or any(p == ".." or set(p) & set("*?[]\\\0") for p in parts):
        raise CorpusError(
            f"{table}: the files {pattern!r} can't be prepared; wanted FOLDER/*.tsv or the like, below the data root"
        )
    if RESERVED.fullmatch(parts[0]):
        raise CorpusError(
            f"{table}: the files {pattern!r} would lie in {parts[0]}, a name that the output folder needs itself; give "
            "them another folder"
        )
    return "/".join(parts)


def mixture_name(rows: Sequence[dict]) -> str:
    """What a table's mixture is called if nothing else is said: the first folder of its files."""
    return rows[0]["folder"].split("/")[0]


def checksum(path: str) -> str:
    """Of a file of any size, from its length and its last 64 kB: where zip keeps its directory, gzip its checksum."""
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        file.seek(max(0, size - 2**16))
        return hashlib.sha256(b"%d\0" % size + file.read()).hexdigest()
