"""Name, family and script of the languages that benchmarks have, for headings and for bars by family or script."""

from __future__ import annotations

import functools
import re
from importlib import resources
from typing import NamedTuple

from vmsst_jax.language_codes import canonical

# Families are branches of Indo-European and Afro-Asiatic (Romance, Semitic) and whole families otherwise. Scripts are
# those of Tatoeba's test sets where a language has several in use (Serbian and Uzbek: mostly Latin there).
FILE = "language_families.tsv"
# ISO 15924 codes by which data name a script other than the usual one.
SCRIPTS = {"latn": "Latin", "cyrl": "Cyrillic", "arab": "Arabic", "deva": "Devanagari", "beng": "Bengali"}


class Language(NamedTuple):
    """What the table knows of a language."""

    name: str
    family: str
    script: str


@functools.cache
def languages() -> dict[str, Language]:
    """{canonical code: its language} of the whole table."""
    lines = resources.files(__package__).joinpath(FILE).read_text("utf-8").splitlines()[1:]
    return {canonical(code): Language(*facts) for code, *facts in (line.split("\t") for line in lines)}


def find(key: str) -> Language | None:
    """The language of a key such as "deu", "pt", "zh_cn" or "srp_Cyrl"; None for other keys, pairs among them."""
    parts = re.fullmatch(r"([a-z]{2,3})(?:[_-]([A-Z][a-z]{3})|_[A-Za-z]{2}|-[A-Z]{2})?", key)
    language = languages().get(canonical(parts[1])) if parts else None
    if language and parts[2]:
        return language._replace(script=SCRIPTS.get(parts[2].lower(), language.script))
    return language


def name(key: str) -> str:
    """The language's name in English, both names for a pair ("ara-deu", "cs->de"), "" where one is unknown."""
    sides = [find(key)] if find(key) else [find(code) for code in re.split(r"->|-", key)]
    joint = " → " if "->" in key else " – "
    return joint.join(side.name for side in sides) if all(sides) else ""
