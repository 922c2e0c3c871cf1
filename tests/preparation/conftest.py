"""A folder as OPUS publishes it, small and made up, with planted lines of every kind that preparation is to drop."""

import dataclasses
import pathlib
import random
import zipfile

import pytest

from vmsst_jax.data.tokenizer import Tokenizer
from vmsst_jax.preparation import planning

DRAW = random.Random(0)
WORDS = ["".join(DRAW.choices("abcdefghiklmnoprstuvz", k=DRAW.randint(2, 8))) for _ in range(400)]
OTHERS = ["".join(DRAW.choices("абвгдежзиклмнопрст", k=DRAW.randint(2, 8))) for _ in range(400)]
TESTS = [
    "The cat sat on the mat.",
    "Über den Fluss, bitte!",
    "Привет, как дела?",
    "你好，世界。",
    "Où est l'école ?",
    "ﾊﾞｶ",
]
TABLE = (
    "language\tpivot\tthousand_pairs\tcorpora\tfiles\n"
    "ru\ten\t{ru}\tEuroparl,Tatoeba:rus\tmini/en-ru/*.tsv*\n"
    "fr\ten\t{fr}\tTatoeba\tmini/en-fr/*.tsv*\n"
)


def sentence(words=WORDS):
    return " ".join(DRAW.choices(words, k=DRAW.randint(3, 12)))


def variants(text):
    """A sentence with other case, punctuation, width and spacing."""
    wide = "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else "\u3000" if c == " " else c for c in text)
    bare = "".join(c for c in text if c.isalnum() or c == " ")
    return [
        text,
        text.upper(),
        text.title(),
        wide,
        bare,
        f"«{bare}»…",
        bare.replace(" ", ""),
        "\u00a0".join(text),
        text.replace(" ", " \u2009 ") + "?!",
        text[:2] + "\u200b" + text[2:].replace(" ", "_"),
    ]


def pack(path, members):
    """Writes a zip archive {name: text or bytes}."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            # Of no time: packed again, the same contents are the same file.
            archive.writestr(zipfile.ZipInfo(name), text, compress_type=zipfile.ZIP_DEFLATED)


def lines(pairs, side):
    return b"".join((pair[side] if isinstance(pair[side], bytes) else pair[side].encode()) + b"\n" for pair in pairs)


def planted():
    """Pairs with test sentences on one of their sides, marked on the other."""
    texts = [text for test in TESTS for text in variants(test)]
    return [(text, "planted here") for text in texts] + [("planted there", text) for text in texts]


def awkward():
    """(pair, what becomes of it): one of each filter."""
    return [
        ((b"broken \xff", "x y z"), "not_utf8"),
        (("", "nothing before"), "empty"),
        ((" \u0007\u3000", "white space and a bell"), "empty"),
        (("Paris  2020", " Paris 2020"), "identical"),
        (("a" * 1001, "a" * 900), "long"),
        (("one", "b " * 40), "ratio"),
    ]


@dataclasses.dataclass
class Folder:
    """The folder and what is in it: {set: [(corpus, pairs in order)]}, pivot's text first."""

    root: pathlib.Path
    pairs: dict
    test_sentences: tuple = tuple(TESTS)

    def table(self, ru=10.0, fr=10.0):
        path = self.root.parent / "table.tsv"
        path.write_text(TABLE.format(ru=ru, fr=fr))
        return str(path)

    def tests(self):
        path = self.root.parent / "tests.txt"
        path.write_text("\n".join(TESTS[:3]) + "\n" + "\t".join(TESTS[3:]) + "\n")
        return [str(path)]

    def plan(self, vocabulary=None, partition_bytes=9_000, ru=10.0, fr=10.0, **options):
        """What ``running.prepare`` takes, with partitions that are small enough to be many."""
        table = self.table(ru, fr)
        rows = planning.rows(table, True, options.get("languages"))
        options = {"table": table, "test": self.tests(), "vocabulary": vocabulary} | options
        plan, tests, tokenizer = planning.plan(str(self.root), rows, is_opus=True, **options)
        return dataclasses.replace(plan, partition_bytes=partition_bytes), tests, tokenizer


@pytest.fixture(scope="session")
def opus(tmp_path_factory):
    """A ``Folder`` of three archives."""
    root = tmp_path_factory.mktemp("opus") / "archives"
    clean = [(sentence(), sentence(OTHERS)) for _ in range(1500)]
    near = [(f"{TESTS[0]} Near {i}", f"miss {TESTS[2]} {i}") for i in range(20)]
    europarl = [*clean[:900], *planted(), *near, *(pair for pair, _ in awkward()), *DRAW.choices(clean[:900], k=300)]
    tatoeba = [*clean[700:], *(pair for pair, _ in awkward()), *planted()[:30]]
    french = [(sentence(), sentence()) for _ in range(400)]
    DRAW.shuffle(europarl)
    pack(
        root / "OPUS-Europarl/v8/moses/en-ru.txt.zip",
        {
            "README": "x",
            "LICENSE": "y",
            "Europarl.en-ru.en": lines(europarl, 0),
            "Europarl.en-ru.ru": lines(europarl, 1),
        },
    )
    pack(
        root / "Tatoeba/v2021-07-22/moses/en-rus.txt.zip",
        {"Tatoeba.en-rus.rus": lines(tatoeba, 1), "Tatoeba.en-rus.en": lines(tatoeba, 0)},
    )
    pack(
        root / "Tatoeba/v2021-07-22/moses/en-fr.txt.zip",
        {"Tatoeba.en-fr.en": lines(french, 0), "Tatoeba.en-fr.fr": lines(french, 1)},
    )
    return Folder(root, {"en-ru": [("Europarl", europarl), ("Tatoeba", tatoeba)], "en-fr": [("Tatoeba", french)]})


@pytest.fixture(scope="session")
def vocabulary(tmp_path_factory):
    """The path of a small SentencePiece model."""
    path = tmp_path_factory.mktemp("vocabulary") / "sentencepiece.model"
    texts = [sentence(words) for words in (WORDS, OTHERS) for _ in range(800)]
    path.write_bytes(Tokenizer.train(texts, 300).serialized)
    return str(path)


@pytest.fixture(scope="session")
def tree():
    """Function (folder) -> {path below it: bytes}."""

    def read(folder):
        folder = pathlib.Path(folder)
        return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}

    return read


@pytest.fixture(scope="session")
def make_zip():
    """The function ``pack``."""
    return pack
