"""XLM-R's tokenizer: a SentencePiece model whose ids are moved by one, in the frame ``<s> ... </s>``."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from vmsst_jax.data.framed import FramedTokenizer
from vmsst_jax.data.tokenizer import SENTENCES_PER_THREAD, load_model, train_model

BOS, PAD, EOS, UNK = 0, 1, 2, 3
# The model file begins with <unk> <s> </s> and has no padding piece: what follows moves from i to i + 1.
OFFSET = 1
FIRST_PIECE = 3
EOS_TEXT = "</s>"
SPACE = "\u2581"  # stands before the pieces that begin a word


class XlmrTokenizer(FramedTokenizer):
    """``<s>`` 0, ``<pad>`` 1, ``</s>`` 2, ``<unk>`` 3, then the pieces, each one above its id in the model; at the
    end ``<mask>`` (METHODS 1.2). "Hello world!" is [0, 35378, 8999, 38, 2] with XLM-R's own model.
    """

    kind = "xlmr_sentencepiece"

    def __init__(self, serialized: bytes, origin: str = "the given bytes"):
        processor = load_model(serialized, origin)
        order = [processor.unk_id(), processor.bos_id(), processor.eos_id()]
        if order != [0, 1, 2]:
            raise ValueError(
                f"{origin} has <unk>, <s>, </s> at {order}; XLM-R's model has them at [0, 1, 2]. "
                "Is it another family's model (mT5's begins with <pad>, </s>, <unk>)?"
            )
        super().__init__(serialized, [BOS], [EOS])
        self._processor = processor
        self._starts: np.ndarray | None = None
        self.mask_id: int = processor.GetPieceSize() + OFFSET
        self.vocab_size = self.mask_id + 1
        self.pad_id, self.unk_id, self.eos_id = PAD, UNK, EOS

    @classmethod
    def from_bytes(cls, serialized: bytes, origin: str = "the given bytes") -> XlmrTokenizer:
        """Builds the tokenizer from the model file's bytes."""
        return cls(serialized, origin)

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocab_size: int,
        *,
        character_coverage: float = 0.9995,
        byte_fallback: bool = False,
    ) -> XlmrTokenizer:
        """Trains a vocabulary of ``vocab_size`` ids, ``<s>``, ``<pad>``, ``</s>``, ``<unk>`` and ``<mask>`` included.

        Arguments and errors are those of ``vmsst_jax.data.tokenizer.Tokenizer.train``.
        """
        ids = {"unk_id": 0, "bos_id": 1, "eos_id": 2, "pad_id": -1}
        options = {"character_coverage": character_coverage, "byte_fallback": byte_fallback}
        trainers = ("train_xlmr_sentencepiece", "train_question_sentencepiece")
        # <pad> and <mask> are ids that the model file has no pieces for.
        return cls(train_model(texts, vocab_size, ids, trainers, without=2, **options), origin="the trained model")

    def pieces(self, texts: Sequence[str]) -> list[list[int]]:
        """N texts -> N lists of ids without the special tokens around a sentence.

        As with Hugging Face's class, ``</s>`` within a text is that special token: "title</s></s>text" is a pair.
        """
        parts = [text.split(EOS_TEXT) for text in texts]
        rows = iter(self._plain_pieces([part for text in parts for part in text]))
        return [list(itertools.chain.from_iterable(_separated(rows, len(text)))) for text in parts]

    def _plain_pieces(self, texts: list[str]) -> list[list[int]]:
        threads = min(os.cpu_count() or 1, 1 + len(texts) // SENTENCES_PER_THREAD)
        rows = self._processor.Encode(texts, num_threads=threads)
        return [[i + OFFSET if i else UNK for i in row] for row in rows]

    def word_starts(self, ids: np.ndarray) -> np.ndarray:
        """Whether each piece of one sentence begins a word, bool [N]: those with a space before them, and the first."""
        if self._starts is None:
            size = self._processor.GetPieceSize()
            known = [self._processor.IdToPiece(i).startswith(SPACE) for i in range(FIRST_PIECE, size)]
            self._starts = np.array([False] * (FIRST_PIECE + OFFSET) + known + [True])
        return self._starts[ids] | (np.arange(len(ids)) == 0)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """The text of one sentence's ids; special tokens vanish. IndexError for an id outside the vocabulary."""
        ids = [int(i) for i in ids]
        if wrong := [i for i in ids if not 0 <= i < self.vocab_size]:
            raise IndexError(f"id {wrong[0]} is outside the vocabulary of {self.vocab_size}")
        return self._processor.Decode([i - OFFSET for i in ids if FIRST_PIECE < i < self.mask_id])


def _separated(rows: Iterator[list[int]], count: int) -> Iterator[list[int]]:
    """The next ``count`` rows of pieces with ``</s>`` between them."""
    yield next(rows)
    for _ in range(count - 1):
        yield [EOS]
        yield next(rows)
