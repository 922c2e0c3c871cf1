"""Draws BLEU while unsupervised translation trains, the start on word-by-word pairs first, for docs/umse.md.

python docs/evidence/umt_bleu.py runs/umt_small_start runs/umt_small docs/evidence/umt_bleu.svg
"""

import json
import sys
from pathlib import Path

from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#d55e00")


def evaluations(folder: str) -> list[dict]:
    """What a run's evaluators found, in order."""
    lines = (Path(folder) / "metrics.jsonl").read_text("utf-8").splitlines()
    return [found for line in lines if (found := json.loads(line))["kind"] == "evaluation"]


def main(start: str, translation: str, output: str) -> None:
    runs = [evaluations(folder) for folder in (start, translation)]
    first = runs[0][-1]["step"]
    with rc_context({"svg.hashsalt": "vmsst_jax", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(6.4, 3.2), layout="constrained")
        FigureCanvasSVG(figure)
        panel = figure.subplots()
        for name, colour in zip([n for n in runs[0][0] if n.startswith("bleu_")], COLOURS, strict=True):
            _, source, target = name.split("_")
            for run, offset in zip(runs, (0, first), strict=True):
                x, y = [e["step"] + offset for e in run], [e[name] for e in run]
                panel.plot(x, y, "o-", color=colour, markersize=4, label=f"{source} to {target}" if offset else None)
        panel.axvline(first, color="#999999", linewidth=0.8, linestyle="--")
        panel.text(first, 0.3, "  back translation", color="#555555")
        panel.text(0, 0.3, "start", color="#555555")
        panel.set(ylim=(0, None), xlim=(0, None), xlabel="updates", ylabel="BLEU of val, with case, greedy")
        panel.spines[["top", "right"]].set_visible(False)
        panel.legend(frameon=False, loc="center right")
        figure.savefig(output, format="svg", metadata={"Date": None})


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
