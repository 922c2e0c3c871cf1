"""Writes a model in any form, whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from vmsst_jax import disk
from vmsst_jax.conversion import card
from vmsst_jax.conversion.model import Model
from vmsst_jax.data import tokenizers
from vmsst_jax.interop import hf_config, hf_encoder, hf_t5, safetensors_file, sentence_transformers, t5x, trees

# What convert leaves in every folder that it writes: the files that are its own, and so may be replaced.
RECORD = "vmsst_jax_conversion.json"
# What Hugging Face calls a T5 with its decoder.
WHOLE_T5 = {"t5": "T5ForConditionalGeneration", "mt5": "MT5ForConditionalGeneration"}


def write(
    model: Model, output: str | os.PathLike, form: str, *, overwrite: bool = False, t5x_layout: str | None = None
) -> None:
    """Writes ``model`` to the folder ``output``, which appears only when all of it is written.

    Args:
      form: "vmsst_jax", "hf", "sentence_transformers" or "t5x".
      overwrite: replace a folder that this function wrote.
      t5x_layout: "per_layer", "scanned" or "unscanned" (see ``interop.t5x``); None is the one the model came in.

    Raises:
      FileExistsError: ``output`` is there, and is not to be replaced or holds what was not written here.
      ValueError: the form can't express the model, or input and output overlap.
      OSError: the disk is full; nothing is left of what was written.
    """
    check_output(output, overwrite, model.origin["path"])
    with disk.writing(output), _whole_folder(Path(output)) as folder:
        writers: dict[str, Callable[[Model, Path], None]] = {
            "vmsst_jax": _own,
            "hf": _hugging_face,
            "sentence_transformers": _sentence_transformers,
            "t5x": lambda model, folder: _t5x(model, folder, t5x_layout),
        }
        writers[form](model, folder)
        record = {"form": form, "origin": model.origin, "files": sorted(_files(folder))}
        (folder / RECORD).write_bytes(tokenizers.dump_json(record))


def check_output(output: str | os.PathLike, overwrite: bool, source: str | os.PathLike) -> None:
    """What forbids writing the model at ``source`` to ``output``, to be called before anything slow.

    Raises:
      FileExistsError: it is there and not to be replaced, or holds files that ``write`` did not put there.
      ValueError: it is ``source``, or ``source`` lies inside it.
    """
    output = Path(output)
    here, there = output.expanduser().resolve(), Path(source).expanduser().resolve()
    if here == there or here in there.parents:
        raise ValueError(f"the output {output} is or holds the input {source}; give another --output")
    if not output.exists():
        return
    found = _files(output) if output.is_dir() else {output.name}
    if output.is_dir() and not any(output.iterdir()):
        return
    if not overwrite:
        raise FileExistsError(f"{output} exists; use --overwrite to replace it, or another --output")
    if foreign := sorted(found - _recorded(output)):
        raise FileExistsError(
            f"{output} holds files that vmsst_jax.convert did not write ({', '.join(foreign[:3])}"
            f"{', ...' if len(foreign) > 3 else ''}) and is not replaced; move it elsewhere, or give another --output"
        )


def _files(folder: Path) -> set[str]:
    """Names of all that is no folder below ``folder``, relative to it."""
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_symlink() or not p.is_dir()}


def _recorded(folder: Path) -> set[str]:
    """The files that ``write`` put there, by its record; none without a whole one."""
    try:
        record = json.loads((folder / RECORD).read_bytes())
        return {RECORD, ".lock", *map(str, record["files"])}  # the lock: training was tried there, and refused
    except (OSError, ValueError, KeyError, TypeError):
        return set()


@contextlib.contextmanager
def _whole_folder(output: Path) -> Iterator[Path]:
    """A new folder beside ``output`` that takes its name at the end, or vanishes if anything goes wrong."""
    output.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{output.name}.", suffix=".unfinished", dir=output.parent))
    try:
        folder.chmod(0o755)
        yield folder
        if output.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{output.name}.", suffix=".old", dir=output.parent))
            output.rename(old / output.name)
            folder.rename(output)
            shutil.rmtree(old)
        else:
            folder.rename(output)
    except BaseException:
        _remove(folder)
        raise


def _remove(folder: Path, patience: float = 5.0) -> None:
    """Removes what a failure left, once nothing writes there any more.

    When one array can't be written, TensorStore's threads may still be writing others, and make their folders anew.
    """
    gone_since, end = 0, time.monotonic() + patience
    while gone_since < 3 and time.monotonic() < end:
        gone_since = 0 if folder.exists() else gone_since + 1
        shutil.rmtree(folder, ignore_errors=True)
        if gone_since < 3:
            time.sleep(0.02)


def _own(model: Model, folder: Path) -> None:
    from vmsst_jax.training.checkpoint import LOCK, CheckpointError, Checkpoints
    from vmsst_jax.training.state import TrainState

    state = TrainState(
        step=jnp.zeros((), jnp.int32),
        params=_on_device(model.params),
        opt_state={},
        model_state={},
        key=jax.random.key_data(jax.random.key(0)),
    )
    try:
        with Checkpoints(folder) as checkpoints:
            checkpoints.save(0, state, host_record(model))
    except CheckpointError as error:
        raise disk.os_error(error.__cause__ or error, folder) from error
    (folder / LOCK).unlink(missing_ok=True)


def _on_device(params: dict) -> dict:
    """Moves arrays to JAX one by one, out of ``params`` itself: Orbax would copy all of numpy's at once."""
    for name, value in params.items():
        params[name] = _on_device(value) if isinstance(value, dict) else jax.device_put(value, may_alias=True)
    return params


def host_record(model: Model) -> dict:
    """What a checkpoint keeps beside the arrays; "origin" says where a converted model comes from."""
    return {
        "model": {"kind": model.kind, "config": model.config},
        "languages": list(model.languages),
        "tokenizer": tokenizers.to_record(model.tokenizer),
        "embedding": model.embedding,
        "gin": model.gin,
        "data": {},
        "origin": model.origin,
    }


def _hugging_face(model: Model, folder: Path) -> None:
    config, params = model.as_encoder()
    _say_what_is_lost(model, config, "a Hugging Face folder")
    _transformer(model, folder, config, params["backbone"], whole=True)
    (folder / "README.md").write_text(card.text(model, "hf"), encoding="utf-8")


def _transformer(model: Model, folder: Path, config: dict, backbone: dict, *, whole: bool) -> None:
    """config.json, model.safetensors and the tokenizer's files; ``whole``: with a T5's decoder, if there is one."""
    config_json = hf_config.config_to_hf(config)
    decoder = backbone.get("decoder")
    backbone = {name: tree for name, tree in backbone.items() if name != "decoder"}
    tensors = hf_encoder.from_params(backbone, config)
    if decoder is not None and whole:
        decoder = dict(trees.unstack_layers(decoder))
        head = decoder.pop("logits_dense", None)
        tensors |= hf_t5.decoder_state_dict(decoder)
        if head is not None:
            tensors["lm_head.weight"] = np.asarray(head["kernel"]).T
        config_json["architectures"] = [WHOLE_T5[config_json["model_type"]]]
        config_json["tie_word_embeddings"] = head is None
        config_json["num_decoder_layers"] = sum(name.startswith("layers_") for name in decoder)
    safetensors_file.write(folder / "model.safetensors", tensors, {"format": "pt"})
    (folder / "config.json").write_bytes(tokenizers.dump_json(config_json))
    for name, contents in tokenizers.files(model.tokenizer).items():
        (folder / name).write_bytes(contents)
    settings = tokenizers.config(model.tokenizer, model.embedding["max_length"])
    (folder / "tokenizer_config.json").write_bytes(tokenizers.dump_json(settings))


def _sentence_transformers(model: Model, folder: Path) -> None:
    config, params = model.as_encoder()
    if not config["pool_special"]:
        raise ValueError("sentence-transformers can't leave the special tokens out of the pooling, as this model does")
    if config["pooling"] == "pooler":
        raise ValueError(
            "sentence-transformers has no pooling by BERT's own pooler; use --pooling=cls with its dense layer"
        )
    config, backbone = _cut(config, params["backbone"])
    _transformer(model, folder, config, backbone, whole=False)
    sentence_transformers.write(
        folder,
        width=config[config["backbone"]]["embed_dim"],
        pooling=config["pooling"],
        dense=config["dense"],
        dense_params=[params[f"dense_{i}"] for i in range(len(config["dense"]))],
        normalize=model.embedding["normalize"] or config["normalize"],
        prefix=model.embedding["prefix"],
        max_length=model.embedding["max_length"],
    )
    (folder / "README.md").write_text(card.text(model, "sentence_transformers"), encoding="utf-8")


def _cut(config: dict, backbone: dict) -> tuple[dict, dict]:
    """The model whose last layer is the one that is pooled: sentence-transformers always pools the last."""
    layer = config["layer"]
    kind = config["backbone"]
    layers = config[kind]["num_layers" if kind == "bert" else "encoder_layers"]
    if layer is None or layer == layers:
        return config, backbone
    if kind == "t5" or layer == 0:
        raise ValueError(
            f"sentence-transformers pools the last layer, this model layer {layer} of {layers}: "
            + (
                "a T5 has a norm after its last layer only"
                if kind == "t5"
                else "a model without layers can't be written"
            )
            + ", so there is no folder that gives these vectors"
        )
    encoder = trees.unstack_layers(backbone["encoder"])
    kept = {name: tree for name, tree in encoder.items() if not name.startswith("layers_") or int(name[7:]) < layer}
    bert = {**config[kind], "num_layers": layer, "scan_layers": False, "pooler": False, "mlm_head": "none"}
    backbone = {name: tree for name, tree in backbone.items() if name not in ("pooler", "mlm_head")}
    return {**config, "bert": bert, "layer": None}, backbone | {"encoder": kept}


def _t5x(model: Model, folder: Path, layout: str | None) -> None:
    config, params = model.as_encoder()
    if config["backbone"] != "t5":
        raise ValueError("T5X has no form for a BERT-type model; use --to=hf or --to=sentence_transformers")
    _say_what_is_lost(model, config, "a T5X checkpoint")
    layout = layout or model.origin.get("t5x_layout", t5x.LAYOUTS[0])
    backbone = params["backbone"]
    tree = {name: trees.unstack_layers(part) if name in t5x.STACKS else part for name, part in backbone.items()}
    tree = jax.tree.map(np.asarray, tree)
    t5x.write(folder, tree, layout, config["t5"]["head_dim"], model.step)
    (folder / "spiece.model").write_bytes(model.tokenizer.serialized)


def _say_what_is_lost(model: Model, config: dict, form: str) -> None:
    if config["dense"]:
        model.notes.append(
            f"{len(config['dense'])} dense layer(s) after the pooling are not part of {form}; "
            "--to=sentence_transformers keeps them"
        )
