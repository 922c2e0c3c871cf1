"""The one device mesh, and where each array lives on it.

Mesh axes: ``data`` (batch rows), ``fsdp`` (batch rows and slices of every parameter), ``model`` (slices of heads, MLP
and vocabulary). Parameters get logical axes from their names (``LOGICAL_AXES``), and logical axes get mesh axes from
``RULES``. All axes are Auto: XLA's partitioner completes what is not said here.
"""

from __future__ import annotations

import math

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from vmsst_jax import checks

AXES = ("data", "fsdp", "model")
BATCH_AXES = ("data", "fsdp")

# Model state of which every device owns an equal share of axis 1: the slots of a memory bank, by the end of their path.
SLOT_ARRAYS = (("memory_bank", "vectors"), ("memory_bank", "document"), ("memory_bank", "language"))

# Logical axis -> mesh axis. What is absent is replicated.
RULES = {"embed": "fsdp", "heads": "model", "mlp": "model", "vocab": "model"}

# The last two components of a parameter's path -> its logical axes, without leading stack axes.
LOGICAL_AXES = {
    ("token_embedder", "embedding"): ("vocab", "embed"),
    ("position_embedder", "embedding"): (None, "embed"),
    ("token_type_embedder", "embedding"): (None, "embed"),
    ("language_embedder", "embedding"): (None, "embed"),
    ("language_tags", "embedding"): (None, "embed"),
    ("decoder_tags", "embedding"): (None, "embed"),
    ("query", "kernel"): ("embed", "heads"),
    ("key", "kernel"): ("embed", "heads"),
    ("value", "kernel"): ("embed", "heads"),
    ("out", "kernel"): ("heads", "embed"),
    ("wi", "kernel"): ("embed", "mlp"),
    ("wi_0", "kernel"): ("embed", "mlp"),
    ("wi_1", "kernel"): ("embed", "mlp"),
    ("wo", "kernel"): ("mlp", "embed"),
    ("hidden", "kernel"): ("embed", None),
    ("latent", "kernel"): ("embed", None),
    ("semantic_mean", "kernel"): ("embed", None),
    ("semantic_logvar", "kernel"): ("embed", None),
    ("language_mean", "kernel"): ("embed", None),
    ("language_logvar", "kernel"): ("embed", None),
    ("pooler", "kernel"): ("embed", None),
    ("projection", "kernel"): ("embed", None),
    ("dense", "kernel"): ("embed", None),
    ("linear", "kernel"): ("embed", None),
    ("logits_dense", "kernel"): ("embed", "vocab"),
    ("logits_latent", "kernel"): ("embed", "vocab"),
    ("logits_down", "kernel"): ("embed", None),
    ("logits_down_latent", "kernel"): ("embed", None),
    ("relpos_bias", "rel_embedding"): (None, None),
}


def make_mesh(data: int = -1, fsdp: int = 1, model: int = 1, devices=None) -> Mesh:
    """The mesh of ``data x fsdp x model`` devices; ``data=-1`` takes what the other two leave.

    Raises ValueError where the sizes don't multiply to the number of devices.
    """
    devices = list(jax.devices() if devices is None else devices)
    for name, size in {"fsdp": fsdp, "model": model}.items():
        checks.whole(f"make_mesh.{name}", size)
    if data == -1:
        data = len(devices) // (fsdp * model)
    else:
        checks.whole("make_mesh.data", data)  # beside -1
    if data * fsdp * model != len(devices):
        raise ValueError(
            f"mesh of data {data} x fsdp {fsdp} x model {model} needs {data * fsdp * model} devices, "
            f"{len(devices)} are here; change make_mesh.data, make_mesh.fsdp or make_mesh.model"
        )
    grid = np.asarray(devices).reshape(data, fsdp, model)
    return Mesh(grid, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def batch_shards(mesh=None) -> int:
    """Over how many devices batch rows are split; without a mesh, in the one that is set (1 where none is)."""
    mesh = jax.sharding.get_abstract_mesh() if mesh is None else mesh
    return math.prod(mesh.shape.get(axis, 1) for axis in BATCH_AXES) if mesh.shape else 1


def held_shards(mesh) -> tuple[int, ...]:
    """Which of the ``batch_shards`` lie on devices of this process."""
    shards = mesh.devices.reshape(batch_shards(mesh), -1)
    return tuple(i for i, devices in enumerate(shards) if any(d.process_index == jax.process_index() for d in devices))


def batch_spec(ndim: int, axis: int = 0) -> PartitionSpec:
    """Splits axis number ``axis`` of an array with ``ndim`` axes over the batch axes."""
    return PartitionSpec(*(BATCH_AXES if i == axis else None for i in range(ndim)))


def platform() -> str:
    """What is compiled for, "cpu", "gpu" or "tpu": the mesh that is set says it, whose devices need not be here."""
    device = getattr(jax.sharding.get_abstract_mesh(), "abstract_device", None)
    return jax.default_backend() if device is None else device.platform


def slot_shards(mesh=None) -> int:
    """Over how many devices a memory bank's slots are split: all of the mesh; without one, as in ``batch_shards``."""
    mesh = jax.sharding.get_abstract_mesh() if mesh is None else mesh
    return math.prod(mesh.shape.get(axis, 1) for axis in AXES) if mesh.shape else 1


def slot_spec() -> PartitionSpec:
    """Splits axis 1 over all devices."""
    return PartitionSpec(None, AXES)


def split_rows(x):
    """``x`` with the constraint that its rows lie over the batch axes of the mesh that is set, where they divide."""
    shards = batch_shards()
    return x if shards == 1 or x.shape[0] % shards else jax.lax.with_sharding_constraint(x, batch_spec(x.ndim))


def stack_axes(path: tuple[str, ...]) -> int:
    """How many leading axes of the parameter at ``path`` stack equal sets: scanned ``layers``, ``stack`` of models."""
    return path.count("layers") + path.count("stack")


def parameter_spec(path: tuple[str, ...], shape: tuple[int, ...], mesh) -> PartitionSpec:
    """The partition of one parameter by its path and shape. Axes that the mesh does not divide stay whole.

    Raises KeyError for a matrix whose name has no logical axes: a new parameter needs a line in ``LOGICAL_AXES``.
    """
    leading = stack_axes(path)
    rank = len(shape) - leading
    if rank < 2:
        return PartitionSpec()
    if path[-2:] not in LOGICAL_AXES:
        raise KeyError(f"parameter {'/'.join(path)} {shape} has no logical axes: add it to sharding.LOGICAL_AXES")
    spec: list[str | None] = [None] * leading
    for size, logical in zip(shape[leading:], LOGICAL_AXES[path[-2:]], strict=True):
        axis = RULES.get(logical)
        spec.append(axis if axis and size % mesh.shape[axis] == 0 else None)
    return PartitionSpec(*spec)


def path_of(key_path) -> tuple[str, ...]:
    """A JAX tree path as plain strings."""
    return tuple(str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k)))) for k in key_path)


def state_shardings(abstract_state, mesh):
    """NamedShardings for a train state, leaf by leaf.

    Leaves under ``params`` follow ``parameter_spec``. Optimizer slots that have their parameter's path and shape follow
    it. A memory bank's slots are split over all devices. What is left (counters, factored slots, keys) is replicated.
    """
    params = jax.tree_util.tree_leaves_with_path(abstract_state.params)
    specs = {path_of(p): (leaf.shape, parameter_spec(path_of(p), leaf.shape, mesh)) for p, leaf in params}

    def sharding(key_path, leaf):
        path = path_of(key_path)
        if path[-2:] in SLOT_ARRAYS:
            return NamedSharding(mesh, slot_spec())
        for start in range(len(path)):
            shape, spec = specs.get(path[start:], (None, None))
            if shape == leaf.shape:
                return NamedSharding(mesh, spec)
        return NamedSharding(mesh, PartitionSpec())

    return jax.tree_util.tree_map_with_path(sharding, abstract_state)


def batch_sharding(shape: tuple[int, ...], mesh, axis: int = 0) -> NamedSharding:
    """Rows (``axis``) over the batch axes; replicated where the mesh does not divide them (small index arrays)."""
    divides = len(shape) > axis and shape[axis] % batch_shards(mesh) == 0
    return NamedSharding(mesh, batch_spec(len(shape), axis) if divides else PartitionSpec())


def put_batch(batch, mesh, axis: int = 0):
    """Host arrays of the global batch -> device arrays, laid out by ``batch_sharding``.

    Every process has arrays of the same shapes; of their rows those count that its own devices hold.
    """

    def put(x):
        x = np.asarray(x)
        return jax.make_array_from_callback(x.shape, batch_sharding(x.shape, mesh, axis), lambda index: x[index])

    return jax.tree.map(put, batch)
