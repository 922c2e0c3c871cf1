"""SentencePiece tokenizer of the T5 family: 0 pads, 1 ends every sentence, 2 stands for what it does not know."""

import hashlib
import io
import logging
import os
import re
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import sentencepiece

_LOG = logging.getLogger(__name__)
LONGEST = 4192  # bytes; a vocabulary is not learnt from longer sentences
# SentencePiece adds up its expected counts thread by thread, so another number of threads gives another vocabulary.
TRAINING_THREADS = 8
# Below this many sentences per thread, starting the thread costs more than it saves.
SENTENCES_PER_THREAD = 256


class Tokenizer:
    """A SentencePiece model and the one way in which text becomes token ids everywhere in this project.

    Text is normalised by the model's own rules (NMT-NFKC unless it says otherwise) and every sentence ends in
    ``eos_id``. Build one with :meth:`load`, :meth:`from_bytes` or :meth:`train`.

    Attributes:
      serialized: the SentencePiece model file's bytes.
      sha256: their checksum in hexadecimal; caches and checkpoints keep it to refuse another tokenizer.
      vocab_size: number of pieces, special ones included.
      pad_id, eos_id, unk_id: ids of the special pieces; ``pad_id`` is always 0.
      prefix_ids, suffix_ids: what stands before and after every sentence: nothing, and ``eos_id``.
    """

    def __init__(self, serialized: bytes, origin: str = "the given bytes"):
        processor = load_model(serialized, origin)
        if processor.pad_id() != 0 or processor.eos_id() <= 0:
            raise ValueError(
                f"{origin} has pad id {processor.pad_id()} and eos id {processor.eos_id()} (-1 = none); wanted pad id "
                "0 and an eos id, as T5 and mT5 have. Train the model with pad_id=0, eos_id=1, unk_id=2, bos_id=-1."
            )
        self._processor = processor
        self.serialized = serialized
        self.sha256 = hashlib.sha256(serialized).hexdigest()
        self.vocab_size: int = processor.GetPieceSize()
        self.pad_id, self.eos_id, self.unk_id = 0, processor.eos_id(), processor.unk_id()
        self.prefix_ids, self.suffix_ids = (), (self.eos_id,)

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Tokenizer":
        """Reads a SentencePiece ``.model`` file; FileNotFoundError or ValueError (not such a model) names the path."""
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"no tokenizer at {path}: give the path of a SentencePiece `.model` file.")
        return cls(path.read_bytes(), origin=str(path))

    @classmethod
    def from_bytes(cls, serialized: bytes) -> "Tokenizer":
        """Builds the tokenizer from a model file's bytes, as a checkpoint keeps them."""
        return cls(serialized)

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocab_size: int,
        *,
        character_coverage: float = 0.9995,
        byte_fallback: bool = False,
    ) -> "Tokenizer":
        """Trains a unigram vocabulary of exactly ``vocab_size`` pieces; equal texts in equal order give equal bytes.

        Args:
          texts: sentences; all of them are held in memory. SentencePiece ignores those above 4,192 bytes.
          vocab_size: number of pieces, the three special ones (and 256 bytes with ``byte_fallback``) included.
          character_coverage: share of the text's characters that get a piece; the rest becomes unknown.
          byte_fallback: spell out unknown characters in UTF-8 bytes instead.

        Raises:
          ValueError: the texts are empty, or cannot yield that many (or that few) pieces.
        """
        ids = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
        options = {"character_coverage": character_coverage, "byte_fallback": byte_fallback}
        return cls(train_model(texts, vocab_size, ids, ("train_sentencepiece",), **options), origin="the trained model")

    def encode_flat(self, texts: Sequence[str], max_length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Tokenises many sentences into one flat array, on several threads where that pays.

        Args:
          texts: N sentences; an empty one becomes a lone eos.
          max_length: most tokens a sentence may keep, eos included; at least 2.

        Returns:
          (tokens int32 [sum of lengths], lengths int64 [N], cut bool [N]: whether the sentence was truncated).
        """
        if max_length < 2:
            raise ValueError(f"max_length is {max_length}; wanted 2 or more: one token and the end of the sentence.")
        threads = min(os.cpu_count() or 1, 1 + len(texts) // SENTENCES_PER_THREAD)
        rows = self._processor.Encode(list(texts), add_eos=True, num_threads=threads)
        full = np.fromiter(map(len, rows), np.int64, len(rows))
        cut = full > max_length
        for i in np.flatnonzero(cut):
            rows[i] = [*rows[i][: max_length - 1], self.eos_id]
        lengths = np.minimum(full, max_length)
        return np.fromiter(chain.from_iterable(rows), np.int32, lengths.sum()), lengths, cut

    def encode(self, texts: Sequence[str], max_length: int) -> tuple[list[np.ndarray], int]:
        """Like :meth:`encode_flat`, as (list of N int32 arrays that each end in eos, number of truncated sentences)."""
        tokens, lengths, cut = self.encode_flat(texts, max_length)
        return np.split(tokens, np.cumsum(lengths))[:-1], int(cut.sum())

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """The text of one sentence's ids; padding and eos vanish. IndexError for an id outside the vocabulary."""
        return self._processor.Decode([int(i) for i in ids])


def load_model(serialized: bytes, origin: str) -> sentencepiece.SentencePieceProcessor:
    """The model in a file's bytes; ValueError that names ``origin`` where they are none."""
    processor = sentencepiece.SentencePieceProcessor()
    try:
        if not processor.LoadFromSerializedProto(serialized):
            raise RuntimeError("it could not be parsed")
    except RuntimeError as error:
        raise ValueError(
            f"{origin} ({len(serialized)} bytes) is not a SentencePiece model: {error}. Give the `.model` file that "
            "SentencePiece writes (not `.vocab`, not a tokenizer.json), undamaged."
        ) from None
    return processor


def train_model(
    texts: Iterable[str],
    vocab_size: int,
    ids: dict[str, int],
    trainers: Sequence[str],
    without: int = 0,
    **options,
) -> bytes:
    """Trains a SentencePiece unigram model of a vocabulary and returns its file's bytes.

    Args:
      vocab_size: of the vocabulary; ``without`` of its ids the model has no pieces for.
      ids: pad_id, unk_id, bos_id and eos_id, -1 for a piece that the model does not have.
      trainers: for messages, whose ``vocab_size`` a recipe sets.
      options: character_coverage and byte_fallback, as :meth:`Tokenizer.train` describes them.

    Raises:
      ValueError: the texts are empty, or cannot yield that many (or that few) pieces.
    """
    model = io.BytesIO()
    _LOG.warning("training a vocabulary of %s pieces", f"{vocab_size:,}")
    try:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(texts),
            model_writer=model,
            model_type="unigram",
            vocab_size=vocab_size - without,
            num_threads=TRAINING_THREADS,
            max_sentence_length=LONGEST,
            minloglevel=2,  # errors come back as exceptions; the progress log is not for our users
            **ids,
            **options,
        )
    except RuntimeError as error:
        raise ValueError(_training_error(str(error), vocab_size, trainers, without)) from error
    return model.getvalue()


def _training_error(message: str, vocab_size: int, trainers: Sequence[str], without: int) -> str:
    if "sentences_.empty()" in message:
        return (
            "cannot train a vocabulary: no text was given; every sentence is empty, or longer than "
            f"{LONGEST:,} bytes, as a file without line breaks is. Check the corpus."
        )
    if most := re.search(r"too high .* <= (\d+)", message):
        most, settings = int(most[1]) + without, ", ".join(f"{name}.vocab_size" for name in trainers)
        return (
            f"cannot train a vocabulary of {vocab_size} pieces: this text yields at most {most}. "
            f"Set VOCAB_SIZE ({settings}) to {most} or fewer, or give more text."
        )
    if least := re.search(r"required_chars\. \d+ vs (\d+)", message):
        least = int(least[1]) + without
        return (
            f"cannot train a vocabulary of {vocab_size} pieces: the text's characters and the special pieces alone "
            f"need {least}. Ask for more than {least}, or lower character_coverage."
        )
    return f"SentencePiece could not train a vocabulary of {vocab_size} pieces: {message}"
