"""VMSST's question retrieval: is the answer of the nearest question in a base of question-answer pairs the right one?

Zero-shot, on NQ and on MKQA, against PAQ (METHODS 5.4). Data, in one folder: ``nq_open/`` with NQ-open's questions,
``mkqa/mkqa.jsonl``, and ``paq/`` with the base in any number of files. Questions and base are lines of JSON with
"question" and "answer", or of question, tab, list of answers.
"""

from __future__ import annotations

import ast
import json
import os
import re
import string
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Unpack

import numpy as np

from vmsst_jax.benchmarks import mkqa
from vmsst_jax.benchmarks.language_sets import choose
from vmsst_jax.benchmarks.metrics import group_means
from vmsst_jax.benchmarks.report import format_table
from vmsst_jax.benchmarks.retriever import CorpusOptions, Retriever
from vmsst_jax.language_codes import canonical
from vmsst_jax.retrieval.embedder import Embedder
from vmsst_jax.retrieval.lines import TextFile
from vmsst_jax.retrieval.records import Records, checksum, columns, json_object

FOLDER = "."  # of several sets at once
BASE, MKQA = "paq", f"mkqa/{mkqa.FILE}"
# The 3,610 questions that papers call NQ-open's test set are the dev set of its makers.
NQ = tuple(f"nq_open/NQ-open.{name}" for name in ("test.jsonl", "dev.jsonl", "dev.tsv"))
SCORES = ("accuracy",)
ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


class Pair(NamedTuple):
    """A question and its answers."""

    question: str
    answers: list[str]


class Task(NamedTuple):
    """Questions of one language, for each the answers that are right, and a function from its number to its place."""

    language: str
    questions: list[str]
    gold: list[list[str]]
    where: Callable[[int], str]


def evaluate(
    embedder: Embedder,
    data_dir: str | os.PathLike,
    *,
    languages: Sequence[str] | None = None,
    base: str | os.PathLike = BASE,
    nq: str | os.PathLike | None = None,
    mkqa_file: str | os.PathLike = MKQA,
    drop_binary: bool = False,
    **corpus: Unpack[CorpusOptions],
) -> dict:
    """Share of questions whose nearest question in the base has a right answer.

    NQ or MKQA is left out where its file is missing, and the result has no group of that name.

    Args:
      embedder: the model.
      data_dir: see the head of this file.
      languages: codes of the languages wanted, of MKQA's questions, and "en" for NQ; None for all.
      base: the file with the base, or a folder with nothing but its files; their names end in .jsonl or .tsv.
      nq: NQ-open's questions; None takes the test set, by whichever of its names is there.
      mkqa_file: MKQA's questions and answers.
      drop_binary: leave out MKQA's yes-no questions too.
      **corpus: see ``retriever.Retriever``.

    Returns:
      The result, see ``suite``; scores are shares of 1.

    Raises:
      FileNotFoundError, ValueError: no base or no questions, malformed files; see also ``shards.embed``.
    """
    folder = Path(data_dir)
    tasks, read = read_tasks(folder, nq, mkqa_file, drop_binary)
    if languages is not None:
        chosen = choose(list(dict.fromkeys(task.language for task in tasks.values())), languages)
        tasks = {name: task for name, task in tasks.items() if task.language in chosen}
    pairs = open_base(folder / base)
    retriever = Retriever(embedder, **corpus)
    vectors = retriever.corpus(pairs, lambda pair: pair.question, "question", language="en")
    asked = [retriever.questions(task.questions, canonical(task.language), task.where) for task in tasks.values()]
    nearest = retriever.nearest(np.concatenate(asked), vectors, 1)
    per_language, start = {}, 0
    for name, task in tasks.items():
        found = nearest.indices[start : start + len(task.questions), 0].tolist()
        start += len(found)
        right = [is_right(pairs[row].answers, gold) for row, gold in zip(found, task.gold, strict=True)]
        per_language[name] = {"questions": len(right), "accuracy": float(np.mean(right))}
    groups = {group: [name for name in tasks if name.split()[0] == group] for group in ("NQ", "MKQA")}
    return {
        "benchmark": "question_retrieval",
        "data": {"directory": str(data_dir), "sha256": checksum([*read, *pairs.files]), "base_pairs": len(pairs)},
        "split": "test",
        "direction": "question -> question of the base",
        "scoring": (
            f"cosine; the answer of the single nearest of {len(pairs)} questions; right if any of its answers equals "
            "any right one after lower-casing and without punctuation, articles and double spaces; MKQA against its "
            f"English answers and aliases, without {' and '.join(_dropped(drop_binary))}; macro mean over languages"
        ),
        "index": nearest.index,
        "retriever": retriever.describe(),
        "scores": list(SCORES),
        "per_language": per_language,
        "means": group_means(per_language, {name: members for name, members in groups.items() if members}, SCORES),
    }


def _dropped(drop_binary: bool) -> tuple[str, ...]:
    return (*mkqa.DROPPED, "binary") if drop_binary else mkqa.DROPPED


def read_tasks(
    folder: Path, nq: str | os.PathLike | None, mkqa_file: str | os.PathLike, drop_binary: bool
) -> tuple[dict[str, Task], list[TextFile]]:
    """({"NQ" or "MKQA xx": its questions}, the files that they are from); raises what ``evaluate`` does."""
    tasks, read = {}, []
    paths = _question_files(folder, nq, mkqa_file)
    if "NQ" in paths:
        pairs = Records([paths["NQ"]], _parser(paths["NQ"]))
        questions, answers = zip(*pairs, strict=True)
        tasks["NQ"] = Task("en", list(questions), list(answers), pairs.where)
        read += pairs.files
    if "MKQA" in paths:
        examples, file = mkqa.read_examples(paths["MKQA"], _dropped(drop_binary))
        gold, where = [example.answers for example in examples], [example.where for example in examples].__getitem__
        for code in sorted(examples[0].questions):
            tasks[f"MKQA {code}"] = Task(code, mkqa.in_language(examples, code), gold, where)
        read.append(file)
    return tasks, read


def _question_files(folder: Path, nq: str | os.PathLike | None, mkqa_file: str | os.PathLike) -> dict[str, Path]:
    """{"NQ" or "MKQA": its file} of those that are there; FileNotFoundError where none is."""
    names = [nq] if nq is not None else NQ
    found = {
        group: next(folder / name for name in of_group if (folder / name).exists())
        for group, of_group in (("NQ", names), ("MKQA", [mkqa_file]))
        if any((folder / name).exists() for name in of_group)
    }
    if not found:
        raise FileNotFoundError(f"{folder} holds no questions: none of {', '.join(map(str, [*names, mkqa_file]))}")
    return found


def files(
    folder: Path,
    *,
    base: str | os.PathLike = BASE,
    nq: str | os.PathLike | None = None,
    mkqa_file: str | os.PathLike = MKQA,
    **_,
) -> list[Path]:
    """Those that ``evaluate`` reads with the same options; FileNotFoundError as from there."""
    return [*_question_files(folder, nq, mkqa_file).values(), *_base_files(folder / base)]


def open_base(path: str | os.PathLike) -> Records:
    """The ``Pair`` of a file, or of all files in a folder in the order of their names; see ``Records``."""
    paths = _base_files(Path(path))
    kinds = {file.suffix for file in paths}
    if len(kinds) > 1:
        raise ValueError(f"{path} holds files of several kinds, {', '.join(sorted(kinds))}; wanted the base alone")
    return Records(paths, _parser(paths[0]))


def _base_files(path: Path) -> list[Path]:
    if not path.exists():
        raise FileNotFoundError(f"there is no {path}; name the question-answer base, such as PAQ, with the option base")
    found = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
    if not found:
        raise FileNotFoundError(f"{path} is empty; wanted the files of the question-answer base, .jsonl or .tsv")
    return found


def _parser(path: Path):
    if path.suffix not in (".jsonl", ".tsv"):
        raise ValueError(f"{path} is neither .jsonl nor .tsv; unpack or rename it")
    return _from_tsv if path.suffix == ".tsv" else _from_json


def _from_json(line: str) -> Pair:
    found = json_object(line, "question", "answer")
    answers = [found["answer"]] if isinstance(found["answer"], str) else found["answer"]
    return _pair(found["question"], answers)


def _from_tsv(line: str) -> Pair:
    question, answers = columns(line, ("question", "answers"))
    if answers.startswith('"') and answers.endswith('"'):  # DPR's files quote them where quotes are inside
        answers = answers[1:-1].replace('""', '"')
    try:
        return _pair(question, json.loads(answers))
    except json.JSONDecodeError:
        pass
    try:
        return _pair(question, ast.literal_eval(answers))  # and hold Python's lists
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise ValueError(f"the answers are {answers[:80]!r}; wanted a list of strings") from None


def _pair(question: object, answers: object) -> Pair:
    texts = [question, *answers] if isinstance(answers, list) and answers else [None]
    if not all(isinstance(text, str) for text in texts) or not texts[0].strip():
        raise ValueError(f"found the question {question!r:.80} and answers {answers!r:.80}; wanted texts")
    return Pair(question, answers)


def normalize_answer(text: str) -> str:
    """As SQuAD's script does: lower case, without ASCII punctuation, without a, an and the, single spaces."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def is_right(answers: Iterable[str], gold: Collection[str]) -> bool:
    """Whether any answer is any gold one after ``normalize_answer``."""
    return not {normalize_answer(text) for text in answers}.isdisjoint(map(normalize_answer, gold))


def table(result: dict) -> str:
    """The scores in percent, set by set, then their means."""
    rows = [[name, s["questions"], s["accuracy"]] for name, s in result["per_language"].items()]
    for name, means in result["means"].items():
        rows.append([f"mean of {name}", "", means["accuracy"]])
    text = format_table(("questions of", "questions", *SCORES), rows)
    return f"{text}\nbase: {result['data']['base_pairs']:,} questions"
