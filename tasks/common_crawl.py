"""Registers `cc_108`: Common Crawl documents in 108 languages, one task per language, mixed by n ** 0.3; and, of two of
them, `cc_en_fr`.

What is mixed comes from the table `common_crawl_108.tsv` (languages, amounts, file patterns); its header says where
they come from. The files lie under the gin setting `common_crawl.data_root`, as vmsst_jax.prepare makes them (cleaned,
split into sentences, shuffled): one document a line, its sentences separated by tabs, plain or `.gz`. Importing this
module opens none of them. An example is

    {"text": str (one sentence a line), "lang": str, "document_id": int64 (a hash of language and text)}
"""

import os

import gin
import seqio
import tensorflow as tf

from vmsst_jax.data.text_pairs import TRAIN, expand
from vmsst_jax.tasks import sources, tables

TABLE = os.path.join(os.path.dirname(__file__), "common_crawl_108.tsv")
_COLUMNS = ("language", "megabytes", "files")
# Documents are some kilobytes each and 108 such buffers are in memory and in every checkpoint.
_SHUFFLE_WINDOW = 64


@gin.configurable("common_crawl", module="tasks")
def settings(data_root: str | None = None, exponent: float = 0.3) -> dict:
    """Where the documents lie, and the exponent of the sampling rates; bound as `common_crawl.data_root` etc."""
    return {"data_root": data_root, "exponent": exponent}


@gin.register("languages", module="tasks.common_crawl")
def languages(table: str = TABLE) -> tuple[str, ...]:
    """The sorted codes of all languages in the table: 108 for `cc_108`. In a recipe: `@common_crawl.languages()`."""
    return tuple(sorted(row["language"] for row in tables.read_table(table, _COLUMNS, "megabytes")))


def register_table(name: str, table: str) -> seqio.Mixture:
    """Registers one task per row of `table`, `<name>_<language>`, and the mixture `name` of them all.

    The rate of a language is megabytes ** exponent. A pattern that matches no file below the data root is an error
    when the mixture is first read, and names the pattern.

    Raises:
      CorpusError: the table is malformed.
    """
    rates = []
    for row in tables.read_table(table, _COLUMNS, "megabytes"):
        task = f"{name}_{row['language']}"
        seqio.TaskRegistry.add(
            task,
            source=_DocumentSource(row["files"]),
            preprocessors=[_document(row["language"])],
            output_features=sources.text_features(["text", "lang"], ["document_id"]),
            shuffle_buffer_size=_SHUFFLE_WINDOW,
        )
        rates.append((task, _rate(row["megabytes"])))
    return seqio.MixtureRegistry.add(name, rates)


def _rate(megabytes: float):
    return lambda task: megabytes ** settings()["exponent"]


def _document(language: str):
    """Makes the preprocessor line -> example."""

    def convert(line):
        key = tf.strings.join([language, line], "\0")
        text = tf.strings.regex_replace(line, "\t", "\n")
        return {"text": text, "lang": language, "document_id": tf.strings.to_hash_bucket_fast(key, 2**62)}

    return lambda dataset: dataset.map(convert)


class _DocumentSource(seqio.FileDataSource):
    """Lines of the files that a pattern names below the data root, found when they are first read."""

    def __init__(self, pattern: str):
        super().__init__(read_file_fn=_read_lines, split_to_filepattern={TRAIN: pattern})

    def list_shards(self, split: str) -> list[str]:
        pattern = self._split_to_filepattern[split]
        return expand(tables.under_root(settings()["data_root"], pattern, "common_crawl.data_root"))


def _read_lines(path: tf.Tensor) -> tf.data.Dataset:
    compressed = tf.strings.regex_full_match(path, r".*\.gz")
    return tf.data.TextLineDataset(path, compression_type=tf.where(compressed, "GZIP", ""))


register_table("cc_108", TABLE)
seqio.MixtureRegistry.add("cc_en_fr", [("cc_108_en", 1.0), ("cc_108_fr", 1.0)])
