"""Which scores make the columns of which table of the papers, and in which groups (METHODS 5.8)."""

from __future__ import annotations

from typing import NamedTuple


class Column(NamedTuple):
    """A score: its name, the benchmark as the recipe calls it, and where it stands in that benchmark's result.

    ``path`` leads there from the top, such as ("means", "all", "mean"), through lists by place as in ("layers", "3",
    "accuracy"); an empty one stands for the main score: the last of "scores" in the first of "means".
    """

    name: str
    cell: str
    path: tuple[str, ...] = ()


class Layout(NamedTuple):
    """Columns in groups.

    ``overall`` adds VMSST's overall score, the mean of the groups' means, and the mean of all columns; ``contrast`` one
    column minus another. ``means`` is False where a group's columns are scores of different kinds.
    """

    groups: dict[str, list[Column]]
    overall: bool = False
    contrast: tuple[str, str] | None = None
    means: bool = True


def score(column: Column, result: dict) -> float | None:
    """The column's score in a result; KeyError, saying what there is, where the result has no such score."""
    value, path = result, column.path or ("means", next(iter(result["means"])), result["scores"][-1])
    for i, key in enumerate(path):
        if isinstance(value, list):
            value = {str(place): item for place, item in enumerate(value)}
        if not isinstance(value, dict):
            raise KeyError(f"no {'/'.join(path[: i + 1])}; {'/'.join(path[:i])} is {value!r:.80}")
        if key not in value:
            raise KeyError(f"no {'/'.join(path[: i + 1])}; there is {', '.join(value) or 'nothing'}")
        value = value[key]
    return value


def number(column: Column, result: dict) -> float | None:
    """``score``, and KeyError as well where something else than a number stands there."""
    value = score(column, result)
    if value is None or isinstance(value, int | float):
        return value
    inside = ", ".join(map(str, value)) if isinstance(value, dict) else repr(value)[:80]
    raise KeyError(f"{'/'.join(column.path)} is no number; there is {inside}")


def _by_language(cell: str, codes: str, score: str, name: str = "{}") -> list[Column]:
    return [Column(name.format(code), cell, ("per_language", code, score)) for code in codes.split()]


# VMSST: English is the mean of STS 2012 to 2016, XL that of five tracks of 2017. BUCC by cosine and by margin.
_ENGLISH, _XL = Column("Eng.", "STS", ("means", "English", "pearson")), Column("XL", "STS", ("means", "XL", "pearson"))
_TATOEBA = Column("Tatoeba", "Tatoeba", ("means", "all", "mean"))
_QUESTIONS = [
    Column("NQ", "questions", ("means", "NQ", "accuracy")),
    Column("MKQA", "questions", ("means", "MKQA", "accuracy")),
]
_BUCC_MEANS = [
    Column("BUCC c.", "BUCC", ("means", "all", "cosine F1")),
    Column("BUCC m.", "BUCC", ("means", "all", "F1")),
]
_VMSST = {
    "similarity": [_ENGLISH, _XL],
    "bitext": [_TATOEBA, *_BUCC_MEANS],
    "questions": _QUESTIONS,
}
_BUCC = "de fr ru zh"
# CCP's fourteen languages as Tatoeba's files call them.
_CCP14 = "ara bul cmn deu ell fra hin rus spa swh tha tur urd vie"
_TRACKS = {"ar-ar": "1.ar-ar", "ar-en": "2.ar-en", "es-es": "3.es-es", "es-en": "4a.es-en", "tr-en": "6.tr-en"}
_NEWSTEST = ("cs", "de", "en", "es", "fr", "ru")

TABLES: dict[str, Layout] = {
    "vmsst_main": Layout(_VMSST, overall=True),  # tables 1, 4 and 7
    "vmsst_similarity": Layout(  # table 2
        {
            f"{kind}": [
                *(Column(f"{t} {kind}", "STS", ("per_language", f"2017 track{n}", kind)) for t, n in _TRACKS.items()),
                Column(f"Eng. {kind}", "STS", ("means", "English", kind)),
            ]
            for kind in ("spearman", "pearson")
        }
    ),
    "vmsst_tatoeba": Layout({"Tatoeba": [_TATOEBA]}),  # table 3
    "vmsst_bucc": Layout({"BUCC m.": _by_language("BUCC", _BUCC, "F1")}),  # table 5
    "vmsst_4_languages": Layout(  # table 6: what of table 1 four languages allow
        {"similarity": [_ENGLISH, _XL], "bitext": [_TATOEBA], "questions": _QUESTIONS}, overall=True
    ),
    "vmsst_unseen": Layout(  # table 8
        {
            "Tatoeba": [
                Column("seen", "Tatoeba", ("means", "seen", "mean")),
                Column("unseen", "Tatoeba", ("means", "unseen", "mean")),
            ]
        },
        contrast=("unseen", "seen"),
    ),
    "ccp_tatoeba": Layout({"Tatoeba": _by_language("Tatoeba", _CCP14, "mean")}),  # tables 1 and 5
    "ccp_non_english": Layout(  # table 2
        {"pairs": [Column(s, "non-English", ("means", "all", s)) for s in ("a->b", "b->a", "mean")]}
    ),
    "ccp_mrtydi": Layout(  # table 3
        {
            s: _by_language("Mr. TyDi", "ar bn en fi id ja ko ru sw te th", s, f"{{}} {s}")
            for s in ("MRR@100", "Recall@100")
        }
    ),
    "ccp_xor": Layout(  # table 4
        {s: _by_language("XOR-Retrieve", "ar bn fi ja ko ru te", s, f"{{}} {s}") for s in ("R@2kt", "R@5kt")}
    ),
    "ccp_en_fr": Layout(  # table 6
        {"English-French": [Column(s, "Tatoeba", ("per_language", "fra", s)) for s in ("xx->en", "en->xx", "mean")]}
    ),
    "umse_bucc": Layout({"BUCC": _by_language("BUCC", _BUCC, "F1")}),  # table 1
    "umse_news": Layout({"News": [Column("News", "News")]}),  # table 2
    "umse_newstest": Layout(  # table 3
        {
            "directions": [
                Column(f"{a}->{b}", "newstest", ("per_language", f"{a}->{b}", "accuracy"))
                for a in _NEWSTEST
                for b in _NEWSTEST
                if a != b
            ]
        }
    ),
    "umse_tatoeba": Layout(  # table 4: the languages that its text names, and all
        {
            "Tatoeba": [
                *_by_language("Tatoeba", "kat kaz ces deu rus", "mean"),
                Column("all", "Tatoeba", ("means", "all", "mean")),
            ]
        }
    ),
    "all": Layout(  # every benchmark, its main score or scores
        {
            "similarity": [
                Column("STS Eng.", "STS", ("means", "English", "pearson")),
                Column("STS XL", "STS", ("means", "XL", "pearson")),
                Column("STS-B", "STS-B"),
            ],
            "bitext": [
                Column("Tatoeba", "Tatoeba"),
                Column("non-English", "non-English"),
                Column("newstest", "newstest"),
                Column("NTREX mining", "NTREX mining"),
                *_BUCC_MEANS,
            ],
            "questions": [
                Column("MKQA matching", "MKQA matching"),
                Column("XQuAD", "XQuAD"),
                *_QUESTIONS,
                Column("XOR-Retrieve", "XOR-Retrieve"),
                Column("Mr. TyDi", "Mr. TyDi"),
            ],
        },
        means=False,
    ),
}
