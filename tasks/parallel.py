"""Registers your own parallel corpora as seqio tasks: TSV files, aligned text files, OPUS zips, TFDS sets.

A module of yours calls one of the `register_*` functions at import time and is named to the run by
`--gin.TASK_MODULES='["my_corpus"]'`; docs/adding_a_corpus.md shows it whole. Registering touches no file: files are
found, read and checked when the first example is asked for.

Every task yields text, so one registration serves every vocabulary:

    {"source": str, "target": str, "source_lang": str, "target_lang": str, "pair_id": int64}

Which side a model sees first is drawn at random later, per example. `pair_id` is `hash62(task name)` + the number of
the line, from 1, run on over all files of the task in their order; for TFDS sets a hash of the task name and texts.

Options that the builders share:
  languages: (code of the source texts, code of the target texts), the codes of the run's language table.
  train, validation: the files of the splits, each a path, a glob pattern or a list of them; `.gz` is unpacked.
  held_out: instead of `validation`: the share (0..1) of pairs whose `pivot` text falls into the validation split by
    a hash of that text alone (case, spacing and punctuation don't matter). A text is therefore never on both sides,
    in none of the tasks that share the pivot language.
  pivot: code of the language whose text decides; None: "en" if it is one of the two, else the source language.
  on_bad_line: "error" stops at the first bad line (too few columns, an empty text, invalid UTF-8) with file and line
    number; "skip" leaves such lines out and reports once per file how many.
  stream: False keeps the pairs in memory and shuffles all of them; True reads while training and shuffles within a
    window; None decides by size (`sources.IN_MEMORY_BYTES`).

All of them raise ValueError for options that contradict each other, and `CorpusError` (a ValueError) for files that
can't be used, on the first read. `num_input_examples` reads the corpus, so `seqio.mixing_rate_num_examples` works.
"""

import os
from collections.abc import Callable, Mapping, Sequence

import seqio
import tensorflow as tf

from vmsst_jax import checks
from vmsst_jax.data import registered
from vmsst_jax.data.text_pairs import (
    TRAIN,
    VALIDATION,
    CorpusError,
    LineFile,
    PairFile,
    expand,
    extracted,
    opus_members,
)
from vmsst_jax.tasks import sources

Paths = str | os.PathLike | Sequence[str | os.PathLike]


def register_tsv(
    name: str,
    train: Paths,
    *,
    languages: tuple[str, str],
    validation: Paths | None = None,
    columns: tuple[int, int] = (0, 1),
    held_out: float = 0.0,
    pivot: str | None = None,
    on_bad_line: str = "error",
    stream: bool | None = None,
) -> seqio.Task:
    """Registers tab-separated files; `columns` are the two texts' positions, from 0. Other options: see the module."""
    if len(columns) != 2 or columns[0] == columns[1] or min(columns) < 0:
        raise ValueError(f"task {name}: columns are two different positions from 0 on, found {columns}")

    def read(paths: Paths) -> list[PairFile]:
        return [PairFile(LineFile(path), columns=tuple(columns)) for path in expand(paths)]

    return _register(name, read, train, validation, languages, held_out, pivot, on_bad_line, stream)


def register_aligned(
    name: str,
    train: tuple[Paths, Paths],
    *,
    languages: tuple[str, str],
    validation: tuple[Paths, Paths] | None = None,
    held_out: float = 0.0,
    pivot: str | None = None,
    on_bad_line: str = "error",
    stream: bool | None = None,
) -> seqio.Task:
    """Registers text files aligned line by line (Moses form), given as (source files, target files).

    Several files on each side are paired in their (sorted) order. Other options: see the module.
    """

    def read(paths: tuple[Paths, Paths]) -> list[PairFile]:
        left, right = (expand(side) for side in paths)
        if len(left) != len(right):
            raise CorpusError(
                f"task {name}: found {len(left)} source file(s) ({', '.join(left)}) and {len(right)} target file(s) "
                f"({', '.join(right)}); each source file needs its target file"
            )
        return [PairFile(LineFile(a), LineFile(b)) for a, b in zip(left, right, strict=True)]

    return _register(name, read, train, validation, languages, held_out, pivot, on_bad_line, stream)


def register_opus_zip(
    name: str,
    train: Paths,
    *,
    languages: tuple[str, str],
    codes: tuple[str, str] | None = None,
    validation: Paths | None = None,
    held_out: float = 0.0,
    pivot: str | None = None,
    on_bad_line: str = "error",
    stream: bool | None = None,
    cache_dir: str | None = None,
) -> seqio.Task:
    """Registers zip archives as OPUS publishes them in Moses form (`de-en.txt.zip`), read without unpacking them.

    Args:
      name, train, languages, validation, held_out, pivot, on_bad_line, stream: see the module.
      codes: OPUS's spelling of `languages` in the member names (such as "zh_cn"), if it differs.
      cache_dir: where the two members are unpacked when the corpus is streamed, since TensorFlow can't read a zip;
        None: `vmsst_jax` in the user's cache folder (XDG_CACHE_HOME, else ~/.cache).
    """
    cache = cache_dir or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "vmsst_jax")

    def read(paths: Paths) -> list[PairFile]:
        return [opus_members(path, tuple(codes or languages)) for path in expand(paths)]

    def unpack(file: LineFile) -> LineFile:
        return extracted(file, cache)

    return _register(name, read, train, validation, languages, held_out, pivot, on_bad_line, stream, unpack)


def register_tfds(
    name: str,
    tfds_name: str,
    *,
    languages: tuple[str, str],
    keys: tuple[str, str] | None = None,
    splits: Mapping[str, str] | None = None,
    data_dir: str | None = None,
) -> seqio.Task:
    """Registers a translation set of TensorFlow Datasets.

    Args:
      name: name of the task.
      tfds_name: with configuration and version, such as "wmt19_translate/cs-en:1.0.0".
      languages: see the module.
      keys: the set's feature names of the two texts; None: the codes in `languages`.
      splits: our split name -> the set's, slices allowed; None: {"train": "train", "validation": "validation"}. Slices
        cut by position, so a text may occur in two of them: prefer the splits that the set's authors made.
      data_dir: folder of prepared sets; None: TFDS's own.

    Raises:
      ValueError: on the first read, if the set lacks one of the `keys`; the message lists what it has.
    """
    _check_languages(name, languages)
    keys = keys or languages

    def to_example(dataset: tf.data.Dataset) -> tf.data.Dataset:
        if missing := [key for key in keys if key not in dataset.element_spec]:
            raise ValueError(
                f"task {name}: {tfds_name} has no feature {', '.join(missing)}; it has "
                f"{', '.join(map(str, dataset.element_spec))}. Name the two texts by `keys`"
            )

        def convert(row):
            source, target = (tf.strings.strip(row[key]) for key in keys)
            return {
                "source": source,
                "target": target,
                "source_lang": languages[0],
                "target_lang": languages[1],
                "pair_id": tf.strings.to_hash_bucket_fast(tf.strings.join([name, source, target], "\0"), 2**62),
            }

        return dataset.map(convert)

    splits = dict(splits or {TRAIN: TRAIN, VALIDATION: VALIDATION})
    registered.SETTINGS[name] = lambda: {"tfds_name": tfds_name, "languages": languages, "keys": keys, "splits": splits}
    return seqio.TaskRegistry.add(
        name,
        source=sources.TfdsSource(tfds_name, data_dir, splits),
        preprocessors=[to_example],
        output_features=sources.PAIR_FEATURES,
        task_cls=sources.TextTask,
        shuffle_buffer_size=sources.SHUFFLE_WINDOW,
    )


def _register(
    name: str,
    read: Callable[..., list[PairFile]],
    train,
    validation,
    languages: tuple[str, str],
    held_out: float,
    pivot: str | None,
    on_bad_line: str,
    stream: bool | None,
    unpack: Callable[[LineFile], LineFile] = lambda file: file,
) -> seqio.Task:
    """Checks the shared options and registers the task; `read` turns one split's paths into files, when needed."""
    _check_languages(name, languages)
    checks.number(f"task {name}: held_out", held_out, below=1)
    if held_out and validation is not None:
        raise ValueError(f"task {name}: give validation files or held_out={held_out}, not both")
    if on_bad_line not in ("error", "skip"):
        raise ValueError(f"task {name}: on_bad_line is 'error' or 'skip', found {on_bad_line!r}")
    if pivot is None:
        pivot = "en" if "en" in languages else languages[0]
    if pivot not in languages:
        raise ValueError(f"task {name}: pivot is one of the languages {tuple(languages)}, found {pivot!r}")
    parts = {TRAIN: train} if validation is None else {TRAIN: train, VALIDATION: validation}
    source = sources.PairFileSource(
        name,
        lambda: {split: read(paths) for split, paths in parts.items()},
        tuple(languages),
        splits=(TRAIN, VALIDATION) if held_out else tuple(parts),
        held_out=held_out,
        held_out_side=tuple(languages).index(pivot),
        on_bad_line=on_bad_line,
        stream=stream,
        unpack=unpack,
    )

    def settings() -> dict:
        files = {split: [file.outline() for file in read(paths)] for split, paths in parts.items()}
        return {"languages": languages, "held_out": held_out, "pivot": pivot, "on_bad_line": on_bad_line, **files}

    return sources.add_task(name, source, settings)


def _check_languages(name: str, languages: tuple[str, str]) -> None:
    if isinstance(languages, str) or len(languages) != 2 or languages[0] == languages[1]:
        raise ValueError(f"task {name}: languages are two different codes, such as ('en', 'de'), found {languages!r}")
