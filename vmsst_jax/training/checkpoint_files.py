"""Where checkpoints lie on disk and whether their files are whole.

A model directory holds ``checkpoints/<step>/`` with the items ``state`` (arrays), ``host`` and ``scores`` (JSON), and
``sha256sums.txt``, written last: a checksum for every other file of the step, in the format of ``sha256sum -c``.
Paths may be local or, where the installed libraries can read them, remote (``gs://...``).
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from etils import epath

from vmsst_jax import disk

STEPS_FOLDER = "checkpoints"
SUMS = "sha256sums.txt"
# What Orbax calls the file of a JSON item, and the folder of a save that is not finished.
JSON_FILE = "metadata"
UNFINISHED = ".orbax-checkpoint-tmp"
CHUNK = 8 << 20
WANTED = (
    f"Wanted numbered step folders, as training writes them to MODEL_DIR/{STEPS_FOLDER}/. "
    f"Give a model directory, its {STEPS_FOLDER} folder or one step folder"
)

logger = logging.getLogger(__name__)


class CheckpointError(ValueError):
    """A checkpoint could not be written, found or used; the message says which, why and what to do."""


class Damaged(Exception):
    """One step's files are not what was saved; the text names the file and the reason."""


def find(path) -> tuple[epath.Path, list[int]]:
    """The folder of steps and the steps meant by `path`: a model directory, its checkpoints folder or one step folder.

    Raises:
      FileNotFoundError: there is no such path.
      CheckpointError: it holds no checkpoint; the message lists what it does hold.
    """
    path = absolute(path)
    if not path.exists():
        parent = next(p for p in path.parents if p.exists())
        raise FileNotFoundError(f"{path} does not exist ({parent} holds {_contents(parent)}). {WANTED}.")
    if not path.is_dir():
        raise CheckpointError(f"{path} is a file. {WANTED}.")
    if _is_step(path) and any((path / item).exists() for item in ("state", "host")):
        return path.parent, [int(path.name)]
    folder = path / STEPS_FOLDER if (path / STEPS_FOLDER).is_dir() else path
    found = steps_in(folder)
    if not found:
        raise CheckpointError(
            f"No checkpoint in {folder}: it holds {_contents(folder)}. {WANTED}; "
            "if training has only just begun, wait for its first save."
        )
    return folder, found


def absolute(path) -> epath.Path:
    """`path` as an absolute one, ``~`` expanded; Orbax takes no other."""
    return epath.Path(path).expanduser().resolve()


def is_local(path: epath.Path) -> bool:
    """Whether a path lies on a mounted file system rather than in a cloud's storage."""
    return "://" not in os.fspath(path)


def steps_in(folder: epath.Path) -> list[int]:
    """The steps saved in `folder`, ascending, damaged ones included."""
    return sorted(int(p.name) for p in folder.iterdir() if _is_step(p)) if folder.is_dir() else []


def choose(folder: epath.Path, steps: Sequence[int], step: int | str | None) -> list[int]:
    """Those of `steps` that may be used: all for None, else only the one asked for (a number or "best").

    Raises:
      CheckpointError: that step is not there, or "best" and no step has been scored.
    """
    if step is None:
        return list(steps)
    if step == "best":
        best = best_step(folder, steps)
        if best is None:
            raise CheckpointError(f"No checkpoint in {folder} has scores, so none is best; found {_listed(steps)}.")
        return [best]
    if step not in steps:
        raise CheckpointError(f"There is no step {step!r} in {folder}; found {_listed(steps)}.")
    return [step]


def best_step(folder: epath.Path, steps: Sequence[int]) -> int | None:
    """The step with the best score, the later of equal ones; None without scores.

    Which metric, and whether high or low is good, is what the newest scored step says.
    """
    scores = {step: read_scores(folder / str(step)) for step in sorted(steps, reverse=True)}
    named = next((s for s in scores.values() if s.get("best_metric")), None)
    if named is None:
        return None
    values = {step: s["metrics"].get(named["best_metric"]) for step, s in scores.items() if s}
    return best_of(values, named["best_mode"])


def best_of(values: dict[int, float | None], mode: str) -> int | None:
    """The step of the highest ("max") or lowest ("min") finite value, the later of equal ones; None without any."""
    sign = {"max": 1, "min": -1}[mode]
    finite = [(sign * value, step) for step, value in values.items() if value is not None and math.isfinite(value)]
    return max(finite)[1] if finite else None


def read_scores(place: epath.Path) -> dict:
    """{"metrics", "best_metric", "best_mode"} of a step; empty where they cannot be read: they only rank steps."""
    try:
        return read_json(place / "scores")
    except Damaged:
        return {}


def read_json(item: epath.Path) -> dict:
    """A JSON item, an object; raises Damaged if it cannot be read."""
    file = item / JSON_FILE
    try:
        contents = json.loads(disk.retrying(file.read_text, f"reading {file}"))
    except (OSError, ValueError) as error:
        raise Damaged(f"{file}: {first_line(error)}") from error
    if not isinstance(contents, dict):
        raise Damaged(f"{file} holds a JSON {type(contents).__name__}, not an object")
    return contents


def read_newest(
    folder: epath.Path, steps: Sequence[int], read: Callable[[epath.Path], Any], part: str = ""
) -> tuple[Any, int, list[int]]:
    """``read(step folder)`` of the newest of `steps` that is whole, its step, and the damaged steps passed over.

    Each damaged step is reported as a warning. A step without checksums (its process was killed before it wrote them)
    counts as damaged if `read` fails on it. All processes must call this together; they agree on each step.

    Args:
      part: check only the files below this item of a step.

    Raises:
      CheckpointError: all are damaged; the message has the reason for each.
      Exception: whatever `read` raises on a step whose checksums are right.
    """
    damaged: dict[int, str] = {}
    for step in sorted(steps, reverse=True):
        place = folder / str(step)
        result, reason = _read_whole(place, read, part)
        if reason is None:
            return result, step, list(damaged)
        damaged[step] = reason
        logger.warning("The checkpoint of step %d is damaged: %s. Looking for an earlier one.", step, reason)
    reasons = "\n".join(f"  step {step}: {reason}" for step, reason in damaged.items())
    raise CheckpointError(
        f"No checkpoint of {_listed(steps)} in {folder} can be used, each is damaged:\n{reasons}\n"
        "Restore the files from a copy, or start again in a new model directory."
    )


def _read_whole(place, read, part):
    """(result, None), or (None, why the step is damaged)."""
    reason, verified = None, True
    if jax.process_index() == 0:  # one process reads the whole step
        try:
            verified = check_sums(place, part)
        except Damaged as error:
            reason = str(error)
    if (reason := _agreed(place, reason)) is not None:
        return None, reason
    verified = _agreed(place, None if verified else "no checksums") is None
    result = None
    try:
        result = read(place)
    except Exception as error:
        if verified or isinstance(error, CheckpointError):
            raise
        reason = str(error) if isinstance(error, Damaged) else f"{place}: {first_line(error)}"
    return result, _agreed(place, reason)


def _agreed(place, reason: str | None) -> str | None:
    """The reason on every process if any process has one."""
    if jax.process_count() == 1:
        return reason
    from jax.experimental import multihost_utils

    anywhere = np.any(multihost_utils.process_allgather(np.int32(reason is not None)))
    return reason or f"{place}: found by another process" if anywhere else None


def write_sums(place: epath.Path) -> None:
    """Writes the checksums of a finished step: all of them or none, whenever the process dies."""
    lines = [f"{_sha256(place / name)}  {name}\n" for name in sorted(_files(place))]
    new = place / (SUMS + ".new")
    with new.open("w") as file:
        file.write("".join(lines))
        if is_local(place):  # else a crash of the machine could leave the name with nothing in it
            file.flush()
            os.fsync(file.fileno())
    new.replace(place / SUMS)


def check_sums(place: epath.Path, part: str = "") -> bool:
    """Compares a step's files, or those below the item `part`, with their checksums; False if there are none.

    An empty list of checksums counts as none.

    Raises:
      Damaged: a file is missing or differs.
    """
    lines = (place / SUMS).read_text().splitlines() if (place / SUMS).exists() else []
    for line in lines:
        saved, _, name = line.partition("  ")
        if not name:
            raise Damaged(f"{place / SUMS} is cut off")
        if not name.startswith(part):
            continue
        file = place / name
        if not file.exists():
            raise Damaged(f"{file} is missing")
        if (found := _sha256(file)) != saved:
            size = file.stat().length
            raise Damaged(f"{file} ({size} bytes) is not what was saved: its sha256 is {found[:12]}, not {saved[:12]}")
    return bool(lines)


def set_aside(place: epath.Path) -> epath.Path:
    """Renames a damaged step's folder, so that its step can be saved again and nothing is lost."""
    names = (f"{place.name}.damaged{suffix}" for suffix in ["", *(f"-{n}" for n in range(2, 1000))])
    target = next(place.parent / name for name in names if not (place.parent / name).exists())
    return place.rename(target)


def remove_unfinished(folder: epath.Path) -> list[str]:
    """Deletes what saves that never finished have left in `folder`; returns the folders' names."""
    names = sorted(p.name for p in folder.iterdir() if UNFINISHED in p.name) if folder.is_dir() else []
    for name in names:
        _remove(folder / name)
    return names


def _remove(place: epath.Path, tries: int = 5) -> None:
    for left in reversed(range(tries)):
        try:
            return place.rmtree(missing_ok=True)
        except OSError:  # writes that were under way when another one failed may still put files there
            if not left:
                raise
            time.sleep(0.1)


def first_line(error: BaseException, length: int = 1000) -> str:
    """The first line of an error's text, or its type where it has none."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:length]


def _is_step(path: epath.Path) -> bool:
    return path.name.isdecimal() and path.name == str(int(path.name)) and path.is_dir()


def _files(place: epath.Path, prefix: str = "") -> Iterator[str]:
    """Names of all files below `place` but the checksums', relative to it."""
    for path in place.iterdir():
        if path.is_dir():
            yield from _files(path, f"{prefix}{path.name}/")
        elif prefix or not path.name.startswith(SUMS):
            yield prefix + path.name


def _sha256(file: epath.Path) -> str:
    return disk.retrying(lambda: _digest(file), f"reading {file}")


def _digest(file: epath.Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as f:
        while block := f.read(CHUNK):
            digest.update(block)
    return digest.hexdigest()


def _listed(steps: Sequence[int]) -> str:
    return f"step{'s' * (len(steps) != 1)} {', '.join(map(str, sorted(steps)))}"


def _contents(folder: epath.Path, most: int = 8) -> str:
    names = sorted(p.name for p in folder.iterdir())
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more if names else "nothing"
