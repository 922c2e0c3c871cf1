"""Checks of settings: one-line ValueErrors that say which setting was given what, and what is wanted."""

from __future__ import annotations

import math
import numbers
import re


def whole(name: str, value, least: int = 1) -> None:
    """Raises ValueError unless ``value`` is a whole number of at least ``least`` (NumPy's integers count, bools don't).

    ``name`` is the setting as a recipe writes it, such as "T5Config.num_heads".
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise ValueError(f"{name} is {value!r}; wanted a whole number of {least} or more")


def number(name: str, value, least: float = 0.0, *, below: float = math.inf) -> None:
    """Raises ValueError unless ``value`` is a real number, ``least`` <= value < ``below``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not least <= value < below:
        end = "or more" if below == math.inf else f"or more and below {below:g}"
        raise ValueError(f"{name} is {value!r}; wanted a number of {least:g} {end}")


def patterns(name: str, values) -> None:
    """Raises ValueError unless ``values`` is a sequence of regular expressions."""
    if isinstance(values, str):
        raise ValueError(f"{name} is {values!r}; wanted regular expressions in brackets, as in ('head/.*',)")
    for value in values:
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(
                f"{name}: {value!r} is no regular expression ({error}); put \\ before what stands for itself"
            ) from None


def pattern(name: str, value) -> None:
    """Raises ValueError unless ``value`` is a regular expression whose first group is a part of all that it matches."""
    if not isinstance(value, str):
        raise ValueError(f"{name} is {value!r}; wanted a regular expression in quotes")
    patterns(name, [value])
    if not re.compile(value).groups:
        raise ValueError(f"{name} {value!r} has no group; wanted brackets around the part that counts, as in '(.+):.*'")


def positive(name: str, value) -> None:
    """Raises ValueError unless ``value`` is a finite real number above 0."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 < value < math.inf:
        raise ValueError(f"{name} is {value!r}; wanted a number above 0")


def wholes(name: str, values, least: int = 1) -> tuple[int, ...]:
    """``values`` as a tuple of ints. Raises ValueError unless it is a sequence of whole numbers from ``least`` on."""
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise ValueError(f"{name} is {values!r}; wanted whole numbers of {least} or more in brackets, as in (8, 16)")
    values = tuple(values)
    for value in values:
        whole(f"an entry of {name}", value, least)
    return tuple(int(value) for value in values)


def of_type(name: str, value, annotation: str) -> None:
    """Raises ValueError where ``value`` can't be meant for a parameter with this ``annotation``.

    ``annotation`` is as it is written in code: "bool", "str | None", "Sequence[str]". Of numbers only the kind is
    looked at, and forms other than those in ``FORMS`` are left to who uses the value.
    """
    forms = annotation.replace("collections.abc.", "").split(" | ")
    if all(form in FORMS for form in forms) and not any(FORMS[form][0](value) for form in forms):
        raise ValueError(f"{name} is {value!r}; wanted {' or '.join(dict.fromkeys(FORMS[form][1] for form in forms))}")


def _is_number(value) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _is_text_list(value) -> bool:
    return isinstance(value, list | tuple) and not any(_is_number(v) or isinstance(v, bool) or v is None for v in value)


_TEXTS = (_is_text_list, "a list of texts, as in ['en', 'fr']")
# How a type is written -> (what fits it, how that is called).
FORMS = {
    "bool": (lambda value: isinstance(value, bool), "True or False"),
    "int": (_is_number, "a number"),
    "float": (_is_number, "a number"),
    "str": (lambda value: isinstance(value, str), "text in quotes"),
    "None": (lambda value: value is None, "None"),
    **dict.fromkeys(("Sequence[str]", "list[str]", "tuple[str, ...]"), _TEXTS),
}
