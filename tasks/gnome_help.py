"""Registers the task `gnome_help`: GNOME's user help and its translations as documents, one page each.

They are part of every GNOME desktop (/usr/share/help) and of Debian's and Ubuntu's package gnome-user-docs (CC BY-SA
3.0, Shaun McCance and the GNOME documentation and translation teams; 8.5 MB for 40 languages), which needs no
installation:

    apt-get download gnome-user-docs && dpkg -x gnome-user-docs_*.deb help
    --gin.gnome_help.folder='"help/usr/share/help"'

Version 43 in the languages below has 4,959 documents of 68,793 sentences. A tenth of the pages is the
"validation" split, the same ones in all languages. Which text counts: `vmsst_jax.data.mallard.read_pages`, which also
reads without TensorFlow.
"""

import hashlib
import pathlib
from collections.abc import Iterator, Sequence

import gin

from vmsst_jax import checks
from vmsst_jax.data import mallard
from vmsst_jax.data.document_files import Document
from vmsst_jax.data.text_pairs import TRAIN, VALIDATION, is_held_out, outlines
from vmsst_jax.tasks import documents

# Languages with more than 2,400 translated sentences, of 8 families and branches in 4 scripts.
LANGUAGES = ("en", "cs", "de", "el", "es", "fi", "fr", "hu", "id", "ko", "pl", "pt", "ru", "sv", "uk")


@gin.configurable("gnome_help", module="tasks")
def settings(
    folder: str = "/usr/share/help",
    languages: Sequence[str] = LANGUAGES,
    manuals: Sequence[str] = ("gnome-help", "system-admin-guide"),
    held_out: float = 0.1,
) -> dict:
    """The task's settings; bound as `gnome_help.folder` and so on."""
    checks.number("gnome_help.held_out", held_out, below=1)
    return {"folder": folder, "languages": languages, "manuals": manuals, "held_out": held_out}


@gin.register("languages", module="tasks.gnome_help")
def languages() -> tuple[str, ...]:
    """The language codes that the task yields, English first. In a recipe: `@gnome_help.languages()`."""
    return ("en", *sorted({*settings()["languages"]} - {"en"}))


def _read() -> Iterator[tuple[str, Document]]:
    chosen = settings()
    for document in mallard.read_pages(chosen["folder"], chosen["manuals"], languages()):
        yield VALIDATION if is_held_out(document.key, chosen["held_out"]) else TRAIN, document


def _made_from() -> dict:
    chosen = settings()
    found = {f"gnome_help.{name}": chosen[name] for name in ("languages", "manuals", "held_out")}
    pages = [sorted(pathlib.Path(chosen["folder"]).expanduser().glob(f"*/{name}/*.page")) for name in chosen["manuals"]]
    sizes = [
        (page.parent.parent.name, *size) for each in pages for page, size in zip(each, outlines(each), strict=True)
    ]
    # Where the tokens are kept the pages need not be.
    return found | ({"pages": hashlib.sha256(repr(sizes).encode()).hexdigest()} if sizes else {})


documents.add_task("gnome_help", _read, (TRAIN, VALIDATION), _made_from)
