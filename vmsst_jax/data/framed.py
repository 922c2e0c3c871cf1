"""What every tokenizer does once it has a sentence's pieces: cut them, and put the family's special tokens around."""

from __future__ import annotations

import abc
import hashlib
from collections.abc import Sequence
from itertools import chain

import numpy as np


class FramedTokenizer(abc.ABC):
    """Base of the tokenizers of foreign models; ``vmsst_jax.data.tokenizer.Tokenizer`` has the same interface.

    A subclass sets the attributes below and defines ``pieces`` and ``decode``.

    Attributes:
      kind: the family, as checkpoints name it.
      serialized: bytes from which ``from_bytes`` makes the same tokenizer again; ``sha256``: their checksum.
      options: what ``from_bytes`` takes beside the bytes, ready for JSON.
      prefix_ids, suffix_ids: the special tokens before and after every sentence; ``special_ids``: all of them, sorted.
      pad_id, unk_id: ids of the special pieces (``unk_id`` None where nothing is unknown).
      vocab_size: one more than the highest id.
    """

    kind: str
    vocab_size: int
    pad_id: int
    unk_id: int | None

    def __init__(self, serialized: bytes, prefix_ids: Sequence[int], suffix_ids: Sequence[int], **options):
        self.serialized, self.options = serialized, options
        self.sha256 = hashlib.sha256(serialized).hexdigest()
        self.prefix_ids, self.suffix_ids = tuple(prefix_ids), tuple(suffix_ids)
        self.special_ids = tuple(sorted({*self.prefix_ids, *self.suffix_ids}))

    @abc.abstractmethod
    def pieces(self, texts: Sequence[str]) -> list[list[int]]:
        """N texts -> N lists of ids without special tokens."""

    @abc.abstractmethod
    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """The text of one sentence's ids; special tokens vanish. IndexError for an id outside the vocabulary."""

    def encode_flat(self, texts: Sequence[str], max_length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Tokenises many sentences into one flat array.

        Args:
          texts: N sentences; an empty one becomes the special tokens alone.
          max_length: most tokens a sentence may keep, special ones included.

        Returns:
          (tokens int32 [sum of lengths], lengths int64 [N], cut bool [N]: whether the sentence was truncated).
        """
        room = max_length - len(self.prefix_ids) - len(self.suffix_ids)
        if room < 1:
            raise ValueError(
                f"max_length is {max_length}; wanted {max_length - room + 1} or more: one token and the "
                f"{max_length - room} special ones around it."
            )
        rows = self.pieces(texts)
        full = np.fromiter(map(len, rows), np.int64, len(rows))
        kept = np.minimum(full, room)
        framed = ((self.prefix_ids, row[:room], self.suffix_ids) for row in rows)
        lengths = kept + len(self.prefix_ids) + len(self.suffix_ids)
        flat = chain.from_iterable(chain.from_iterable(framed))
        return np.fromiter(flat, np.int32, lengths.sum()), lengths, full > room

    def encode(self, texts: Sequence[str], max_length: int) -> tuple[list[np.ndarray], int]:
        """Like :meth:`encode_flat`, as (list of N int32 arrays, number of truncated sentences)."""
        tokens, lengths, cut = self.encode_flat(texts, max_length)
        return np.split(tokens, np.cumsum(lengths))[:-1], int(cut.sum())
