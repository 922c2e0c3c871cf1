"""XOR-Retrieve: do the English passages that a question finds hold its answer (METHODS 5.7)?

Data: ``xor_SPLIT_retrieve_eng_span_v1_1.jsonl`` or ``SPLIT.jsonl``, objects of id, question, lang and answers, and the
English Wikipedia of 2019-02-01 in passages of 100 words, ``en_wiki.tsv`` of id, text and title.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Unpack

import numpy as np

from vmsst_jax import checks
from vmsst_jax.benchmarks.language_sets import choose
from vmsst_jax.benchmarks.metrics import group_means
from vmsst_jax.benchmarks.passages import find_ids, open_passages, with_title
from vmsst_jax.benchmarks.report import format_table
from vmsst_jax.benchmarks.retriever import Retriever, RetrieverOptions
from vmsst_jax.benchmarks.word_tokens import word_tokenizer
from vmsst_jax.language_codes import canonical
from vmsst_jax.retrieval.embedder import Embedder
from vmsst_jax.retrieval.lines import TextFile, scan
from vmsst_jax.retrieval.progress import Progress
from vmsst_jax.retrieval.records import Records, checksum, columns, json_object

FOLDER = "xorqa"
QUESTIONS = ("xor_{}_retrieve_eng_span_v1_1.jsonl", "xor_{}_retrieve_eng_span.jsonl", "{}.jsonl")
PASSAGES = "en_wiki.tsv"
# Tokens of the retrieved text that are looked at.
CUTS = {"R@2kt": 2000, "R@5kt": 5000}
WHAT_IS_RIGHT = (
    "texts without titles in the order of their rank, NLTK's word_tokenize, cut at 2,000 and 5,000 tokens, joined by "
    "spaces; right if any answer but yes and no is a case-sensitive substring; questions with no other answer are "
    "skipped; macro mean over languages"
)


class Question(NamedTuple):
    """``answers`` are spans: what is left without "yes" and "no"; ``where`` is file and line."""

    id: str
    language: str
    text: str
    answers: list[str]
    where: str = ""


def evaluate(
    embedder: Embedder | None,
    data_dir: str | os.PathLike,
    *,
    languages: Sequence[str] | None = None,
    split: str = "dev",
    questions: str | None = None,
    passages: str = PASSAGES,
    run: str | os.PathLike | None = None,
    depth: int = 100,
    title_separator: str | None = " ",
    **options: Unpack[RetrieverOptions],
) -> dict:
    """R@2kt and R@5kt per language, and their macro means.

    Args:
      embedder: the model; not used with ``run``.
      data_dir: see the head of this file.
      languages: codes of the languages wanted; None for all.
      split: "dev", or what else there are answers for.
      questions: another file of questions in ``data_dir``: .jsonl, or .tsv of split, language, id, question, answers.
      passages: another file of passages in ``data_dir``.
      run: predictions as the task's own script wants them, to be scored instead of a model: a JSON list of objects with
        "id" (or "q_id"), "lang" and "ctxs", texts in the order of their rank.
      depth: passages to a question.
      title_separator: between a passage's title and its text where they are embedded; None leaves titles out. Answers
        are looked for in texts alone.
      **options: see ``retriever.Retriever``.

    Returns:
      The result, see ``suite``; scores are shares of 1. "short" counts questions with passages of fewer than 5,000
      tokens in all, whose scores may be too low.

    Raises:
      FileNotFoundError, ValueError: files missing, empty or malformed, repeated ids, questions without predictions,
        fewer passages than ``depth``; see also ``shards.embed``.
    """
    asked, asked_file = read_questions(_questions_file(data_dir, split, questions), split)
    spans = [question for question in asked if question.answers]
    chosen = choose(sorted({question.language for question in spans}), languages)
    spans = [question for question in spans if question.language in chosen]
    tokenize = word_tokenizer()
    retriever, index = None, {"kind": "ready run", "recall": None}
    checks.whole("depth", depth)
    if run is None:
        retriever = Retriever(embedder, **options)
        texts, read, index = _search(retriever, spans, Path(data_dir) / passages, depth, title_separator)
        protocol = f"{depth} nearest passages by {retriever.similarity}, embedded: {with_title(title_separator)[1]}"
    else:
        texts, read = _read_run(run, spans, asked)
        protocol = f"ready predictions, {run}"
    per_language = _score(spans, texts, tokenize)
    for code, scores in per_language.items():
        scores["skipped"] = sum(1 for q in asked if q.language == code and not q.answers)
    return {
        "benchmark": "xor_retrieve",
        "data": {"directory": str(data_dir), "sha256": checksum([asked_file, *read]), "questions": len(spans)},
        "split": split,
        "direction": "question -> English passage",
        "scoring": f"{protocol}; {WHAT_IS_RIGHT}",
        "index": index,
        "retriever": retriever.describe() if retriever else None,
        "scores": list(CUTS),
        "per_language": per_language,
        "means": group_means(per_language, {"all": list(per_language)}, tuple(CUTS)),
    }


def _questions_file(data_dir: str | os.PathLike, split: str, name: str | None) -> Path:
    names = [name] if name else [pattern.format(split) for pattern in QUESTIONS]
    paths = [Path(data_dir) / name for name in names]
    if found := [path for path in paths if path.exists()]:
        return found[0]
    raise FileNotFoundError(f"{data_dir} holds none of {', '.join(names)}; name the file with the option questions")


def read_questions(path: str | os.PathLike, split: str) -> tuple[list[Question], TextFile]:
    """The questions of a split, and their file. ValueError, naming file and line, for bad lines and repeated ids."""
    tsv = Path(path).suffix == ".tsv"
    records = Records([path], _from_tsv if tsv else _from_json)
    found, seen, splits = [], {}, set()
    for number, (its_split, question) in enumerate(records):
        if not question.text.strip():
            raise ValueError(f"{records.where(number)}: the question {question.id} is blank")
        if question.id in seen:
            raise ValueError(
                f"{records.where(number)}: the id {question.id} is that of {records.where(seen[question.id])} already"
            )
        seen[question.id] = number
        splits.add(its_split)
        if its_split in (split, None):
            found.append(question._replace(where=records.where(number)))
    if not any(question.answers for question in found):
        raise ValueError(
            f"{path} has no question of the split {split!r} with an answer other than yes and no; it has "
            f"{len(seen)} questions of the splits {', '.join(sorted(map(str, splits)))}"
        )
    return found, records.files[0]


def _from_json(line: str) -> tuple[str | None, Question]:
    found = json_object(line, "id", "question", "lang", "answers")
    question = Question(str(found["id"]), str(found["lang"]), str(found["question"]), _spans(found["answers"]))
    return found.get("split"), question


def _from_tsv(line: str) -> tuple[str, Question]:
    split, language, question_id, text, answers = columns(line, ("split", "lang", "id", "question", "answers"))
    try:
        answers = json.loads(answers or "[]")
    except ValueError as error:
        raise ValueError(f"malformed JSON in the column answers ({error}): {answers[:80]!r}") from None
    return split, Question(question_id, language, text, _spans(answers))


def _spans(answers: object) -> list[str]:
    if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
        raise ValueError(f"answers are {answers!r:.80}; wanted a list of strings")
    # An empty answer would be found in anything.
    return [answer for answer in answers if answer.strip() and answer not in ("yes", "no")]


def _search(
    retriever: Retriever, questions: list[Question], path: Path, depth: int, separator: str | None
) -> tuple[Callable[[int], Iterable[str]], list[TextFile], dict]:
    """(question's number -> texts of its passages in the order of their rank, files read, how it was searched)."""
    passages = open_passages(path, depth)
    find_ids(passages)
    vectors = retriever.corpus(passages, *with_title(separator), language="en")
    asked: dict[str, list[int]] = {}
    for number, question in enumerate(questions):
        asked.setdefault(question.language, []).append(number)
    parts = []
    for code, members in asked.items():
        of_one = [questions[i] for i in members]
        where = [question.where for question in of_one].__getitem__
        parts.append(retriever.questions([question.text for question in of_one], canonical(code), where))
    # All at once: the shards may be larger than memory and are read once a search.
    found = retriever.nearest(np.concatenate(parts), vectors, depth)
    best = np.empty((len(questions), depth), np.int64)
    best[[i for members in asked.values() for i in members]] = found.indices
    return lambda number: (passages[row].text for row in best[number].tolist()), passages.files, found.index


def _read_run(
    path: str | os.PathLike, questions: list[Question], known: list[Question]
) -> tuple[Callable[[int], Iterable[str]], list[TextFile]]:
    """(question's number -> texts, files read), from a file of predictions."""
    file = scan(path)
    try:
        predictions = json.loads(Path(path).read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: malformed JSON ({error}); wanted a list of objects") from None
    if not isinstance(predictions, list):
        raise ValueError(f"{path} holds the JSON of a {type(predictions).__name__}; wanted a list of objects")
    texts, languages = {}, {question.id: question.language for question in known}
    for number, found in enumerate(predictions, 1):
        where = f"{path}, object {number}"
        question_id = found.get("id", found.get("q_id")) if isinstance(found, dict) else None
        contexts = found.get("ctxs") if question_id is not None else None
        if not isinstance(contexts, list) or not all(isinstance(text, str) for text in contexts):
            raise ValueError(f'{where} is {found!r:.80}; wanted "id" or "q_id", "lang" and "ctxs", a list of texts')
        question_id = str(question_id)
        if question_id not in languages or found.get("lang") != languages[question_id]:
            raise ValueError(f"{where}: there is no question {question_id} in {found.get('lang')!r}")
        if question_id in texts:
            raise ValueError(f"{where}: the question {question_id} is there twice")
        texts[question_id] = contexts
    if missing := [question.id for question in questions if question.id not in texts]:
        raise ValueError(f"{path} lacks {len(missing)} of {len(questions)} questions, the first being {missing[0]}")
    return lambda number: texts[questions[number].id], [file]


def first_tokens(texts: Iterable[str], most: int, tokenize: Callable[[str], list[str]]) -> list[str]:
    """The first ``most`` tokens of texts one after the other; no more texts are asked for than that takes."""
    tokens = []
    for text in texts:
        tokens += tokenize(text)
        if len(tokens) >= most:
            break
    return tokens[:most]


def has_answer(tokens: Sequence[str], answers: Iterable[str]) -> bool:
    """Whether an answer is a substring, upper and lower case apart, of the tokens joined by spaces."""
    text = " ".join(tokens)
    return any(answer in text for answer in answers)


def _score(questions: list[Question], texts: Callable[[int], Iterable[str]], tokenize) -> dict[str, dict]:
    most = max(CUTS.values())
    hits: dict[str, list] = {}
    with Progress("looking for answers", len(questions)) as shown:
        for number, question in enumerate(questions):
            tokens = first_tokens(texts(number), most, tokenize)
            found = [has_answer(tokens[:cut], question.answers) for cut in CUTS.values()]
            hits.setdefault(question.language, []).append([*found, len(tokens) < most])
            shown.update(1)
    per_language = {}
    for language, rows in sorted(hits.items()):
        *recalls, _ = np.mean(rows, axis=0).tolist()
        counts = {"questions": len(rows), "short": sum(row[-1] for row in rows)}
        per_language[language] = counts | dict(zip(CUTS, recalls, strict=True))
    return per_language


def table(result: dict) -> str:
    """The scores in percent, language by language, then their mean."""
    names = ("questions", "skipped", "short", *CUTS)
    rows = [[code, *(s[name] for name in names)] for code, s in result["per_language"].items()]
    mean = result["means"]["all"]
    rows.append([f"mean of {mean['languages']}", "", "", "", *(mean[name] for name in CUTS)])
    return format_table(("language", *names), rows)
