"""Tables for people and results.json for programs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import jax

from vmsst_jax.retrieval import embedder as embedder_module
from vmsst_jax.retrieval import tiles
from vmsst_jax.retrieval.embedder import Embedder
from vmsst_jax.retrieval.store import versions, write_json

FILE = "results.json"
# Options of a model that change its vectors.
SETTINGS = ("max_length", "pooling", "layer", "pool_special", "prefix", "tower")


def default_output(embedder: Embedder, benchmark: str, model: dict) -> Path:
    """MODEL_DIR/evaluations/BENCHMARK/step_STEP of a model loaded from a checkpoint; ValueError for another.

    What was said otherwise than in the checkpoint follows, so that its results don't meet those of the model as it is:
    ``step_STEP,layer=8,calibrated=shift_scale``.

    Args:
      embedder: the model, calibrated or not.
      benchmark: its name.
      model: the options it was loaded with, see ``grid.load``.
    """
    if "step" not in embedder.source:
        raise ValueError("only a checkpoint has a folder of its own; say with --output where the results are to go")
    steps = Path(embedder.source["directory"]).parent
    model_dir = steps.parent if steps.name == "checkpoints" else steps
    said = {name: model[name] for name in SETTINGS if model.get(name) is not None}
    if calibration := embedder.describe().get("calibration"):
        said["calibrated"] = "_".join(calibration["used_steps"])
    parts = [f"step_{embedder.source['step']}", *(f"{name}={slug(str(value))}" for name, value in said.items())]
    return model_dir / "evaluations" / benchmark / ",".join(parts)


def check_output(directory: Path, overwrite: bool = False) -> None:
    """FileExistsError if ``directory`` already holds a result, to be called before anything slow."""
    if (directory / FILE).exists() and not overwrite:
        raise FileExistsError(f"{directory / FILE} exists; use --overwrite to replace it, or another --output")


def write_results(directory: Path, result: dict, embedder: Embedder) -> Path:
    """Writes ``directory``/results.json: ``result`` with the model that it is of, versions and device; its path."""
    directory.mkdir(parents=True, exist_ok=True)
    model = {**embedder.describe(), "fingerprint": embedder.fingerprint(), "batch_size": embedder.batch_size}
    contents = {
        **result,
        "layer": model["layer"],
        "pooling": model["pooling"],
        "model": model,
        "versions": versions(),
        "device": {
            "platform": jax.default_backend(),
            "kind": jax.devices()[0].device_kind,
            "count": jax.device_count(),
            # Other tools' models multiply as they like.
            "matrix_products": {
                "model": embedder_module.PRECISION if "step" in model else None,
                "search": tiles.PRECISION,
            },
        },
    }
    write_json(directory / FILE, contents)
    return directory / FILE


def slug(name: str) -> str:
    """A name as the name of a folder."""
    return re.sub(r"[^\w.+-]+", "_", name).strip("._") or "_"


def format_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns wide enough for their contents, the first to the left and the others to the right.

    Floats are shares of 1 and shown in percent with one decimal; None is shown as "-".
    """
    cells = [list(header), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = (
        "  ".join([row[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)])
        for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{100 * value:.1f}" if isinstance(value, float) else str(value)
