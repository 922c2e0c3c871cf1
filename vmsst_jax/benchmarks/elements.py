"""HTML built as a tree, so that no text can be taken for markup; numbers as tables show them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

NOTHING = "–"


def el(tag: str, *children, **attributes) -> Element:
    """An element with text and elements inside; nested lists are flattened and None is left out.

    Attributes: ``class_`` stands for "class" and ``aria_label`` for "aria-label"; None leaves one out, True gives an
    empty value.
    """
    names = {name: name.rstrip("_").replace("_", "-") for name in attributes}
    given = {names[k]: "" if v is True else str(v) for k, v in attributes.items() if v is not None}
    element = Element(tag, given)
    for child in _flat(children):
        if isinstance(child, Element):
            element.append(child)
        elif len(element):
            element[-1].tail = (element[-1].tail or "") + str(child)
        else:
            element.text = (element.text or "") + str(child)
    return element


def _flat(children: Iterable) -> Iterable:
    for child in children:
        if isinstance(child, list | tuple):
            yield from _flat(child)
        elif child is not None:
            yield child


def markup(element: Element) -> str:
    """The element as HTML; what <style> and <script> hold is written as it is."""
    return ElementTree.tostring(element, encoding="unicode", method="html")


def name(text: str) -> Element:
    """A name that somebody else chose: its own direction of writing doesn't spread to what stands beside it."""
    return el("bdi", text)


def percent(share: float | None) -> str:
    """A share of 1 times 100 with one decimal, as the console's tables have it; a dash for None."""
    return NOTHING if share is None else _minus(f"{100 * share:.1f}")


def difference(share: float | None) -> str:
    """Like ``percent``, with its sign."""
    return NOTHING if share is None else _minus(f"{100 * share:+.1f}")


def decimal(value: float | None) -> str:
    """A number that is no share, with 3 decimals."""
    return NOTHING if value is None else _minus(f"{value:.3f}")


def plain(value: object) -> str:
    """Any value of a result but a share: counts with commas, other numbers with 4 digits."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return _minus(f"{value:,}")
    return _minus(f"{value:.4g}") if isinstance(value, float) else str(value)


def is_number(value: object) -> bool:
    """Whether it is a finite number; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _minus(text: str) -> str:
    zero = not text.strip("+-0.")
    return text.lstrip("+-") if zero else text.replace("-", "−")
