"""What a pipeline is: stages, each a command of ours with its own folder, checked before anything runs.

In the text of a stage's bindings, flags and settings, {NAME} stands for the folder of an earlier stage, or for one of
the pipeline's folders or values; {here} for the stage's own folder; {STAGE:FILE:KEY.KEY} for a value in a JSON file
that an earlier stage leaves.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from vmsst_jax import command
from vmsst_jax.experiments.matrix import check_names, written
from vmsst_jax.training.same_config import bindings as read_bindings
from vmsst_jax.training.same_config import expanded, is_place

TRAIN, EVALUATE = "train", "evaluate"
# What a stage may say, by its command; every other command takes flags.
PARTS = {TRAIN: {"recipe", "bindings"}, EVALUATE: {"settings"}}
FLAGS = {"flags"}
SHARED = {"command", "inputs"}
COMMANDS = (
    *("text", TRAIN, "translate", "convert", "calibrate", EVALUATE),
    *("word_mapping train_vectors", "word_mapping map", "word_mapping translate"),
)
HERE = "here"
REFERENCE = re.compile(r"\{(\w+)(?::([^{}:]+):([^{}:]+))?\}")


@dataclasses.dataclass(frozen=True)
class Stage:
    """A command of ours, its definition with the pipeline's values put in but for where things lie.

    Attributes:
      name: of its folder, its log and its record.
      command: of ``vmsst_jax``.
      recipes, bindings: of training. settings: of ``grid.evaluate``. flags: of other commands.
      inputs: files, folders or patterns outside of the pipeline that it reads.
      needs: the earlier stages that it refers to.
    """

    name: str
    command: str
    recipes: tuple[str, ...]
    bindings: dict[str, object]
    settings: dict[str, object]
    flags: dict[str, object]
    inputs: tuple[str, ...]
    needs: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """A pipeline, checked; see ``pipeline`` for its parts."""

    stages: dict[str, Stage]
    output: Path
    folders: dict[str, str | None]
    checksums: dict[str, str]
    about: str
    config_text: str

    def folder(self, name: str) -> Path:
        """Where a stage's command writes."""
        return self.output / name

    def put_in(self, stage: Stage, value: object) -> object:
        """``value`` with every reference of ``stage`` replaced by what it stands for now.

        Raises ValueError where a file that an earlier stage should have left lacks a value.
        """
        places = {name: str(self.folder(name)) for name in stage.needs} | self.folders
        return put_in(value, places | {HERE: str(self.folder(stage.name))})

    def introduction(self) -> str:
        """What stands first in the report, with the values that the stages have left."""
        return str(put_in(self.about, {name: str(self.folder(name)) for name in self.stages} | self.folders))


def pipeline(
    stages: dict[str, dict],
    output: str,
    folders: dict[str, str | None] | None = None,
    values: dict[str, object] | None = None,
    checksums: dict[str, str | None] | None = None,
    changes: dict[str, dict | None] | None = None,
    about: str = "",
    config_text: str = "",
) -> Pipeline:
    """A pipeline as its recipe describes it.

    Args:
      stages: {name: {"command": "train", "recipe": a name or several, "bindings": {name: value}}, {"command":
        "evaluate", "settings": what ``grid.evaluate`` takes but the output}, or {"command": another one of ours,
        "flags": {name: value}}}, in the order in which they run. Each may have "inputs": files that it reads from
        elsewhere, whose checksums are kept. Flags that are None are left out, True stands for a flag without value,
        lists are written with commas. A stage that is None is left out.
      output: the folder for everything.
      folders: {name: path} outside of the pipeline, for references; where they lie is no part of what a stage is. One
        that is None is no input, and a flag that is a reference to it alone is left out.
      values: {name: value} for references.
      checksums: {an input as a stage names it: the SHA-256 that it should have, None for any}.
      changes: {name of a stage: what is other than in ``stages``}: of bindings, flags and settings only what is named,
        everything else as a whole; None leaves the stage out.
      about: what the report begins with, references to values and to what stages leave among it.
      config_text: the recipe, kept with the results.

    Raises:
      ValueError: what can be seen to be wrong before anything runs.
    """
    if not isinstance(stages, dict) or not stages:
        raise ValueError(f"pipeline.stages are {stages!r:.200}; wanted {{NAME: {{'command': ...}}, ...}}, at least one")
    if not isinstance(output, str) or not output:
        raise ValueError(f"pipeline.output is {output!r}; wanted the name of a folder, as in 'runs/umse'")
    folders, values = folders or {}, values or {}
    if twice := sorted((folders.keys() & stages.keys()) | (values.keys() & {*stages, *folders})):
        raise ValueError(f"{', '.join(twice)} is the name of more than one stage, folder or value")
    made: dict[str, Stage] = {}
    for name, options in _changed(stages, changes or {}).items():
        if options is not None:
            made[name] = _stage(name, options, folders, values, made)
    if not made:
        raise ValueError(
            "every stage is None, so there is nothing to run; pipeline.stages replaces all stages of a recipe that is "
            "included, pipeline.changes alters some"
        )
    checksums = _values_in(checksums or {}, values)
    check_names("pipeline.checksums", checksums, [name for stage in made.values() for name in stage.inputs])
    wanted = {name: sha256 for name, sha256 in checksums.items() if sha256 is not None}
    return Pipeline(made, Path(output), folders, wanted, str(_values_in(about, _listed(values))), config_text)


def _changed(stages: dict[str, dict | None], changes: dict[str, dict | None]) -> dict[str, dict | None]:
    """``stages`` with ``changes`` put in, see ``pipeline``."""
    check_names("pipeline.changes", changes, stages)
    made = dict(stages)
    for name, change in changes.items():
        before = stages[name]
        if change is None or not isinstance(before, dict):
            made[name] = change
            continue
        if not isinstance(change, dict):
            raise ValueError(f"pipeline.changes of {name!r} are {change!r:.200}; wanted {{'flags': {{NAME: VALUE}}}}")
        made[name] = before | {
            part: before[part] | value if isinstance(value, dict) and isinstance(before.get(part), dict) else value
            for part, value in change.items()
        }
    return made


def _stage(name: str, options: dict, folders: Mapping, values: Mapping, before: Mapping[str, Stage]) -> Stage:
    if not re.fullmatch(r"[a-z]\w*", str(name)) or name == HERE:
        raise ValueError(f"a stage is called {name!r}; wanted letters, digits and _, as in 'language_model'")
    command = options.get("command") if isinstance(options, dict) else None
    allowed = SHARED | PARTS.get(command, FLAGS)
    if command in COMMANDS:
        check_names(f"stage {name!r}", options, sorted(allowed))
    else:
        raise ValueError(
            f"stage {name!r} is {options!r:.200}; wanted {{'command': one of {', '.join(COMMANDS)}, ...}} with "
            f"{', '.join(sorted(allowed))}"
        )
    known = {**values, **{reference: f"{{{reference}}}" for reference in (HERE, *folders, *before)}}
    needs = []
    for reference, *_ in REFERENCE.findall(_text(name, options)):
        check_names(f"stage {name!r} refers to {{{reference}}}", [reference], known)
    filled = {part: _values_in(value, values) for part, value in options.items() if part != "command"}
    for reference, file, _ in REFERENCE.findall(_text(name, filled)):  # values may refer to stages
        check_names(f"stage {name!r} refers to {{{reference}}}", [reference], known)
        if file and reference not in before:
            raise ValueError(f"stage {name!r} wants a value of {file} of {reference!r}, which is no earlier stage")
        if reference in before:
            needs.append(reference)
    recipe = filled.get("recipe", ())
    for part, given in (("recipe", recipe), ("inputs", filled.get("inputs") or ())):
        listed = [given] if part == "recipe" and isinstance(given, str) else given
        if not isinstance(listed, list | tuple) or not all(isinstance(one, str) for one in listed):
            raise ValueError(f"stage {name!r}: {part} is {given!r:.200}; wanted names in brackets, as in ['a', 'b']")
    for pattern in filled.get("inputs") or ():
        if elsewhere := [reference for reference, *_ in REFERENCE.findall(pattern) if reference not in folders]:
            raise ValueError(
                f"stage {name!r}: the input {pattern} is no file from elsewhere, {elsewhere[0]} is the pipeline's own; "
                "a stage that is referred to in bindings, flags or settings counts as an input by itself"
            )
    parts = {part: filled.get(part) or {} for part in ("bindings", "settings", "flags")}
    for part, given in parts.items():
        if not isinstance(given, dict):
            raise ValueError(f"stage {name!r}: {part} are {given!r:.200}; wanted {{NAME: VALUE, ...}}")
    if command in PARTS and not (recipe or parts["settings"]):
        raise ValueError(f"stage {name!r} has no {', '.join(sorted(PARTS[command] - {'bindings'}))}")
    if taken := sorted({"train.model_dir", "MODEL_DIR", "output"} & {*parts["bindings"], *parts["settings"]}):
        raise ValueError(f"stage {name!r} sets {', '.join(taken)}, which the pipeline chooses")
    for value in parts["bindings"].values():
        written(value)  # ValueError for what no recipe can hold
    return Stage(
        name, command, (recipe,) if isinstance(recipe, str) else tuple(recipe), **parts,
        inputs=tuple(filled.get("inputs") or ()), needs=tuple(dict.fromkeys(needs)),
    )  # fmt: skip


def _listed(values: Mapping[str, object]) -> dict[str, object]:
    """Values as they are read in a sentence."""
    return {name: ", ".join(map(str, v)) if isinstance(v, list | tuple) else v for name, v in values.items()}


def _text(name: str, options: dict) -> str:
    """Everything that a stage says, as text; ValueError for names in it that are none."""
    try:
        return json.dumps(options, default=str)
    except TypeError as error:
        raise ValueError(f"stage {name!r} is {options!r:.200}; wanted text for names ({error})") from None


def _values_in(value: object, values: Mapping[str, object]) -> object:
    """``value`` with the references to ``values`` replaced, those to folders left."""
    return put_in(value, values, leave=True)


def put_in(value: object, known: Mapping[str, object], leave: bool = False) -> object:
    """``value``, or what is in it, with its references replaced; text that is one reference alone becomes its value.

    Args:
      known: {name: what it stands for}.
      leave: unknown names stay as they are.
    """
    if isinstance(value, dict):
        return {put_in(key, known, leave): put_in(item, known, leave) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(put_in(item, known, leave) for item in value)
    if not isinstance(value, str):
        return value

    def meaning(match: re.Match) -> object:
        name, file, keys = match.groups()
        if name not in known and leave:
            return match[0]
        return known[name] if file is None else value_of(Path(str(known[name])) / file, keys)

    def text(match: re.Match) -> str:
        if (found := meaning(match)) is None:
            raise ValueError(f"{value} is wanted, and {match[1]} is None: say where it is")
        return str(found)

    if whole := REFERENCE.fullmatch(value):
        return meaning(whole)
    return REFERENCE.sub(text, value)


def value_of(file: Path, keys: str) -> object:
    """The value at ``keys``, with points between them, of a JSON file; ValueError where it has none."""
    try:
        return functools.reduce(lambda found, key: found[key], keys.split("."), json.loads(file.read_text("utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file} has no {keys} ({type(error).__name__}: {error})") from None


def definition(stage: Stage, resolve: Callable[[Sequence[str], Sequence[str]], str]) -> dict[str, str]:
    """What makes a stage this one, wherever things lie: {what: value as text}.

    Args:
      resolve: function (recipes, bindings) -> every binding that holds, as gin prints it.

    Raises:
      ValueError: a recipe or binding that doesn't hold, naming the stage.
    """
    if stage.command != TRAIN:
        return {"command": stage.command} | {
            name: json.dumps(value, sort_keys=True, default=str)
            for name, value in (stage.settings | stage.flags).items()
        }
    try:
        holding = expanded(read_bindings(resolve(stage.recipes, lines(stage.bindings))))
    except ValueError as error:
        raise ValueError(f"stage {stage.name!r}: {error}") from error
    return {"command": stage.command} | {name: value for name, value in holding.items() if not is_place(name)}


def check_flags(pipeline: Pipeline, stage: Stage) -> None:
    """ValueError for flags that the stage's command doesn't know or can't do without, or a value that it can't read.

    What earlier stages will leave can't be read yet: of flags that refer to it only the names count.
    """
    module, *inner = stage.command.split()
    try:
        given = pipeline.put_in(stage, stand_in(stage.flags))
        flags = importlib.import_module(f"vmsst_jax.{module}").parser()
        command.parsed(flags, [*inner, *command.flag_arguments(given)])
    except ValueError as error:
        about = re.match(r"argument --(\w+)", str(error))
        if not about or stage.flags.get(about[1]) == stand_in(stage.flags).get(about[1]):
            raise ValueError(f"flags of stage {stage.name!r}: {error}") from None


def stand_in(value: object) -> object:
    """``value`` with 1 in the place of every value that an earlier stage will leave in a file."""
    if isinstance(value, dict):
        return {stand_in(key): stand_in(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(stand_in, value))
    if not isinstance(value, str):
        return value
    if (whole := REFERENCE.fullmatch(value)) and whole[2]:
        return 1
    return REFERENCE.sub(lambda found: "1" if found[2] else found[0], value)


def lines(bindings: Mapping[str, object]) -> list[str]:
    """Bindings as gin reads them."""
    return [f"{name} = {written(value)}" for name, value in bindings.items()]
