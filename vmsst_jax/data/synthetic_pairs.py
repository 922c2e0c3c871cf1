"""The parallel set that translating leaves: originals beside their translations, for the task ``synthetic_pairs``."""

from __future__ import annotations

import filecmp
import os
from collections.abc import Iterable
from pathlib import Path

from vmsst_jax import disk


def write(
    path: str | os.PathLike,
    originals: Iterable[str],
    translations: Iterable[str],
    languages: tuple[str, str],
    origin: str | os.PathLike,
    *,
    overwrite: bool = False,
) -> int:
    """Writes the languages of original and translation, original and translation between tabs, a line for every pair.

    Pairs of which a side has no text are left out. A file that has these contents already is left alone.

    Args:
      path: of the file, replaced whole or not at all.
      originals, translations: as many lines each.
      languages: codes of the originals and of the translations.
      origin: the file of the originals, for messages.
      overwrite: replace a file with other contents.

    Returns:
      The number of pairs.

    Raises:
      ValueError: there is no pair. FileExistsError: the file exists and has other contents.
    """
    path = Path(path)
    draft = path.with_name(path.name + ".new")
    rows = count = 0
    with disk.writing(path):
        with open(draft, "w", encoding="utf-8", newline="\n") as out:
            for original, translation in zip(originals, translations, strict=True):
                original, translation = (" ".join(text.split()) for text in (original, translation))
                rows += 1
                if original and translation:
                    count += 1
                    out.write("\t".join((*languages, original, translation)) + "\n")
            out.flush()
            os.fsync(out.fileno())
        if not count:
            draft.unlink()
            raise ValueError(
                f"{origin}: of its {rows:,} lines none has both text and a translation, so there are no pairs to "
                "write; is the model trained?"
            )
        if path.exists() and not overwrite and not filecmp.cmp(path, draft, shallow=False):
            draft.unlink()
            raise FileExistsError(f"{path} exists and has other pairs; use --overwrite to replace it, or another name")
        os.replace(draft, path)
    return count
