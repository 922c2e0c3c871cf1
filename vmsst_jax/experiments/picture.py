"""The plot of an experiment: for each score a panel, for each row its seeds as dots and their mean."""

from __future__ import annotations

import io

DOT, MEAN, GRID = "#56b4e9", "#d55e00", "#dddddd"
WIDTH, PER_ROW, PER_PANEL = 3.2, 0.24, 0.9  # inches: a panel's width, a row's height, what stands around it
ACROSS = 3  # panels


def svg(table: dict) -> bytes:
    """An SVG file, the same bytes for the same ``table.summary``."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    names = [name for name in table["scores"] if any(found[name] for found in table["rows"].values())]
    across = min(ACROSS, max(len(names), 1))
    down = -(-len(names) // across) or 1
    rows = list(table["rows"])
    label_width = 0.075 * max(map(len, rows))
    with rc_context({"svg.hashsalt": "vmsst_jax", "svg.fonttype": "none", "font.size": 8}):
        size = (label_width + WIDTH * across, down * (PER_PANEL + PER_ROW * len(rows)))
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        panels = figure.subplots(down, across, squeeze=False).flat
        for i, panel in enumerate(panels):
            if i < len(names):
                _draw(panel, table, rows, names[i], labelled=i % across == 0)
            else:
                panel.set_axis_off()
        out = io.BytesIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def _draw(panel, table: dict, rows: list[str], name: str, labelled: bool) -> None:
    factor = 1 if name in table["plain"] else 100
    for height, row in enumerate(rows):
        if found := table["rows"][row][name]:
            values = [factor * value for value in found["values"].values()]
            panel.plot(values, [height] * len(values), "o", color=DOT, markersize=4, markeredgecolor="white")
            panel.plot([factor * found["mean"]], [height], "|", color=MEAN, markersize=11, markeredgewidth=2)
    panel.set_title(name if factor == 1 else f"{name}, %", parse_math=False)
    panel.set_yticks(range(len(rows)), rows if labelled else [""] * len(rows), parse_math=False)
    panel.set_ylim(len(rows) - 0.5, -0.5)  # the first row on top
    panel.grid(color=GRID, linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.tick_params(length=0)
