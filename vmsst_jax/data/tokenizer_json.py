"""Tokenizers in Hugging Face's form ``tokenizer.json``, and WordPiece vocabularies brought into it."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from vmsst_jax.data.framed import FramedTokenizer

# Names under which the families keep their padding piece, for files that don't say which it is.
PADS = ("<pad>", "[PAD]")
UNKNOWNS = ("<unk>", "[UNK]")


class JsonTokenizer(FramedTokenizer):
    """A ``tokenizer.json`` run by the library ``tokenizers``.

    The special tokens around a sentence are those of the file's own post-processor. Truncation and padding that the
    file may ask for are left aside: they are this package's.

    Args:
      serialized: the file's bytes.
      pad_token: the padding piece; None looks into the file (its padding section, then "<pad>" and "[PAD]").
    """

    kind = "tokenizer_json"

    def __init__(self, serialized: bytes, pad_token: str | None = None, origin: str = "the given bytes"):
        tokenizers = _library()
        try:
            tokenizer = tokenizers.Tokenizer.from_buffer(serialized)
        except Exception as error:  # the library raises nothing more specific
            raise ValueError(
                f"{origin} ({len(serialized)} bytes) is not a tokenizer.json that the library tokenizers "
                f"{tokenizers.__version__} can read: {error}"
            ) from None
        padding = tokenizer.padding or {}
        tokenizer.no_padding()
        tokenizer.no_truncation()
        probe = "a"
        bare = tokenizer.encode(probe, add_special_tokens=False).ids
        framed = tokenizer.encode(probe).ids
        at = next((i for i in range(len(framed) + 1) if framed[i : i + len(bare)] == bare), None)
        if at is None:
            raise ValueError(f"{origin} turns {probe!r} into {framed}, which does not hold its pieces {bare}")
        pad_token = pad_token or padding.get("pad_token")
        pad_token = pad_token or next((piece for piece in PADS if tokenizer.token_to_id(piece) is not None), None)
        super().__init__(serialized, framed[:at], framed[at + len(bare) :], pad_token=pad_token)
        self._tokenizer = tokenizer
        self.vocab_size = 1 + max(tokenizer.get_vocab(with_added_tokens=True).values())
        pad_id = tokenizer.token_to_id(pad_token) if pad_token else None
        if pad_id is None:
            raise ValueError(
                f"{origin} has no padding piece {pad_token or 'named ' + ' or '.join(PADS)}: name it in "
                "tokenizer_config.json (pad_token)."
            )
        self.pad_id = pad_id
        self.unk_id = next((i for i in map(tokenizer.token_to_id, UNKNOWNS) if i is not None), None)

    @classmethod
    def from_bytes(cls, serialized: bytes, pad_token: str | None = None, origin: str = "the given bytes"):
        """Builds the tokenizer from a file's bytes."""
        return cls(serialized, pad_token, origin)

    def pieces(self, texts: Sequence[str]) -> list[list[int]]:
        """N texts -> N lists of ids without special tokens."""
        return [row.ids for row in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """The text of one sentence's ids; special tokens vanish. IndexError for an id outside the vocabulary."""
        ids = [int(i) for i in ids]
        if wrong := [i for i in ids if not 0 <= i < self.vocab_size]:
            raise IndexError(f"id {wrong[0]} is outside the vocabulary of {self.vocab_size}")
        return self._tokenizer.decode(ids)


def wordpiece(vocabulary: bytes, settings: dict | None = None, origin: str = "the given vocab.txt") -> JsonTokenizer:
    """BERT's WordPiece (M-BERT, LaBSE) from its ``vocab.txt``, one piece a line, in the frame ``[CLS] ... [SEP]``.

    Args:
      vocabulary: the file's bytes.
      settings: the tokenizer_config.json beside it: "do_lower_case" (True without it, as BERT has it),
        "strip_accents", "tokenize_chinese_chars" and other names of the special pieces.

    Raises:
      ValueError: not UTF-8, or a special piece is missing.
    """
    settings = settings or {}
    try:
        pieces = vocabulary.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{origin} is not a WordPiece vocabulary: byte {error.start} is not UTF-8") from None
    ids = {piece: i for i, piece in enumerate(pieces)}
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    names = {name: _text(settings.get(name) or piece) for name, piece in names.items()}
    if missing := [piece for piece in names.values() if piece not in ids]:
        raise ValueError(
            f"{origin} ({len(pieces)} lines) lacks the special pieces {', '.join(missing)}: not a WordPiece "
            "vocabulary, which has one piece a line."
        )
    tokenizers = _library()
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(ids, unk_token=names["unk_token"], max_input_chars_per_word=100)
    )
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(
        lowercase=settings.get("do_lower_case", True),
        strip_accents=settings.get("strip_accents"),
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = tokenizers.decoders.WordPiece()
    mask = _text(settings.get("mask_token") or "[MASK]")
    tokenizer.add_special_tokens([*names.values(), *([mask] if mask in ids else [])])
    cls, sep = names["cls_token"], names["sep_token"]
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} $B:1 {sep}:1",
        special_tokens=[(cls, ids[cls]), (sep, ids[sep])],
    )
    return JsonTokenizer(tokenizer.to_str().encode(), names["pad_token"], origin)


def check_json(serialized: bytes, origin: str) -> dict:
    """The object in a JSON file's bytes; ValueError that names the file where it is none."""
    try:
        value = json.loads(serialized)
    except ValueError as error:
        raise ValueError(f"{origin} ({len(serialized)} bytes) is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{origin} holds a JSON {type(value).__name__}, wanted an object")
    return value


def _text(token) -> str:
    """A special piece as tokenizer_config.json has it: a string, or an object with the string as "content"."""
    return token["content"] if isinstance(token, dict) else token


def _library():
    try:
        import tokenizers
    except ImportError:
        raise ValueError("this model's tokenizer needs the library tokenizers: pip install 'vmsst_jax[hf]'") from None
    return tokenizers
