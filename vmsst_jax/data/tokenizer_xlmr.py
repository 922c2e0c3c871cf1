"""XLM-R's tokenizer: a SentencePiece model whose ids are moved by one, in the frame ``<s> ... </s>``."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import sentencepiece

from vmsst_jax.data.framed import FramedTokenizer
from vmsst_jax.data.tokenizer import SENTENCES_PER_THREAD

BOS, PAD, EOS, UNK = 0, 1, 2, 3
# The model file begins with <unk> <s> </s> and has no padding piece: what follows moves from i to i + 1.
OFFSET = 1
FIRST_PIECE = 3


class XlmrTokenizer(FramedTokenizer):
    """``<s>`` 0, ``<pad>`` 1, ``</s>`` 2, ``<unk>`` 3, then the pieces, each one above its id in the model; at the
    end ``<mask>`` (METHODS 1.2). "Hello world!" is [0, 35378, 8999, 38, 2] with XLM-R's own model.
    """

    kind = "xlmr_sentencepiece"

    def __init__(self, serialized: bytes, origin: str = "the given bytes"):
        processor = sentencepiece.SentencePieceProcessor()
        try:
            if not processor.LoadFromSerializedProto(serialized):
                raise RuntimeError("it could not be parsed")
        except RuntimeError as error:
            raise ValueError(
                f"{origin} ({len(serialized)} bytes) is not a SentencePiece model: {error}. Give XLM-R's "
                "`sentencepiece.bpe.model`, undamaged."
            ) from None
        order = [processor.unk_id(), processor.bos_id(), processor.eos_id()]
        if order != [0, 1, 2]:
            raise ValueError(
                f"{origin} has <unk>, <s>, </s> at {order}; XLM-R's model has them at [0, 1, 2]. "
                "Is it another family's model (mT5's begins with <pad>, </s>, <unk>)?"
            )
        super().__init__(serialized, [BOS], [EOS])
        self._processor = processor
        self.mask_id: int = processor.GetPieceSize() + OFFSET
        self.vocab_size = self.mask_id + 1
        self.pad_id, self.unk_id, self.eos_id = PAD, UNK, EOS

    @classmethod
    def from_bytes(cls, serialized: bytes, origin: str = "the given bytes") -> XlmrTokenizer:
        """Builds the tokenizer from the model file's bytes."""
        return cls(serialized, origin)

    def pieces(self, texts: Sequence[str]) -> list[list[int]]:
        """N texts -> N lists of ids without special tokens."""
        threads = min(os.cpu_count() or 1, 1 + len(texts) // SENTENCES_PER_THREAD)
        rows = self._processor.Encode(list(texts), num_threads=threads)
        return [[i + OFFSET if i else UNK for i in row] for row in rows]

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """The text of one sentence's ids; special tokens vanish. IndexError for an id outside the vocabulary."""
        ids = [int(i) for i in ids]
        if wrong := [i for i in ids if not 0 <= i < self.vocab_size]:
            raise IndexError(f"id {wrong[0]} is outside the vocabulary of {self.vocab_size}")
        return self._processor.Decode([i - OFFSET for i in ids if FIRST_PIECE < i < self.mask_id])
