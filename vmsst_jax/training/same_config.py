"""Comparison of two configurations as gin prints them, without gin."""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterator, Sequence

from vmsst_jax import company
from vmsst_jax.training.checkpoint_files import CheckpointError

# Where things lie: the same run on another machine has others. What lies there is compared by its checksums.
PLACES = (
    *("train.model_dir", "local_sets.data_dir", "opus.data_root", "local_documents.data_dir", "gnome_help.folder"),
    *("DprFiles.files", "XquadFiles.data_dir", "folder_text.data_dir", "synthetic_pairs.files"),
    "common_crawl.data_root",
    *(f"{text}.cache" for text in ("ParallelText", "Documents", "MaskedText", "TlmText")),
    *(f"{text}.cache" for text in ("NoisyText", "RoundTripText", "TranslationText")),
)
# Bindings that a resumed run may change: but for the schedule's end they don't alter what a given step computes.
FREE_BINDINGS = (
    *("Rhythm.steps", "Rhythm.log_every", "Rhythm.evaluate_every", "Rhythm.save_every"),
    *("Saving.keep_last", "Saving.keep_every", "Saving.best_metric", "Saving.best_mode"),
    *("make_mesh.data", "make_mesh.fsdp", "make_mesh.model", "train.mesh", "train.evaluators", "train.reports"),
    *("Watch.factor", "Watch.least", "Watch.first", "Watch.patience", "train.watch"),
    *("OutputOptions.chunk_bytes", "model.encoder_chunk", "dual_encoder_model.encoder_chunk"),
    "warmup_linear.total",  # a run that is given more steps stretches what is left of its schedule
    *PLACES,
)
LAYOUT = {tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def is_place(name: str) -> bool:
    """Whether a binding, in any scope, only says where things lie."""
    return name.rpartition("/")[2] in PLACES


def check_same_config(saved_gin: str, current_gin: str, ignore: Sequence[str] = ()) -> None:
    """Raises CheckpointError, with the differing bindings, if two operative configurations differ.

    Args:
      saved_gin: text of ``gin.operative_config_str()`` in the checkpoint: ``name = value``, also over several lines.
      current_gin: the same of this run.
      ignore: names of bindings that may differ, in any scope.
    """
    differing = [
        f"  {name}: {saved} in the checkpoint, {current} in this run"
        for name, saved, current in differences(saved_gin, current_gin, ignore)
    ]
    if differing:
        raise CheckpointError(
            "The model directory holds a checkpoint of another configuration. These bindings differ:\n"
            + "\n".join(differing)
            + "\nTo go on with that run, give the values of the checkpoint; for a new run, give another MODEL_DIR."
        )


def differences(saved_gin: str, current_gin: str, ignore: Sequence[str] = ()) -> list[tuple[str, str, str]]:
    """(name, value in the first, value in the second) of the bindings in which two configurations differ."""
    saved, current = expanded(bindings(saved_gin)), expanded(bindings(current_gin))
    return [
        (name, saved.get(name, "not set"), current.get(name, "not set"))
        for name in sorted({*saved, *current})
        if saved.get(name) != current.get(name) and not {name, name.rpartition("/")[2]} & {*ignore}
    ]


def check_processes(config_text: str, versions: dict[str, str]) -> None:
    """ValueError where this process was started with another recipe, or has other packages, than process 0 of several.

    Args:
      config_text: the operative configuration; where things lie may differ from machine to machine.
      versions: {package: version}.
    """
    here = company.here()
    given = json.loads(here.shared(lambda: json.dumps([config_text, versions])))
    found = differences(given[0], config_text, PLACES)
    found += [
        (name, given[1].get(name), version) for name, version in versions.items() if given[1].get(name) != version
    ]
    if found:
        listed = "; ".join(f"{name} is {own} here and {theirs} there" for name, theirs, own in found)
        raise ValueError(
            f"process {here.index} and process 0 of {here.count} were not started alike: {listed}. Give all of them "
            "the same recipe, bindings and packages"
        )


def expanded(found: dict[str, str]) -> dict[str, str]:
    """Bindings with the macros in their values replaced, and without the macros: what the bindings mean."""
    macros = {name: value for name, value in found.items() if re.fullmatch(r"\w+", name)}

    def meaning(value: str, depth: int = 0) -> str:
        if depth > len(macros):  # gin itself reports the circle
            return value
        return re.sub(r"%(\w+)", lambda m: meaning(macros.get(m[1], m[0]), depth + 1), value)

    return {name: meaning(value) for name, value in found.items() if name not in macros}


def bindings(gin_text: str) -> dict[str, str]:
    """{name: value} of the bindings in `gin_text`, values in one spelling: quotes, numbers, line breaks don't matter.

    Raises:
      CheckpointError: a line that gin could not have written.
    """
    found = {}
    for line in _logical_lines(gin_text):
        texts = [token.string for token in line]
        if "=" not in texts:
            if texts[0] in ("import", "from", "include"):
                continue
            raise CheckpointError(f"Not a gin binding, line {line[0].start[0]} of the configuration: {line[0].line!r}.")
        split = texts.index("=")
        found["".join(texts[:split])] = _value(line[split + 1 :])
    return found


def _logical_lines(text: str) -> Iterator[list[tokenize.TokenInfo]]:
    """The tokens of each statement: gin's syntax is made of Python's tokens."""
    line = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NEWLINE:
                yield line
                line = []
            elif token.type not in LAYOUT:
                line.append(token)
    except (tokenize.TokenError, IndentationError) as error:
        raise CheckpointError(f"The configuration text cannot be read: {error}.") from error


def _value(tokens: list[tokenize.TokenInfo]) -> str:
    parts: list[str] = []
    string = None  # adjacent string literals are one string
    for token in tokens:
        if token.type == tokenize.STRING:
            string = (string or "") + ast.literal_eval(token.string)
            continue
        if string is not None:
            parts.append(repr(string))
            string = None
        literal = token.type == tokenize.NUMBER
        parts.append(repr(ast.literal_eval(token.string)) if literal else token.string + " " * (token.string in ",:"))
    return "".join([*parts, repr(string)] if string is not None else parts)
