"""Registers `opus_92`: the paper's 92 languages of OPUS, one task per language and pivot, mixed by amount.

`opus_4` is the part of it that holds only Arabic, English, Spanish and Turkish, for the paper's study with a stack per
language.

What is mixed comes from the table `opus_92.tsv` (languages, pivots, amounts, corpora, file patterns); its header says
what in it is certain. The files lie under the gin setting `opus.data_root`, as vmsst_jax.prepare makes them (cleaned,
de-duplicated, test sentences removed, shuffled): tab-separated, the pivot text first, the other language second.
Importing this module opens none of them.

Another table makes another mixture, from a module of your own:

    from vmsst_jax.tasks import opus
    opus.register_table("opus_mine", "/path/to/my_table.tsv")
"""

import os
from collections.abc import Sequence

import gin
import seqio

from vmsst_jax.tasks import parallel, tables

TABLE = os.path.join(os.path.dirname(__file__), "opus_92.tsv")
_COLUMNS = ("language", "pivot", "thousand_pairs", "corpora", "files")


@gin.configurable("opus", module="tasks")
def settings(data_root: str | None = None) -> dict:
    """Where the prepared corpora lie; bound as `opus.data_root`."""
    return {"data_root": data_root}


@gin.register("languages", module="tasks.opus")
def languages(table: str = TABLE) -> tuple[str, ...]:
    """The sorted codes of all languages in the table, pivots included: 92 for `opus_92`.

    In a recipe: `@opus.languages()`.
    """
    rows = tables.read_table(table, _COLUMNS, "thousand_pairs")
    return tuple(sorted({row["language"] for row in rows} | {row["pivot"] for row in rows}))


def register_table(name: str, table: str, only: Sequence[str] | None = None) -> seqio.Mixture:
    """Registers one task per row of `table`, `<name>_<pivot>_<language>`, and the mixture `name` of them all.

    With `only`, a list of codes, rows with another language on either side are left out.

    The rates are the amounts, so that sampling is uniform over the pairs that the table counts. A pattern that
    matches no file below the data root is an error when the mixture is first read, and names the pattern.

    Raises:
      CorpusError: the table is malformed.
    """
    rates = []
    for row in tables.read_table(table, _COLUMNS, "thousand_pairs"):
        if only is not None and not {row["pivot"], row["language"]} <= set(only):
            continue
        task = f"{name}_{row['pivot']}_{row['language']}"
        files = _Files(row["files"])
        parallel.register_tsv(task, files, languages=(row["pivot"], row["language"]), pivot=row["pivot"], stream=True)
        rates.append((task, row["thousand_pairs"]))
    return seqio.MixtureRegistry.add(name, rates)


class _Files(os.PathLike):
    """A path that is joined to the data root only when it is used, since gin bindings come after registration."""

    def __init__(self, pattern: str):
        self._pattern = pattern

    def __fspath__(self) -> str:
        return tables.under_root(settings()["data_root"], self._pattern, "opus.data_root")


register_table("opus_92", TABLE)
register_table("opus_4", TABLE, only=("ar", "en", "es", "tr"))
