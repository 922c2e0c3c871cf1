"""Passages as DPR, XOR-TyDi and Mr. TyDi publish them: TSV of id, text and title, or JSON of id and contents."""

from __future__ import annotations

import csv
import os
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vmsst_jax.retrieval.records import Records, json_object

TSV_HEADER = "id\ttext\ttitle"


class Passage(NamedTuple):
    """A piece of an article; ``title`` is "" where there is none."""

    id: str
    title: str
    text: str


def open_passages(path: str | os.PathLike, least: int = 1) -> Records:
    """The passages of a file, TSV if its name ends in .tsv, JSON lines otherwise.

    TSV is quoted as Python's csv module quotes, one record a line; its header may be missing. JSON objects are
    {"id", "contents"}, with title and text on both sides of the first empty line, or {"docid", "title", "text"}.

    Raises what ``Records`` does, and ValueError where there are fewer than ``least``, those that a question is to find.
    """
    tsv = Path(path).suffix == ".tsv"
    passages = Records([path], _from_tsv, header=TSV_HEADER) if tsv else Records([path], _from_json)
    if len(passages) < least:
        raise ValueError(f"{path} holds {len(passages)} passages, but each question is to find {least}; fetch it whole")
    return passages


def _from_tsv(line: str) -> Passage:
    fields = next(csv.reader([line], delimiter="\t"), [])
    if len(fields) != 3:
        raise ValueError(f"found {len(fields)} columns ({line[:80]!r}); wanted 3: id, text, title")
    passage_id, text, title = fields
    return Passage(passage_id, title, text)


def _from_json(line: str) -> Passage:
    found = json_object(line)
    keys = ("id", "contents") if "contents" in found else ("docid", "title", "text")
    passage_id, *texts = (found.get(key) for key in keys)
    if passage_id is None:
        raise ValueError(f"the object has no {keys[0]}; it has {', '.join(found)}")
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{', '.join(keys[1:])} of passage {passage_id!r} are {texts!r:.80}; wanted strings")
    if len(texts) == 1:
        title, gap, text = texts[0].partition("\n\n")
        texts = [title, text] if gap else ["", title]
    return Passage(str(passage_id), *texts)


def with_title(separator: str | None):
    """(function Passage -> text to embed, that in words); None leaves titles out."""
    if separator is None:
        return lambda passage: passage.text, "text without title"

    def join(passage: Passage) -> str:
        return f"{passage.title}{separator}{passage.text}" if passage.title else passage.text

    return join, f"title, {separator!r}, text"


def find_ids(passages: Records, wanted: Collection[str] = ()) -> dict[str, int]:
    """Reads all ids once: {id: number of its record} for each of ``wanted`` that is there.

    Raises ValueError, naming file and line, for two passages of one id. Memory grows by 8 bytes a passage.
    """
    wanted, found = set(wanted), {}
    hashes = np.empty(len(passages), np.int64)
    for number, passage in enumerate(passages):
        hashes[number] = hash(passage.id)
        if passage.id in wanted:
            found[passage.id] = number
    order = np.argsort(hashes, kind="stable")
    for i in np.flatnonzero(hashes[order][1:] == hashes[order][:-1]):
        first, second = sorted(int(number) for number in order[i : i + 2])
        if passages[first].id == passages[second].id:  # and not merely of the same hash
            raise ValueError(
                f"{passages.where(second)}: the passage id {passages[second].id!r} is that of "
                f"{passages.where(first)} already; ids have to differ"
            )
    return found
