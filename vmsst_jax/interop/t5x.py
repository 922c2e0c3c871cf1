"""T5X checkpoints, read and written: a msgpack file that holds small arrays and names a zarr folder for each big one.

    checkpoint_N/checkpoint                                            msgpack {version, optimizer: {target, state}}
    checkpoint_N/target.encoder.layers_0.attention.query.kernel/       zarr, gzip

Layouts of the layers, in T5X's own network files:

    per_layer   t5x/examples/t5: encoder/layers_i/..., kernels [in, out], one encoder/relpos_bias for all layers. Ours.
    scanned     t5x/examples/scalable_t5: all layers in encoder/encoder/..., stacked on axis 1; attention kernels are
                [embed, layers, heads, head_dim] (out: [heads, layers, head_dim, embed]); every layer has a relpos_bias.
    unscanned   the same network without its scan: encoder/layers_i/... with those kernels and biases, no layers axis.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np

from vmsst_jax import disk
from vmsst_jax.interop import trees

FILE = "checkpoint"
LAYOUTS = ("per_layer", "scanned", "unscanned")
VERSIONS = (2, 3)
SCAN_AXIS = 1
STACKS = ("encoder", "decoder")
ATTENTIONS = ("attention", "self_attention", "encoder_decoder_attention")
BIAS = "relpos_bias/rel_embedding"
# Where the layers of a scanned stack are, and what their relative biases are called, by network file.
SCANNED = ("{stack}", "layers")
BIASES = (BIAS, "relative_posemb/rel_embedding")


class T5xCheckpoint:
    """A T5X checkpoint: ``shapes`` of the arrays under ``target`` by flat names, ``read(name)``, ``version``, ``step``.

    Args:
      path: a ``checkpoint_N`` folder, its file ``checkpoint``, or a folder of ``checkpoint_N`` (the newest is taken).

    Raises:
      FileNotFoundError, ValueError: there is none; it is damaged, or of a version that is not read here.
    """

    def __init__(self, path: str | os.PathLike):
        from flax import serialization

        folder = find(path)
        if folder is None:
            raise FileNotFoundError(f"no T5X checkpoint in {path}: wanted checkpoint_N/{FILE}")
        self.folder = folder
        try:
            contents = serialization.msgpack_restore((folder / FILE).read_bytes())
            self.version, optimizer = contents["version"], contents["optimizer"]
            leaves = _leaves(optimizer["target"])
        except Exception as error:  # msgpack's own errors have no common base
            raise ValueError(
                f"{folder / FILE} is not a T5X checkpoint, or damaged: {type(error).__name__}: {error}"
            ) from None
        if self.version not in VERSIONS:
            raise ValueError(f"{folder / FILE} has version {self.version}; versions {VERSIONS} are read here")
        self.step = int(np.asarray(optimizer.get("state", {}).get("step", 0)))
        self._leaves = leaves
        self.shapes = {name: tuple(_shape(leaf)) for name, leaf in leaves.items()}

    def read(self, name: str) -> np.ndarray:
        """One array of ``target``; bfloat16 comes as float32."""
        leaf = self._leaves[name]
        array = np.asarray(leaf) if not isinstance(leaf, Mapping) else self._read_external(name, leaf)
        if array.dtype == np.uint16:  # version 2 keeps bfloat16 as its bits
            array = array.view(ml_dtypes.bfloat16)
        return array.astype(np.float32) if array.dtype in (ml_dtypes.bfloat16, np.float16) else array

    def _read_external(self, name: str, spec: Mapping) -> np.ndarray:
        import tensorstore

        # Wherever it was written: the arrays lie beside the file now.
        place = spec.get("kvstore", {}).get("path") or spec.get("path") or ""
        folder = self.folder / place.rstrip("/")
        if spec.get("driver") != "zarr" or not place or folder.resolve().parent != self.folder.resolve():
            raise ValueError(
                f"{self.folder / FILE}: {name} is to be read by {dict(spec)}, wanted a zarr folder beside it"
            )
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} is missing: it holds {name}. Copy the whole checkpoint.")
        try:
            store = tensorstore.open({"driver": "zarr", "kvstore": {"driver": "file", "path": str(folder)}}).result()
            if store.shape != self.shapes[name]:
                raise ValueError(f"its shape is {store.shape}, announced was {self.shapes[name]}")
            return store.read().result()
        except ValueError as error:
            raise ValueError(f"{folder} is damaged: {str(error).splitlines()[0]}") from None


def find(path: str | os.PathLike) -> Path | None:
    """The folder of the T5X checkpoint meant by ``path``, None if there is none."""
    path = Path(path)
    if path.name == FILE and path.is_file():
        return path.parent
    if (path / FILE).is_file():
        return path
    numbered = {p: re.fullmatch(r"checkpoint_(\d+)", p.name) for p in path.glob("checkpoint_*") if (p / FILE).is_file()}
    return max((p for p, match in numbered.items() if match), key=lambda p: int(numbered[p][1]), default=None)


def read(path: str | os.PathLike) -> tuple[dict, str, dict[str, str]]:
    """A T5 from T5X: (parameters by our names, one entry per layer; layout; {our flat name: T5X's}).

    Raises ValueError also where a stack's layers have different relative biases: our stacks share one.
    """
    checkpoint = T5xCheckpoint(path)
    params: dict = {}
    sources: dict[str, str] = {}
    layout = "per_layer"
    rest = dict.fromkeys(checkpoint.shapes)
    for stack in STACKS:
        names = [name for name in rest if name.startswith(f"{stack}/")]
        if not names:
            continue
        for name in names:
            del rest[name]
        flat = {name.removeprefix(f"{stack}/"): (checkpoint.read(name), name) for name in names}
        flat, found = _per_layer(stack, flat, str(checkpoint.folder))
        layout = found if found != "per_layer" else layout
        sources |= {f"{stack}/{name}": origin for name, (_, origin) in flat.items()}
        params[stack] = trees.nest({name: array for name, (array, _) in flat.items()})
    for name in rest:
        sources[name] = name
        put(params, name, checkpoint.read(name))
    return params, layout, sources


def put(tree: dict, name: str, leaf) -> None:
    """Puts ``leaf`` under the flat name into a nested dict."""
    *parents, last = name.split("/")
    for parent in parents:
        tree = tree.setdefault(parent, {})
    tree[last] = leaf


def _per_layer(stack: str, flat: dict, origin: str) -> tuple[dict, str]:
    """{name in the stack: (array, T5X's name)} of any layout -> the same in ours, and which layout it was."""
    scanned = next(
        (p for p in (s.format(stack=stack) for s in SCANNED) if any(n.startswith(f"{p}/") for n in flat)), None
    )
    layout = "per_layer"
    if scanned is not None:
        layout, layers = "scanned", {}
        for name, (array, source) in flat.items():
            inner = name.removeprefix(f"{scanned}/")
            if inner == name:
                layers[name] = (array, source)
                continue
            for i in range(array.shape[SCAN_AXIS]):
                layers[f"layers_{i}/{inner}"] = (np.take(array, i, axis=SCAN_AXIS), source)
        flat = layers
    own = {n: v for n, v in flat.items() if re.fullmatch(rf"layers_\d+/({'|'.join(BIASES)})", n)}
    if own:
        layout = "scanned" if scanned is not None else "unscanned"
        tables = [array for array, _ in own.values()]
        if any(not np.array_equal(table, tables[0]) for table in tables[1:]):
            raise ValueError(
                f"the {stack} in {origin} has another relative position bias in every layer (as umT5 has); the stacks "
                "here share one, as mT5's do, so this model can't be converted"
            )
        flat = {name: value for name, value in flat.items() if name not in own}
        flat[BIAS] = next(iter(own.values()))
    return {name: (_flat_kernel(name, array), source) for name, (array, source) in flat.items()}, layout


def _flat_kernel(name: str, array: np.ndarray) -> np.ndarray:
    """An attention kernel as a matrix: [embed, heads, head_dim] -> [embed, heads * head_dim], out alike."""
    if array.ndim != 3:
        return array
    return array.reshape(-1, array.shape[-1]) if name.endswith("out/kernel") else array.reshape(array.shape[0], -1)


def write(folder: str | os.PathLike, params: Mapping, layout: str, head_dim: int, step: int = 0) -> Path:
    """Writes ``params`` (one entry per layer) as ``target`` of a ``checkpoint_<step>`` for T5X; returns its folder.

    Matrices become zarr folders, vectors lie in the msgpack file. The optimizer's state is empty: T5X starts its own.
    """
    import tensorstore
    from flax import serialization

    place = Path(folder) / f"checkpoint_{step}"
    place.mkdir(parents=True)
    written: dict = {}
    for name, array in _in_layout(params, layout, head_dim).items():
        if array.ndim < 2:
            put(written, name, np.ascontiguousarray(array))
            continue
        path = f"target.{name.replace('/', '.')}"
        metadata = {"compressor": {"id": "gzip"}, "shape": list(array.shape), "chunks": _chunks(array)}
        spec = {
            "driver": "zarr",
            "dtype": array.dtype.name,
            "kvstore": {"driver": "file", "path": path},
            "metadata": metadata,
        }
        here = {**spec, "kvstore": {"driver": "file", "path": str(place / path)}}
        try:
            tensorstore.open(here, create=True, open=False).result().write(np.ascontiguousarray(array)).result()
        except ValueError as error:  # its text is mostly the specification
            raise disk.os_error(error, place / path) from error
        put(written, name, spec)
    state = {"step": np.asarray(step, np.int32), "param_states": {}}
    contents = {"version": VERSIONS[-1], "optimizer": {"target": written, "state": state}}
    (place / FILE).write_bytes(serialization.msgpack_serialize(contents))
    return place


def _in_layout(params: Mapping, layout: str, head_dim: int) -> dict[str, np.ndarray]:
    flat: dict[str, np.ndarray] = {}
    for top, subtree in params.items():
        if top not in STACKS or layout == "per_layer":
            flat |= trees.flatten({top: subtree})
            continue
        count = sum(name.startswith("layers_") for name in subtree)
        bias = trees.flatten(subtree)[BIAS]
        layers = [trees.flatten(subtree[f"layers_{i}"]) | {BIAS: bias} for i in range(count)]
        layers = [{name: _deep_kernel(name, np.asarray(x), head_dim) for name, x in layer.items()} for layer in layers]
        if layout == "scanned":
            stacked = {name: np.stack([layer[name] for layer in layers], axis=SCAN_AXIS) for name in layers[0]}
            flat |= {f"{top}/{top}/{name}": array for name, array in stacked.items()}
        else:
            flat |= {f"{top}/layers_{i}/{name}": x for i, layer in enumerate(layers) for name, x in layer.items()}
        rest = {name: value for name, value in subtree.items() if not name.startswith("layers_")}
        flat |= {f"{top}/{name}": x for name, x in trees.flatten(rest).items() if name != BIAS}
    return {name: np.asarray(array) for name, array in flat.items()}


def _deep_kernel(name: str, array: np.ndarray, head_dim: int) -> np.ndarray:
    *_, module, projection, leaf = ("", "", *name.split("/"))
    if module not in ATTENTIONS or leaf != "kernel":
        return array
    if projection == "out":
        return array.reshape(-1, head_dim, array.shape[-1])
    return array.reshape(array.shape[0], -1, head_dim)


def _chunks(array: np.ndarray, most: int = 64 << 20) -> list[int]:
    """Whole rows, as many as fit 64 MiB."""
    row = max(1, array.nbytes // max(1, array.shape[0]))
    return [max(1, min(array.shape[0], most // row)), *array.shape[1:]]


def _leaves(tree: Mapping, path: str = "") -> dict:
    """Flat names -> arrays, or the description of an array that lies elsewhere."""
    flat: dict = {}
    for name, value in tree.items():
        inner = isinstance(value, Mapping) and "driver" not in value
        flat |= _leaves(value, f"{path}{name}/") if inner else {path + name: value}
    return flat


def _shape(leaf) -> tuple[int, ...]:
    return tuple(leaf["metadata"]["shape"]) if isinstance(leaf, Mapping) else np.shape(leaf)
