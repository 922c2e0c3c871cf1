"""A text file translated line by line: OUT, line i the translation of line i, beside OUT.json that says how.

The work is done in blocks. Finished lines lie in ``OUT.partial``, and ``OUT.progress.json`` says how many there are and
of what; killed at any moment, the same call goes on behind the last finished block and ends in the same bytes.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from vmsst_jax import disk
from vmsst_jax.data import synthetic_pairs
from vmsst_jax.retrieval.lines import TextFile
from vmsst_jax.retrieval.progress import Progress
from vmsst_jax.retrieval.store import versions, write_json
from vmsst_jax.translation.translator import Translator

BLOCK = 1024  # lines between two saves of the progress
COUNTS = ("empty", "truncated", "tokens")


class Paths(NamedTuple):
    """The files of one output; ``pairs`` may be None."""

    text: Path
    about: Path
    partial: Path
    progress: Path
    pairs: Path | None


class TokenProgress(Progress):
    """Also says how many tokens a second are written."""

    def __init__(self, translator: Translator, *args, **options):
        super().__init__(*args, **options)
        self._translator, self._before = translator, translator.counts["tokens"]

    def line(self, seconds: float) -> str:
        """The plain line after ``seconds`` of work."""
        return f"{super().line(seconds)}, {self.rate(seconds):,.0f} tokens/s"

    def rate(self, seconds: float) -> float:
        """Tokens written a second."""
        return (self._translator.counts["tokens"] - self._before) / max(seconds, 1e-9)

    def update(self, sentences: int) -> None:
        """``sentences`` more are finished."""
        if self.bar is not None:
            self.bar.set_postfix_str(f"{self.rate(time.monotonic() - self.began):,.0f} tokens/s", refresh=False)
        super().update(sentences)


def check_output(
    output: str | os.PathLike, pairs: str | os.PathLike | None, source: str | os.PathLike, overwrite: bool = False
) -> Paths:
    """Where the files lie, to be called before anything slow.

    Raises:
      ValueError: one of the files to be written is the input, or both outputs are one.
      FileNotFoundError: a folder does not exist. IsADirectoryError: a file's name is that of a folder.
      FileExistsError: an output exists and ``overwrite`` is False.
    """
    output, pairs = Path(output), None if pairs is None else Path(pairs)
    beside = (output.with_name(output.name + ending) for ending in (".json", ".partial", ".progress.json"))
    paths = Paths(output, *beside, pairs)
    written = [path for path in paths if path is not None]
    for path in written:
        if not path.parent.is_dir():
            raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} into; make it first")
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder; give the name of a file")
    disk.check_apart(source, written)
    if len({os.path.realpath(path) for path in written}) < len(written):
        raise ValueError(f"{pairs} would be written twice; use another name for the pairs")
    done = [path for path in (paths.text, paths.pairs) if path is not None and path.exists()]
    # Pairs without the translations are what a run killed on its very last step leaves, if its progress lies there.
    if done and not overwrite and (paths.text.exists() or not paths.progress.exists()):
        raise FileExistsError(f"{done[0]} exists; use --overwrite to replace it, or another output")
    return paths


def translate_file(
    translator: Translator,
    text: TextFile,
    output: str | os.PathLike,
    source: str,
    target: str,
    *,
    pairs: str | os.PathLike | None = None,
    overwrite: bool = False,
    progress: bool = True,
) -> dict:
    """Translates every line of a text file, in memory that does not grow with it.

    Args:
      translator: the model.
      text: what ``lines.scan`` made of the input.
      output: for the translations; what is said of them goes to the same name with .json behind it.
      source, target: codes of the languages.
      pairs: a file for the synthetic parallel set: source and target language, original, translation between tabs, for
        every line that has both (``tasks/synthetic_pairs.py`` reads it).
      overwrite: replace existing outputs, and drop what an interrupted run of other contents left.
      progress: show rates and time left.

    Returns:
      The contents of OUT.json.

    Raises:
      ValueError: a language that the model lacks; the input changes meanwhile; an interrupted run left lines of another
        input, model or setting; there is no line for ``pairs``.
      FileExistsError: an output exists. BlockingIOError: another process is writing it.
    """
    paths = check_output(output, pairs, text.path, overwrite)
    translator.languages.id(source), translator.languages.id(target)
    identity = {
        "input": text.identity(),
        "model": translator.fingerprint(),
        "batch_tokens": translator.batch_tokens,
        "languages": [source, target],
    }
    with disk.open_alone(paths.partial) as file:
        state = _resume(paths, identity, overwrite)
        if os.fstat(file.fileno()).st_size < state["bytes"]:  # the progress is there but its lines are gone
            state = _fresh(identity)
        with disk.writing(paths.partial):
            seconds = _write(translator, text, paths, file, state, (source, target), progress)
        about = {
            **{name: state[name] for name in ("rows", *COUNTS)},
            "languages": [source, target],
            "seconds_of_the_last_call": round(seconds, 1),
            "input": {"path": str(text.path), **text.identity()},
            "model": {**translator.describe(), "fingerprint": identity["model"]},
            "versions": versions(),
        }
        if paths.pairs is not None:
            both = _lines(text), _translations(paths.partial)
            count = synthetic_pairs.write(paths.pairs, *both, (source, target), text.path, overwrite=True)
            about["pairs"] = {"path": str(paths.pairs), "rows": count}
        write_json(paths.about, about)
        os.replace(paths.partial, paths.text)
    paths.progress.unlink()
    return about


def _fresh(identity: dict) -> dict:
    """Progress: of what, finished lines and the partial file's size with them, and counts."""
    return {"identity": identity, "rows": 0, "bytes": 0, **dict.fromkeys(COUNTS, 0)}


def _resume(paths: Paths, identity: dict, overwrite: bool) -> dict:
    """The state to go on from, see ``_fresh``."""
    if not paths.progress.exists():
        return _fresh(identity)
    try:
        state = json.loads(paths.progress.read_text(encoding="utf-8"))
        other = [name for name in identity if identity[name] != state["identity"].get(name)]
        whole = all(isinstance(state[name], int) for name in ("rows", "bytes", *COUNTS))
    except (ValueError, KeyError, TypeError, AttributeError):
        other, whole = [], False
    if whole and not other:
        return state
    if overwrite:
        return _fresh(identity)
    if not whole:
        raise ValueError(f"{paths.progress} is damaged; use --overwrite to start anew")
    raise ValueError(
        f"{paths.partial} holds {state['rows']} lines of an interrupted run that differs in: {', '.join(other)}. "
        "Repeat that run to finish it, or use --overwrite to start anew"
    )


def _write(
    translator: Translator, text: TextFile, paths: Paths, file: BinaryIO, state: dict, languages, shown
) -> float:
    """Translates the lines that ``state`` lacks, brings it, its file and ``file`` up to date, returns the seconds."""
    file.truncate(state["bytes"])
    file.seek(0, os.SEEK_END)
    begin = time.monotonic()
    with TokenProgress(translator, f"translating {text.path}", text.rows, state["rows"], shown=shown) as told:
        for lines in text.blocks(state["rows"], BLOCK):
            before = dict(translator.counts)
            written = translator.translate(lines, *languages, first=state["rows"], progress=told)
            data = memoryview("".join(f"{line}\n" for line in written).encode())
            while data:
                data = data[file.write(data) :]
            os.fsync(file.fileno())
            state["rows"] += len(lines)
            state["bytes"] = file.tell()
            for name in COUNTS:
                state[name] += translator.counts[name] - before[name]
            write_json(paths.progress, state)
    return time.monotonic() - begin


def _lines(text: TextFile) -> Iterator[str]:
    for block in text.blocks(0, BLOCK):
        yield from block


def _translations(path: Path) -> Iterator[str]:
    with open(path, encoding="utf-8", newline="\n") as file:
        for line in file:
            yield line.removesuffix("\n")
