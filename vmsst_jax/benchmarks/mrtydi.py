"""Mr. TyDi: does a question find the Wikipedia passages that answer it, in its own language (METHODS 5.6)?

Data, version 1.1, in one folder a language, ``mrtydi-v1.1-arabic`` as published or ``ar``: ``topic.SPLIT.tsv``,
``qrels.SPLIT.txt`` and, unpacked, ``collection/docs.jsonl``. Anserini's ``topics.ar.SPLIT.txt`` and
``qrels.ar.SPLIT.txt`` may lie beside these folders instead.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Unpack

from vmsst_jax.benchmarks import trec
from vmsst_jax.benchmarks.language_sets import choose
from vmsst_jax.benchmarks.metrics import group_means
from vmsst_jax.benchmarks.passages import find_ids, open_passages, with_title
from vmsst_jax.benchmarks.report import format_table
from vmsst_jax.benchmarks.retriever import Retriever, RetrieverOptions
from vmsst_jax.retrieval import nearest
from vmsst_jax.retrieval.embedder import Embedder
from vmsst_jax.retrieval.lines import TextFile
from vmsst_jax.retrieval.records import checksum

NAMES = {
    "ar": "arabic", "bn": "bengali", "en": "english", "fi": "finnish", "id": "indonesian", "ja": "japanese",
    "ko": "korean", "ru": "russian", "sw": "swahili", "te": "telugu", "th": "thai",
}  # fmt: skip
DEPTH = 100
SCORES = (f"Recall@{DEPTH}", f"MRR@{DEPTH}")


class Paths(NamedTuple):
    """The files of one language; the corpus need not be there to score a ready run."""

    topics: Path
    qrels: Path
    corpus: Path


class Task(NamedTuple):
    """Of one language: all topics, and the relevant passages of the judged ones."""

    topics: dict[str, str]
    relevant: dict[str, dict[str, str]]
    files: list[TextFile]


def evaluate(
    embedder: Embedder | None,
    data_dir: str | os.PathLike,
    *,
    languages: Sequence[str] | None = None,
    split: str = "test",
    runs: str | None = None,
    title_separator: str | None = " ",
    **options: Unpack[RetrieverOptions],
) -> dict:
    """MRR@100 and Recall@100 per language, and their macro means.

    Args:
      embedder: the model; not used with ``runs``.
      data_dir: see the head of this file.
      languages: codes of the languages wanted; None for all whose topics and qrels are there.
      split: "train", "dev" or "test".
      runs: where TREC runs lie that are to be scored instead of a model, with {language}, {name} and {split} in place
        of "ar", "arabic" and "test".
      title_separator: between a passage's title and its text where they are embedded; None leaves titles out.
      **options: see ``retriever.Retriever``.

    Returns:
      The result, see ``suite``; scores are shares of 1. Only judged topics are searched for.

    Raises:
      FileNotFoundError, ValueError: files missing, empty or malformed, qrels without their topics or passages, repeated
        ids, fewer than 100 passages; see also ``shards.embed``.
    """
    found = find_languages(data_dir, split)
    tasks = {code: read_task(found[code]) for code in choose(list(found), languages)}
    per_language, files, searches = {}, [], [{"kind": "ready run", "recall": None}]
    retriever = None
    if runs is None:
        retriever, searches = Retriever(embedder, **options), []
    for code, task in tasks.items():
        if retriever:
            scores, read, index = _search(retriever, code, task, found[code].corpus, title_separator)
            searches.append(index)
        else:
            scores, read = _score_run(runs.format(language=code, name=NAMES[code], split=split), task)
        per_language[code] = {"queries": len(task.relevant), **scores}
        files += [*task.files, *read]
    return {
        "benchmark": "mrtydi",
        "data": {"directory": str(data_dir), "sha256": checksum(files), "languages": len(tasks), "version": "1.1"},
        "split": split,
        "direction": "question -> passage of the same language",
        "scoring": (
            f"the {DEPTH} nearest passages; reciprocal rank of the best relevant one, and share of the relevant ones "
            "that are found, mean over all judged queries as trec_eval -c, macro mean over languages; "
            + (
                f"{retriever.similarity}, embedded: {with_title(title_separator)[1]}"
                if retriever
                else f"ready runs, {runs}"
            )
        ),
        "index": nearest.together(searches),
        "retriever": retriever.describe() if retriever else None,
        "scores": list(SCORES),
        "per_language": per_language,
        "means": group_means(per_language, {"all": list(tasks)}, SCORES),
    }


def find_languages(data_dir: str | os.PathLike, split: str) -> dict[str, Paths]:
    """{code: its files} of the languages whose topics and qrels of ``split`` are there.

    Raises FileNotFoundError where there is none at all, or topics without qrels or the reverse.
    """
    folder, found = Path(data_dir), {}
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}; give the one with Mr. TyDi's folders")
    for code, name in NAMES.items():
        homes = [home for home in (folder / f"mrtydi-v1.1-{name}", folder / code) if home.is_dir()]
        corpus = (homes or [folder / code])[0] / "collection" / "docs.jsonl"
        pairs = [(home / f"topic.{split}.tsv", home / f"qrels.{split}.txt") for home in homes]
        for topics, qrels in (*pairs, (folder / f"topics.{code}.{split}.txt", folder / f"qrels.{code}.{split}.txt")):
            if topics.exists() != qrels.exists():
                raise FileNotFoundError(f"of {topics} and {qrels} only one is there; both are wanted")
            if topics.exists():
                found.setdefault(code, Paths(topics, qrels, corpus))
    if not found:
        raise FileNotFoundError(
            f"{folder} holds neither mrtydi-v1.1-arabic/topic.{split}.tsv nor ar/topic.{split}.tsv nor "
            f"topics.ar.{split}.txt, nor those of another language of Mr. TyDi"
        )
    return found


def read_task(paths: Paths) -> Task:
    """The topics and qrels of one language; raises what ``trec.read_topics`` and ``trec.read_qrels`` do."""
    topics, topics_file = trec.read_topics(paths.topics)
    relevant, qrels_file = trec.read_qrels(paths.qrels, topics)
    return Task(topics, relevant, [topics_file, qrels_file])


def _score_run(path: str, task: Task) -> tuple[dict, list[TextFile]]:
    ranked, file = trec.read_run(path, task.topics)
    return {"unanswered": len(task.relevant.keys() - ranked.keys()), **_scores(ranked, task.relevant)}, [file]


def _search(
    retriever: Retriever, code: str, task: Task, path: Path, separator: str | None
) -> tuple[dict, list[TextFile], dict]:
    """(scores, files read, how it was searched)."""
    passages = open_passages(path, DEPTH)
    wanted = {passage: where for passages in task.relevant.values() for passage, where in passages.items()}
    rows = find_ids(passages, wanted)
    if lost := [passage for passage in wanted if passage not in rows]:
        raise ValueError(
            f"{wanted[lost[0]]}: the passage {lost[0]} and {len(lost) - 1} others are not in {path}; qrels and "
            "passages are of different versions, fetch both again"
        )
    vectors = retriever.corpus(passages, *with_title(separator), language=code)
    asked = list(task.relevant)
    questions = retriever.questions(
        [task.topics[query] for query in asked], code, lambda row: f"{task.files[0].path}, query {asked[row]}"
    )
    found = retriever.nearest(questions, vectors, DEPTH)
    ranked = dict(zip(task.relevant, found.indices.tolist(), strict=True))
    relevant = {query: {rows[passage] for passage in judged} for query, judged in task.relevant.items()}
    return {"passages": len(passages), **_scores(ranked, relevant)}, passages.files, found.index


def _scores(ranked: dict, relevant: dict) -> dict[str, float]:
    mrr, recall = trec.mrr_and_recall(ranked, relevant, DEPTH)
    return dict(zip(SCORES, (recall, mrr), strict=True))


def table(result: dict) -> str:
    """The scores in percent, language by language, then their mean."""
    counts = [name for name in next(iter(result["per_language"].values())) if name not in SCORES]
    rows = [[code, *(s[name] for name in (*counts, *SCORES))] for code, s in result["per_language"].items()]
    mean = result["means"]["all"]
    rows.append([f"mean of {mean['languages']}", *("" for _ in counts), *(mean[name] for name in SCORES)])
    return format_table(("language", *counts, *SCORES), rows)
