"""Reads a model of any form: which one it is, is found out from the files."""

from __future__ import annotations

import json
import os
from pathlib import Path

from vmsst_jax.conversion import read_t5, towers
from vmsst_jax.conversion.model import UNDETERMINED, Model, Settings, with_settings
from vmsst_jax.conversion.vocabulary import check_vocabulary, fit_vocabulary
from vmsst_jax.data import tokenizers
from vmsst_jax.data.tokenizer_xlm import XlmTokenizer
from vmsst_jax.interop import files, hf_config, hf_encoder, sentence_transformers, t5x

CONFIG = "config.json"
FORMS = {
    "vmsst_jax": "our own model directory (checkpoints/<step>/)",
    "sentence_transformers": "a sentence-transformers folder (modules.json)",
    "hugging_face": "a Hugging Face folder (config.json and weights)",
    "xlm": "XLM's .pth file, or a folder with one",
    "t5x": "a T5X checkpoint (checkpoint_N/checkpoint)",
}
# Where nothing says how long a text may be.
DEFAULT_LENGTH = 512
AS_A_START = (
    "as train.init_checkpoint: backbone/encoder starts semantic_encoder and language_encoder, backbone/decoder the "
    "decoder (cross-attention only with decoder_cond = 'memory2', logits_dense the output rows of its states), "
    "token_embedder the one table; all else starts at random"
)
# Tokenizer files write numbers like 1e30 for "no limit".
NO_LIMIT = 100_000


def form_of(path: str | os.PathLike) -> str | None:
    """Which of ``FORMS`` a path has, None for none of them."""
    path = Path(path).expanduser()
    if path.suffix == ".pth" and path.is_file():
        return "xlm"
    if sentence_transformers.is_folder(path):
        return "sentence_transformers"
    if (path / CONFIG).is_file() or files.has_weights(path):
        return "hugging_face"
    if t5x.find(path) is not None:
        return "t5x"
    if path.is_dir() and any(path.glob("*.pth")):
        return "xlm"
    own = path.is_dir() and ((path / "checkpoints").is_dir() or any(p.name.isdecimal() for p in path.iterdir()))
    return "vmsst_jax" if own or (path / "state").is_dir() else None


def read(path: str | os.PathLike, settings: Settings = Settings()) -> Model:
    """The model at ``path``, all its arrays in memory once.

    Raises:
      FileNotFoundError: nothing there, or a file of the model is missing.
      ValueError: no known form; a damaged file; names or shapes that do not fit; a tokenizer of another size.
    """
    path = Path(path).expanduser()
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    form = form_of(path)
    readers = {
        "vmsst_jax": _own,
        "sentence_transformers": _sentence_transformers,
        "hugging_face": _hugging_face,
        "xlm": _xlm,
        "t5x": _t5x,
    }
    if form is None:
        inside = ", ".join(sorted(os.listdir(path))[:8]) if path.is_dir() else "a file"
        raise ValueError(
            f"{path} holds no model of a known form, but {inside or 'nothing'}. Known forms: "
            + "; ".join(FORMS.values())
        )
    if settings.tower and form != "vmsst_jax":
        raise ValueError(f"{path} has no {settings.tower} tower, only a model of ours has: leave --tower out")
    model = readers[form](path, settings)
    model.config, model.embedding = with_settings(
        model.config, model.embedding, model.kind, settings, getattr(model.tokenizer, "special_ids", (1,))
    )
    limit = position_limit(model.config)
    if model.embedding["max_length"] > limit:
        raise ValueError(f"max_length is {model.embedding['max_length']}; this model has positions for {limit} tokens")
    model.languages = settings.languages or model.languages
    if "decoder" in model.params.get("backbone", {}):
        model.notes.append(AS_A_START)
    return model


def _own(path: Path, settings: Settings) -> Model:
    from vmsst_jax.training import checkpoint

    loaded = checkpoint.load_model(path)
    described, params = towers.choose(loaded.host["model"], loaded.params, settings.tower, path)
    return Model(
        kind=described["kind"],
        config=described["config"],
        params=params,
        tokenizer=loaded.tokenizer,
        languages=loaded.languages.codes,
        embedding=loaded.embedding,
        origin=loaded.host.get("origin", {}) | {"form": "vmsst_jax", "path": str(loaded.directory)},
        gin=loaded.host["gin"],
        step=loaded.step,
    )


def _hugging_face(path: Path, settings: Settings) -> Model:
    weights = files.open_weights(path)
    if read_t5.is_released_vmsst(weights):
        return read_t5.released_vmsst(path, weights, settings)
    config_json = with_model_type(read_json(path / CONFIG))
    model_type = config_json.get("model_type")
    tokenizer = tokenizers.load(settings.tokenizer or path, model_type)
    kind, config = hf_config.config_from_hf(config_json)
    notes = fit_vocabulary(config, weights.shapes, tokenizer)
    if config["backbone"] == "t5":
        config, imported, decoder = read_t5.from_hugging_face(weights, config, settings.allow_missing)
    else:
        config["bert"]["pad_id"] = tokenizer.pad_id
        config = hf_encoder.fit_config(config, weights)
        imported, decoder = hf_encoder.to_params(weights, config, settings.allow_missing), {}
    return Model(
        kind=kind,
        config=config,
        params={"backbone": imported.params | decoder},
        tokenizer=tokenizer,
        languages=(UNDETERMINED,),
        embedding=embedding_record(config, max_length=_max_length(path, config)),
        origin={"form": "hugging_face", "path": str(path), "model_type": model_type},
        sources={f"backbone/{ours}": theirs for ours, theirs in imported.sources.items()},
        ignored=imported.ignored,
        notes=notes,
    )


def _sentence_transformers(path: Path, settings: Settings) -> Model:
    described = sentence_transformers.read(path)
    model = _hugging_face(described.transformer, settings)
    if model.kind != "encoder":
        raise ValueError(f"{path}: the transformer is a {model.kind} model, which has a pooling of its own")
    model.config |= {"pooling": described.pooling, "dense": described.dense}
    for i, (options, weights) in enumerate(zip(described.dense, described.dense_weights, strict=True)):
        model.params[f"dense_{i}"] = sentence_transformers.dense_params(options, weights)
        here = weights.origin.relative_to(path)
        model.sources[f"dense_{i}/linear/kernel"] = f"{here}: linear.weight"
        model.sources[f"dense_{i}/linear/bias"] = f"{here}: linear.bias"
    length = min(described.max_length or NO_LIMIT, model.embedding["max_length"])
    model.embedding = embedding_record(
        model.config, max_length=length, normalize=described.normalize, prefix=described.prefix
    )
    model.origin = {"form": "sentence_transformers", "path": str(path), "model_type": model.origin["model_type"]}
    if described.prefix:
        model.notes.append(f"every text gets the folder's default prompt {described.prefix!r} before it")
    elif any(described.prompts.values()):
        shown = ", ".join(f"{name} = {text!r}" for name, text in described.prompts.items() if text)
        model.notes.append(f"the folder has prompts but no default one ({shown}): give the one you want with --prefix")
    return model


def _xlm(path: Path, settings: Settings) -> Model:
    if path.is_dir():
        found = sorted(path.glob("*.pth"))
        if len(found) != 1:
            raise ValueError(f"{path} holds {len(found)} .pth files ({', '.join(p.name for p in found[:5])}); name one")
        path = found[0]
    weights = files.open_weights(path)
    params = weights.extra.get("params")
    if not isinstance(params, dict):
        raise ValueError(f"{path} has no params beside its weights: not a checkpoint of XLM's trainer")
    tokenizer = _xlm_tokenizer(path, weights.extra.get("dico_id2word"), settings)
    table = weights.shapes.get("position_embeddings.weight")  # XLM has a constant for its rows, not a parameter
    positions = {"max_position_embeddings": table[0]} if table else {}
    kind, config = hf_config.config_from_hf({"model_type": "xlm", **params, **positions})
    notes = fit_vocabulary(config, weights.shapes, tokenizer)
    config["bert"]["pad_id"] = tokenizer.pad_id
    config = hf_encoder.fit_config(config, weights)
    imported = hf_encoder.to_params(weights, config, settings.allow_missing)
    ids = params.get("lang2id") if isinstance(params.get("lang2id"), dict) else {}
    return Model(
        kind=kind,
        config=config,
        params={"backbone": imported.params},
        tokenizer=tokenizer,
        languages=tuple(sorted(ids, key=ids.get)) or (UNDETERMINED,),
        embedding=embedding_record(config, max_length=min(DEFAULT_LENGTH, position_limit(config))),
        origin={"form": "xlm", "path": str(path), "model_type": "xlm"},
        sources={f"backbone/{ours}": theirs for ours, theirs in imported.sources.items()},
        ignored=imported.ignored,
        notes=notes,
    )


def _xlm_tokenizer(path: Path, id2word: dict | None, settings: Settings):
    if settings.tokenizer:
        return tokenizers.load(settings.tokenizer, "xlm")
    codes = _beside(path, settings.codes, "codes")
    if isinstance(id2word, dict) and set(id2word) == set(range(len(id2word))):
        words = [id2word[i] for i in range(len(id2word))]
    else:
        words = _beside(path, settings.vocabulary, "vocab").read_text(encoding="utf-8")
    return XlmTokenizer.from_files(codes.read_text(encoding="utf-8"), words, str(codes))


def _beside(path: Path, given: str | None, name: str) -> Path:
    if given:
        return Path(given)
    found = sorted(p for p in path.parent.glob(f"{name}*") if p.is_file())
    if len(found) != 1:
        flag = {"codes": "--codes", "vocab": "--vocabulary"}[name]
        raise FileNotFoundError(
            f"{len(found)} files named {name}* beside {path}, wanted fastBPE's one: give it with {flag}"
        )
    return found[0]


def _t5x(path: Path, settings: Settings) -> Model:
    folder = t5x.find(path)
    beside = (place / name for place in (folder, folder.parent) for name in tokenizers.SENTENCEPIECE_FILES)
    file = settings.tokenizer or next((file for file in beside if file.is_file()), None)
    if file is None:
        raise ValueError(
            f"{path} is a T5X checkpoint, which holds no tokenizer: give its SentencePiece model with --tokenizer, or "
            f"put it there as {tokenizers.SENTENCEPIECE_FILES[0]}"
        )
    tokenizer = tokenizers.load(file, "mt5")
    config, params, sources, layout = read_t5.from_t5x(path)
    rows = params["backbone"]["token_embedder"]["embedding"].shape[0]
    return Model(
        kind="encoder",
        config=config,
        params=params,
        tokenizer=tokenizer,
        languages=(UNDETERMINED,),
        embedding=embedding_record(config, max_length=DEFAULT_LENGTH),
        origin={"form": "t5x", "path": str(path), "t5x_layout": layout},
        sources=sources,
        notes=check_vocabulary(rows, tokenizer),
    )


def embedding_record(config: dict, *, max_length: int, normalize: bool = False, prefix: str = "") -> dict:
    """What a checkpoint keeps as "embedding"."""
    kept = {"pooling": config.get("pooling", "mean"), "layer": config.get("layer")}
    return kept | {"normalize": normalize, "prefix": prefix, "max_length": int(max_length)}


def position_limit(config: dict) -> int:
    """Most tokens that a model has positions for."""
    bert = config.get("encoder", config).get("bert")
    return bert["max_positions"] - bert["position_offset"] if bert else NO_LIMIT


def _max_length(path: Path, config: dict) -> int:
    limit = position_limit(config)
    said = NO_LIMIT
    if (path / "tokenizer_config.json").is_file():
        said = read_json(path / "tokenizer_config.json").get("model_max_length") or NO_LIMIT
    return int(min(limit, said) if min(limit, said) < NO_LIMIT else DEFAULT_LENGTH)


def with_model_type(config: dict) -> dict:
    """``config`` with its "model_type", which old files only tell by the name of the "architectures"."""
    if "model_type" in config:
        return config
    prefixes = {"XLMRoberta": "xlm-roberta", "Camembert": "camembert", "Roberta": "roberta", "DistilBert": "distilbert"}
    prefixes |= {"Bert": "bert", "XLM": "xlm", "MT5": "mt5", "T5": "t5"}
    for name in config.get("architectures") or []:
        for prefix, family in prefixes.items():
            if str(name).startswith(prefix):
                return {**config, "model_type": family}
    return config


def read_json(path: Path) -> dict:
    """A JSON object; FileNotFoundError or ValueError names the file."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: it says which family and sizes the model has")
    try:
        value = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds a JSON {type(value).__name__}, wanted an object")
    return value
