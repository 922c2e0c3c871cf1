"""What became of every line: counts per source, set and filter that add up, and the recipe lines of the mixture."""

from __future__ import annotations

import json
import pathlib
import shutil
from collections import Counter
from collections.abc import Sequence

from vmsst_jax import disk
from vmsst_jax.preparation.plan import Plan, Set
from vmsst_jax.preparation.stages import KINDS, Work


def finished(output: pathlib.Path, plan: Plan) -> dict | None:
    """The report of a folder that is prepared already.

    ValueError if it was with other settings or sources, or if a file is no longer as it was written.
    """
    path = output / "report.json"
    if not path.is_file():
        return None
    try:
        # Older reports list neither files nor what was missing.
        made = {"missing": [], "files": {}} | json.loads(path.read_text("utf-8"))
        before, now = {"missing": []} | made["plan"], plan.identity()
        changed = sorted(key for key in now if before[key] != now[key])
        files = dict(made["files"])
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path} is damaged; remove the folder {output} to prepare it anew") from None
    if changed:
        raise ValueError(
            f"{output} is prepared with other {', '.join(changed)}; name another folder, or remove this one"
        )
    for name, size in files.items():
        file = output / name
        found = f"{file.stat().st_size:,} bytes" if file.is_file() else "no such file"
        if found != f"{size:,} bytes":
            raise ValueError(
                f"{file}: found {found}, {size:,} bytes were written; put the file back, or remove the folder {output} "
                "to prepare it anew"
            )
    shutil.rmtree(output / "work", ignore_errors=True)  # of a call that was killed while it tidied up
    return made


def make(work: Work, kept: Sequence[Set]) -> dict:
    """The report: {"mixture", "kind", "records" and, of documents, "sentences": totals, "missing": what the table names
    and isn't there, "sets": {name: {"languages", "folder", "wanted", "records", "sentences", "sources": [{"corpus",
    "name", "records", "sentences"}]}}, "plan"}.

    "records" are the pairs or documents: "read" = the filters' + "duplicate" + "not_sampled" + "kept". "sentences" of
    documents: "read" = "test" (taken out of documents) + "dropped" (with their document) + "kept".
    """
    plan, sets = work.plan, {}
    for of in plan.sets:
        sources = _sources(work, of)
        sets[of.name] = {
            "languages": list(of.languages),
            "folder": of.folder if of in kept else None,
            "wanted": of.amount,
            **_totals(sources),
            "sources": sources,
        }
    return {
        "mixture": plan.name,
        "kind": plan.kind,
        **_totals(sets.values()),
        "missing": list(plan.missing),
        "sets": sets,
        "plan": plan.identity(),
    }


def _totals(parts) -> dict:
    totals = {}
    for part in parts:
        for unit in ("records", "sentences"):
            if unit in part:
                totals.setdefault(unit, Counter()).update(part[unit])
    return {unit: dict(counts) for unit, counts in totals.items()}


def _sources(work: Work, of: Set) -> list[dict]:
    plan = work.plan
    merged = [work.counts("merge", of, part)["sources"] for part in range(plan.partitions(of))]
    taken = work.counts("take", of)["sources"]
    found = []
    for number, source in enumerate(of.sources):
        read = work.counts("split", of, number)
        counts = {
            unit: Counter(read[unit]) + sum((Counter(part[number][unit]) for part in merged), Counter())
            for unit in ("records", "sentences")
        }
        for unit, total in counts.items():
            total["kept"] = taken[number][unit]["kept"]
            total["not_sampled"] = total["unique"] - total["kept"]
        entry = {"corpus": source.corpus, "name": source.name, "records": _records(plan, counts["records"])}
        if plan.kind == "documents":
            entry["sentences"] = _sentences(plan, read["sentences"], counts["sentences"])
        for unit in entry.keys() & {"records", "sentences"}:
            _check(f"{of.name}, {source.name}: {unit}", entry[unit])
        found.append(entry)
    return found


def _records(plan: Plan, counts: Counter) -> dict[str, int]:
    outcomes = KINDS[plan.kind].OUTCOMES
    names = (*outcomes, "duplicate", "not_sampled", "kept")
    return {"read": counts["clean"] + sum(counts[name] for name in outcomes)} | {name: counts[name] for name in names}


def _sentences(plan: Plan, read: dict[str, int], counts: Counter) -> dict[str, int]:
    dropped = (*KINDS[plan.kind].OUTCOMES, "duplicate", "not_sampled")
    return {
        "read": sum(read.values()),
        "test": counts["test"],
        "dropped": sum(counts[name] for name in dropped),
        "kept": counts["kept"],
    }


def _check(what: str, counts: dict[str, int]) -> None:
    """Of counts that were made by different steps: RuntimeError, for us, if a line was lost or came twice."""
    rest = sum(n for name, n in counts.items() if name != "read")
    if counts["read"] != rest or min(counts.values()) < 0:
        raise RuntimeError(f"{what} do not add up: {counts}")


def write(work: Work, made: dict, kept: Sequence[Set]) -> dict:
    """Writes ``report.tsv``, the mixture's recipe lines, and last ``report.json``, by which the folder is finished.

    Returns the report with "files": {path below the folder: bytes}, all others that it has now.
    """
    with disk.writing(work.output):
        disk.write_atomically(work.output / "report.tsv", table(made).encode())
        disk.write_atomically(work.output / f"{made['mixture']}.gin", recipe(work.plan, kept).encode())
        paths = [p for p in sorted(work.output.rglob("*")) if p.is_file() and work.folder not in p.parents]
        made = made | {"files": {p.relative_to(work.output).as_posix(): p.stat().st_size for p in paths}}
        contents = json.dumps(made, indent=1, ensure_ascii=False) + "\n"
        disk.write_atomically(work.output / "report.json", contents.encode())
    return made


def table(made: dict) -> str:
    """The counts as tab-separated lines: a line per set and corpus, per set, per missing source, and for all."""
    names = list(made["records"])
    lines = ["\t".join(["set", "corpus", *names, "wanted"])]
    for name, entry in made["sets"].items():
        corpora: dict[str, Counter] = {}
        for source in entry["sources"]:
            corpora.setdefault(source["corpus"], Counter()).update(source["records"])
        rows = [(corpus, counts, "") for corpus, counts in corpora.items()]
        for corpus, counts, amount in [*rows, ("all", entry["records"], entry["wanted"] or "")]:
            lines.append("\t".join(map(str, [name, corpus, *(counts[n] for n in names), amount])))
    lines += ["\t".join(["missing", source, *["0"] * len(names), ""]) for source in made["missing"]]
    lines.append("\t".join(map(str, ["all", "all", *made["records"].values(), ""])))
    return "\n".join(lines) + "\n"


def recipe(plan: Plan, kept: Sequence[Set]) -> str:
    """The macros that make a recipe train on what was prepared."""
    codes = sorted({code for of in kept for code in of.languages})
    listed = ", ".join(f'"{code}"' for code in codes) + ("," if len(codes) == 1 else "")
    return (
        f"# What vmsst_jax.prepare has prepared, for after a recipe and with the folder of the tokens:\n"
        f"#   --gin_file=RECIPE.gin --gin_file=HERE/{plan.name}.gin --gin.CACHE='\"HERE/tokens\"'\n"
        f'TASK = "{plan.name}"\n'
        f"LANGUAGES = ({listed})\n"
    )
