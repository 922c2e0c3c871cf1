"""1, 2 and 4 processes give the same losses; so does a run that was killed and went on with as many or others.

    python tests/chaos/equality.py [--steps=50] [--recipes=ccp] [--folder=DIR]

Prints a table in Markdown, and ends with an error where a difference is larger than the rule for resumed runs allows:
none on the same number of processes, 1e-5 relative over the first 5 steps on another, 1e-3 at 50. Minutes on 2 cores.
"""

from __future__ import annotations

import argparse
import pathlib
import tempfile
import time

from cluster import Run, last_step, make_workplace, records

RECIPES = ("vmsst", "ccp")


def difference(ours: list[dict], theirs: list[dict]) -> float:
    """The largest relative difference of losses, step by step."""
    assert [r["step"] for r in ours] == [r["step"] for r in theirs], "other steps were logged"
    return max((abs(a["loss"] - b["loss"]) / abs(b["loss"]) for a, b in zip(ours, theirs, strict=True)), default=0.0)


def killed_at(workplace, recipe: str, name: str, step: int, count: int, options) -> pathlib.Path:
    """A model directory whose run of ``count`` processes was killed after ``step``."""
    run = Run(workplace, f"{recipe}.gin", workplace / name, *options, count=count)
    while run.alive() and last_step(run.model_dir) < step:
        time.sleep(0.05)
    run.kill()
    return run.model_dir


def compare(workplace, recipe: str, steps: int) -> list[tuple[str, list[dict], list[dict], bool]]:
    """(what, its records, what they should be, whether to the last bit) for every run."""
    options = (f"TRAIN_STEPS={steps}",)

    def straight(count):
        run = Run(workplace, f"{recipe}.gin", workplace / f"{recipe}{count}", *options, count=count)
        run.finish()
        return records(run.model_dir)

    of = {count: straight(count) for count in (1, 2, 4)}
    rows = [(f"{count} processes", of[count], of[1], False) for count in (2, 4)]
    for before, after in ((2, 2), (4, 1)):
        folder = killed_at(workplace, recipe, f"{recipe}{before}to{after}", steps // 2, before, options)
        run = Run(workplace, f"{recipe}.gin", folder, *options, count=after)
        run.finish()
        start = run.resumed_at()
        what = f"{before} processes, killed; {after} from step {start}"
        rows.append((what, records(folder)[start:], of[before][start:], before == after))
        assert records(folder)[:start] == of[before][:start]
    return rows


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--steps", type=int, default=50)
    flags.add_argument("--folder", help="where to work; a temporary one without it")
    flags.add_argument("--recipes", default=",".join(RECIPES), help="some of these, between commas (%(default)s)")
    arguments = flags.parse_args()
    folder = pathlib.Path(arguments.folder or tempfile.mkdtemp(prefix="equality-"))
    print("| recipe | run | first 5 steps | all steps |\n|---|---|---|---|", flush=True)
    wrong = []
    for recipe in arguments.recipes.split(","):
        for what, ours, wanted, exact in compare(make_workplace(folder), recipe, arguments.steps):
            first, whole = difference(ours[:5], wanted[:5]), difference(ours, wanted)
            shown = ["equal to the last bit" if ours == wanted else f"{d:.1e}" for d in (first, whole)]
            print(f"| {recipe} | {what} | {' | '.join(shown)} |", flush=True)
            if (exact and ours != wanted) or first > 1e-5 or whole > 1e-3:
                wrong.append(f"{recipe}, {what}")
    if wrong:
        raise SystemExit(f"too different: {'; '.join(wrong)}")


if __name__ == "__main__":
    main()
