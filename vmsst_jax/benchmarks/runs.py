"""Results put in order for the page: which are of one protocol, how their models are called, which scores they have."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from vmsst_jax.benchmarks.elements import is_number, plain

# What has to agree before two numbers may stand beside each other.
PROTOCOL = ("benchmark", "data checksum", "split", "direction", "scoring")
# What a model's description holds that says nothing to a reader who wants to tell two models apart.
NOT_TELLING = ("fingerprint", "tokenizer_sha256", "batch_size", "dim", "languages")


class Section(NamedTuple):
    """Results of one protocol.

    Attributes:
      name: of the benchmark, with what sets it apart where two sections would have the same name.
      results: {run: result}, a run being a model by the name that the page has for it.
    """

    name: str
    results: dict[str, dict]

    @property
    def first(self) -> dict:
        return next(iter(self.results.values()))

    @property
    def main(self) -> str:
        """The main score, the same in all of one protocol."""
        return main_score(self.first)

    def keys(self) -> list[str]:
        """Languages or whatever else has a row, the best of the first run first."""
        keys = list(dict.fromkeys(key for result in self.results.values() for key in result["per_language"]))
        first = self.first["per_language"]
        return sorted(keys, key=lambda key: -_or_least(first.get(key, {}).get(self.main)))

    def range(self) -> tuple[float, float]:
        """The lowest and the highest main score of all runs."""
        values = [row.get(self.main) for r in self.results.values() for row in r["per_language"].values()]
        values = [value for value in values if value is not None]
        return (min(values), max(values)) if values else (0.0, 0.0)


def protocol(result: dict) -> dict[str, object]:
    """The values of ``PROTOCOL`` by name."""
    values = (result["benchmark"], result["data"]["sha256"], *(result[name] for name in PROTOCOL[2:]))
    return dict(zip(PROTOCOL, values, strict=True))


def scores(result: dict) -> list[str]:
    """The names of a result's scores, the main one first; those that are fractions where it doesn't name them."""
    if result.get("scores"):
        *others, main = result["scores"]
        return [main, *others]
    names = [k for row in result["per_language"].values() for k, v in row.items() if isinstance(v, float)]
    if not names:
        raise ValueError(f"a result of {result['benchmark']} has no scores; evaluate again")
    *others, main = dict.fromkeys(names)
    return [main, *others]


def main_score(result: dict) -> str:
    return scores(result)[0]


def main_mean(result: dict) -> float | None:
    """The main score's mean over the first group, which is that of all."""
    return next(iter(result["means"].values())).get(main_score(result))


def benchmark_name(result: dict) -> str:
    """As the recipe calls it, or the benchmark's own name."""
    return str(result.get("cell", {}).get("benchmark") or result["benchmark"])


def sections(results: Sequence[dict]) -> list[Section]:
    """The results by protocol, in the order in which they are given."""
    groups: dict[str, list[tuple[str, dict]]] = {}
    for label, result in zip(labels(results), results, strict=True):
        groups.setdefault(json.dumps(protocol(result), sort_keys=True), []).append((label, result))
    found = [Section(benchmark_name(group[0][1]), _numbered(group)) for group in groups.values()]
    return [section._replace(name=_telling_name(section, found)) for section in found]


def _numbered(group: list[tuple[str, dict]]) -> dict[str, dict]:
    """{label: result}; the second of the same model gets a number."""
    runs: dict[str, dict] = {}
    for label, result in group:
        number = 1 + sum(known == label or known.startswith(f"{label} #") for known in runs)
        runs[label if number == 1 else f"{label} #{number}"] = result
    return runs


def _telling_name(section: Section, all_sections: list[Section]) -> str:
    """The name, with the first part of the protocol in which it differs from each section of the same name."""
    same = [other for other in all_sections if other.name == section.name]
    ours = protocol(section.first)
    for field in ("split", "direction", "data checksum"):
        if sum(protocol(other.first)[field] == ours[field] for other in same) == 1 < len(same):
            value = ours[field]
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            return f"{section.name}, data {text[:8]}" if field == "data checksum" else f"{section.name}, {field} {text}"
    return section.name if len(same) == 1 else f"{section.name}, protocol {same.index(section) + 1}"


def labels(results: Sequence[dict]) -> list[str]:
    """What to call the model of each result: short, the same for the same model, different for different ones."""
    short = [_short(result) for result in results]
    identities = [_identity(result) for result in results]
    flat = [flatten(result.get("model", {})) for result in results]
    named = []
    for label, identity in zip(short, identities, strict=True):
        others = [i for i, other in enumerate(short) if other == label]
        named.append(
            label
            if len({identities[i] for i in others}) == 1
            else f"{label} ({_apart(identity, identities, flat, others)})"
        )
    return named


def _apart(identity: str, identities: list[str], flat: list[dict], others: list[int]) -> str:
    """The settings of the model ``identity`` that not all of ``others`` share."""
    own = flat[identities.index(identity)]
    names = dict.fromkeys(name for i in others for name in flat[i] if name.split(".")[-1] not in NOT_TELLING)
    differing = [name for name in names if len({repr(flat[i].get(name)) for i in others}) > 1]
    facts = [_fact(name.replace("_", " "), own[name]) for name in differing if own.get(name) is not None]
    return ", ".join(facts[:3]) or identity[:8]


def _fact(name: str, value: object) -> str:
    if value == "":
        return f"no {name}"
    quoted = isinstance(value, str) and value != value.strip()  # the space at the end of a prefix matters
    return f"{name} {json.dumps(value, ensure_ascii=False) if quoted else plain(value)}"


def _identity(result: dict) -> str:
    model = result.get("model", {})
    return str(model.get("fingerprint") or json.dumps(model, sort_keys=True, default=str))


def _short(result: dict) -> str:
    """The recipe's name of a model, or the end of where it came from."""
    model = result.get("model", {})
    if called := result.get("cell", {}).get("model") or model.get("name"):
        return str(called)
    if path := model.get("origin", {}).get("path"):
        return Path(path).name
    if files := model.get("files"):
        return Path(files[0]).stem
    if directory := model.get("directory"):
        above = [part for part in Path(directory).parts if part not in ("checkpoints", str(model.get("step")))]
        return f"{above[-1]} step {model['step']}" if "step" in model else above[-1]
    return str(model.get("kind") or "model")


def flatten(facts: dict, above: str = "") -> dict[str, object]:
    """{"origin": {"path": "e5"}} becomes {"origin.path": "e5"}; lists, and dictionaries deeper down, become text."""
    flat: dict[str, object] = {}
    for key, value in facts.items():
        if isinstance(value, dict) and not above:
            flat |= flatten(value, f"{key}.")
        elif isinstance(value, dict):
            flat[above + key] = ", ".join(f"{name} {plain(inner)}" for name, inner in value.items())
        else:
            flat[above + key] = ", ".join(map(plain, value)) if isinstance(value, list) else value
    return flat


def _or_least(value: object) -> float:
    return value if is_number(value) else float("-inf")
