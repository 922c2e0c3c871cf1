"""Named sets of languages, and the choice of languages by code or by set.

Codes are any that ``language_codes.canonical`` knows; a set's name stands for all its codes wherever languages are
chosen.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from vmsst_jax.language_codes import canonical

SETS = {
    # XTREME's Tatoeba: the languages of scripts/run_tatoeba.sh in its first version, without English.
    "xtreme36": """
        ar he vi id jv tl eu ml ta te af nl de el bn hi mr ur fa fr it pt es bg ru ja ka ko th sw zh kk tr et fi hu
    """,
    # CCP's Table 1. The paper's text does not name them; XNLI's languages but English are 14.
    "ccp14": "ar bg zh de el fr hi ru es sw th tr ur vi",
    # LASER's training languages, which VMSST's follow (without ay): as its README lists them.
    "laser93": """
        af sq am ar hy ay az eu be bn ber bs br bg my ca zh km cbk kzj kw hr cs da nl en mhr eo et fi fr gl ka de el ha
        he hi hu is io id ia ie ga it ja kab kk ko ku lv la lfn lt nds mk mg ms ml dv mr nb oc fa pl pt ro ru sr sd si
        sk sl so es sw sv tl tg ta tt te th tr ug uk ur uz vi wuu yue dtp
    """,
}
SETS = {name: tuple(codes.split()) for name, codes in SETS.items()}


def expand(names: Iterable[str]) -> list[str]:
    """Codes, sets' names among ``names`` replaced by their members."""
    return [code for name in names for code in SETS.get(name, (name,))]


def choose(found: Sequence[str], wanted: Sequence[str] | None) -> list[str]:
    """The codes of ``found`` that ``wanted`` names, by either standard's code ("de" is "deu") or by sets; None is all.

    Raises ValueError for one that is not there, or for none at all.
    """
    if wanted is None:
        return list(found)
    if isinstance(wanted, str):
        raise ValueError(f"languages is {wanted!r}; wanted a list of codes or of sets of them: {', '.join(SETS)}")
    by_name = {canonical(code): code for code in found} | {code: code for code in found}
    chosen = set()
    for code in expand(wanted):
        name = code if code in by_name else canonical(code)
        if name not in by_name:
            close = difflib.get_close_matches(code, [*by_name, *SETS], n=3, cutoff=0.5)
            hint = f"closest: {', '.join(close)}; " if close else ""
            raise ValueError(f"the data has no language {code!r}; {hint}it has {', '.join(found)}")
        chosen.add(by_name[name])
    if not chosen:
        raise ValueError("no language is chosen; name some, or leave the choice away for all")
    return [code for code in found if code in chosen]


def whole_sets(found: Sequence[str]) -> dict[str, list[str]]:
    """{name: its members in the codes of ``found``} of each set whose members, English aside, are all there."""
    by_name = {canonical(code): code for code in found}
    members = {name: [canonical(code) for code in codes if code != "en"] for name, codes in SETS.items()}
    return {
        name: sorted(by_name[code] for code in codes)
        for name, codes in members.items()
        if all(code in by_name for code in codes)
    }
