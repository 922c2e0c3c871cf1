"""Values of benchmarks' options as they come from a command line: of the type that the benchmark declares."""

from __future__ import annotations

import collections.abc
import inspect
import os
import types
import typing
from collections.abc import Callable

WORDS = {int: "a whole number", float: "a number", str: "text", bool: "True or False", types.NoneType: "None"}
SEQUENCES = (collections.abc.Sequence, collections.abc.Collection, list, tuple)


def types_of(evaluate: Callable) -> dict[str, object]:
    """{option: its declared type} of a benchmark's ``evaluate``, those of a shared ``TypedDict`` among them."""
    hints, found = typing.get_type_hints(evaluate), {}
    for parameter in inspect.signature(evaluate).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY:
            found[parameter.name] = hints.get(parameter.name, object)
        elif parameter.kind is parameter.VAR_KEYWORD:
            (shared,) = typing.get_args(hints[parameter.name])
            found |= typing.get_type_hints(shared)
    return found


def fitted(name: str, value: object, wanted: object) -> object:
    """``value`` where the option ``name`` is ``wanted``; a single one or "a,b" where that is a sequence.

    Raises:
      ValueError: it is of another type.
    """
    kinds = _kinds(wanted)
    if any(_is(value, kind) for kind in kinds):
        return value
    for kind in kinds:
        if typing.get_origin(kind) in SEQUENCES and isinstance(value, str | int | float):
            parts = [part.strip() for part in value.split(",")] if isinstance(value, str) else [value]
            if _is(parts, kind):
                return parts
    raise ValueError(f"the option {name} is {value!r}; wanted {' or '.join(map(_words, kinds)).removesuffix(',')}")


def _words(kind) -> str:
    """A type as a user would say it."""
    if typing.get_origin(kind) in SEQUENCES:
        inner = [a for a in typing.get_args(kind) if a is not Ellipsis]
        if typing.get_origin(kind) is tuple and Ellipsis not in typing.get_args(kind):
            return f"{len(inner)} values between commas ({', '.join(map(_words, inner))})"
        return f"{_words(inner[0])} or several, as in A,B," if inner else "several, as in A,B"
    return WORDS.get(kind) or getattr(kind, "__name__", str(kind))


def _kinds(wanted) -> tuple:
    """The members of a union; any other type alone."""
    return typing.get_args(wanted) if typing.get_origin(wanted) in (typing.Union, types.UnionType) else (wanted,)


def _is(value, kind) -> bool:
    origin, inner = typing.get_origin(kind), [a for a in typing.get_args(kind) if a is not Ellipsis]
    if origin in SEQUENCES:
        if not isinstance(value, list | tuple):
            return False
        if origin is tuple and Ellipsis not in typing.get_args(kind):
            return len(value) == len(inner) and all(map(_is, value, inner))
        return all(any(_is(item, each) for each in inner) for item in value) if inner else True
    if origin is not None or not isinstance(kind, type):
        return True  # nothing simple: the benchmark looks itself
    if kind in (int, float):
        return isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
    return isinstance(value, str) if kind is os.PathLike else isinstance(value, kind)
