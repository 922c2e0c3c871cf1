"""Registers small sets of one folder as documents: five tasks, and two mixtures of them.

`local_documents` is a mixture of the first three; `local_text` has the captions, too. The news of NTREX is in neither:
the evaluator mines it. The setting `local_documents.data_dir` names the folder, and `local_documents.languages` the
codes that are read if not all are. Each task reads a folder in there

    bible_documents   bible_gospels_acts/`<code>.tsv`  key `BOOK ch:v`, text; a chapter is a document
    quran_documents   quran/`quran.<code>.tsv`         chapter, verse, text; a chapter is a document
    python_documents  python_docs/`en-<code>.tsv`      page, position, English, translation; each a paragraph
    caption_documents multi30k/`train.<code>`          aligned captions of pictures, each one its own document; every
                                                       language has other pictures
    ntrex_documents   ntrex/`newstest2019-*.<c>.txt`   one sentence a line, their documents in DOCUMENT_IDS.tsv

in every language whose file is there and isn't empty, under plain codes (`zh-cn`, `zho_Hans` -> zh). A tenth of the
documents is the "validation" split, by a hash of their keys: the same documents in all languages. The English of
python_docs is that of its largest file. Importing this module opens no file.
"""

import os
import re
from collections.abc import Iterator, Sequence

import gin
import seqio

from vmsst_jax.data.document_files import Document, documents_of, keyed, labelled
from vmsst_jax.data.text_pairs import TRAIN, VALIDATION, CorpusError, LineFile, is_held_out, outlines
from vmsst_jax.tasks import documents, tables

HELD_OUT = 0.1
# NTREX's names of languages (ISO 639-3) -> plain codes.
NTREX = {
    **{"arb": "ar", "ben": "bn", "ces": "cs", "deu": "de", "ell": "el", "eng": "en", "est": "et", "fin": "fi"},
    **{"fra": "fr", "heb": "he", "hin": "hi", "ind": "id", "ita": "it", "jpn": "ja", "kat": "ka", "kor": "ko"},
    **{"nld": "nl", "pol": "pl", "por": "pt", "rus": "ru", "spa": "es", "swa": "sw", "tam": "ta", "tha": "th"},
    **{"tur": "tr", "vie": "vi", "zho": "zh"},
}
# Task -> (folder, pattern of its files, its first group the language).
SETS = {
    "bible_documents": ("bible_gospels_acts", r"([a-z]{2,3})\.tsv"),
    "quran_documents": ("quran", r"quran\.([a-z]{2,3})\.tsv"),
    "python_documents": ("python_docs", r"en-([a-z]{2,3})(?:-[a-z]+)?\.tsv"),
    "caption_documents": ("multi30k", r"train\.([a-z]{2})"),
    "ntrex_documents": ("ntrex", r"newstest2019-(?:ref|src)\.([a-z]{3})(?:_Hans)?\.txt"),
}


MIXED = ("bible_documents", "quran_documents", "python_documents")
WITH_CAPTIONS = (*MIXED, "caption_documents")


@gin.configurable("local_documents", module="tasks")
def settings(data_dir: str | None = None, languages: Sequence[str] | None = None) -> dict:
    """Where the sets lie and which languages are wanted (None: all); bound as `local_documents.data_dir` and so on."""
    return {"data_dir": data_dir, "languages": languages}


@gin.register("languages", module="tasks.local_documents")
def languages(names: tuple[str, ...] = MIXED) -> tuple[str, ...]:
    """The codes of the sets `names`, English first; reads only file names.

    In a recipe: `@local_documents.languages()`.
    """
    codes = {code for name in names for code, _ in _files(name)}
    return ("en", *sorted(codes - {"en"}))


def _files(name: str) -> list[tuple[str, LineFile]]:
    """(plain language code, file) of the set `name` in the languages wanted, sorted by path."""
    folder = tables.under_root(settings()["data_dir"], SETS[name][0], "local_documents.data_dir")
    found = []
    for file in sorted(os.listdir(folder)):
        path = os.path.join(folder, file)
        if (match := re.fullmatch(SETS[name][1], file)) and os.path.getsize(path):
            found.append((NTREX.get(match[1], match[1]), LineFile(path)))
    if not found:
        raise CorpusError(f"{folder}: no file named {SETS[name][1]} with text in it")
    wanted = settings()["languages"]
    chosen = [(code, file) for code, file in found if wanted is None or code in wanted]
    if not chosen:
        codes = ", ".join(sorted({code for code, _ in found}))
        raise CorpusError(f"{folder} has none of local_documents.languages, {', '.join(wanted)}; wanted one of {codes}")
    return chosen


def read(name: str) -> Iterator[tuple[str, Document]]:
    """Yields (split, document) of the set `name`.

    Raises:
      CorpusError: no data folder is bound, or a file is missing, empty or malformed.
    """
    files = _files(name)
    for place, (lang, file) in enumerate(files):
        if name == "caption_documents":
            rows = _captions(file, lang, place, len(files))
        elif name == "bible_documents":
            rows = keyed(file, lang, pattern=r"(.+):\d+")
        elif name == "quran_documents":
            rows = keyed(file, lang, text=2)
        elif name == "python_documents":
            rows = keyed(file, lang, text=3, layout="paragraphs")
        else:
            rows = labelled(file, LineFile(os.path.join(os.path.dirname(file.path), "DOCUMENT_IDS.tsv")), lang)
        yield from _with_split(file, rows)
    wanted = settings()["languages"]
    if name == "python_documents" and (wanted is None or "en" in wanted):
        largest = max((file for _, file in files), key=LineFile.size)
        yield from _with_split(largest, keyed(largest, "en", text=2, layout="paragraphs"))


def _captions(file: LineFile, lang: str, place: int, languages: int) -> Iterator[Document]:
    """Every caption of the part of a file that is its language's alone; CorpusError for text that isn't UTF-8."""
    for number, line in enumerate(file.lines(), 1):
        if number % languages == place:
            try:
                yield Document(f"caption {number}", lang, (line.decode().strip(),))
            except UnicodeDecodeError as error:
                raise CorpusError(f"{file}, line {number}: not valid UTF-8 ({error.reason})") from None


def _with_split(file: LineFile, rows) -> Iterator[tuple[str, Document]]:
    for document in documents_of(file, rows, "error"):
        yield VALIDATION if is_held_out(document.key, HELD_OUT) else TRAIN, document


def _made_from(name: str) -> dict:
    return {
        "local_documents.languages": settings()["languages"],
        "files": outlines([file.path for _, file in _files(name)]),
    }


def _register() -> None:
    for name in SETS:
        documents.add_task(name, lambda name=name: read(name), (TRAIN, VALIDATION), lambda name=name: _made_from(name))
    for mixture, names in (("local_documents", MIXED), ("local_text", WITH_CAPTIONS)):
        seqio.MixtureRegistry.add(mixture, [(name, 1.0) for name in names])


_register()
