"""gin: which functions and classes recipes may configure, where recipes are found, and how mistakes are reported.

This is the only module of the library that imports gin (modules in ``tasks/`` may). Everything configurable is
registered here, before any recipe is parsed, and lives in an importable module, never in ``__main__``.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import logging
import pathlib
import re
import sys

import gin

PACKAGE = pathlib.Path(__file__).resolve().parent
# Macros that a command line may set although no recipe mentions them.
FREE_MACROS = ("TASK_MODULES",)


def recipe_folders(search_paths: list[str] = ()) -> list[pathlib.Path]:
    """Where recipes are looked for, in this order: here, the given folders, the recipes that ship with the package."""
    shipped = PACKAGE / "recipes"
    shipped = shipped if shipped.is_dir() else PACKAGE.parent / "gin"  # a wheel; a checkout
    return [pathlib.Path.cwd(), *(pathlib.Path(p) for p in search_paths if p), shipped]


def find_recipe(name: str, folders: list[pathlib.Path]) -> pathlib.Path:
    """The first of ``folders`` that has recipe ``name``; ValueError with the closest names where none has it."""
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    known = sorted({str(f.relative_to(d)) for d in folders[1:] for f in d.rglob("*.gin")})
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or known[:8]
    looked = ", ".join(map(str, folders))
    raise ValueError(f"no recipe {name!r} in {looked}; did you mean {' or '.join(close) or 'another folder'}?")


def short_bindings(arguments: list[str]) -> list[str]:
    """``--gin.NAME=VALUE`` -> ``NAME = VALUE``. ValueError for any other argument."""
    bindings = []
    for argument in arguments:
        match = re.fullmatch(r"--gin\.([^=]+)=(.*)", argument, re.DOTALL)
        if not match:
            raise ValueError(f"unknown argument {argument!r}; bindings are given as --gin.NAME=VALUE, see --help")
        bindings.append(f"{match[1]} = {match[2]}")
    return bindings


@functools.cache
def register() -> None:
    """Registers every configurable of the library, once."""
    from vmsst_jax import objectives, sharding
    from vmsst_jax.benchmarks import in_training
    from vmsst_jax.data import parallel
    from vmsst_jax.models import output_layer, t5
    from vmsst_jax.objectives import bitranslation, contrastive, vmsst
    from vmsst_jax.training import loop, optimizers, run, schedules, validation

    for item in (
        *(t5.T5Config, output_layer.OutputOptions, run.model),
        *(optimizers.adafactor, optimizers.adamw, optimizers.adam),
        *(schedules.warmup_rsqrt, schedules.warmup_linear, schedules.constant, schedules.inverse_sqrt),
        *(parallel.ParallelText, parallel.sentencepiece_file, parallel.train_sentencepiece),
        *(validation.ValidationLoss, in_training.HeldOut, in_training.HeldOutReport, in_training.LatentUse),
        *(loop.Rhythm, run.Stream, run.Saving, run.train, sharding.make_mesh),
    ):
        gin.external_configurable(item, module=item.__module__)
    for function in (vmsst.vmsst, vmsst.vmsst_contrastive, bitranslation.bitranslation, contrastive.contrastive):
        gin.external_configurable(objectives.configured(function), module=function.__module__)


def configure(recipes: list[str], bindings: list[str], search_paths: list[str] = ()):
    """Parses recipes and bindings and returns the configured ``train`` function, ready to be called.

    ``TASK_MODULES`` (a list of module names) is found first and its modules imported, so that what they register can be
    bound in the same recipe. Raises ValueError with what was found and the closest known names for an unknown recipe,
    configurable, parameter, macro or module.
    """
    if not recipes:
        raise ValueError("no recipe given: name one, as in --gin_file=quickstart.gin")
    register()
    folders = recipe_folders(search_paths)
    files = [str(find_recipe(name, folders)) for name in recipes]
    for folder in reversed(folders):
        gin.add_config_file_search_path(str(folder))
    gin.clear_config()
    _parse(files, bindings, skip_unknown=True)
    for name in _macros().get("TASK_MODULES", ()):
        import_tasks(name)
    gin.clear_config()
    _parse(files, bindings, skip_unknown=False)
    _check_macros(bindings)
    gin.finalize()
    train = gin.get_configurable("vmsst_jax.training.run.train")
    return functools.partial(train, config_text=gin.config_str(max_line_length=120))


def import_tasks(name: str):
    """Imports a module that registers seqio tasks: one of ours by its short name ("gettext") or any importable one."""
    if (PACKAGE.parent / "tasks" / f"{name}.py").is_file() or (PACKAGE / "tasks" / f"{name}.py").is_file():
        return importlib.import_module(f"vmsst_jax.tasks.{name}")
    if str(pathlib.Path.cwd()) not in sys.path:
        sys.path.insert(0, str(pathlib.Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0] == name.split(".")[0]:
            raise ValueError(
                f"TASK_MODULES names {name!r}, and no such module can be imported: put its folder on PYTHONPATH or run "
                "from the folder that holds it"
            ) from error
        raise


def _parse(files: list[str], bindings: list[str], skip_unknown: bool) -> None:
    logging.disable(logging.ERROR)  # gin logs an error for every folder that it looks into in vain
    try:
        gin.parse_config_files_and_bindings(files, bindings, skip_unknown=skip_unknown, finalize_config=False)
    except (ValueError, NameError, SyntaxError, OSError, AttributeError) as error:
        text = re.sub(r"\s*\n\s*", " ", str(error)).strip()
        raise ValueError(f"{text}{_closest(text)}") from error
    finally:
        logging.disable(logging.NOTSET)


def _closest(text: str) -> str:
    """ ", did you mean ...?" for the names in gin's message that no configurable or parameter has."""
    known = set()
    for selector, configurable in gin.config._REGISTRY.items():
        name = selector.split(".")[-1]
        known.add(name)
        known.update(f"{name}.{p}" for p in gin.config._get_cached_arg_spec(configurable.wrapped).args)
    for word in re.findall(r"[A-Za-z_][\w.]*", text):
        close = difflib.get_close_matches(word, known, n=3, cutoff=0.75)
        if close and word not in known:
            return f"; did you mean {' or '.join(close)}?"
    return ""


def _macros() -> dict:
    """Macros that have plain values."""
    return {
        scope: parameters["value"]
        for (scope, selector), parameters in gin.config._CONFIG.items()
        if selector == "gin.macro" and "value" in parameters
    }


def _check_macros(bindings: list[str]) -> None:
    """A macro that nothing reads is a misspelt one."""
    keys = (reference.config_key for reference in gin.config.iterate_references(gin.config._CONFIG))
    used = {scope for scope, selector in keys if selector == "gin.macro"}
    for name in (b.split("=")[0].strip() for b in bindings):
        if re.fullmatch(r"[A-Z][A-Z0-9_]*", name) and name not in used and name not in FREE_MACROS:
            close = difflib.get_close_matches(name, sorted(used), n=3, cutoff=0.5) or sorted(used)
            raise ValueError(f"no recipe given here uses {name}; did you mean {' or '.join(close)}?")
