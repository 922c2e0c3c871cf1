"""Two languages' vectors in the plane, before and after calibration, with some translations joined (CCP, Figure 1)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vmsst_jax import disk
from vmsst_jax.retrieval.calibration import Calibrated
from vmsst_jax.retrieval.records import Records, columns

HIGHLIGHTED = 5  # pairs, as in the paper's figure
MOST_POINTS = 1000  # of each language: more only blacken the picture
FORMATS = (".svg", ".png", ".pdf")


def read_pairs(path: str | os.PathLike) -> list[tuple[str, str]]:
    """Translations from a file of lines "sentence TAB its translation".

    Raises FileNotFoundError or ValueError (naming the line) for a missing or malformed file.
    """
    return list(Records([path], lambda line: tuple(columns(line, ("sentence", "translation")))))


def figures(
    embedder: Calibrated, pairs: Sequence[tuple[str, str]], languages: tuple[str, str], highlighted: int = HIGHLIGHTED
) -> list[dict]:
    """Two figures of kind "scatter", before and after calibration, as results have them.

    Each picture has its own axes: the two directions of largest variance of all its points (PCA).

    Args:
      embedder: its model makes the vectors of the first picture.
      pairs: (sentence, translation), at most 1,000 of which are drawn, spread evenly over the list.
      languages: codes of the two sides.
      highlighted: translations to join by a line, spread evenly too.

    Returns:
      [{"kind": "scatter", "title", "groups": {code: [[x, y], ...]}, "links": [[x1, y1, x2, y2], ...]}, ...].

    Raises:
      ValueError: fewer than 3 pairs, or fewer than are to be highlighted; a language the calibration doesn't have.
    """
    if len(pairs) < max(3, highlighted):
        raise ValueError(f"the picture got {len(pairs)} pairs of sentences; wanted at least {max(3, highlighted)}")
    chosen = [pairs[i] for i in _evenly(len(pairs), MOST_POINTS)]
    joined = _evenly(len(chosen), highlighted)
    names = [embedder.calibration.language(code) for code in languages]
    raw = [
        embedder.embedder.encode(list(texts), language=name)
        for name, texts in zip(names, zip(*chosen, strict=True), strict=True)
    ]
    after = [
        embedder.calibration.apply(vectors, name, embedder.steps) for name, vectors in zip(names, raw, strict=True)
    ]
    steps = ", ".join(embedder.steps) or "nothing"
    return [
        scatter(f"{languages[0]} and {languages[1]}, {title}", dict(zip(languages, sides, strict=True)), joined)
        for title, sides in (("as embedded", raw), (f"calibrated ({steps})", after))
    ]


def scatter(title: str, sides: dict[str, np.ndarray], joined: Sequence[int]) -> dict:
    """One figure: both sides [n, D] in the plane of their two main directions, rows ``joined`` linked across."""
    a, b = (np.asarray(side, np.float64) for side in sides.values())
    plane = main_directions(np.concatenate([a, b]))
    a, b = plane[: len(a)], plane[len(a) :]
    return {
        "kind": "scatter",
        "title": title,
        "groups": dict(zip(sides, (np.round(a, 6).tolist(), np.round(b, 6).tolist()), strict=True)),
        "links": np.round(np.concatenate([a[joined], b[joined]], axis=1), 6).tolist(),
    }


def main_directions(points: np.ndarray, dimensions: int = 2) -> np.ndarray:
    """Coordinates along the directions of largest variance (PCA): [n, D] -> float64 [n, dimensions].

    Each axis points to where its largest coordinate lies, so that a picture is not mirrored by chance.
    """
    centred = points - points.mean(axis=0)
    _, directions = np.linalg.eigh(centred.T @ centred)
    plane = centred @ directions[:, : -dimensions - 1 : -1]
    largest = np.take_along_axis(plane, np.abs(plane).argmax(axis=0)[None], axis=0)
    return plane * np.where(largest < 0, -1, 1)


def check_picture(path: str | os.PathLike) -> Path:
    """The path of a picture, to be called before anything slow; raises what ``disk.check_place`` does."""
    return disk.check_place(path, FORMATS, "picture")


def draw(pictures: Sequence[dict], path: str | os.PathLike) -> None:
    """Draws "scatter" figures side by side into an SVG, PNG or PDF file; every link has its own colour."""
    import matplotlib
    from matplotlib.figure import Figure

    path = check_picture(path)
    # The same figures give the same file: ids from a fixed salt, no date.
    with matplotlib.rc_context({"svg.hashsalt": "vmsst_jax", "svg.fonttype": "none"}):
        canvas = Figure(figsize=(5.5 * len(pictures), 5), layout="constrained")
        for axes, picture in zip(canvas.subplots(1, len(pictures), squeeze=False)[0], pictures, strict=True):
            marks = list(zip(picture["groups"].items(), "o^", ("#9ecae1", "#fdae6b"), strict=True))
            for (name, points), mark, colour in marks:
                axes.scatter(*np.transpose(points), s=9, marker=mark, color=colour, label=name, linewidths=0)
            for i, (x1, y1, x2, y2) in enumerate(picture["links"]):
                axes.plot([x1, x2], [y1, y2], color=f"C{i}", linewidth=1)
                for (_, mark, _), x, y in zip(marks, (x1, x2), (y1, y2), strict=True):
                    axes.scatter(x, y, s=60, marker=mark, color=f"C{i}", edgecolors="black", linewidths=0.6, zorder=3)
            axes.set(title=picture["title"], xlabel="first main direction", ylabel="second main direction")
            axes.set_aspect("equal", adjustable="datalim")
            axes.legend()
        canvas.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _evenly(rows: int, most: int) -> np.ndarray:
    """At most ``most`` of ``rows`` row numbers, spread evenly."""
    return np.unique(np.linspace(0, rows - 1, min(most, rows)).astype(np.int64))
