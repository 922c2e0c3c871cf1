"""A trained model read back for use: its module, parameters, tokenizer and languages, without the optimizer's state."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import jax
import orbax.checkpoint as ocp
from etils import epath

from vmsst_jax import models, sharding
from vmsst_jax.data import tokenizers
from vmsst_jax.data.languages import Languages
from vmsst_jax.training import checkpoint_files as files
from vmsst_jax.training.checkpoint_files import CheckpointError
from vmsst_jax.training.orbax_noise import quiet_orbax


@dataclasses.dataclass(frozen=True)
class LoadedModel:
    """What :func:`load_model` found.

    Attributes:
      module: the Flax module, ``module.apply({"params": params}, tokens, method="embed")``.
      params: its parameters.
      tokenizer: its own, of one of the kinds in ``vmsst_jax.data.tokenizers``.
      languages: those it was trained on.
      embedding: how its sentence embeddings are made: {"pooling", "layer", "normalize", "prefix", "max_length"}.
      host: all that was saved beside the arrays.
      step: number of updates it was trained for.
      directory: the step's folder.
    """

    module: Any
    params: Any
    tokenizer: Any
    languages: Languages
    embedding: dict
    host: dict
    step: int
    directory: epath.Path


def read_host(path: str | os.PathLike, step: int | str | None = None) -> dict:
    """What was saved beside the arrays of a checkpoint; arguments and errors as for :func:`load_model`."""
    folder, steps = files.find(path)
    candidates = files.choose(folder, steps, step)
    return files.read_newest(folder, candidates, lambda place: files.read_json(place / "host"), part="host/")[0]


def load_model(
    path: str | os.PathLike, step: int | str | None = None, mesh: jax.sharding.Mesh | None = None
) -> LoadedModel:
    """Loads a trained model; its checkpoint may have been written on any number of devices.

    Args:
      path: a model directory, its ``checkpoints`` folder or one step folder.
      step: a step, "best" (by the score that training kept the best step by), or None for the newest; then damaged
        steps are reported and passed over.
      mesh: where the parameters go, by the rules of :mod:`vmsst_jax.sharding`; None is the first local device.

    Raises:
      FileNotFoundError: there is no such path.
      CheckpointError: it holds no checkpoint, not this step, or only damaged ones.
    """
    quiet_orbax()
    folder, steps = files.find(path)
    candidates = files.choose(folder, steps, step)

    def read(place):
        return _read_params(place / "state", mesh), files.read_json(place / "host")

    (params, host), step, _ = files.read_newest(folder, candidates, read)
    return LoadedModel(
        module=models.build(host["model"]["kind"], host["model"]["config"]),
        params=params,
        tokenizer=_tokenizer(host["tokenizer"], folder / str(step)),
        languages=Languages(host["languages"]),
        embedding=host["embedding"],
        host=host,
        step=step,
        directory=folder / str(step),
    )


def _read_params(item: epath.Path, mesh):
    """Only the subtree ``params`` of a saved state."""
    handler = ocp.PyTreeCheckpointHandler()
    saved = handler.metadata(item).tree["params"]

    def target(key_path, leaf):
        path = sharding.path_of(key_path)
        if mesh is None:
            where = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        else:
            where = jax.sharding.NamedSharding(mesh, sharding.parameter_spec(path, leaf.shape, mesh))
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where)

    wanted = {"params": jax.tree_util.tree_map_with_path(target, saved)}
    restore = ocp.args.PyTreeRestore(
        item=wanted, restore_args=ocp.checkpoint_utils.construct_restore_args(wanted), partial_restore=True
    )
    with ocp.Checkpointer(handler) as checkpointer:
        return checkpointer.restore(item, args=restore)["params"]


def _tokenizer(saved: dict, place):
    try:
        return tokenizers.from_record(saved, str(place))
    except ValueError as error:
        raise CheckpointError(str(error)) from None
