"""The table of an experiment: mean, standard deviation and number of seeds of every score, and paired differences."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from vmsst_jax.experiments.matrix import Matrix
from vmsst_jax.experiments.scores import minus

Values = dict[str, dict[str, dict[int, float]]]  # row -> score -> seed -> value


def summary(matrix: Matrix, values: Values) -> dict:
    """The table for programs: {"scores", "plain", "notes", "rows", "differences"}, the last two {name: {score: ...}}.

    Statistics are {"mean", "sd", "n", "values": {seed: value}}: sd of the sample (n - 1), None for one value; a score
    that no cell has is None. Differences are taken between cells of the same seed, and have "above", the number of
    seeds in which the first is higher, too.
    """
    names = [*(column.name for column in matrix.scores), *matrix.score_differences]
    rows = {row: {name: _statistics(values[row].get(name, {})) for name in names} for row in matrix.rows}
    differences = {}
    for label, (first, second) in matrix.differences.items():
        differences[label] = {}
        for name in names:
            a, b = values[first].get(name, {}), values[second].get(name, {})
            paired = {seed: minus(a[seed], b[seed]) for seed in sorted(a.keys() & b.keys())}
            found = _statistics(paired)
            differences[label][name] = found and found | {"above": sum(value > 0 for value in paired.values())}
    return {"scores": names, "plain": list(matrix.plain), "notes": [], "rows": rows, "differences": differences}


def _statistics(values: dict[int, float]) -> dict | None:
    if not values:
        return None
    seeds = sorted(values)
    chosen = [values[seed] for seed in seeds]
    return {
        "mean": statistics.fmean(chosen),
        "sd": statistics.stdev(chosen) if len(chosen) > 1 else None,
        "n": len(chosen),
        "values": {str(seed): values[seed] for seed in seeds},
    }


def markdown(table: dict) -> str:
    """The table for people: mean ± standard deviation (number of seeds), shares in percent, and its "notes" beneath."""
    names, plain = table["scores"], table["plain"]
    lines = [_line(["", *names]), _line(["---", *["---:"] * len(names)])]
    for row, found in table["rows"].items():
        lines.append(_line([row, *(cell(found[name], name in plain) for name in names)]))
    for label, found in table["differences"].items():
        lines.append(_line([f"*{label}*", *(cell(found[name], name in plain, sign=True) for name in names)]))
    words = ["Mean ± standard deviation over seeds (their number)"]
    words.append(f"in percent, except {', '.join(plain)}" if plain else "in percent")
    if table["differences"]:
        words.append("differences (in italics) seed by seed, with the number of seeds in which they are above 0")
    return "\n".join([*lines, "", "; ".join(words) + ".", *(f"\n{note}" for note in table["notes"])]) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in cells) + " |"


def cell(found: dict | None, plain: bool, sign: bool = False) -> str:
    """Statistics as the table shows them; with ``sign`` those of a difference, and the seeds in which it is above 0."""
    if found is None:
        return "-"
    shown = number(found["mean"], plain, sign)
    if found["sd"] is not None:
        shown += f" ± {number(found['sd'], plain)}"
    return f"{shown} ({found['above']} of {found['n']})" if sign else f"{shown} ({found['n']})"


def number(value: float, plain: bool, sign: bool = False) -> str:
    """A share in percent with one decimal, or a plain number with four digits."""
    form = "+" if sign else ""
    return f"{value:{form}.4g}" if plain else f"{100 * value:{form}.1f}"
