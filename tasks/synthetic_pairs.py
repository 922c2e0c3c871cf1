"""Registers `synthetic_pairs`: parallel text that `python -m vmsst_jax.translate --pairs=FILE.tsv` has written.

The setting `synthetic_pairs.files` names such files, by a path, a glob pattern or a list of them. A line has four
columns between tabs: the language of the original, the language of its translation, the original, the translation.
Translations in both directions, of other originals each, go together into one set. `synthetic_pairs.limit` takes only
so many pairs of each file. There is one split, "train". Importing this module opens no file.
"""

import itertools

import gin

from vmsst_jax.data.text_pairs import TRAIN, CorpusError, LineFile, expand, hash62, outlines
from vmsst_jax.tasks import sources

COLUMNS = ("source_lang", "target_lang", "source", "target")


@gin.configurable("synthetic_pairs", module="tasks")
def settings(files=None, limit: int | None = None) -> dict:
    """Which files, and how many pairs of each; bound as `synthetic_pairs.files` and `synthetic_pairs.limit`."""
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise CorpusError(f"synthetic_pairs.limit is {limit!r}; wanted a whole number of 1 or more, or None for all")
    if not files:
        raise CorpusError(
            "no pairs: bind synthetic_pairs.files to what vmsst_jax.translate wrote with --pairs, such as "
            "--gin.synthetic_pairs.files='\"pairs/*.tsv\"'"
        )
    if not isinstance(files, str | list | tuple) or not all(isinstance(file, str) for file in files):
        raise CorpusError(f"synthetic_pairs.files is {files!r}; wanted a path, a pattern, or a list of them")
    if len(set(found := expand(files))) < len(found):
        raise CorpusError(f"synthetic_pairs.files names a file twice: {', '.join(map(str, found))}")
    return {"files": found, "limit": limit}


def read() -> dict[str, list[dict]]:
    """The examples of all files.

    Raises:
      CorpusError: no files are named or there are none, a line has other columns or isn't UTF-8, or there is no pair.
    """
    found, examples = settings(), []
    files = found["files"]
    for file in map(LineFile, files):
        for number, line in enumerate(itertools.islice(file.lines(), found["limit"]), 1):
            try:
                fields = [field.strip() for field in line.decode().split("\t")]
            except UnicodeDecodeError as error:
                raise CorpusError(f"{file}, line {number}: not valid UTF-8 ({error.reason})") from None
            if len(fields) != len(COLUMNS) or not all(fields):
                raise CorpusError(f"{file}, line {number}: wanted {len(COLUMNS)} columns with text, found {fields}")
            examples.append(dict(zip(COLUMNS, fields, strict=True)) | {"pair_id": hash62(line)})
    if not examples:
        raise CorpusError(f"{', '.join(map(str, files))}: no pair of sentences in there; wanted lines of {COLUMNS}")
    return {TRAIN: examples}


def _made_from() -> dict:
    found = settings()
    return {"synthetic_pairs.limit": found["limit"], "files": outlines(found["files"])}


sources.add_task("synthetic_pairs", sources.MemorySource(read, (TRAIN,)), _made_from)
