"""What is left of a line of a corpus: its text normalised, the rules that drop it, the sentences of test sets."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np

from vmsst_jax import checks
from vmsst_jax.data.text_pairs import CorpusError, LineFile, hash62

# Control characters but for those that str.split takes for white space, and byte-order marks inside the text.
_CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ufeff]")
# Characters added to both lengths before they are compared: among short sentences any ratio is possible.
SLACK = 10


def clean(text: str) -> str:
    """The text in NFC, without control characters, with single spaces for all white space, none around it."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    if not text.isprintable():
        text = _CONTROL.sub("", text)
    return " ".join(text.split())


class _Letters(dict):
    """For str.translate: drops what is neither letter, mark nor number; filled as characters are met."""

    def __missing__(self, code: int) -> int | None:
        # Format characters (C) as well: a zero-width space or a soft hyphen is no difference.
        self[code] = code if unicodedata.category(chr(code))[0] in "LMN" else None
        return self[code]


_LETTERS = _Letters()


def match_key(text: str) -> str:
    """What two texts share that are the same sentence: NFKC, no case, no punctuation, no space (METHODS 2.9).

    A text of nothing but punctuation is its own key.
    """
    if text.isascii():
        return text.lower().translate(_LETTERS) or text
    letters = unicodedata.normalize("NFKC", text).casefold().translate(_LETTERS)
    # Letters and marks meet that something stood between.
    return unicodedata.normalize("NFKC", letters) or text


class TestSentences:
    """Sentences that must not be trained on, as a set of hashes of their keys: some 60 bytes of memory for each.

    Another sentence is taken for one of them with a probability of their number / 2**62.
    """

    __test__ = False  # nothing for pytest to collect

    def __init__(self, hashes: Iterable[int] = ()):
        self._hashes = frozenset(hashes)

    @classmethod
    def read(cls, paths: Sequence[str]) -> TestSentences:
        """From text files, plain or `.gz`, one sentence a line; of a tab-separated line every field is one.

        Raises:
          CorpusError: a file can't be read, is not UTF-8, or has no text.
        """
        hashes = set()
        for file in map(LineFile, paths):
            found = False
            for number, line in enumerate(file.lines(), 1):
                try:
                    fields = [text for field in line.decode().split("\t") if (text := clean(field))]
                except UnicodeDecodeError as error:
                    raise CorpusError(f"{file}, line {number}: not valid UTF-8 ({error.reason})") from None
                hashes.update(hash62(match_key(text).encode()) for text in fields)
                found = found or bool(fields)
            if not found:
                raise CorpusError(f"{file}: no test sentence in there; wanted one a line")
        return cls(hashes)

    @property
    def array(self) -> np.ndarray:
        """The hashes, sorted: int64 [number of distinct sentences]."""
        return np.sort(np.fromiter(self._hashes, np.int64, len(self._hashes)))

    def describe(self) -> dict:
        """{"sentences": how many, "sha256": of their hashes}."""
        return {"sentences": len(self._hashes), "sha256": hashlib.sha256(self.array.tobytes()).hexdigest()}

    def __contains__(self, text: str) -> bool:
        return hash62(match_key(text).encode()) in self._hashes

    def __bool__(self) -> bool:
        return bool(self._hashes)


@dataclasses.dataclass(frozen=True)
class PairRules:
    """Which pairs are dropped, in this order.

    Attributes:
      max_characters: of the longer side.
      max_ratio: of the sides' lengths in characters, SLACK added to both.
    """

    max_characters: int = 1000
    max_ratio: float = 6.0

    def __post_init__(self):
        checks.whole("max_characters", self.max_characters)
        checks.number("max_ratio", self.max_ratio, 1)

    def outcome(self, source: str, target: str, tests: TestSentences) -> str:
        """Of two clean texts: "empty", "identical", "long", "ratio" or "test", or "" for a pair that stays."""
        if not source or not target:
            return "empty"
        if source == target:
            return "identical"
        short, long = sorted((len(source), len(target)))
        if long > self.max_characters:
            return "long"
        if long + SLACK > self.max_ratio * (short + SLACK):
            return "ratio"
        return "test" if source in tests or target in tests else ""
