"""TREC's topics, qrels and runs, and MRR and recall over them as trec_eval counts."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Hashable, Mapping, Sequence

import numpy as np

from vmsst_jax.retrieval.lines import TextFile
from vmsst_jax.retrieval.records import Records, columns


def read_topics(path: str | os.PathLike) -> tuple[dict[str, str], TextFile]:
    """({query id: its text}, the file) of lines "id TAB text"; ValueError names the line of what is no such line."""
    records = Records([path], lambda line: columns(line, ("id", "text")))
    topics = {}
    for number, (query, text) in enumerate(records):
        if query in topics:
            raise ValueError(f"{records.where(number)}: the query id {query} is there twice")
        if not text.strip():
            raise ValueError(f"{records.where(number)}: the query {query} is blank")
        topics[query] = text
    return topics, records.files[0]


def read_qrels(path: str | os.PathLike, topics: Collection[str]) -> tuple[dict[str, dict[str, str]], TextFile]:
    """The relevant passages of each judged query.

    Args:
      path: lines of query id, anything, passage id and relevance between white space; 1 and more is relevant.
      topics: the ids of queries there are.

    Returns:
      ({query id: {id of each relevant passage: file and line}}, the file), in the order of the file.

    Raises:
      ValueError: a malformed line, a query that is not among the topics, a pair that is judged twice, or a query of
        which no passage is relevant; file and line are named.
    """
    records = Records([path], _judgement)
    judged, relevant = {}, {}
    for number, (query, passage, relevance) in enumerate(records):
        where = records.where(number)
        if query not in topics:
            raise ValueError(f"{where}: the query {query} is not among the topics; are both of one language and split?")
        if (query, passage) in judged:
            raise ValueError(
                f"{where}: query {query} and passage {passage} are there already, {judged[query, passage]}"
            )
        judged[query, passage] = where
        relevant.setdefault(query, {})
        if relevance > 0:
            relevant[query][passage] = where
    for query, passages in relevant.items():
        if not passages:
            raise ValueError(f"{path}: the query {query} has no relevant passage, so it can't be scored; leave it out")
    return relevant, records.files[0]


def _judgement(line: str) -> tuple[str, str, int]:
    fields = line.split()
    if len(fields) != 4 or not fields[3].lstrip("-").isdigit():
        raise ValueError(f"found {line[:80]!r}; wanted query id, 0, passage id and relevance between white space")
    return fields[0], fields[2], int(fields[3])


def read_run(path: str | os.PathLike, topics: Collection[str]) -> tuple[dict[str, list[str]], TextFile]:
    """A system's answers, ranked as trec_eval ranks: by score in 32 bits, ties by falling passage id.

    Args:
      path: lines of query id, Q0, passage id, rank, score and name between white space; the rank is not looked at.
      topics: the ids of queries there are.

    Returns:
      ({query id: passage ids, best first}, the file).

    Raises ValueError, naming file and line, for malformed lines, unknown queries and a passage twice for a query.
    """
    records = Records([path], _answer)
    scores: dict[str, dict[str, np.float32]] = {}
    for number, (query, passage, score) in enumerate(records):
        if query not in topics:
            raise ValueError(f"{records.where(number)}: the query {query} is not among the topics; is the run of them?")
        found = scores.setdefault(query, {})
        if passage in found:
            raise ValueError(f"{records.where(number)}: passage {passage} is there twice for query {query}")
        found[passage] = score
    ranked = {
        query: sorted(found, key=lambda passage, found=found: (found[passage], passage.encode()), reverse=True)
        for query, found in scores.items()
    }
    return ranked, records.files[0]


def _answer(line: str) -> tuple[str, str, np.float32]:
    fields = line.split()
    try:
        query, _, passage, _, score, _ = fields
        score = float(score)
    except ValueError:
        raise ValueError(
            f"found {line[:80]!r}; wanted query id, Q0, passage id, rank, score and run name between white space"
        ) from None
    if not math.isfinite(score):
        raise ValueError(f"the score of passage {passage} is {score}; wanted a finite number")
    return query, passage, np.float32(score)


def mrr_and_recall(
    ranked: Mapping[str, Sequence[Hashable]], relevant: Mapping[str, Collection[Hashable]], depth: int
) -> tuple[float, float]:
    """Mean reciprocal rank and recall at ``depth``, over all queries of ``relevant`` (METHODS 5.6).

    A query's reciprocal rank is that of its best-ranked relevant passage, 0 where none is within ``depth``; its recall
    the found share of its relevant passages. A query that ``ranked`` lacks counts 0, as with ``trec_eval -c``.

    Raises ValueError if no query is judged, or none of the judged ones has answers.
    """
    if not relevant.keys() & ranked.keys():
        raise ValueError(f"none of the {len(relevant)} judged queries has an answer; are run and qrels of one set?")
    reciprocal, recall = [], []
    for query, wanted in relevant.items():
        hits = [rank for rank, passage in enumerate(ranked.get(query, ())[:depth], 1) if passage in wanted]
        reciprocal.append(1 / hits[0] if hits else 0.0)
        recall.append(len(hits) / len(wanted))
    return float(np.mean(reciprocal)), float(np.mean(recall))
