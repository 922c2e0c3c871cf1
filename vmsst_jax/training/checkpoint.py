"""Checkpoints of a training run: written in the background, verified when read, and pruned.

Orbax writes the arrays; this module decides what is kept, reports failed saves, and passes over damaged ones. See
:mod:`vmsst_jax.training.checkpoint_files` for the layout on disk.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.metadata
import json
import logging
import math
import os
import pathlib
import shutil
import socket
import time
import weakref
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import orbax.checkpoint as ocp

import vmsst_jax
from vmsst_jax import disk
from vmsst_jax.training import checkpoint_files as files
from vmsst_jax.training.checkpoint_files import CheckpointError
from vmsst_jax.training.loaded_model import LoadedModel, load_model, read_host
from vmsst_jax.training.orbax_noise import quiet_orbax
from vmsst_jax.training.same_config import check_same_config

__all__ = ["CheckpointError", "Checkpoints", "LoadedModel", "check_same_config", "load_model", "read_host", "versions"]

logger = logging.getLogger(__name__)

LOCK = ".lock"
RETRIES = 5  # of saves in a row that fail in a way that may pass
SLOW = 30.0  # seconds of waiting for a save that are worth a word


def versions() -> dict[str, str]:
    """The versions of the packages that decide what a checkpoint means."""
    packages = ("jax", "flax", "optax", "orbax-checkpoint")
    return {"vmsst_jax": vmsst_jax.__version__} | {name: importlib.metadata.version(name) for name in packages}


class Checkpoints:
    """The checkpoints of one run, in ``directory/checkpoints/<step>/``.

    Every process makes one, on a directory that all of them see, and calls its methods alike. On opening, what an
    interrupted save has left is reported and removed. Until it is closed, no other run can open the directory.

    Args:
      directory: the run's model directory, made if need be.
      keep_last: how many of the newest steps to keep, at least 1; the last whole one stays until the next is whole.
      keep_every: keep steps that are multiples of this too.
      best_metric: keep the step with the best value of this metric too.
      best_mode: "max" if high values of it are good, "min" if low.

    Attributes:
      folder: where the steps lie.
      steps: those saved or being saved, ascending.

    Raises:
      CheckpointError: another run has the directory open.
    """

    def __init__(
        self,
        directory: str | os.PathLike,
        *,
        keep_last: int = 2,
        keep_every: int | None = None,
        best_metric: str | None = None,
        best_mode: str = "max",
    ):
        if keep_last < 1 or (keep_every is not None and keep_every < 1) or best_mode not in ("max", "min"):
            raise ValueError(
                "Checkpoints needs keep_last >= 1, keep_every >= 1 or None, and best_mode 'max' or 'min', "
                f"but got {keep_last}, {keep_every} and {best_mode!r}."
            )
        quiet_orbax()
        directory = files.absolute(directory)
        self.folder = directory / files.STEPS_FOLDER
        self._release = lambda: None
        if jax.process_index() == 0 and files.is_local(directory):
            # Also released when this object is collected: a run that failed need not have closed it.
            self._release = weakref.finalize(self, _lock(pathlib.Path(directory)).close)
        self._keep_last, self._keep_every = keep_last, keep_every
        self._best_metric, self._best_mode = best_metric, best_mode
        self._saving: int | None = None
        self._failures, self._again = 0, math.inf  # saves that failed in a row; when to try once more
        self._sums: Future | None = None
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="checkpoint-sums")
        if jax.process_index() == 0:
            for name in files.remove_unfinished(self.folder):
                logger.warning("Removed %s: a save that was interrupted before it was complete.", self.folder / name)
        self._manager = self._open()

    @property
    def steps(self) -> list[int]:
        return sorted(self._manager.all_steps())

    @property
    def due(self) -> bool:
        """Whether a save has failed in a way that may pass, and it is time to try once more, with the state of now."""
        return time.monotonic() >= self._again

    def latest_step(self) -> int | None:
        """The newest step saved or being saved, damaged or not; None without any."""
        return self.steps[-1] if self.steps else None

    def save(self, step: int, state: Any, host: Mapping, metrics: Mapping[str, float] | None = None) -> bool:
        """Starts saving in the background; `state` may be donated to the next update at once.

        Waits until the save before is finished.

        Args:
          step: number of finished updates; the newest saved step again is not saved twice.
          state: pytree of jax arrays (random keys as ``jax.random.key_data``).
          host: what is not an array, as JSON; ``versions`` are added.
          metrics: scores of this state, which rank it for ``best_metric``.

        Returns:
          Whether a save was started.

        Raises:
          CheckpointError: the save before has failed, or a later step than this is saved already.
          ValueError, TypeError: `metrics` lack ``best_metric``; `host` is not JSON.
        """
        begun = time.monotonic()
        self.wait()
        if (waited := time.monotonic() - begun) > SLOW:
            logger.warning(
                "Training waited %.0f s for the save of step %s to %s: the storage is slower than saves are asked for. "
                "Save less often (Rhythm.save_every), or to faster storage.", waited, self.latest_step(), self.folder
            )  # fmt: skip
        newest = self.latest_step()
        if newest is not None and step < newest:
            raise CheckpointError(
                f"Step {step} cannot be saved to {self.folder}: step {newest} is there already. To go on from an "
                "earlier step, move the later ones elsewhere or take another model directory."
            )
        if step == newest:
            return False
        if metrics and self._best_metric and self._best_metric not in metrics:
            raise ValueError(f"best_metric is {self._best_metric!r}, but step {step} has only {sorted(metrics)}.")
        scores = {
            "metrics": {name: float(value) for name, value in (metrics or {}).items()},
            "best_metric": self._best_metric,
            "best_mode": self._best_mode,
        }
        # Written in the background: a copy, so that the caller may go on changing its own.
        host = json.loads(json.dumps({**host, "versions": versions()}))
        self._ranks[step] = scores["metrics"].get(self._best_metric)
        items = {
            "state": ocp.args.StandardSave(state),
            "host": ocp.args.JsonSave(host),
            "scores": ocp.args.JsonSave(scores),
        }
        self._saving, self._again = step, math.inf
        # Orbax has collectives of its own, which on one process may not overtake those of a step under way.
        jax.block_until_ready(state)
        try:
            self._manager.save(step, args=ocp.args.Composite(**items), force=True)
        except Exception as error:
            self._failed(error)
        return True

    def check(self) -> None:
        """Raises CheckpointError if a save has failed since the last call; never waits. Call it now and then.

        A failure that may pass (``disk.may_pass``) is a warning instead, and makes a save ``due`` after a while, where
        there is one process only: several would have to agree, and are started again instead.
        """
        if self._saving is not None and not self._manager.is_saving_in_progress():
            try:
                self._finish_save()
            except CheckpointError as error:
                if self._failures > RETRIES or jax.process_count() > 1 or not disk.may_pass(error):
                    raise
                wait = 2.0**self._failures
                self._again = time.monotonic() + wait
                logger.warning("%s Trying again in %g s.", str(error).partition(" Make room")[0], wait)
        if self._sums is not None and self._sums.done():
            self._finish_sums()

    def restore(self, abstract_state: Any, step: int | None = None) -> tuple[Any, dict, int]:
        """Reads a step: ``(state, host, step)``, the state bit for bit as it was saved.

        Without `step`, damaged newest steps are reported, set aside as ``<step>.damaged`` and the one before is used.

        Args:
          abstract_state: the state, or its ``jax.ShapeDtypeStruct``s with the shardings it shall have (any number of
            devices); leaves without a sharding go to the first device.

        Raises:
          CheckpointError: no checkpoint, not this step, all of them damaged, or of another structure.
        """
        self.wait()
        target = jax.tree.map(_placed, abstract_state)
        folder, steps = files.find(self.folder)
        candidates = files.choose(folder, steps, step)
        (state, host), step, damaged = files.read_newest(folder, candidates, lambda place: self._read(place, target))
        if damaged:
            if jax.process_index() == 0:
                for bad in damaged:
                    moved = files.set_aside(folder / str(bad))
                    logger.warning("Set the damaged step %d aside as %s; going on from step %d.", bad, moved, step)
            self._reopen()
        return state, host, step

    def wait(self) -> None:
        """Waits until everything is written; raises CheckpointError if the last save has failed."""
        self._finish_save()
        self._finish_sums()

    def close(self) -> None:
        """Waits until everything is written, as :meth:`wait` does, and ends the background threads."""
        try:
            self.wait()
        finally:
            self._executor.shutdown()
            try:
                self._manager.close()
            finally:
                self._release()

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _open(self) -> ocp.CheckpointManager:
        self._ranks = {
            step: files.read_scores(self.folder / str(step)).get("metrics", {}).get(self._best_metric)
            for step in files.steps_in(self.folder)
        }
        options = ocp.CheckpointManagerOptions(
            preservation_policy=_Preserve(self._keep),
            # Orbax would read every step's metadata now, and fail on a damaged one; nothing here needs them.
            lightweight_initialize=True,
        )
        return ocp.CheckpointManager(self.folder, options=options)

    def _reopen(self):
        """Has Orbax look at the folder again; its own way of doing so fails on damaged steps."""
        self._manager.close()
        self._manager = self._open()

    def _keep(self, steps: list[int]) -> set[int]:
        # The newest of `steps` is still being written when this is asked; the one before it is known to be whole.
        kept = set(sorted(steps)[-max(self._keep_last, 2) :])
        if self._keep_every:
            kept |= {step for step in steps if step % self._keep_every == 0}
        return kept | {files.best_of({step: self._ranks.get(step) for step in steps}, self._best_mode)}

    def _read(self, place, target):
        saved = ocp.StandardCheckpointHandler().metadata(place / "state")
        _check_same_structure(place, saved.tree, target, files.read_json(place / "host"))
        items = {"state": ocp.args.StandardRestore(target), "host": ocp.args.JsonRestore()}
        restored = self._manager.restore(int(place.name), args=ocp.args.Composite(**items))
        return restored["state"], restored["host"]

    def _finish_save(self):
        if self._saving is None:
            return
        try:
            self._manager.wait_until_finished()
        except Exception as error:
            self._failed(error)
        step, self._saving, self._failures = self._saving, None, 0
        if jax.process_index() == 0:
            self._sums = self._executor.submit(files.write_sums, self.folder / str(step))

    def _finish_sums(self):
        if self._sums is None:
            return
        sums, self._sums = self._sums, None
        try:
            sums.result()
        except OSError as error:
            raise CheckpointError(f"The checksums of a checkpoint could not be written: {error}.") from error

    def _failed(self, error: Exception):
        """Removes what a failed save has left, as it may be what fills the disk, and raises CheckpointError."""
        step, self._saving, self._failures = self._saving, None, self._failures + 1
        space = ""
        with contextlib.suppress(OSError):  # not a local folder
            space = f" ({shutil.disk_usage(self.folder).free / 1e6:,.0f} MB are free there)"
        with contextlib.suppress(Exception):  # other writes of the same save may fail too; the first says why
            self._manager.close()  # before anything is removed: it waits for them
        if jax.process_index() == 0:
            with contextlib.suppress(OSError):  # what stays is removed on the next start
                files.remove_unfinished(self.folder)
        self._manager = self._open()
        newest = self.latest_step()
        goes_on = "starts from the beginning" if newest is None else f"goes on from step {newest}"
        raise CheckpointError(
            f"Saving step {step} to {self.folder} failed: {disk.cause(error)}{space}. "
            f"Make room or mend the cause, then give the same command: it {goes_on}."
        ) from error


class _Preserve:
    """Orbax's preservation policy from a function: steps -> those to keep."""

    def __init__(self, keep):
        self._keep = keep

    def should_preserve(self, checkpoints, *, context) -> list[bool]:
        kept = self._keep([checkpoint.step for checkpoint in checkpoints])
        return [checkpoint.step in kept for checkpoint in checkpoints]


def _placed(leaf):
    if getattr(leaf, "sharding", None) is not None:
        return leaf
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=jax.sharding.SingleDeviceSharding(jax.devices()[0]))


def _lock(directory: pathlib.Path):
    """The open file ``directory/.lock``, which holds who has it; CheckpointError if that is another."""
    directory.mkdir(parents=True, exist_ok=True)
    path, me = directory / LOCK, f"process {os.getpid()} on {socket.gethostname()}"
    try:
        file = disk.open_locked(path)
    except BlockingIOError:
        holder = path.read_text(errors="replace").strip()
        if holder != me:
            raise _in_use(directory, holder) from None
        gc.collect()  # a failed run of this very process may only wait for that
        try:
            file = disk.open_locked(path)
        except BlockingIOError:
            raise _in_use(directory, "this very process") from None
    with contextlib.suppress(OSError):  # a full disk: only the message of the next one suffers
        file.truncate(0)
        file.write(f"{me}\n".encode())
    return file


def _in_use(directory, holder: str) -> CheckpointError:
    return CheckpointError(
        f"Another run is training in {directory}: {holder or 'a process'} holds {directory / LOCK}. Wait until it ends "
        "or stop it, or train in another model directory."
    )


def _check_same_structure(place, saved, target, host: Mapping, most: int = 10):
    """Orbax would cast a differing dtype without a word, and its other messages do not name the leaf."""
    saved, target = ocp.tree.to_flat_dict(saved), ocp.tree.to_flat_dict(target)

    def described(tree, path):
        return f"{tree[path].dtype}{list(tree[path].shape)}" if path in tree else "absent"

    differing = [
        f"  {'/'.join(map(str, path))}: {described(saved, path)} saved, {described(target, path)} wanted"
        for path in sorted({*saved, *target}, key=str)
        if described(saved, path) != described(target, path)
    ]
    if differing and "origin" in host:
        raise CheckpointError(
            f"{place} is a converted model ({host['origin'].get('path', 'of unknown origin')}), not a run that could "
            "go on: name it as train.init_checkpoint instead, and train in another model directory."
        )
    if differing:
        more = [f"  and {len(differing) - most} more"] if len(differing) > most else []
        raise CheckpointError(
            f"The checkpoint {place} holds another model or optimizer than this run's:\n"
            + "\n".join(differing[:most] + more)
            + "\nStart with the configuration it was saved with, or in another model directory."
        )
