"""gin: which functions and classes recipes may configure, where recipes are found, and how mistakes are reported.

This is the only module of the library that imports gin (modules in ``tasks/`` may). Everything configurable is
registered here, before any recipe is parsed, and lives in an importable module, never in ``__main__``.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import functools
import importlib
import inspect
import logging
import pathlib
import pkgutil
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator, Sequence

import gin

from vmsst_jax import checks

PACKAGE = pathlib.Path(__file__).resolve().parent
# What recipes can be for, and a recipe for each.
TRAIN = "vmsst_jax.training.run.train"
EVALUATE = "vmsst_jax.benchmarks.grid.evaluate"
EXPERIMENT = "vmsst_jax.experiments.matrix.experiment"
PIPELINE = "vmsst_jax.pipelines.plan.pipeline"
EXAMPLES = {
    **{TRAIN: "quickstart.gin", EVALUATE: "evaluate/all.gin", EXPERIMENT: "experiments/smoke.gin"},
    **{PIPELINE: "umse_small.gin"},
}
# Macros that are read here, before any recipe could refer to them.
FREE_MACROS = ("TASK_MODULES",)
# What recipes include isn't a recipe by itself.
INCLUDES = "include"
MACRO = "gin.macro"

_folders: list[pathlib.Path] = []  # where `include` statements are looked up; set by `configure`


def recipe_folders(search_paths: Sequence[str] = ()) -> list[pathlib.Path]:
    """Where recipes are looked for, in this order: here, the given folders, the recipes that ship with the package."""
    shipped = PACKAGE / "recipes"
    shipped = shipped if shipped.is_dir() else PACKAGE.parent / "gin"  # a wheel; a checkout
    return [pathlib.Path.cwd(), *(pathlib.Path(p) for p in search_paths if p), shipped]


def find_recipe(name: str, folders: Sequence[pathlib.Path]) -> pathlib.Path:
    """The first of ``folders`` that has the file ``name``; ValueError with the closest recipes where none has it."""
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    # The current folder may be anything, a home with millions of files for instance: only its own files are suggested.
    known = {f.name for f in folders[0].glob("*.gin")}
    known |= {f.relative_to(d).as_posix() for d in folders[1:] for f in d.rglob("*.gin")}
    recipes = [path for path in known if path.startswith(INCLUDES) == name.startswith(INCLUDES)]
    looked = ", ".join(map(str, folders))
    raise ValueError(f"no recipe {name!r} in {looked}{_suggest(name, recipes)}")


def short_bindings(arguments: Sequence[str]) -> list[str]:
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
    from vmsst_jax.benchmarks import context_retrieval, grid, in_training, passage_ranks
    from vmsst_jax.data import documents, noise, parallel, question_files, question_passages, tlm, translation
    from vmsst_jax.data.tokenizer import Tokenizer
    from vmsst_jax.data.tokenizer_xlm import xlm_bpe_files
    from vmsst_jax.data.tokenizer_xlmr import XlmrTokenizer
    from vmsst_jax.experiments import matrix
    from vmsst_jax.models import bert, generation, output_layer, t5
    from vmsst_jax.models.ccp import CcpConfig
    from vmsst_jax.models.dual_encoder import DualEncoderConfig
    from vmsst_jax.models.text_encoder import TextEncoderConfig
    from vmsst_jax.models.vmsst import ModelConfig
    from vmsst_jax.objectives import bitranslation, ccp, contrastive, dual_encoder, masked_lm, vmsst
    from vmsst_jax.objectives import translation as translating
    from vmsst_jax.pipelines import plan
    from vmsst_jax.training import encoder_start, loop, optimizers, run, schedules, validation, watchdog
    from vmsst_jax.translation import bleu

    _spell_out(run.model, ModelConfig)
    _spell_out(run.ccp_model, CcpConfig)
    _spell_out(run.dual_encoder_model, DualEncoderConfig)
    _spell_out(encoder_start.checkpoint_bert, bert.BertConfig)
    _spell_out(parallel.train_sentencepiece, Tokenizer.train)
    _spell_out(documents.train_xlmr_sentencepiece, XlmrTokenizer.train)
    _spell_out(question_passages.train_question_sentencepiece, XlmrTokenizer.train)
    for item in (
        *(t5.T5Config, output_layer.OutputOptions, run.model),
        *(bert.BertConfig, TextEncoderConfig, run.encoder_model, run.ccp_model, run.dual_encoder_model),
        *(run.translation_model, generation.Decoding, bleu.Bleu, bleu.BleuReport, noise.Noise),
        *(xlm_bpe_files, tlm.TlmText, translation.NoisyText, translation.RoundTripText, translation.TranslationText),
        *(encoder_start.checkpoint_bert, encoder_start.checkpoint_tokenizer),
        *(optimizers.adafactor, optimizers.adamw, optimizers.adam),
        *(schedules.warmup_rsqrt, schedules.warmup_linear, schedules.constant, schedules.inverse_sqrt),
        schedules.piecewise_linear,
        *(parallel.ParallelText, parallel.sentencepiece_file, parallel.train_sentencepiece),
        *(documents.Documents, documents.MaskedText, documents.train_xlmr_sentencepiece),
        *(question_files.DprFiles, question_files.XquadFiles, question_passages.QuestionPassages),
        *(question_passages.train_question_sentencepiece, passage_ranks.PassageRanks, passage_ranks.PassageRanksReport),
        *(validation.ValidationLoss, in_training.HeldOut, in_training.HeldOutReport, in_training.LatentUse),
        *(context_retrieval.ContextRetrieval, context_retrieval.ContextRetrievalReport),
        *(loop.Rhythm, run.Stream, run.Saving, run.train, watchdog.Watch, sharding.make_mesh),
        *(grid.evaluate, matrix.experiment, plan.pipeline),
    ):
        gin.external_configurable(item, module=item.__module__)
    for function in (
        *(vmsst.vmsst, vmsst.vmsst_contrastive, bitranslation.bitranslation, contrastive.contrastive),
        *(ccp.ccp, masked_lm.masked_lm, dual_encoder.dual_encoder),
        *(translating.translation, translating.back_translation),
    ):
        gin.external_configurable(objectives.configured(function), module=function.__module__)


def _spell_out(function: Callable, target: Callable) -> None:
    """Names the options that ``function(**options)`` hands on to ``target``: gin takes any name for ``**options``."""
    own = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
    names = {p.name for p in own}
    handed_on = [
        p.replace(kind=p.KEYWORD_ONLY)
        for p in inspect.signature(target).parameters.values()
        if p.default is not p.empty and p.name not in names
    ]
    function.__signature__ = inspect.Signature([*own, *handed_on])


def configure(
    recipes: Sequence[str], bindings: Sequence[str], search_paths: Sequence[str] = (), target: str = TRAIN
) -> functools.partial:
    """Parses recipes and bindings and returns ``target`` with its arguments, ready to be called.

    ``target`` is ``TRAIN``, ``EVALUATE``, ``EXPERIMENT`` or ``PIPELINE``. The arguments are evaluated, not run:
    ``.keywords`` of what comes back shows what a recipe means, for instance
    ``.keywords["streams"][0].data.batch_size`` or ``.keywords["model"](num_languages)``, the module.

    ``TASK_MODULES`` (a list of module names) is found first and its modules imported, so that what they register can be
    bound in the same recipe. Raises ValueError with what was found and the closest known names for an unknown recipe,
    configurable, parameter, macro or module.
    """
    text = resolved(recipes, bindings, search_paths, target)
    function = pkgutil.resolve_name(target)
    with _gin_errors(bindings):
        gin.finalize()
        arguments = gin.get_bindings(target)
    parameters = inspect.signature(function).parameters.values()
    if missing := sorted({p.name for p in parameters if p.default is p.empty} - arguments.keys()):
        names = ", ".join(f"{function.__name__}.{name}" for name in missing)
        raise ValueError(
            f"{', '.join(recipes)}: nothing binds {names}; include a whole recipe, as in include "
            f'"{EXAMPLES[target]}", and change what differs'
        )
    return functools.partial(function, **arguments, config_text=text)


def resolved(
    recipes: Sequence[str], bindings: Sequence[str], search_paths: Sequence[str] = (), target: str = TRAIN
) -> str:
    """Parses recipes and bindings: every binding that holds, as gin prints it. Raises what ``configure`` says."""
    if not recipes:
        raise ValueError(f"no recipe given: name one, as in --gin_file={EXAMPLES[target]}")
    register()
    _folders[:] = recipe_folders(search_paths)
    files = [str(find_recipe(name, _folders)) for name in recipes]
    gin.clear_config()
    texts = list(_texts(_parse(files, bindings, skip_unknown=True)))
    for name in dict.fromkeys([*_replaced_task_modules(texts), *_task_modules()]):
        import_tasks(name)
    gin.clear_config()
    parsed = _parse(files, bindings, skip_unknown=False)
    text = gin.config_str(max_line_length=120)
    given = [binding.split("=")[0].strip() for binding in bindings]
    _check_macros(text, given, _texts(parsed))
    _check_effect(text, given, target)
    _check_types()
    return text


def import_tasks(name: str):
    """Imports a module that registers seqio tasks: one of ours by its short name ("gettext") or any importable one."""
    from vmsst_jax import tasks

    ours = [module.name for module in pkgutil.iter_modules(tasks.__path__)]
    near = [*ours, *(module.name for module in pkgutil.iter_modules(["."]))]
    if name in ours:
        return importlib.import_module(f"vmsst_jax.tasks.{name}")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0] == name.split(".")[0]:
            raise ValueError(
                f"TASK_MODULES names {name!r}, and no such module can be imported{_suggest(name, near, '')} (a module "
                "of your own is found from the folder that holds it, or by PYTHONPATH)"
            ) from error
        raise


def _replaced_task_modules(texts: Iterable[str]) -> Iterator[str]:
    """Our own task modules that some file names: its bindings refer to them, also where a later file names others."""
    from vmsst_jax import tasks

    ours = {module.name for module in pkgutil.iter_modules(tasks.__path__)}
    for text in texts:
        for line in re.findall(r"^TASK_MODULES\s*=.*", text, re.MULTILINE):
            yield from (name for name in re.findall(r"[\"'](\w+)[\"']", line) if name in ours)


def _task_modules() -> Sequence[str]:
    try:
        names = gin.query_parameter("TASK_MODULES/macro.value")
    except ValueError:  # it is not set
        return ()
    if isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names):
        return names
    raise ValueError(f"""TASK_MODULES is {names!r}; wanted a list of module names, as in '["my_corpus"]'""")


@gin.config.register_file_reader(lambda name: find_recipe(name, _folders).is_file())
def _open_recipe(name: str):
    """How gin finds what a recipe includes, once it has looked in the current folder."""
    return open(find_recipe(name, _folders), encoding="utf-8")


def _parse(files: Sequence[str], bindings: Sequence[str], skip_unknown: bool):
    """Parses into gin's configuration; returns gin's record of the files and what they include."""
    logging.disable(logging.ERROR)  # gin logs an error when it doesn't find an include at the first place
    try:
        with _gin_errors(bindings):
            return gin.parse_config_files_and_bindings(
                files, bindings, skip_unknown=skip_unknown, finalize_config=False
            )
    finally:
        logging.disable(logging.NOTSET)


def _texts(parsed) -> Iterator[str]:
    """The texts of all files in gin's record."""
    for file in parsed:
        yield find_recipe(file.filename, _folders).read_text("utf-8")
        yield from _texts(file.includes)


def _check_macros(text: str, given: Sequence[str], recipes: Iterable[str]) -> None:
    """A macro that nothing reads is a misspelt one.

    If it was ``given`` on the command line, the configuration ``text`` must refer to it. In a recipe it is enough that
    some recipe does: a later one may have replaced what it was for.
    """
    reference = re.compile(r"%(\w[\w/]*)")
    used = set(reference.findall(text))
    mentioned = {name for recipe in recipes for name in reference.findall(recipe)}
    for name in re.findall(r"^(\w[\w/]*) =", text, re.MULTILINE):
        if name not in used and name not in FREE_MACROS and (name in given or name not in mentioned):
            raise ValueError(f"no recipe given here uses {name}{_suggest(name, used)}")


def _check_effect(text: str, given: Sequence[str], target: str) -> None:
    """A parameter ``given`` on the command line must belong to something that the configuration ``text`` refers to."""
    for key in given:
        owner = key.rpartition(".")[0]
        scope, _, name = owner.rpartition("/")
        item = gin.config._REGISTRY.get_match(name) if name else None
        if item is None or item.selector == target or not item.selector.startswith("vmsst_jax."):
            continue  # a macro, or a setting that a task module reads by itself
        within = re.escape(scope + "/") if scope else r"(?:[\w.]+/)*"
        if not re.search(rf"@{within}(?:\w+\.)*{item.name}\b", text):
            raise ValueError(f"{key} changes nothing: no recipe given here uses {owner}")


def _check_types() -> None:
    """Every value must be of the type that its parameter is annotated with, as ``checks.of_type`` sees it."""
    bound, reference = gin.config._CONFIG, gin.config.ConfigurableReference
    for (scope, selector), settings in bound.items():
        if selector.startswith("gin."):
            continue
        item = gin.config._REGISTRY.get_match(selector)
        parameters = inspect.signature(item.wrapped).parameters
        for name, value in settings.items():
            while isinstance(value, reference) and (value.scoped_selector.rpartition("/")[0], MACRO) in bound:
                value = bound[value.scoped_selector.rpartition("/")[0], MACRO]["value"]
            parameter = parameters.get(name)
            if parameter is None or parameter.annotation is parameter.empty or isinstance(value, reference):
                continue
            annotation = parameter.annotation
            annotation = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
            checks.of_type(f"{scope}/{item.name}.{name}".lstrip("/"), value, annotation)


@contextlib.contextmanager
def _gin_errors(bindings: Sequence[str]):
    """What gin raises while it reads a configuration comes out as a ValueError that says where, and what is meant."""
    try:
        yield
    except SyntaxError as error:
        code = error.text or "\n".join(bindings).splitlines()[error.lineno - 1]
        raise ValueError(f"{_place(error.filename, error.lineno, code)}: {_HOW_TO_WRITE}") from error
    except tokenize.TokenError as error:
        raise ValueError(f"a bracket or quotation mark is never closed; {_HOW_TO_WRITE}") from error
    except (ValueError, ImportError, KeyError, TypeError) as error:
        message = _explained(str(error))
        if message is None:
            raise
        raise ValueError(message) from error


_HOW_TO_WRITE = (
    """can't be read; wanted NAME = VALUE, text in quotes (on a command line '"like this"'), True, False or None """
    "with a capital"
)


def _explained(text: str) -> str | None:
    """gin's error message in our words; None if it isn't one of gin's."""
    if macro := re.match(r"No bindings specified for '(.+)/gin.macro'", text):
        return f"the recipe needs {macro[1]}: give it by --gin.{macro[1]}=VALUE, text as '\"...\"'"
    if called := re.search(r"\n  In call to configurable '(\w+)'", text):
        if absent := re.search(r"No values supplied by Gin or caller for arguments: (\[.*\])", text):
            return f"nothing binds {', '.join(f'{called[1]}.{name}' for name in ast.literal_eval(absent[1]))}"
        what, scope = text[: called.start()], re.search(r" in scope '(.+?)'", text[called.start() :])
        if what.startswith(f"{called[1]}."):  # it names the setting: as the recipe does, then
            return f"{scope[1]}/{what}" if scope else what
        return f"{called[1]}: {what}"
    if "\n  In " not in text:
        return None
    # The innermost place comes first: "what / In file F, line N / code / In ...".
    what, place, *_ = text.split("\n  In ")
    file = re.match(r'file "(.+)", line (\d+)', place)
    where = _place(*file.groups(), "") if file else _place(None, 0, place.splitlines()[1])
    what = what.strip(' ".')
    return f"{where}: {what}{_closest(what)}"


def _place(file: str | None, line: int, code: str) -> str:
    return f"{file}, line {line}" if file else f"binding {code.strip()!r}"


def _closest(what: str) -> str:
    """The end of a message for the name that gin says it doesn't know."""
    # gin has no public list of what is registered.
    registry = gin.config._REGISTRY
    if match := re.search(r"No configurable matching (?:reference )?'@?(?:\w+/)*([\w.]+)", what):
        known = {registry.minimal_selector(selector) for selector, _ in registry.items()}
        return _suggest(match[1], known, "; settings of tasks are known once TASK_MODULES names their module")
    if match := re.search(r"Configurable '([\w.]+)' doesn't have a parameter named '(\w+)'", what):
        return _suggest(match[2], inspect.signature(registry.get_match(match[1]).wrapped).parameters)
    return "; write more of its module's name" if "Ambiguous selector" in what else ""


def _suggest(name: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """The end of a message: the ``known`` names closest to ``name``, else ``otherwise`` or all of them."""
    spelling = {k.lower(): k for k in sorted(known)}
    close = difflib.get_close_matches(name.lower(), spelling, n=3, cutoff=0.6)
    if close:
        return f"; did you mean {' or '.join(spelling[k] for k in close)}?"
    return f"; known are {', '.join(spelling.values())}" if otherwise is None else otherwise
