"""Registers the text of one folder, a file per language, one sentence a line, aligned over all languages or not:

    `train.<code>`  `val.<code>`        (or whatever `folder_text.train`, `.validation` and `.test` say)

`folder_text`, documents: each line one of its own, for monolingual training. With `apart` every language takes another
part of the lines of "train" (of two languages the first takes the first half, the second the second half), so that the
text of aligned files holds no sentence together with its translation. `folder_pairs`, parallel text: line i of two
languages, for every two of them; their files must be aligned. With `apart` False those of "train" are taken to be no
translations of each other, and this split of the pairs is empty.

The languages are `folder_text.languages`, the folder is `folder_text.data_dir`. Both tasks have the splits "train" and
"validation", the pairs also "test", which is empty unless `folder_text.test` is set. Importing this module opens no
file.
"""

import itertools
from collections.abc import Iterator

import gin

from vmsst_jax.data.document_files import Document
from vmsst_jax.data.text_pairs import TRAIN, VALIDATION, CorpusError, LineFile, PairFile, hash62, outlines
from vmsst_jax.tasks import documents, sources, tables

TEST = "test"


@gin.configurable("folder_text", module="tasks")
def settings(
    data_dir: str | None = None,
    languages: tuple[str, ...] = (),
    train: str = "train",
    validation: str = "val",
    test: str | None = None,
    apart: bool = True,
) -> dict:
    """Where the files lie, how they begin, and whether languages take different lines; bound as `folder_text.X`."""
    if not languages or isinstance(languages, str) or not all(isinstance(code, str) for code in languages):
        raise CorpusError(f'folder_text.languages is {languages!r}; wanted codes in brackets, as in ("en", "de")')
    return {"root": data_dir, "languages": tuple(languages), "apart": apart} | {
        TRAIN: train,
        VALIDATION: validation,
        TEST: test,
    }


def _file(split: str, code: str) -> LineFile:
    found = settings()
    return LineFile(tables.under_root(found["root"], f"{found[split]}.{code}", "folder_text.data_dir"))


def _sentences(file: LineFile) -> Iterator[str]:
    for number, line in enumerate(file.lines(), 1):
        try:
            yield line.decode().strip()
        except UnicodeDecodeError as error:
            raise CorpusError(f"{file}, line {number}: not valid UTF-8 ({error.reason})") from None


def _lines(found: dict) -> dict[str, int]:
    """Lines of each language's training file; CorpusError unless they are as many, as those of aligned files are."""
    counts = {code: sum(1 for _ in _file(TRAIN, code).lines()) for code in found["languages"]}
    if len(set(counts.values())) > 1:
        raise CorpusError(
            f"the files {found[TRAIN]}.CODE in {found['root']} have other numbers of lines: {counts}. Languages take "
            "other lines of aligned files; for files that are no translations bind folder_text.apart=False"
        )
    return counts


def read_documents() -> Iterator[tuple[str, Document]]:
    """(split, document) of every sentence; lines without text are left out.

    Raises:
      CorpusError: no folder or languages are bound; a file is missing, has no text for a language, or isn't UTF-8; of
        the files that are kept apart one has more lines than another.
    """
    found = settings()
    codes = found["languages"]
    counts = _lines(found) if found["apart"] else {}
    for split, (place, code) in itertools.product((TRAIN, VALIDATION), enumerate(codes)):
        file = _file(split, code)
        first, last = 0, None
        if split == TRAIN and found["apart"]:
            count = counts[code]
            first, last = count * place // len(codes), count * (place + 1) // len(codes)
        empty = True
        for number, text in enumerate(itertools.islice(_sentences(file), first, last), first + 1):
            if text:
                empty = False
                yield split, Document(f"{split} {number}", code, (text,))
        if empty:
            raise CorpusError(f"{file}: no text in the lines from {first + 1} to {last or 'the end'}")


def read_pairs() -> dict[str, list[dict]]:
    """Examples per split, of every two languages.

    Raises:
      CorpusError: as ``read_documents``; files of different lengths, a line without text.
    """
    found, examples = settings(), {TRAIN: [], VALIDATION: [], TEST: []}
    given = [split for split in examples if found[split] and (split != TRAIN or found["apart"])]
    if TRAIN in given:
        _lines(found)
    if TEST in given:
        try:
            for code in found["languages"]:
                _file(TEST, code)
        except CorpusError as error:
            raise CorpusError(
                f"{error} folder_text.test is {found[TEST]!r}; bind it to the name of your test set, as in "
                "--gin.folder_text.test='\"test\"'"
            ) from None
    for split, (a, b) in itertools.product(given, itertools.combinations(found["languages"], 2)):
        file = PairFile(_file(split, a), _file(split, b))
        for number, (source, target, problem) in enumerate(file.pairs(), 1):
            if problem:
                raise CorpusError(f"{file}, line {number}: {problem}")
            pair_id = hash62(f"{split}\0{a}\0{b}\0{number}".encode())
            sides = {"source": source.decode(), "target": target.decode(), "source_lang": a, "target_lang": b}
            examples[split].append({**sides, "pair_id": pair_id})
    return examples


def _made_from() -> dict:
    found = settings()
    sizes = {
        split: outlines([_file(split, code).path for code in found["languages"]])
        for split in (TRAIN, VALIDATION, TEST)
        if found[split]
    }
    return {f"folder_text.{name}": found[name] for name in ("languages", "apart")} | sizes


documents.add_task("folder_text", read_documents, (TRAIN, VALIDATION), _made_from)
sources.add_task("folder_pairs", sources.MemorySource(read_pairs, (TRAIN, VALIDATION, TEST)), _made_from)
