"""What the commands share: expected errors become one line and exit code 2, flags are checked as they are read."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import itertools
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence

from vmsst_jax import disk

# Flags of what embeds, one of which is given.
SOURCES = ("checkpoint", "sentence_transformers", "word_mapping", "vectors", "embedder")
PASSING = 75  # exit code of what the same command may do later (EX_TEMPFAIL)


def run(name: str, main: Callable[[Sequence[str] | None], None], argv: Sequence[str] | None = None) -> None:
    """Runs ``main(argv)`` and ends the process the way a shell user expects.

    OSError, and ValueError that our own code raised, are messages for the user: one line ``NAME: error: ...`` on
    standard error, exit code 2, or 75 where the same command may do later. A ValueError from inside another library is
    a bug and keeps its traceback. Ctrl-C ends with 130, a reader that went away (``| head``) with 141.
    """
    try:
        main(argv)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes standard output once more on its way out, which would raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except (KeyboardInterrupt, OSError, ValueError) as error:
        if (code := report(name, error)) is None:
            raise
        sys.exit(code)


def report(name: str, error: BaseException) -> int | None:
    """Prints an expected error as ``run`` does and returns the exit code; None for one that is a bug."""
    if isinstance(error, KeyboardInterrupt):
        print(f"{name}: interrupted", file=sys.stderr)
        return 130
    if isinstance(error, OSError) or (isinstance(error, ValueError) and raised_here(error)):
        print(f"{name}: error: {describe(error)}", file=sys.stderr)
        return PASSING if isinstance(error, TimeoutError) or disk.may_pass(error) else 2
    return None


def describe(error: BaseException) -> str:
    """The error's text; an operating system error without its number: ``FILE: No space left on device``."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    # gin adds where in its own machinery an error passed by.
    return re.sub(r"\n\s*In call to configurable .*", "", str(error))


def raised_here(error: BaseException) -> bool:
    """Whether our own code raised the error, not a library that it calls."""
    frame = error.__traceback__
    while frame.tb_next:
        frame = frame.tb_next
    module = frame.tb_frame.f_globals.get("__name__", "")
    return module == "__main__" or module.split(".")[0] == "vmsst_jax"


def parser(name: str, description: str) -> argparse.ArgumentParser:
    """An argument parser whose messages begin with ``name``; it accepts no abbreviated flags but names close ones."""
    return _Parser(prog=name, description=description, allow_abbrev=False)


def parsed(flags: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.Namespace:
    """What ``flags`` reads; ValueError with its message where argparse would print it and end the process."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
            return flags.parse_args(argv)
    except SystemExit:
        error = said.getvalue().partition(": error: ")[2].strip()
        raise ValueError(error or "they ask for help alone") from None


def flag_arguments(flags: Mapping[str, object]) -> list[str]:
    """{name: value} as a command line has them: None and False are left out, True stands alone, lists have commas."""
    arguments = []
    for name, value in flags.items():
        if value is None or value is False:
            continue
        if isinstance(value, list | tuple):
            value = ",".join(map(str, value))
        arguments.append(f"--{name}" if value is True else f"--{name}={value}")
    return arguments


class _Parser(argparse.ArgumentParser):
    """Takes ``--gin.NAME=VALUE`` for a recipe and no other unknown argument."""

    def parse_known_args(self, args=None, namespace=None):
        found, rest = super().parse_known_args(args, namespace)
        if unknown := [argument for argument in rest if not argument.startswith("--gin.")]:
            names = [argument.partition("=")[0] for argument in unknown if argument.startswith("--")]
            close = [difflib.get_close_matches(name, self._option_string_actions, n=1) for name in names]
            meant = " and ".join(dict.fromkeys(itertools.chain.from_iterable(close)))
            self.error(f"unrecognized arguments: {' '.join(unknown)}{f'; did you mean {meant}?' if meant else ''}")
        return found, rest


def add_recipe_flags(flags: argparse.ArgumentParser) -> None:
    """--gin_file, --gin_search_paths, --gin_bindings; what is left is read by ``config.short_bindings``."""
    add = flags.add_argument
    add("--gin_file", action="append", default=[], metavar="NAME", help="recipe; may be given several times")
    add("--gin_search_paths", default="", metavar="A,B", help="further folders that hold recipes")
    add("--gin_bindings", action="append", default=[], metavar="'NAME = VALUE'", help="overrides the recipe")
    flags.epilog = "--gin.NAME=VALUE is short for --gin_bindings='NAME = VALUE': --gin.MODEL_DIR='\"runs/mine\"'"


def add_process_flags(flags: argparse.ArgumentParser) -> None:
    """What a run of several processes is told, where the environment doesn't say it (``vmsst_jax.processes``)."""
    add = flags.add_argument_group("several processes (found by themselves on TPU slices, under Slurm and Open MPI)")
    flag = add.add_argument
    flag("--coordinator", metavar="HOST:PORT", help="where process 0 listens; the next port is used too")
    flag("--processes", type=positive, metavar="N", help="how many processes there are")
    flag("--process_id", type=natural, metavar="I", help="which one this is, from 0")
    flag("--join_timeout", type=positive, default=300, metavar="S", help="seconds to wait for the others (%(default)s)")
    flag(
        "--lost_after",
        type=positive,
        default=60,
        metavar="S",
        help="seconds of silence after which a process counts as lost, and the run ends (%(default)s)",
    )


def add_model_flags(flags: argparse.ArgumentParser, required: bool = True) -> None:
    """--checkpoint and what may stand in its place, --step, --max_length and more: what embeds, and how."""
    source = flags.add_mutually_exclusive_group(required=required)
    source.add_argument(
        "--checkpoint",
        metavar="DIR",
        help="a model directory, its checkpoints folder or one step folder; or a model of another project in any form "
        "that vmsst_jax.convert reads, which is converted on first use",
    )
    source.add_argument(
        "--sentence_transformers", metavar="NAME", help="a model that the library sentence-transformers is to run"
    )
    source.add_argument(
        "--word_mapping", metavar="FILE.npz", help="the mean of mapped words; what vmsst_jax.word_mapping map wrote"
    )
    source.add_argument(
        "--vectors",
        type=codes,
        metavar="A.npy,B.npy",
        help="ready vectors: row i of A.npy is line i of the text file A or A.txt beside it",
    )
    source.add_argument(
        "--embedder",
        metavar="MODULE:FUNCTION",
        help="a Python function of yours: called with a list of strings, it returns numbers [n, D]",
    )
    flags.add_argument(
        "--idf", action="store_const", const=True, help="weigh a mapping's words by inverse document frequency"
    )
    flags.add_argument(
        "--trained_languages",
        type=codes,
        metavar="A,B",
        help="the languages in training, for models that have no table of them",
    )
    flags.add_argument(
        "--cache_dir",
        metavar="DIR",
        help="where converted models and computed vectors are kept; without it models and vectors of searched files "
        "beside the originals, others in ~/.cache/vmsst_jax",
    )
    add_embedding_flags(flags)
    flags.add_argument("--step", type=step, help="a step number or `best`; without it the last checkpoint")
    flags.add_argument(
        "--max_length",
        type=positive,
        metavar="TOKENS",
        help="longer sentences are cut to this many tokens; without it the checkpoint's own limit",
    )
    flags.add_argument(
        "--batch_size", type=positive, metavar="N", help="sentences per device call; without it what suits the device"
    )


def add_embedding_flags(flags: argparse.ArgumentParser) -> None:
    """--pooling, --layer, --skip_special_tokens, --prefix, --tower: what is said otherwise than in the model."""
    flags.add_argument(
        "--pooling", choices=("mean", "cls", "max", "mean_sqrt_len", "last", "pooler"), help="of an encoder's tokens"
    )
    flags.add_argument("--layer", type=natural, metavar="N", help="pool hidden state N of an encoder, 0 the embeddings")
    flags.add_argument(
        "--skip_special_tokens",
        dest="pool_special",
        action="store_const",
        const=False,
        help="leave <s>, </s> and their like out of the pooling",
    )
    flags.add_argument("--prefix", metavar="TEXT", help="put before every sentence, such as 'query: '")
    flags.add_argument("--tower", choices=("query", "passage"), help="which encoder of a model that has two (DPR)")


def source_of(args: argparse.Namespace) -> str | list[str] | None:
    """The value of that of ``SOURCES`` which is given; None if none is."""
    return next((value for name in SOURCES if (value := getattr(args, name))), None)


def add_calibration_flags(flags: argparse.ArgumentParser) -> None:
    """--calibration and --calibration_steps, for ``retrieval.calibration.applied``."""
    flags.add_argument("--calibration", metavar="FILE", help="what vmsst_jax.calibrate wrote for this model")
    flags.add_argument(
        "--calibration_steps",
        type=codes,
        metavar="A,B",
        help="only these first ones of its steps, such as shift or shift,scale; without it all of them",
    )


def embedding_flags(args: argparse.Namespace) -> dict:
    """What ``add_embedding_flags`` read, as options of ``retrieval.embedder.load``."""
    return {name: getattr(args, name) for name in ("pooling", "layer", "pool_special", "prefix", "tower")}


def model_options(args: argparse.Namespace) -> dict:
    """What ``add_model_flags`` read, as options of ``retrieval.embedders.load``."""
    sources = (*SOURCES, "trained_languages")
    given = {name: getattr(args, name) for name in (*sources, "idf", "step", "max_length", "batch_size")}
    # Caches of vectors are for every source; converted models only come from checkpoints.
    return given | embedding_flags(args) | ({"cache_dir": args.cache_dir} if args.checkpoint is not None else {})


def codes(text: str) -> list[str]:
    """Language codes between commas, for ``type=``."""
    return [code.strip() for code in text.split(",") if code.strip()]


def named_files(entries: Sequence[str], flag: str) -> dict[str, str]:
    """{code: file} from "code=file" entries; ValueError for anything else, or a code given twice."""
    found: dict[str, str] = {}
    for entry in entries:
        code, equals, path = entry.partition("=")
        if not (code and equals and path):
            raise ValueError(f"{flag} has {entry!r}; wanted CODE=FILE, as in de=german.txt,en=english.txt")
        if code in found:
            raise ValueError(f"{flag} names {code} twice, {found[code]} and {path}; put them into one file")
        found[code] = path
    return found


def natural(text: str) -> int:
    """A whole number of at least 0, for ``type=``."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def positive(text: str) -> int:
    """A whole number of at least 1, for ``type=``."""
    value = int(text) if text.isascii() and text.isdigit() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return value


def step(text: str) -> int | str:
    """A step number or ``best``, for ``type=``."""
    if text == "best":
        return text
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a step number nor `best`")
    return int(text)
