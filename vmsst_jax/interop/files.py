"""Weights on disk as one lazy mapping: safetensors and PyTorch files, whole or in shards."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vmsst_jax.interop.safetensors_file import SafetensorsFile
from vmsst_jax.interop.torch_file import TorchFile, TorchTensor

# In the order in which they are taken.
WEIGHT_FILES = (
    *("model.safetensors", "model.safetensors.index.json"),
    *("pytorch_model.bin", "pytorch_model.bin.index.json"),
)
# What other frameworks write: named in the message when nothing else is there.
FOREIGN_FILES = ("tf_model.h5", "flax_model.msgpack", "model.onnx", "rust_model.ot")
PARALLEL_PREFIX = "module."


class _Entry(NamedTuple):
    read: Callable[[], np.ndarray]
    shape: tuple[int, ...]
    file: str


class Weights(Mapping):
    """Names -> arrays that are read from disk at every access; nothing is kept.

    Half-precision values come as float32, all others as they are. A leading ``module.``, which PyTorch's parallel
    wrappers leave, is taken off.

    Attributes:
      shapes: {name: shape}, without reading anything.
      origin: the file, or the folder of the shards.
      extra: what a PyTorch file holds beside the tensors' dictionary (XLM's ``params`` and ``dico_id2word``).
    """

    def __init__(self, entries: Mapping[str, _Entry], origin: Path, extra: dict[str, Any] | None = None):
        self._entries: dict[str, _Entry] = {}
        for name, entry in entries.items():
            plain = name.removeprefix(PARALLEL_PREFIX)
            if plain in self._entries:
                raise ValueError(f"{origin} holds both {plain} and {PARALLEL_PREFIX}{plain}: which one is meant?")
            self._entries[plain] = entry
        self.shapes = {name: entry.shape for name, entry in self._entries.items()}
        self.origin, self.extra = origin, extra or {}

    def __getitem__(self, name: str) -> np.ndarray:
        array = self._entries[name].read()
        return array.astype(np.float32) if array.dtype.itemsize == 2 and array.dtype.kind in "fV" else array

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name) -> bool:
        return name in self._entries

    def file_of(self, name: str) -> str:
        """The name of the file in which a tensor lies."""
        return self._entries[name].file

    def without(self, *names: str) -> Weights:
        """The same mapping but for ``names``."""
        return Weights({n: e for n, e in self._entries.items() if n not in names}, self.origin, self.extra)


def open_weights(path: str | os.PathLike) -> Weights:
    """The weights of a model folder (safetensors before PyTorch's form) or of one file.

    Raises:
      FileNotFoundError: there are none, or a shard is missing.
      ValueError: a file is damaged, of another form, or holds more than tensors and plain containers.
    """
    path = Path(path)
    if path.is_dir():
        found = next((path / name for name in WEIGHT_FILES if (path / name).is_file()), None)
        if found is None:
            others = [name for name in FOREIGN_FILES if (path / name).is_file()]
            raise FileNotFoundError(
                f"no weights in {path}: wanted {', '.join(WEIGHT_FILES)}; it holds "
                + (", ".join(others or sorted(os.listdir(path))[:8]) or "nothing")
                + (". Save it from PyTorch instead." if others else ".")
            )
        path = found
    elif not path.is_file():
        raise FileNotFoundError(f"no weights at {path}: there is no such file")
    if path.name.endswith(".index.json"):
        return _open_shards(path)
    entries, extra = _open_file(path)
    return Weights(entries, path, extra)


def has_weights(folder: Path) -> bool:
    """Whether a folder holds weights in a form that ``open_weights`` reads."""
    return any((folder / name).is_file() for name in WEIGHT_FILES)


def _open_file(path: Path) -> tuple[dict[str, _Entry], dict[str, Any]]:
    if path.suffix == ".safetensors":
        file = SafetensorsFile(path)
        return {n: _Entry(lambda n=n: file.read(n), shape, path.name) for n, shape in file.shapes.items()}, {}
    contents = TorchFile(path).contents
    tensors, extra = _state_dict(contents, path)
    return {n: _Entry(t.read, t.shape, path.name) for n, t in tensors.items()}, extra


def _state_dict(contents: Any, path: Path) -> tuple[Mapping[str, TorchTensor], dict[str, Any]]:
    """The dictionary of tensors, at the top or under "model" (XLM) or "state_dict", and what lies beside it."""
    if isinstance(contents, Mapping):
        for key in ("model", "state_dict"):
            inner = contents.get(key)
            if isinstance(inner, Mapping) and any(isinstance(value, TorchTensor) for value in inner.values()):
                return _tensors(inner), {name: value for name, value in contents.items() if name != key}
        if tensors := _tensors(contents):
            return tensors, {name: value for name, value in contents.items() if name not in tensors}
    raise ValueError(
        f"{path} holds a {type(contents).__name__} without tensors by name; wanted a model's state dict, at the top or "
        'under "model" or "state_dict"'
    )


def _tensors(contents: Mapping) -> dict[str, TorchTensor]:
    return {name: value for name, value in contents.items() if isinstance(value, TorchTensor)}


def _open_shards(index: Path) -> Weights:
    try:
        files = json.loads(index.read_bytes())["weight_map"]
        names = sorted(set(files.values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{index} is not an index of shards: {error}. Wanted JSON with a weight_map.") from None
    if strange := [name for name in names if name != os.path.basename(name)]:
        raise ValueError(f"{index} names a shard outside its folder: {strange[0]}")
    if missing := [name for name in names if not (index.parent / name).is_file()]:
        raise FileNotFoundError(
            f"{len(missing)} of {len(names)} shards are missing in {index.parent}: {', '.join(missing[:8])}. "
            "Download them too."
        )
    entries: dict[str, _Entry] = {}
    for name in names:
        found, _ = _open_file(index.parent / name)
        absent = [tensor for tensor, file in files.items() if file == name and tensor not in found]
        if absent:
            raise ValueError(f"{index.parent / name} lacks {absent[0]}, which {index.name} says it holds")
        entries |= found
    return Weights(entries, index.parent)
