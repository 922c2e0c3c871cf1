"""The language table: codes to the dense integer ids that models, banks and routing use."""

import difflib
from collections.abc import Iterable


class Languages:
    """An ordered table of language codes; the position of a code is its id.

    The table is saved with every checkpoint: an embedding row or an encoder belongs to an id, so the order must never
    change under a trained model.

    >>> table = Languages(["en", "de"])
    >>> table.id("de"), len(table), table.codes
    (1, 2, ('en', 'de'))
    """

    def __init__(self, codes: Iterable[str]):
        """Makes the table in the order of `codes`.

        Raises:
          ValueError: no codes, a code twice, or one that is empty, has white space around it, could be part of a path,
            or is no string; or `codes` is one string (its letters would become languages) or no sequence.
        """
        if isinstance(codes, str) or not isinstance(codes, Iterable):
            what = "one string" if isinstance(codes, str) else f"a {type(codes).__name__}"
            raise ValueError(f"the languages are {codes!r}, {what}; wanted a list of codes, such as ['en', 'de']")
        self._codes = tuple(codes)
        if not self._codes:
            raise ValueError("a language table needs at least one code, found none")
        for code in self._codes:
            if not isinstance(code, str):
                raise ValueError(f"language codes are strings, found {code!r} of type {type(code).__name__}")
            if not code or code != code.strip():
                raise ValueError(f"language code {code!r} is empty or has white space around it")
            # Codes come from corpora and checkpoints and are used in file names.
            if not code.isprintable() or code.startswith(".") or set(code) & set("/\\"):
                raise ValueError(
                    f"language code {code!r} could be part of a path; wanted letters and digits, as in pt_BR"
                )
        self._ids = {code: i for i, code in enumerate(self._codes)}
        if len(self._ids) != len(self._codes):
            twice = sorted({code for code in self._codes if self._codes.count(code) > 1})
            raise ValueError(f"language codes occur twice in one table: {', '.join(twice)}; give each once")

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes in id order."""
        return self._codes

    def id(self, code: str) -> int:
        """Returns the id of `code`, 0 <= id < len(self).

        Raises:
          ValueError: the code is not in the table; the message lists the known ones and the closest.
        """
        try:
            return self._ids[code]
        except KeyError:
            pass
        close = difflib.get_close_matches(str(code), self._codes, n=3, cutoff=0.5)
        raise ValueError(
            f"unknown language {code!r}"
            + (f", closest: {', '.join(close)}" if close else "")
            + f"; the table's {len(self)} languages are: {', '.join(self._codes)}. "
            "Correct the code in the corpus, or start a run whose language table holds it"
        )

    def __len__(self) -> int:
        return len(self._codes)

    def __repr__(self) -> str:
        return f"Languages({list(self._codes)!r})"
