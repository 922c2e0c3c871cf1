"""MKQA's questions and answers: one set of questions in many languages, aligned by id.

Data: ``mkqa.jsonl`` as Apple publishes it, with answers, or ``mkqa.xx.tsv`` of split, id and question, without.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

from vmsst_jax.retrieval.lines import TextFile
from vmsst_jax.retrieval.records import Records, columns, json_object

FILE = "mkqa.jsonl"
# Of these an open-retrieval system can't give the answer; without them 6,758 of 10,000 are left (METHODS 5.4).
DROPPED = ("unanswerable", "long_answer")


class Example(NamedTuple):
    """A question: in each language, its English answers, aliases among them, and the line that it is from."""

    id: str
    questions: dict[str, str]
    answers: list[str]
    kind: str
    where: str = ""


class Questions(NamedTuple):
    """{language: questions}, question i being the same one in each; its id; the files that they are from."""

    texts: dict[str, list[str]]
    ids: list[str]
    files: list[TextFile]

    def where(self, code: str) -> Callable[[int], str]:
        """A function from a question's number to its file and id, for messages."""
        file = self.files[list(self.texts).index(code) if len(self.files) > 1 else 0]
        return lambda row: f"{file.path}, question {self.ids[row]}"


def read_examples(path: str | os.PathLike, dropped: Collection[str] = DROPPED) -> tuple[list[Example], TextFile]:
    """The examples of ``mkqa.jsonl`` but those whose answer is of a ``dropped`` kind, and the file.

    Raises ValueError, naming file and line, for malformed lines, repeated ids and examples without an English answer.
    """
    records = Records([path], _example)
    seen, kept = {}, []
    for number, example in enumerate(records):
        _new_id(records, number, example.id, seen)
        if example.kind not in dropped:
            if not example.answers:
                raise ValueError(f"{records.where(number)}: the question {example.id} has no English answer")
            kept.append(example._replace(where=records.where(number)))
    if not kept:
        raise ValueError(f"{path} holds no question with an answer of a kind other than {', '.join(dropped)}")
    return kept, records.files[0]


def _example(line: str) -> Example:
    found = json_object(line, "example_id", "queries", "answers")
    try:
        answers = found["answers"]["en"]
        kind = answers[0]["type"]
        texts = [text for a in answers for text in (a.get("text"), *a.get("aliases", ())) if text]
        questions = {code: text or "" for code, text in found["queries"].items()}
        if "en" not in questions:
            raise KeyError("en")
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(
            f"the question {found['example_id']} is not as MKQA's are ({type(error).__name__}: {error}); wanted "
            '"queries" of {language: question} with "en", and "answers" of {"en": [{"type", "text", "aliases"}]}'
        ) from None
    return Example(str(found["example_id"]), questions, texts, kind)


def in_language(examples: list[Example], code: str) -> list[str]:
    """The questions in one language; ValueError, naming file and line, where one is missing or blank."""
    for example in examples:
        if not example.questions.get(code, "").strip():
            raise ValueError(f"{example.where}: the question {example.id} is missing or blank in {code}")
    return [example.questions[code] for example in examples]


def find_languages(data_dir: str | os.PathLike) -> list[str]:
    """The codes of the languages in ``data_dir``, sorted; FileNotFoundError where there are none."""
    folder = Path(data_dir)
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}; give the one with {FILE}, or with files mkqa.xx.tsv")
    if (folder / FILE).exists():
        return sorted(read_examples(folder / FILE)[0][0].questions)
    codes = sorted(path.name.split(".")[1] for path in folder.glob("mkqa.*.tsv"))
    if not codes:
        raise FileNotFoundError(f"{folder} holds neither {FILE} nor files mkqa.xx.tsv")
    return codes


def read_questions(data_dir: str | os.PathLike, codes: Collection[str], split: str | None = None) -> Questions:
    """The questions that are there in all of ``codes``, in the order of the first.

    Args:
      data_dir: see above; ``mkqa.jsonl`` is taken where both are there.
      codes: of the languages wanted.
      split: "dev", "test", or None for all; ``mkqa.jsonl`` isn't split.

    Raises ValueError, naming file and line, for questions missing or blank in a language, repeated ids and no questions
    at all.
    """
    if (path := Path(data_dir) / FILE).exists():
        if split is not None:
            raise ValueError(f"{path} has no splits; leave split={split!r} away")
        examples, file = read_examples(path)
        return Questions({c: in_language(examples, c) for c in codes}, [e.id for e in examples], [file])
    by_code, files, ids = {}, [], []
    for code in codes:
        records = Records([Path(data_dir) / f"mkqa.{code}.tsv"], _row)
        questions = _of_split(records, split)
        ids = ids or list(questions)
        _same_ids(records, questions, ids, files)
        by_code[code] = [questions[i] for i in ids]
        files += records.files
    return Questions(by_code, ids, files)


def _row(line: str) -> list[str]:
    split, question_id, question = columns(line, ("split", "id", "question"))
    if not question.strip():
        raise ValueError(f"the question {question_id} is blank")
    return [split, question_id, question]


def _of_split(records: Records, wanted: str | None) -> dict[str, str]:
    """{id: question}"""
    questions, seen, splits = {}, {}, set()
    for number, (split, question_id, question) in enumerate(records):
        _new_id(records, number, question_id, seen)
        splits.add(split)
        if wanted in (None, split):
            questions[question_id] = question
    if not questions:
        raise ValueError(f"{records.files[0].path} has no split {wanted!r}; it has {', '.join(sorted(splits))}")
    return questions


def _same_ids(records: Records, found: dict[str, str], ids: list[str], files: list[TextFile]) -> None:
    """ValueError unless ``found`` has the questions ``ids``, those of the first of ``files``."""
    here = records.files[0].path
    if missing := [i for i in ids if i not in found]:
        raise ValueError(
            f"{here} lacks {len(missing)} questions of {files[0].path}, the first being {missing[0]}; fetch both again"
        )
    if len(found) != len(ids):
        number, extra = next((n, row[1]) for n, row in enumerate(records) if row[1] in found.keys() - set(ids))
        raise ValueError(f"{records.where(number)}: the question {extra} is not in {files[0].path}; fetch both again")


def _new_id(records: Records, number: int, question_id: str, seen: dict[str, int]) -> None:
    if question_id in seen:
        raise ValueError(
            f"{records.where(number)}: the id {question_id} is that of {records.where(seen[question_id])} already"
        )
    seen[question_id] = number
