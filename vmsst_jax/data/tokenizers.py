"""The tokenizers of all families: read from a model's folder, kept in and read from a checkpoint's record.

``vmsst_jax.data.tokenizer`` has the one that our own models are trained with and describes the interface.
"""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

from vmsst_jax.data import tokenizer_json
from vmsst_jax.data.tokenizer import Tokenizer
from vmsst_jax.data.tokenizer_json import JsonTokenizer
from vmsst_jax.data.tokenizer_xlm import XlmTokenizer
from vmsst_jax.data.tokenizer_xlmr import XlmrTokenizer

KINDS = {
    "sentencepiece": Tokenizer,
    **{cls.kind: cls for cls in (XlmrTokenizer, JsonTokenizer, XlmTokenizer)},
}
SENTENCEPIECE_FILES = ("spiece.model", "sentencepiece.bpe.model", "sentencepiece.model", "tokenizer.model")
XLMR_CLASSES = ("XLMRobertaTokenizer", "XLMRobertaTokenizerFast")


def to_record(tokenizer) -> dict[str, Any]:
    """What a checkpoint keeps of a tokenizer: {"kind", "sha256", "model": its bytes in base64, ...}, ready for JSON."""
    kind = next(kind for kind, cls in KINDS.items() if isinstance(tokenizer, cls))
    return {
        "kind": kind,
        "sha256": tokenizer.sha256,
        "model": base64.b64encode(tokenizer.serialized).decode(),
        **getattr(tokenizer, "options", {}),
    }


def from_record(record: dict[str, Any], origin: str = "the checkpoint"):
    """The inverse of ``to_record``. ValueError for an unknown kind, or bytes that are not those of the checksum."""
    options = dict(record)
    kind, sha256, model = options.pop("kind"), options.pop("sha256"), options.pop("model")
    if kind not in KINDS:
        raise ValueError(f"{origin} was trained with a tokenizer of kind {kind!r}; known: {', '.join(KINDS)}.")
    tokenizer = KINDS[kind].from_bytes(base64.b64decode(model), **options)
    if tokenizer.sha256 != sha256:
        raise ValueError(
            f"The tokenizer in {origin} has the sha256 {tokenizer.sha256}, but the one the model was trained with had "
            f"{sha256}. The checkpoint was changed; restore it from a copy."
        )
    return tokenizer


def load(path: str | os.PathLike, model_type: str | None = None):
    """The tokenizer of a folder in Hugging Face's form, or of one file.

    Args:
      path: a folder with ``tokenizer.json``, a SentencePiece model, ``vocab.txt`` (WordPiece) or ``vocab.json`` and
        ``merges.txt`` (XLM), and perhaps ``tokenizer_config.json``; or one of the first three files.
      model_type: the family that the model's config.json names; it tells T5's SentencePiece from XLM-R's.

    T5's SentencePiece model is taken before its tokenizer.json (the same pieces, and the file that training names);
    all others prefer tokenizer.json, as Hugging Face does.

    Raises:
      FileNotFoundError: there is none.
      ValueError: the file is none, or of a family that is not supported.
    """
    path = Path(path)
    if path.is_file():
        return _from_file(path, {}, model_type)
    settings = _settings(path)
    present = [path / name for name in SENTENCEPIECE_FILES if (path / name).is_file()]
    whole = path / "tokenizer.json"
    if present and _is_t5(settings, model_type):
        return _from_file(present[0], settings, model_type)
    for file in [*([whole] if whole.is_file() else []), *present, path / "vocab.txt", path / "vocab.json"]:
        if file.is_file():
            return _from_file(file, settings, model_type)
    raise FileNotFoundError(
        f"no tokenizer in {path}: wanted tokenizer.json, {', '.join(SENTENCEPIECE_FILES)}, vocab.txt (WordPiece) or "
        "vocab.json with merges.txt (XLM). Name one with --tokenizer."
    )


def _from_file(file: Path, settings: dict, model_type: str | None):
    contents, origin = file.read_bytes(), str(file)
    pad = settings.get("pad_token")
    pad = pad["content"] if isinstance(pad, dict) else pad
    if file.suffix == ".txt":
        return tokenizer_json.wordpiece(contents, settings, origin)
    if file.name == "vocab.json":
        return _xlm(file, settings, model_type)
    if file.suffix == ".json":
        tokenizer_json.check_json(contents, origin)
        return JsonTokenizer(contents, pad, origin)
    if _is_t5(settings, model_type):
        return Tokenizer(contents, origin)
    cls = settings.get("tokenizer_class")
    if model_type not in (None, "xlm-roberta") and cls not in XLMR_CLASSES:
        raise ValueError(
            f"{origin}: how a {model_type!r} model with tokenizer class {cls!r} numbers its SentencePiece ids is not "
            "known here; put its tokenizer.json beside it."
        )
    if model_type is None and cls is None:  # a lone file: T5's models have a padding piece, XLM-R's has none
        try:
            return XlmrTokenizer(contents, origin)
        except ValueError:
            return Tokenizer(contents, origin)
    return XlmrTokenizer(contents, origin)


def _xlm(file: Path, settings: dict, model_type: str | None) -> XlmTokenizer:
    merges = file.with_name("merges.txt")
    if model_type not in (None, "xlm"):
        raise ValueError(
            f"{file} of a {model_type!r} model is not a vocabulary that is known here; give tokenizer.json"
        )
    if not merges.is_file():
        raise FileNotFoundError(f"{merges} is missing beside {file.name}: XLM's byte-pair codes")
    return XlmTokenizer.from_hugging_face(
        tokenizer_json.check_json(file.read_bytes(), str(file)),
        merges.read_text(encoding="utf-8"),
        str(file),
        lower_case=settings.get("do_lowercase_and_remove_accent", False),
    )


def _is_t5(settings: dict, model_type: str | None) -> bool:
    return model_type in ("t5", "mt5") or str(settings.get("tokenizer_class", "")).startswith(("T5Tok", "MT5Tok"))


def _settings(folder: Path) -> dict:
    """tokenizer_config.json, with what special_tokens_map.json and the older added settings say; {} without."""
    merged: dict = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            contents = tokenizer_json.check_json((folder / name).read_bytes(), str(folder / name))
            merged |= {key: value for key, value in contents.items() if value is not None}
    return merged


def files(tokenizer) -> dict[str, bytes]:
    """{name: contents} of the files by which Hugging Face loads this tokenizer, but for tokenizer_config.json."""
    if isinstance(tokenizer, XlmTokenizer):
        return {name: text.encode() for name, text in tokenizer.hugging_face_files.items()}
    if isinstance(tokenizer, JsonTokenizer):
        return {"tokenizer.json": tokenizer.serialized}
    if isinstance(tokenizer, XlmrTokenizer):
        return {"sentencepiece.bpe.model": tokenizer.serialized}
    return {"spiece.model": tokenizer.serialized}


def config(tokenizer, max_length: int) -> dict[str, Any]:
    """The tokenizer_config.json beside ``files``."""
    plain = {"model_input_names": ["input_ids", "attention_mask"]}  # token types are all 0, which is every default
    pad = getattr(tokenizer, "options", {}).get("pad_token")
    names = {
        XlmTokenizer: ("XLMTokenizer", {"bos_token": "</s>", "do_lowercase_and_remove_accent": False}),
        XlmrTokenizer: ("XLMRobertaTokenizer", {}),
        JsonTokenizer: ("PreTrainedTokenizerFast", {"pad_token": pad, **plain}),
        Tokenizer: ("T5Tokenizer", {"extra_ids": 0}),
    }
    cls, options = names[type(tokenizer)]
    return {"tokenizer_class": cls, "model_max_length": max_length, **options}


def dump_json(value) -> bytes:
    """JSON as it is written into model folders: indented UTF-8 with a newline at its end."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
