"""Words of a sentence, cut the same way for training vectors, weighing, embedding and translating.

A token is a run of letters, marks and digits of any script (Python's ``\\w`` leaves out the vowel signs of Indic and
Thai), or any other single character that is not white space: ``l'été, 3.5!`` is ``l ' été , 3 . 5 !``. Text is brought
to Unicode's form NFC first. Scripts that don't put spaces between words have to be cut by another tool before.
"""

from __future__ import annotations

import functools
import re
import sys
import unicodedata

# Joiners inside words of Arabic and Indic scripts.
JOINERS = "\u200c\u200d"


@functools.cache
def pattern() -> re.Pattern[str]:
    """Matches one token of a text in form NFC."""
    marks = "".join(c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c)[0] == "M")
    return re.compile(f"(?:[^\\W_]|[{marks}{JOINERS}])+|\\S")


def tokenize(text: str, lower: bool = True) -> list[str]:
    """The tokens of a sentence, lower-cased unless ``lower`` is False."""
    text = unicodedata.normalize("NFC", text)
    return pattern().findall(text.lower() if lower else text)


def has_letter(token: str) -> bool:
    """Whether a token is a word, not a number or a mark of punctuation."""
    return any(character.isalpha() for character in token)


def find(rows: dict[str, int], token: str) -> int | None:
    """The row of a word as it is written, or else lower-cased; None where neither is known."""
    row = rows.get(token)
    return rows.get(token.lower()) if row is None else row
