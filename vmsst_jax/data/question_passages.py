"""Questions and passages as a recipe names them: batches for the dual encoder's loss (METHODS 5.5), a vocabulary.

``QuestionStream`` has ``next() -> (batch, info)``, ``state() -> JSON-able dict`` and ``restore(dict)`` like every
stream; every process computes the same global batch, whatever the number of devices.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from vmsst_jax import checks
from vmsst_jax.data.languages import Languages
from vmsst_jax.data.question_files import Passage, Question
from vmsst_jax.data.shuffle import Permutation, draws
from vmsst_jax.data.tokenizer_xlmr import XlmrTokenizer

# A separator that is meant as special tokens: "</s></s>", " [SEP] ".
SPECIAL = re.compile(r"\s*(<[^<>\s]+>|\[[A-Z]+\])+\s*")


def without_question_mark(question: str) -> str:
    """A question without one "?" at its end."""
    return question.removesuffix("?").rstrip()


def joined(passage: Passage, separator: str | None) -> str:
    """What is embedded of a passage: title, separator, text; the text alone where there is no title or separator."""
    return f"{passage.title}{separator}{passage.text}" if passage.title and separator is not None else passage.text


@dataclasses.dataclass(frozen=True)
class QuestionPassages:
    """Questions, each with its passage and ``hard_negatives`` that look as if they answered it.

    Attributes:
      source: a ``DprFiles`` or an ``XquadFiles``; it is read whole at the start.
      batch_size: B, questions of an update over all devices; all passages of a batch are negatives for all questions.
      hard_negatives: H, passages drawn for each question among its own negatives, at random at every epoch.
      query_length, passage_length: tokens to which questions and passages are padded, special ones included; longer
        ones are cut and counted.
      title_separator: what joins title and text; None leaves titles out. "</s></s>" makes them the pair of texts that
        XLM-R knows, "[SEP]" that of BERT. Give evaluations the same.
      strip_question_mark: leave out one "?" at a question's end.
    """

    source: Any
    batch_size: int
    hard_negatives: int = 1
    query_length: int = 256
    passage_length: int = 256
    title_separator: str | None = " "
    strip_question_mark: bool = True

    def __post_init__(self):
        sizes = {"batch_size": 1, "hard_negatives": 0, "query_length": 3, "passage_length": 3}
        for name, least in sizes.items():
            checks.whole(f"QuestionPassages.{name}", getattr(self, name), least)
        if not hasattr(self.source, "questions"):
            raise ValueError(f"QuestionPassages.source is {self.source!r}; wanted @DprFiles() or @XquadFiles()")

    def check(self, languages: Languages, shards: int = 1, accumulate: int = 1) -> None:
        """ValueError for a batch that does not divide, FileNotFoundError for missing files; cheap."""
        if accumulate != 1:
            raise ValueError(
                f"Stream.accumulate is {accumulate} for QuestionPassages, whose questions take all passages of the "
                "batch as negatives: set it to 1, and dual_encoder_model.encoder_chunk if memory is short"
            )
        if self.batch_size % shards:
            below = self.batch_size // shards * shards
            raise ValueError(
                f"QuestionPassages.batch_size is {self.batch_size}, which does not divide over {shards} batch shards. "
                f"Nearest that work: {f'{below} or ' if below else ''}{below + shards}"
            )
        self.source.check()

    def shapes(self, shards: int = 1, accumulate: int = 1) -> dict:
        """Shapes of a batch's int32 arrays without reading anything."""
        passages = self.batch_size * (1 + self.hard_negatives)
        return {
            "question": (self.batch_size, self.query_length),
            "passage": (passages, self.passage_length),
            "passage_id": (passages,),
        }

    def open(self, tokenizer, languages: Languages, seed: int, shards: int = 1, accumulate: int = 1) -> QuestionStream:
        """An endless stream of batches, the same for any number of ``shards``."""
        check_separator(tokenizer, self.title_separator)
        return QuestionStream(self.texts(), tokenizer, self, seed)

    def texts(self) -> QuestionTexts:
        """All of the source, as text."""
        return QuestionTexts(self.source.questions(), self.title_separator, self.strip_question_mark)


class QuestionTexts:
    """Questions and distinct passages, as they are embedded.

    Attributes:
      questions: texts.
      passages: distinct texts.
      positive: int64 [questions], the passage of each; ``negatives``: an int64 array of passages for each.
    """

    def __init__(self, questions: Iterator[Question], separator: str | None, strip: bool):
        self.questions: list[str] = []
        self.negatives: list[np.ndarray] = []
        numbers: dict[str, int] = {}
        positive = []
        for question in questions:
            self.questions.append(without_question_mark(question.text) if strip else question.text)
            positive.append(numbers.setdefault(joined(question.positive, separator), len(numbers)))
            negatives = [numbers.setdefault(joined(p, separator), len(numbers)) for p in question.negatives]
            self.negatives.append(np.array([n for n in negatives if n != positive[-1]], np.int64))
        self.passages, self.positive = list(numbers), np.array(positive, np.int64)

    def __len__(self) -> int:
        return len(self.questions)


class QuestionStream:
    """Batches in a new random order of the questions at every epoch; its last ones that fill no batch are not used.

    ``batch``: ``question`` int32 [B, L], ``passage`` int32 [B + B x H, M], the questions' own passages before the hard
    negatives of question 0, 1, ..., and ``passage_id`` int32 [B + B x H], equal for equal passages, -1 where a question
    has fewer than H negatives. A batch depends on (seed, batch number) and the saved position (epoch, index) alone.

    ``info`` holds ``pair_id`` (numbers of the questions, int64 [B]), ``real_tokens`` and ``padded_tokens`` of the batch
    and ``truncated`` (texts cut since the start of training, kept over a resume).
    """

    def __init__(self, texts: QuestionTexts, tokenizer, sizes: QuestionPassages, seed: int):
        """Stands before the first batch. ValueError where there are fewer questions than a batch takes."""
        if len(texts) < sizes.batch_size:
            raise ValueError(
                f"QuestionPassages.batch_size is {sizes.batch_size}, and the source has {len(texts)} questions: lower "
                "the batch size, or give more questions"
            )
        self.texts, self.seed = texts, seed
        self._tokenizer, self._sizes = tokenizer, sizes
        self._batch = self._truncated = 0
        self._epoch, self._index = 0, 0
        self._order: tuple[int, Permutation] | None = None  # (epoch, its order)

    @property
    def negatives(self) -> int:
        """Passages that a question has to tell its own from."""
        return self._sizes.batch_size * (1 + self._sizes.hard_negatives) - 1

    def next(self) -> tuple[dict, dict]:
        """The next (batch, info)."""
        s = self._sizes
        chosen = self._take(s.batch_size)
        passages = np.concatenate([self.texts.positive[chosen], self._hard_negatives(chosen)])
        questions, real, cut = self._rows([self.texts.questions[i] for i in chosen], s.query_length)
        texts = ["" if i < 0 else self.texts.passages[i] for i in passages.tolist()]
        rows, more, more_cut = self._rows(texts, s.passage_length)
        self._batch += 1
        self._truncated += cut + more_cut
        batch = {"question": questions, "passage": rows, "passage_id": passages.astype(np.int32)}
        info = {
            "pair_id": chosen,
            "real_tokens": real + more,
            "padded_tokens": questions.size + rows.size,
            "truncated": self._truncated,
        }
        return batch, info

    def _take(self, count: int) -> np.ndarray:
        """The next ``count`` questions of the order, all of one epoch: int64 [count]."""
        if self._index + count > len(self.texts):
            self._epoch, self._index = self._epoch + 1, 0
        if self._order is None or self._order[0] != self._epoch:
            self._order = self._epoch, Permutation(len(self.texts), self.seed, 0, self._epoch)
        self._index += count
        return self._order[1](np.arange(self._index - count, self._index))

    def _hard_negatives(self, chosen: np.ndarray) -> np.ndarray:
        """H passages for each question, different ones, -1 where they run out: int64 [B x H]."""
        many = self._sizes.hard_negatives
        uniform = draws(self.seed, self._batch, len(chosen) * many, kind=4)[0].reshape(len(chosen), many)
        out = np.full((len(chosen), many), -1, np.int64)
        for row, question, u in zip(out, chosen, uniform, strict=True):
            left = self.texts.negatives[question].copy()
            for i in range(min(many, len(left))):  # the first steps of a Fisher-Yates shuffle
                other = i + int(u[i] * (len(left) - i))
                left[[i, other]] = left[[other, i]]
                row[i] = left[i]
        return out.ravel()

    def _rows(self, texts: Sequence[str], length: int) -> tuple[np.ndarray, int, int]:
        """(int32 [N, length] filled up with padding, number of tokens, number of texts that were cut)."""
        ids, cut = self._tokenizer.encode(texts, length)
        out = np.full((len(texts), length), self._tokenizer.pad_id, np.int32)
        for row, tokens in zip(out, ids, strict=True):
            row[: len(tokens)] = tokens
        return out, sum(map(len, ids)), cut

    def facts(self) -> list[str]:
        """For a run's overview."""
        s, lacking = self._sizes, sum(len(n) < self._sizes.hard_negatives for n in self.texts.negatives)
        facts = [
            f"{s.batch_size} questions an update, each with its passage and {s.hard_negatives} hard negative(s)",
            f"padded to {s.query_length} and {s.passage_length} tokens",
            f"{len(self.texts):,} questions, {len(self.texts.passages):,} passages, "
            f"{len(self.texts) // s.batch_size:,} steps an epoch",
        ]
        return facts + ([f"{lacking:,} questions have fewer hard negatives"] if lacking else [])

    def checksums(self) -> dict[str, str]:
        """{"questions": the SHA-256 of questions, passages, and which belongs to which}."""
        texts = self.texts
        numbers = [texts.positive.tolist(), *(negatives.tolist() for negatives in texts.negatives)]
        what = json.dumps([texts.questions, texts.passages, numbers])
        return {"questions": hashlib.sha256(what.encode()).hexdigest()}

    def state(self) -> dict:
        """The position, and the size of the source as a check."""
        return {
            "batch": self._batch,
            "truncated": self._truncated,
            "epoch": self._epoch,
            "index": self._index,
            "size": [len(self.texts), len(self.texts.passages)],
        }

    def restore(self, state: dict) -> None:
        """Continues where ``state`` was taken; ValueError when the source is not the one it was taken on."""
        size = [len(self.texts), len(self.texts.passages)]
        if state["size"] != size:
            raise ValueError(
                "the saved position belongs to {:,} questions on {:,} passages, ".format(*state["size"])
                + "this run has {:,} on {:,}: give the same files, or start in a new model directory".format(*size)
            )
        self._batch, self._truncated = state["batch"], state["truncated"]
        self._epoch, self._index = state["epoch"], state["index"]


def check_separator(tokenizer, separator: str | None) -> None:
    """ValueError for a separator that looks like special tokens and that the tokenizer would spell out as text."""
    if separator is None or not SPECIAL.fullmatch(separator):
        return
    ids = tokenizer.encode([separator], 32)[0][0].tolist()
    if text := [i for i in ids if i not in getattr(tokenizer, "special_ids", ())]:
        raise ValueError(
            f"QuestionPassages.title_separator is {separator!r}, which this run's tokenizer reads as text ({len(text)} "
            "pieces): give its own special tokens (XLM-R '</s></s>', BERT '[SEP]'), or ' '"
        )


def train_question_sentencepiece(source, vocab_size: int, **options) -> XlmrTokenizer:
    """A vocabulary in XLM-R's form, trained on the questions and passages of a ``QuestionPassages.source``.

    ``options`` go to ``XlmrTokenizer.train``. ValueError for sizes that are no whole numbers.
    """
    checks.whole("train_question_sentencepiece.vocab_size", vocab_size, 6)  # five of them are special
    texts = QuestionTexts(source.questions(), None, strip=False)
    return XlmrTokenizer.train((*texts.questions, *texts.passages), vocab_size, **options)
