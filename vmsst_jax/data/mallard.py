"""Mallard pages, the help of GNOME's programs, as documents in the languages they are translated into."""

import os
import pathlib
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence

from vmsst_jax.data.catalogues import plain_code
from vmsst_jax.data.document_files import Document, split_sentences
from vmsst_jax.data.text_pairs import CorpusError

NAMESPACE = "{http://projectmallard.org/1.0/}"
ENGLISH = "C"  # the folder of the original pages
BLOCKS = {NAMESPACE + name for name in ("p", "title")}
# What isn't running text: credits and links, program listings, the texts in place of pictures.
LEFT_OUT = {NAMESPACE + name for name in ("info", "code", "screen", "media", "comment")}


def read_pages(
    folder: str | os.PathLike, manuals: Sequence[str], languages: Sequence[str] | None = None
) -> Iterator[Document]:
    """The pages `<folder>/<locale>/<manual>/*.page`, one document each: titles and paragraphs, split into sentences.

    A paragraph that is the same in the English page is not translated and left out; so is a page without any other.
    Of several locales with one plain code (pt, pt_BR) the one whose pages have most text is read. English is first,
    then the codes in alphabetical order. The key of a document is the manual and the page, the same in all languages.

    Args:
      folder: where programs keep their help, /usr/share/help on Linux.
      manuals: names of manuals, such as "gnome-help".
      languages: plain codes; None: all that have one of the manuals.

    Raises:
      CorpusError: no such folder, no English pages, a language without pages, a page that is no XML.
    """
    root = pathlib.Path(folder).expanduser()
    originals = {manual: sorted((root / ENGLISH / manual).glob("*.page")) for manual in manuals}
    if missing := [manual for manual, pages in originals.items() if not pages]:
        raise CorpusError(
            f"{root / ENGLISH}: no pages of {', '.join(missing)}. GNOME desktops and Debian's package gnome-user-docs "
            "have them; without installing it: apt-get download gnome-user-docs, then dpkg -x gnome-user-docs_*.deb "
            "help, and name the folder help/usr/share/help"
        )
    locales = _locales(root, manuals)
    if absent := sorted({*(languages or ())} - {"en", *locales}):
        raise CorpusError(f"{root}: no pages in {', '.join(absent)}; there are {', '.join(['en', *sorted(locales)])}")
    pages = [(manual, path) for manual, paths in originals.items() for path in paths]
    english = {(manual, path.name): _blocks(path) for manual, path in pages}
    for code in ["en", *sorted(locales)]:
        if languages is None or code in languages:
            for (manual, name), original in english.items():
                blocks = original if code == "en" else _translated(root / locales[code] / manual / name, original)
                if sentences := [s for block in blocks for s in split_sentences(block, code)]:
                    yield Document(f"{manual}/{name.removesuffix('.page')}", code, tuple(sentences))


def _locales(root: pathlib.Path, manuals: Sequence[str]) -> dict[str, str]:
    """{plain code: folder}, but for English."""
    sizes: dict[str, list[tuple[int, str]]] = {}
    for locale in sorted(os.listdir(root)):
        size = sum(page.stat().st_size for manual in manuals for page in (root / locale / manual).glob("*.page"))
        if size and locale != ENGLISH and (code := plain_code(locale)):
            sizes.setdefault(code, []).append((-size, locale))
    return {code: min(found)[1] for code, found in sizes.items()}


def _translated(path: pathlib.Path, original: Sequence[str]) -> list[str]:
    if not path.is_file():
        return []
    untranslated = set(original)
    return [block for block in _blocks(path) if block not in untranslated]


def _blocks(path: pathlib.Path) -> list[str]:
    """The titles and paragraphs of one page, white space made plain."""
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError) as error:
        raise CorpusError(f"{path}: not a readable Mallard page ({error}); repair it or move it away") from error
    return [text for element in _walk(root) if (text := " ".join("".join(element.itertext()).split()))]


def _walk(element) -> Iterator:
    """The outermost blocks of text, in the page's order."""
    if element.tag in BLOCKS:
        yield element
    elif element.tag not in LEFT_OUT:
        for child in element:
            yield from _walk(child)
