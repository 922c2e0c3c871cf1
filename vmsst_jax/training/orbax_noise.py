"""Orbax on the console: warnings, and nothing else."""

from __future__ import annotations

import logging
import os
import sys
import traceback

import absl.logging


def quiet_orbax() -> None:
    """Keeps Orbax from printing what it is about to do, and tracebacks of errors that it raises as well."""
    # What it logs itself, and what is logged of the tasks that it leaves behind.
    for logger in (absl.logging.get_absl_logger(), logging.getLogger("asyncio")):
        logger.addFilter(_worth_showing)
    if not isinstance(sys.unraisablehook, _UnraisableHook):
        sys.unraisablehook = _UnraisableHook(sys.unraisablehook)


class _UnraisableHook:
    """Drops what every write still under way reports, hundreds of times over, after Orbax gave up on a failed save."""

    def __init__(self, shown_by):
        self._shown_by = shown_by

    def __call__(self, unraisable):
        if not (isinstance(unraisable.exc_value, RuntimeError) and str(unraisable.exc_value) == "Event loop is closed"):
            self._shown_by(unraisable)


def _worth_showing(record: logging.LogRecord) -> bool:
    files_involved = [record.pathname]
    if record.exc_info:
        files_involved += [frame.filename for frame in traceback.extract_tb(record.exc_info[2])]
    from_orbax = any(f"{os.sep}orbax{os.sep}" in file for file in files_involved)
    return not from_orbax or (record.levelno >= logging.WARNING and not record.exc_info)
