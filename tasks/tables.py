"""Reads the data tables of the large mixtures: tab-separated, `#` comments, a line of column names first."""

import glob
import math
import os
from collections.abc import Iterator

from vmsst_jax.data.text_pairs import CorpusError


def read_table(path: str, columns: tuple[str, ...], amount: str) -> list[dict]:
    """Reads the table at `path`, which must have exactly these `columns`; returns one dict per row.

    Values are strings, except for the column `amount`: a finite float above 0.

    Raises:
      CorpusError: not UTF-8, other columns, a row of another length, an amount that is none, or no rows; with file and
        line.
    """
    rows, header = [], None
    for number, line in _lines(path):
        if not line.strip() or line.startswith("#"):
            continue
        fields = tuple(field.strip() for field in line.split("\t"))
        if header is None:
            header = fields
            if header != columns:
                raise CorpusError(f"{path}, line {number}: wanted the columns {columns}, found {header}")
            continue
        if len(fields) != len(columns):
            raise CorpusError(f"{path}, line {number}: wanted {len(columns)} columns, found {len(fields)}")
        row = dict(zip(columns, fields, strict=True))
        try:
            row[amount] = float(row[amount])
        except ValueError:
            row[amount] = 0.0
        if not 0 < row[amount] < math.inf:
            raise CorpusError(f"{path}, line {number}: {amount} is a number above 0, found {fields}")
        rows.append(row)
    if not rows:
        raise CorpusError(f"{path}: a table without rows; wanted a line of column names, then one line per task")
    return rows


def _lines(path: str) -> Iterator[tuple[int, str]]:
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield number, line.decode().rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise CorpusError(
                    f"{path}, line {number}: not valid UTF-8 ({error.reason}); save the table as UTF-8"
                ) from None


def under_root(root: str | None, pattern: str, setting: str) -> str:
    """Joins the data root and a table's file pattern.

    Raises:
      CorpusError: no root is set, it is no folder, or nothing there matches; the message names the gin `setting`.
    """
    if not root:
        raise CorpusError(
            f"no data root: bind {setting} to the folder that holds the prepared corpora, such as "
            f"--gin.{setting}='\"/data\"'; vmsst_jax.prepare makes it"
        )
    root = os.path.expanduser(root)
    if not os.path.isdir(root):
        raise CorpusError(f"{setting} = {root!r} is no folder; it should hold the prepared corpora, such as {pattern}")
    path = os.path.join(root, pattern)
    if not glob.glob(path):
        raise CorpusError(
            f"{path}: no such file under {setting}; put the prepared corpus there (vmsst_jax.prepare makes it) or "
            "register a table without it"
        )
    return path
