"""The benchmarks by name, each a module with ``evaluate(embedder, data_dir, *, languages=None, OPTIONS) -> result``.

A result is a dictionary ready for JSON that holds at least "benchmark", "data", "split", "direction", "scoring",
"index" (kind and recall), "per_language" and "means". The module has ``table(result) -> str`` beside it,
``FOLDER`` where its files usually lie in a folder of another name than its own, and, where that folder holds other
things too, ``files(folder, **OPTIONS)``, those that ``evaluate`` reads. Options that several share are a ``TypedDict``:
``**options: Unpack[TowerOptions]``.
"""

from __future__ import annotations

import difflib
import importlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from vmsst_jax.benchmarks import option_values
from vmsst_jax.retrieval.embedder import Embedder

# Module of each: named, not imported, so that listing them costs nothing.
BENCHMARKS = {
    "bucc": "vmsst_jax.benchmarks.bucc",
    "mkqa_matching": "vmsst_jax.benchmarks.mkqa_matching",
    "mrtydi": "vmsst_jax.benchmarks.mrtydi",
    "ntrex_mining": "vmsst_jax.benchmarks.ntrex_mining",
    "psm": "vmsst_jax.benchmarks.psm",
    "question_retrieval": "vmsst_jax.benchmarks.question_retrieval",
    "sts": "vmsst_jax.benchmarks.sts",
    "stsb": "vmsst_jax.benchmarks.stsb",
    "tatoeba": "vmsst_jax.benchmarks.tatoeba",
    "tatoeba_non_english": "vmsst_jax.benchmarks.tatoeba_non_english",
    "xor_retrieve": "vmsst_jax.benchmarks.xor_retrieve",
    "xquad": "vmsst_jax.benchmarks.xquad",
}


def check(name: str, options: Iterable[str] = ()) -> None:
    """ValueError, listing the known ones, if there is no benchmark of this name, or none with these options."""
    if name not in BENCHMARKS:
        close = difflib.get_close_matches(name, BENCHMARKS, n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise ValueError(f"there is no benchmark {name!r}{hint}; known: {', '.join(sorted(BENCHMARKS))}")
    known = options_of(name)
    if unknown := sorted(set(options) - set(known)):
        raise ValueError(f"the benchmark {name} has no option {', '.join(unknown)}; it has {', '.join(known)}")


def fitted(name: str, options: dict) -> dict:
    """A benchmark's ``options`` as it declares them; ValueError, before anything is loaded, for what is none of its."""
    check(name, options)
    types = option_values.types_of(_module(name).evaluate)
    return {key: option_values.fitted(f"{name}.{key}", value, types[key]) for key, value in options.items()}


def options_of(name: str) -> list[str]:
    """The names of a benchmark's options."""
    return list(option_values.types_of(_module(name).evaluate))


def folder(name: str) -> str:
    """Where a benchmark's files lie below a folder with the data of several: its module's ``FOLDER``, else its name."""
    return getattr(_module(name), "FOLDER", name)


def files(name: str, data_dir: str | os.PathLike, options: dict) -> list[Path] | None:
    """The files in ``data_dir`` that a benchmark reads; None where that is the whole folder.

    Raises FileNotFoundError where some are missing that it can't do without.
    """
    own = getattr(_module(name), "files", None)
    return own and own(Path(data_dir), **options)


def share_out(
    names: Sequence[str], languages: Sequence[str] | None, given: Iterable[tuple[str, object]]
) -> dict[str, dict]:
    """{name: the options of that benchmark}.

    Args:
      names: of benchmarks.
      languages: for all of them, None for all there are.
      given: ("NAME", value) for every benchmark that has such an option, ("BENCHMARK.NAME", value) for that one.

    Raises:
      ValueError: an unknown benchmark, an option that none has, or a value that is none of its.
    """
    for name in names:
        check(name)
    options: dict[str, dict] = {name: {} if languages is None else {"languages": list(languages)} for name in names}
    for key, value in given:
        benchmark, _, option = key.rpartition(".")
        if benchmark and benchmark not in names:
            raise ValueError(f"the option {key} is of a benchmark that isn't among {', '.join(names)}")
        takers = [benchmark] if benchmark else [name for name in names if option in options_of(name)]
        for name in takers or names[:1]:  # the first one's message says which options there are
            options[name] |= fitted(name, {option: value})
    return options


def data_folder(name: str, data_dir: str | os.PathLike, benchmarks: int) -> Path:
    """The folder of a benchmark's files: ``data_dir`` itself for one of ``benchmarks``, a folder in it for several."""
    return Path(data_dir, folder(name)) if benchmarks > 1 else Path(data_dir)


def hint(name: str, data: Path) -> str:
    """What a message that files are not in ``data`` may end with: the folder one level off that has their name."""
    usual = folder(name)
    if usual == ".":
        return ""
    above = data.parent
    near = [data / usual, *([above] if above.name == usual else []), *sorted(above.glob(f"*/{usual}"))]
    found = next((path for path in near if path.is_dir() and path != data), None)
    return f"; did you mean the folder {found}?" if found else ""


def run(
    name: str, embedder: Embedder, data_dir: str | os.PathLike, options: dict, aside: Mapping = {}
) -> tuple[dict, str]:
    """Scores ``embedder`` on a benchmark: (result, the table to print).

    Args:
      name: a key of ``BENCHMARKS``.
      data_dir: where its files lie.
      options: the benchmark's own, by name; "languages" (codes, or None for all) is known to each.
      aside: more options, which are of this process alone and not recorded: where vectors are kept, a second model.

    Raises:
      ValueError: there is no such benchmark or option; and what the benchmark itself raises.
    """
    check(name, [*options, *aside])
    # Ready runs are scored without a model; a model may have embedded for other benchmarks before.
    everything = {**aside, **options}
    models = [model for model in (embedder, everything.get("passage_encoder")) if hasattr(model, "counts")]
    counts = list({id(model.counts): model.counts for model in models}.values())  # both may be one
    before = [dict(of_one) for of_one in counts]
    result = _module(name).evaluate(embedder, data_dir, **everything)
    kinds = counts[0] if counts else ()
    result["sentences"] = {k: sum(now[k] - then[k] for now, then in zip(counts, before, strict=True)) for k in kinds}
    result["options"] = dict(options)
    return result, _module(name).table(result)


def _module(name: str):
    return importlib.import_module(BENCHMARKS[name])
