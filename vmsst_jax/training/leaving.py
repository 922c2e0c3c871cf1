"""What a finished run leaves beside its checkpoints: its reports, and a word on how to use the model."""

from __future__ import annotations

import json

from vmsst_jax import runtime
from vmsst_jax.disk import write_atomically
from vmsst_jax.training.context import RunContext
from vmsst_jax.training.logging import Log

# What a run leaves once it is trained to its last step and its reports are written.
REPORT, REPORT_TEXT = "report.json", "report.txt"


def how_to_try(context: RunContext) -> str:
    """Where the model is, and a command that uses it."""
    folder, options = context.model_dir, "--corpus=FILE"
    does = "search"
    if hasattr(type(context.module), "translate"):
        codes = context.languages.codes
        does, options = "translate", f"--input=FILE --source={codes[0]} --target={codes[-1]} --output=FILE"
    return f"the model is in {folder}; to try it: python -m vmsst_jax.{does} --checkpoint={folder} {options}"


def write_reports(reports, context: RunContext, current, log: Log, step: int) -> None:
    """Prints the reports' texts and keeps them in ``report.txt``, their scores in ``report.json``."""
    written = [report(context, current) for report in reports]
    text = "\n\n".join(report.text for report in written)
    if written:
        log.say("\n" + text)
    if runtime.is_main_process():
        if written:
            write_atomically(context.model_dir / REPORT_TEXT, f"{text}\n".encode())
        devices = f"{context.mesh.size} x {context.mesh.devices.flat[0].device_kind}"
        ended = {"step": step, "devices": devices, "data": context.data}
        ended["reports"] = [report.scores for report in written]
        write_atomically(context.model_dir / REPORT, json.dumps(ended, indent=1).encode())
