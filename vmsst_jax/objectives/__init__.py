"""Objectives: plain functions (bound module, batch, step, key, train, *, options) -> (loss, metrics).

They know no configuration, mesh or file, and of the model only the methods that ``needs`` names. A recipe fixes their
options with ``configured``; the functions below read them back.
"""

from __future__ import annotations

import functools
import inspect


def configured(function):
    """A factory for recipes: called with options of ``function``, it returns ``function`` with these options fixed."""

    def factory(**options):
        return functools.partial(function, **options)

    own = [p for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    factory.__name__, factory.__doc__, factory.__module__ = function.__name__, function.__doc__, function.__module__
    factory.__signature__ = inspect.Signature(own)
    return factory


def _function(objective):
    return objective.func if isinstance(objective, functools.partial) else objective


def name(objective) -> str:
    """The objective's name, for messages."""
    return _function(objective).__name__


def options(objective) -> dict:
    """All options with their values, defaults included."""
    parameters = inspect.signature(_function(objective)).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    return defaults | getattr(objective, "keywords", {})


def check_model(objective, module) -> None:
    """Raises ValueError where ``module`` lacks one of the methods that the objective's function names in ``needs``, or
    where its ``check`` (module, options) does."""
    missing = [need for need in getattr(_function(objective), "needs", ()) if not hasattr(type(module), need)]
    if missing:
        kind = getattr(module, "kind", type(module).__name__)
        raise ValueError(
            f"the objective {name(objective)} needs {', '.join(missing)}, which a model of kind {kind!r} has not: set "
            "model.kind to the kind that goes with the objective, or take the kind's own objective"
        )
    if check := getattr(_function(objective), "check", None):
        check(module, options(objective))


def check_batch(objective, module, shapes, devices: int) -> None:
    """Raises ValueError where the function's ``check_batch`` (module, shapes, devices) does: for batches of the
    ``shapes`` that this function gives, if it can't take them with ``module`` or on so many devices."""
    if check := getattr(_function(objective), "check_batch", None):
        check(module, shapes(), devices)


def needs_whole_batch(objective) -> bool:
    """Whether the loss is not a mean over pairs (in-batch negatives), so that micro-batches would change it."""
    return getattr(_function(objective), "needs_whole_batch", False)
