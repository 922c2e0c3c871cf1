"""Words of a sentence, cut the same way for training vectors, weighing, embedding and translating.

A token is a run of letters, marks and digits of any script (Python's ``\\w`` leaves out the vowel signs of Indic and
Thai), or any other single character that is not white space: ``l'été, 3.5!`` is ``l ' été , 3 . 5 !``. Text is brought
to Unicode's form NFC first. For scripts that don't put spaces between words, text to train on has to be cut by another
tool; when vectors are looked up, an unknown run of such letters is cut into known words, the longest first.
"""

from __future__ import annotations

import functools
import re
import sys
import unicodedata

# Joiners inside words of Arabic and Indic scripts.
JOINERS = "\u200c\u200d"
# Thai and Lao, Burmese, Khmer, kana, Chinese characters.
UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
# Characters of a word of theirs at most.
LONGEST = 12


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


def find_all(rows: dict[str, int], token: str) -> list[int]:
    """The row of a word as a list; of an unknown one that may be several (see above), theirs; [] if none is known."""
    if (row := find(rows, token)) is not None:
        return [row]
    found, start = [], 0
    while start < len(token) and UNSPACED.search(token):
        known = ((find(rows, token[start:end]), end) for end in range(min(len(token), start + LONGEST), start, -1))
        row, start = next(((row, end) for row, end in known if row is not None), (None, start + 1))
        found += [] if row is None else [row]
    return found
