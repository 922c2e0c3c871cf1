"""Registers your own documents as seqio tasks: text files, CC-Net's JSON lines, tables with keys, TFDS text sets.

A module of yours calls one of the `register_*` functions at import time and is named to the run by
`--gin.TASK_MODULES='["my_documents"]'`; docs/adding_a_corpus.md shows it whole. Registering touches no file.

Every task yields text, so one registration serves every vocabulary:

    {"text": str, one sentence a line, "lang": str, "document_id": int64}

`document_id` is `hash62(task name)` + the number of the document, from 1, run on over all files of the task. Documents
come out as they are: what is too short, too long or repeated is dropped by each run, which knows its vocabulary.

Options that the builders share:
  files: {language code: files}, each a path, a glob pattern or a list of them; `.gz` is unpacked.
  validation: files of the validation split, in the same form.
  held_out: instead of `validation`: the share (0..1) of documents that is the validation split, by a hash of the
    document's key alone; documents that share a key, as translations do, fall on the same side.
  on_bad_line: "error" stops at the first bad line or empty file; "skip" leaves them out and reports them.

All of them raise ValueError for options that contradict each other, and `CorpusError` (a ValueError) with file and line
for files that can't be used, when they are read.
"""

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import seqio
import tensorflow as tf

from vmsst_jax import checks
from vmsst_jax.data import document_files, registered
from vmsst_jax.data.document_files import Document, Problem
from vmsst_jax.data.text_pairs import (
    TRAIN,
    VALIDATION,
    CorpusError,
    LineFile,
    are_paths,
    distinct,
    expand,
    hash62,
    is_held_out,
    outlines,
)
from vmsst_jax.tasks import sources

Paths = str | os.PathLike | Sequence[str | os.PathLike]
DOCUMENT_FEATURES = sources.text_features(["text", "lang"], ["document_id"])


class DocumentSource(seqio.DataSource):
    """Documents that a Python function reads.

    A run reads them once, front to back, into its token cache, and its position is one in that cache: so, other than
    in the sources of pairs, Python may run in this pipeline. `examples` gives the same without TensorFlow.
    """

    def __init__(self, name: str, read: Callable[[], Iterable[tuple[str, Document]]], splits: Sequence[str]):
        """`read()` yields (split, document) for all splits; it is called for every pass over the documents."""
        super().__init__(splits=splits)
        self._name, self._read = name, read

    @property
    def supports_arbitrary_sharding(self) -> bool:
        return True

    def list_shards(self, split: str) -> Sequence[str]:
        return [split]

    def num_input_examples(self, split: str) -> None:
        return None  # see sources.TextTask

    def size(self, split: str) -> int:
        return sum(1 for _ in self.examples(split))

    def examples(self, split: str) -> Iterator[dict]:
        """The documents of one split as plain Python; CorpusError where they can't be read, or there is none."""
        number = base = hash62(self._name.encode())
        found = False
        for number, (given, document) in enumerate(self._read(), base + 1):
            if given == split:
                found = True
                yield {"text": "\n".join(document.sentences), "lang": document.lang, "document_id": number}
        if not found:
            raise CorpusError(f"task {self._name}: none of its {number - base:,} documents is in the split {split}")

    def get_dataset(self, split=TRAIN, shuffle=True, seed=None, shard_info=None, **_):
        """Returns the split's documents; the task shuffles them. See `seqio.DataSource.get_dataset`."""
        types = {"text": tf.string, "lang": tf.string, "document_id": tf.int64}
        signature = {name: tf.TensorSpec((), dtype) for name, dtype in types.items()}
        dataset = tf.data.Dataset.from_generator(lambda: self.examples(split), output_signature=signature)
        return dataset if shard_info is None else dataset.shard(shard_info.num_shards, shard_info.index)


def add_task(
    name: str,
    read: Callable[[], Iterable[tuple[str, Document]]],
    splits: Sequence[str],
    settings: Callable[[], dict] = dict,
) -> seqio.Task:
    """Registers a task of the (split, document) pairs that `read()` yields.

    `settings()` says, ready for JSON, what decides their text: kept tokens are not read where that has changed.
    """
    sources.check_name(name)
    registered.SETTINGS[name] = settings
    return seqio.TaskRegistry.add(
        name,
        source=DocumentSource(name, read, splits),
        preprocessors=[],
        output_features=DOCUMENT_FEATURES,
        task_cls=sources.TextTask,
        shuffle_buffer_size=sources.SHUFFLE_WINDOW,
    )


def register_text(
    name: str,
    files: Mapping[str, Paths],
    *,
    layout: str,
    validation: Mapping[str, Paths] | None = None,
    held_out: float = 0.0,
    on_bad_line: str = "error",
) -> seqio.Task:
    """Registers text files with a blank line between documents. Other options: see the module.

    Args:
      layout: "sentences", one sentence a line; "paragraphs", one paragraph a line, which is split into sentences.
    """
    _check_layout(name, layout)
    read = functools.partial(document_files.plain_text, layout=layout)
    return _register(name, read, files, validation, held_out, on_bad_line)


def register_cc_net(
    name: str,
    files: Mapping[str | None, Paths] | Paths,
    *,
    validation: Mapping[str | None, Paths] | Paths | None = None,
    held_out: float = 0.0,
    on_bad_line: str = "error",
) -> seqio.Task:
    """Registers CC-Net's `.json.gz` files; `files` without languages take each record's own. See the module."""
    files, validation = (
        paths if paths is None or isinstance(paths, Mapping) else {None: paths} for paths in (files, validation)
    )
    return _register(name, document_files.cc_net, files, validation, held_out, on_bad_line)


def register_keyed(
    name: str,
    files: Mapping[str, Paths],
    *,
    key: int = 0,
    text: int = 1,
    pattern: str = "(.+)",
    layout: str = "sentences",
    validation: Mapping[str, Paths] | None = None,
    held_out: float = 0.0,
    on_bad_line: str = "error",
) -> seqio.Task:
    """Registers tab-separated files, a text beside a key in each line. Other options: see the module.

    Args:
      key, text: columns, from 0.
      pattern: a regular expression for the whole key, its first group the document's name: with r"(.+):\\d+" the
        lines `MRK 1:1`, `MRK 1:2`, ... are the document `MRK 1`.
      layout: "sentences", each text is one; "paragraphs", they are split into sentences.
    """
    _check_layout(name, layout)
    for option, column in (("key", key), ("text", text)):
        checks.whole(f"task {name}: {option}", column, 0)
    checks.pattern(f"task {name}: pattern", pattern)
    read = functools.partial(document_files.keyed, key=key, text=text, pattern=pattern, layout=layout)
    return _register(name, read, files, validation, held_out, on_bad_line)


def register_tfds(
    name: str,
    sets: Mapping[str, str],
    *,
    text: str = "text",
    splits: Mapping[str, str] | None = None,
    data_dir: str | None = None,
    held_out: float = 0.0,
) -> seqio.Task:
    """Registers text sets of TensorFlow Datasets, one per language, split into sentences. `held_out`: see the module.

    Args:
      sets: {language code: name with configuration and version}, such as {"gd": "wikipedia/20230601.gd:1.0.0"}.
      text: the sets' feature that holds a document.
      splits: our split name -> the sets'; None: {"train": "train"}. With `held_out` only "train" may be named.
      data_dir: folder of prepared sets; None: TFDS's own.
    """
    splits = dict(splits or {TRAIN: TRAIN})
    if held_out and set(splits) != {TRAIN}:
        raise ValueError(f"task {name}: give splits with {TRAIN!r} alone or held_out={held_out}, found {splits}")
    _check_share(name, held_out)

    def read() -> Iterator[tuple[str, Document]]:
        for lang, tfds_name in sets.items():
            source = seqio.TfdsDataSource(tfds_name=tfds_name, tfds_data_dir=data_dir, splits=splits)
            for split in splits:
                dataset = source.get_dataset(split=split, shuffle=False)
                if text not in dataset.element_spec:
                    raise CorpusError(
                        f"task {name}: {tfds_name} has no feature {text!r}; it has {', '.join(dataset.element_spec)}. "
                        "Name the one with the text by `text`"
                    )
                for number, row in enumerate(dataset.as_numpy_iterator(), 1):
                    sentences = document_files.split_sentences(row[text].decode(), lang)
                    document = Document(f"{tfds_name} {split} {number}", lang, tuple(sentences))
                    yield VALIDATION if is_held_out(document.key, held_out) else split, document

    return add_task(name, read, [*splits, *([VALIDATION] if held_out else [])])


def _register(
    name: str,
    read: Callable[[LineFile, str], Iterable[Document | Problem]],
    files: Mapping[str, Paths],
    validation: Mapping[str, Paths] | None,
    held_out: float,
    on_bad_line: str,
) -> seqio.Task:
    """Checks the shared options and registers the task; `read` yields one file's documents in a language."""
    _check_share(name, held_out)
    if held_out and validation is not None:
        raise ValueError(f"task {name}: give validation files or held_out={held_out}, not both")
    if on_bad_line not in ("error", "skip"):
        raise ValueError(f"task {name}: on_bad_line is 'error' or 'skip', found {on_bad_line!r}")
    wrong = [f for f in (files, validation) if f is not None and not _are_files(f)]
    if wrong or not files:
        found = wrong[0] if wrong else files
        raise ValueError(
            f"task {name}: files are {{language code: paths}}, such as {{'gd': 'gd/*.txt'}}, found {found!r}"
        )
    parts = {TRAIN: files} if validation is None else {TRAIN: files, VALIDATION: validation}

    def documents() -> Iterator[tuple[str, Document]]:
        for split, by_language in parts.items():
            for lang, paths in by_language.items():
                for file in map(LineFile, distinct(expand(paths))):
                    for document in document_files.documents_of(file, read(file, lang), on_bad_line):
                        yield VALIDATION if is_held_out(document.key, held_out) else split, document

    def settings() -> dict:
        sizes = {
            split: {str(lang): outlines(distinct(expand(paths))) for lang, paths in by_language.items()}
            for split, by_language in parts.items()
        }
        return {"held_out": held_out, "options": {k: v for k, v in getattr(read, "keywords", {}).items()}, **sizes}

    return add_task(name, documents, [TRAIN, VALIDATION] if held_out else list(parts), settings)


def _are_files(files) -> bool:
    """Whether these are paths by language, the language None for "each document's own"."""
    return isinstance(files, Mapping) and all(
        isinstance(lang, str | None) and lang != "" and are_paths(paths) for lang, paths in files.items()
    )


def _check_layout(name: str, layout: str) -> None:
    if layout not in document_files.LAYOUTS:
        raise ValueError(f"task {name}: layout is 'sentences' or 'paragraphs', found {layout!r}")


def _check_share(name: str, held_out: float) -> None:
    checks.number(f"task {name}: held_out", held_out, below=1)
