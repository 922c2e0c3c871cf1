"""Tables for people and results.json for programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vmsst_jax.retrieval.embedder import Embedder
from vmsst_jax.retrieval.store import versions, write_json

FILE = "results.json"


def default_output(embedder: Embedder, benchmark: str) -> Path:
    """MODEL_DIR/evaluations/BENCHMARK/step_STEP of a model loaded from a checkpoint; ValueError for another."""
    if "step" not in embedder.source:
        raise ValueError("only a checkpoint has a folder of its own; say with --output where the results are to go")
    steps = Path(embedder.source["directory"]).parent
    model_dir = steps.parent if steps.name == "checkpoints" else steps
    return model_dir / "evaluations" / benchmark / f"step_{embedder.source['step']}"


def check_output(directory: Path, overwrite: bool = False) -> None:
    """FileExistsError if ``directory`` already holds a result, to be called before anything slow."""
    if (directory / FILE).exists() and not overwrite:
        raise FileExistsError(f"{directory / FILE} exists; use --overwrite to replace it, or another --output")


def write_results(directory: Path, result: dict, embedder: Embedder) -> Path:
    """Writes ``directory``/results.json: ``result`` with the model that it is of and all versions. Returns its path."""
    directory.mkdir(parents=True, exist_ok=True)
    model = {**embedder.describe(), "fingerprint": embedder.fingerprint(), "batch_size": embedder.batch_size}
    contents = {
        **result,
        "layer": model["layer"],
        "pooling": model["pooling"],
        "model": model,
        "sentences": embedder.counts,
        "versions": versions(),
    }
    write_json(directory / FILE, contents)
    return directory / FILE


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
