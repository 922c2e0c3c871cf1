"""Registers small parallel sets of one folder, English on one side: four tasks, and their mixture `local_sets`.

The setting `local_sets.data_dir` names the folder, and `local_sets.languages` the codes that are read if not all are.
Each task is a folder of its name in there, and reads

    bible_gospels_acts  `<code>.tsv`        key, text; verses with the same key are a pair
    quran               `quran.<code>.tsv`  chapter, verse, text; likewise
    python_docs         `en-<code>.tsv`     document, position, English, translation
    multi30k            `train.<code>`      one sentence a line, aligned with `train.en`

in every language whose file is there and isn't empty (`zh-cn` counts as zh, `pt-br` as pt). A tenth of the English
texts is the "validation" split of all tasks, by a hash of the text. The rates of the mixture are the sizes, so sampling
is uniform over pairs. A pair's id is a hash of the task's name, the language and both texts. Importing this module
opens no file.
"""

import functools
import os
import re
from collections.abc import Iterator, Sequence

import gin
import seqio

from vmsst_jax.data.text_pairs import (
    TRAIN,
    VALIDATION,
    CorpusError,
    LineFile,
    PairFile,
    hash62,
    is_held_out,
    outlines,
)
from vmsst_jax.tasks import sources, tables

HELD_OUT = 0.1
Pairs = Iterator[tuple[str, str]]  # (English, other language)


def _by_key(english: str | None, path: str, columns: int) -> Pairs:
    """Texts that stand under the same key, the columns before the last, in both files."""
    texts = {tuple(key): text for *key, text in _rows(_needed(english, path), columns)}
    return ((texts[tuple(key)], text) for *key, text in _rows(path, columns) if tuple(key) in texts)


def _last_two(english: str | None, path: str, columns: int) -> Pairs:
    """Both texts in one file; there is no English one."""
    return ((source, target) for *_, source, target in _rows(path, columns))


def _by_line(english: str | None, path: str) -> Pairs:
    file = PairFile(LineFile(_needed(english, path)), LineFile(path))
    for number, (source, target, problem) in enumerate(file.pairs(), 1):
        if problem:
            raise CorpusError(f"{file}, line {number}: {problem}")
        yield source.decode(), target.decode()


def _needed(english: str | None, path: str) -> str:
    if english is None:
        raise CorpusError(f"{path}: there is no English file of that form beside it; wanted one to pair it with")
    return english


def _rows(path: str, columns: int) -> Iterator[list[str]]:
    """The fields of each line, none of them empty."""
    for number, line in enumerate(LineFile(path).lines(), 1):
        try:
            fields = [field.strip() for field in line.decode().split("\t")]
        except UnicodeDecodeError as error:
            raise CorpusError(f"{path}, line {number}: not valid UTF-8 ({error.reason})") from error
        if len(fields) != columns or not all(fields):
            raise CorpusError(f"{path}, line {number}: wanted {columns} columns with text, found {fields}")
        yield fields


# Task -> (what stands before and after the language in its file names, how a file is paired with the English one).
SETS = {
    "bible_gospels_acts": ("", ".tsv", functools.partial(_by_key, columns=2)),
    "quran": ("quran.", ".tsv", functools.partial(_by_key, columns=3)),
    "python_docs": ("en-", ".tsv", functools.partial(_last_two, columns=4)),
    "multi30k": ("train.", "", _by_line),
}


@gin.configurable("local_sets", module="tasks")
def settings(data_dir: str | None = None, languages: Sequence[str] | None = None) -> dict:
    """Where the sets lie and which languages are wanted beside English; bound as `local_sets.data_dir` and so on."""
    return {"data_dir": data_dir, "languages": languages}


@gin.register("languages", module="tasks.local_sets")
def languages() -> tuple[str, ...]:
    """The codes of all four sets, English first; reads only file names. In a recipe: `@local_sets.languages()`."""
    codes = {code for name in SETS for code, _ in _files(name)}
    return ("en", *sorted(codes - {"en"}))


def read(name: str) -> dict[str, list[dict]]:
    """Reads the set `name`: {"train": examples, "validation": examples}, by language, then in the files' order.

    Raises:
      CorpusError: no data folder is bound, or a file is missing, empty, malformed or without pairs.
    """
    files = _files(name)
    english, pairs = dict(files).get("en"), SETS[name][2]
    examples = {TRAIN: [], VALIDATION: []}
    for code, path in files:
        if code == "en":
            continue
        found = [_example(name, code, source, target) for source, target in pairs(english, path)]
        if not found:
            raise CorpusError(f"{path}: no text has a key of the English file; wanted the same keys in both")
        for example in found:
            examples[VALIDATION if is_held_out(example["source"], HELD_OUT) else TRAIN].append(example)
    return examples


def _example(name: str, code: str, source: str, target: str) -> dict:
    pair_id = hash62("\0".join((name, code, source, target)).encode())
    return {"source": source, "target": target, "source_lang": "en", "target_lang": code, "pair_id": pair_id}


def _files(name: str) -> list[tuple[str, str]]:
    """(plain language code, path) of the files of the set `name` in the languages wanted, sorted by path."""
    folder = tables.under_root(settings()["data_dir"], name, "local_sets.data_dir")
    wanted = settings()["languages"]
    before, after = SETS[name][:2]
    found = []
    for file in sorted(os.listdir(folder)):
        match = re.fullmatch(rf"{re.escape(before)}([a-z]{{2,3}})(-[a-z]+)?{re.escape(after)}", file)
        if match and os.path.getsize(os.path.join(folder, file)):
            found.append((match[1], os.path.join(folder, file)))
    if not found:
        raise CorpusError(f"{folder}: no file named {before}<language>{after} with text in it")
    if wanted is None:
        return found
    chosen = [(code, path) for code, path in found if code in ("en", *wanted)]
    if {code for code, _ in chosen} <= {"en"}:
        codes = ", ".join(sorted({code for code, _ in found} - {"en"}))
        raise CorpusError(
            f"{folder} has none of local_sets.languages, {', '.join(wanted)}; wanted one of {codes}, since every "
            "set has a part in the mixture"
        )
    return chosen


def _made_from(name: str) -> dict:
    sizes = outlines([path for _, path in _files(name)])
    return {"local_sets.languages": settings()["languages"], "files": sizes}


def _size(task: seqio.Task) -> int:
    return task.num_input_examples(TRAIN)


def _register() -> None:
    for name in SETS:
        sources.add_task(
            name,
            sources.MemorySource(lambda name=name: read(name), (TRAIN, VALIDATION)),
            lambda name=name: _made_from(name),
        )
    seqio.MixtureRegistry.add("local_sets", list(SETS), default_rate=_size)


_register()
