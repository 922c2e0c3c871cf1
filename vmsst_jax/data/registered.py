"""seqio tasks and mixtures by name: what they are made of, and the text they yield, as plain Python."""

import dataclasses
import difflib
import importlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence

from vmsst_jax.data.text_pairs import CorpusError


@dataclasses.dataclass(frozen=True)
class Fields:
    """What an example of one kind of task holds: scalar strings, and one scalar integer that tells it from others."""

    kind: str
    strings: tuple[str, ...]
    number: str


PAIR = Fields("pair", ("source", "target", "source_lang", "target_lang"), "pair_id")
# `text` is one sentence a line; no sentence is empty.
DOCUMENT = Fields("document", ("text", "lang"), "document_id")

# Task -> function () -> what decides its text, ready for JSON: kept tokens are not read where that has changed.
SETTINGS: dict[str, Callable[[], dict]] = {}


def task_rates(name: str, split: str, modules: Sequence[str] = ()) -> list[tuple[str, float]]:
    """The tasks of a mixture that have the split, with their rates; a single task comes back with rate 1.

    Raises:
      ValueError: an unknown name or split, with what there is; a task of the mixture whose rate is not above 0.
    """
    found = provider(name, split, modules)[1]
    if not hasattr(found, "tasks"):
        return [(name, 1.0)]
    rates = [(task.name, found.get_rate(task)) for task in found.tasks if split in task.splits]
    if idle := [f"{task} ({rate})" for task, rate in rates if not rate > 0]:
        raise ValueError(
            f"the mixture {name} draws nothing from {', '.join(idle)}; wanted a rate above 0 for each task: leave it "
            "out of the mixture instead"
        )
    return rates


def task_names(name: str, split: str, modules: Sequence[str] = ()) -> list[str]:
    """The tasks of a mixture that have the split, in its order, or the one task; ValueError as ``task_rates``."""
    found = provider(name, split, modules)[1]
    return [task.name for task in getattr(found, "tasks", [found]) if split in task.splits]


def examples_of(name: str, split: str, modules: Sequence[str] = (), fields: Fields = PAIR) -> Iterator[dict]:
    """Iterates a seqio task once, in its own order (a mixture: every task once, one after another).

    Yields:
      dicts with the ``fields``: str, and int for the number.

    Raises:
      ValueError: an unknown name or split, missing features, or text that is not UTF-8 (naming the example's number).
    """
    for task in task_names(name, split, modules):
        found = provider(task, split)[1]
        if not found.preprocessors and hasattr(found.source, "examples"):  # plain Python: no need to go through tf.data
            yield from found.source.examples(split)
            continue
        rows = dataset(found, split, fields, num_epochs=1, seed=None)
        for block in rows.batch(1024).as_numpy_iterator():
            columns = [decoded(block, key, fields, task) for key in fields.strings]
            for *texts, number in zip(*columns, block[fields.number].tolist(), strict=True):
                yield {**dict(zip(fields.strings, texts, strict=True)), fields.number: number}


def made_from(name: str) -> dict:
    """What ``SETTINGS`` says that a task's text is made from, as JSON gives it back.

    {} where it says nothing, or can't as the task's files are not on this machine.
    """
    try:
        return json.loads(json.dumps(SETTINGS.get(name, dict)()))
    except (OSError, CorpusError):
        return {}


def check_made_from(name: str, kept: Mapping, folder) -> None:
    """ValueError where the tokens in ``folder`` were ``kept`` of a task's text that is made from something else now."""
    now = made_from(name)
    changed = [f"{k} was {kept[k]!r:.80}, now {now[k]!r:.80}" for k in kept if k in now and kept[k] != now[k]]
    if changed:
        raise ValueError(
            f"the cache in {folder} holds the tokens of other text of {name}: {'; '.join(changed)}. Remove that folder "
            "to read the text anew, name another cache, or give the settings back"
        )


def provider(name: str, split: str, modules: Sequence[str] = ()):
    """(the tensorflow module, the seqio task or mixture); ValueError for an unknown name or split."""
    import seqio
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")  # TensorFlow would take the memory that JAX trains in
    for module in modules:
        importlib.import_module(module)
    names = sorted({*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()})
    if name not in names:
        near = difflib.get_close_matches(name, names, 5)
        raise ValueError(
            f"no seqio task or mixture is called {name!r}. "
            + (f"Closest: {', '.join(near)}. " if near else f"Registered: {', '.join(names) or 'none'}. ")
            + "Name the module that registers it in TASK_MODULES."
        )
    found = seqio.get_mixture_or_task(name)
    if split not in found.splits:
        raise ValueError(
            f"{name} has no split {split!r}; it has {', '.join(sorted(found.splits))}. Register it with held_out=0.05 "
            "or files of its own for that split, or leave out what reads it: train.evaluators = [], train.reports = []"
        )
    return tf, found


def dataset(found, split: str, fields: Fields, *, num_epochs: int | None, seed: int | None):
    """The tf.data pipeline of a task's or mixture's text examples; shuffled if there is a seed.

    ValueError where they lack one of the ``fields``.
    """
    # An in-memory cache would become part of every snapshot.
    options = {"num_epochs": num_epochs, "shuffle": seed is not None, "seed": seed, "try_in_mem_cache": False}
    if hasattr(found, "tasks"):
        options["passthrough_features"] = [*fields.strings, fields.number]
    rows = found.get_dataset(sequence_length=None, split=split, **options)
    spec, number = rows.element_spec, fields.number
    wanted = dict.fromkeys(fields.strings, "string") | {number: spec[number].dtype if number in spec else "int64"}
    bad = [key for key, dtype in wanted.items() if key not in spec or spec[key].shape.rank or spec[key].dtype != dtype]
    if bad:
        raise ValueError(
            f"{found.name} yields {spec}; wanted the scalar strings {', '.join(fields.strings)} and the scalar integer "
            f"{number} (not so: {', '.join(bad)}). Tasks yield text, not token ids: each run tokenises it by itself."
        )
    return rows


def decoded(block: dict, key: str, fields: Fields, name: str) -> list[str]:
    """The strings of one column of a block of examples; ValueError that names the example whose bytes are not UTF-8."""
    try:
        return [value.decode() for value in block[key].tolist()]
    except UnicodeDecodeError:
        for value, number in zip(block[key].tolist(), block[fields.number].tolist(), strict=True):
            try:
                value.decode()
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{name}: the {key} of {fields.kind} {number} is not valid UTF-8 ({error}): convert the corpus to "
                    "UTF-8."
                ) from None
        raise
