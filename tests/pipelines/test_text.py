"""The folder of text: what is kept apart, what is aligned, what is refused."""

import itertools
import json

import pytest

from vmsst_jax import text as command
from vmsst_jax.benchmarks import mining_data
from vmsst_jax.pipelines import text

CODES = ("en", "fr", "de")


def translated(sentence, code):
    """A language of its own: other words in the same order."""
    return " ".join(f"{code}{word}" for word in sentence.split())


@pytest.fixture
def folder(tmp_path):
    """Aligned files of 90, 12 and 16 lines in three languages; the training text has blank lines."""
    made = tmp_path / "source"
    made.mkdir()
    for name, count in (("train", 90), ("dev", 12), ("test", 16)):
        rows = [f"{name}{i % 11} {i % 7} x{i}" for i in range(count)]
        for code in CODES:
            lines = [translated(row, code) if name != "train" or i % 10 else " " for i, row in enumerate(rows)]
            (made / f"{name}.{code}").write_text("".join(f" {line}\n" for line in lines))
    return made


def lines(path):
    return path.read_text("utf-8").splitlines()


def test_a_folder(folder, tmp_path, capsys):
    output = tmp_path / "text"
    flags = ["--languages=en,fr,de", "--apart=en,fr", "--names=train,dev,test", "--mining=fr-en"]
    command.main([f"--output={output}", f"--folder={folder}", *flags])
    assert "train.en 40, train.fr 41, train.de 81 lines" in capsys.readouterr().out
    own = {code: {line.split()[-1].removeprefix(code) for line in lines(output / f"train.{code}")} for code in CODES}
    assert own["en"] == {f"x{i}" for i in range(45) if i % 10} and not own["en"] & own["fr"]
    assert own["de"] == {f"x{i}" for i in range(90) if i % 10}
    assert [line.strip() for line in lines(folder / "dev.de")] == lines(output / "val.de")
    sets = [mining_data.read(output / "mining", "fr-en", split) for split in ("training", "test")]
    for made in sets:
        assert len(made.gold) == 4 and len(made.source) == len(made.target) == 4 + 2
        for a, b in made.gold:
            assert made.source[a].replace("fr", "") == made.target[b].replace("en", "")
    assert not set(sets[0].source.values()) & set(sets[1].source.values())
    with pytest.raises(FileExistsError, match="text exists; use --overwrite"):
        command.main([f"--output={output}", f"--folder={folder}", *flags])
    command.main([f"--output={output}", f"--folder={folder}", *flags, "--overwrite", "--limit=7"])
    assert len(lines(output / "train.de")) == 7
    assert json.loads((output / "about.json").read_text())["lines"]["train.de"] == 7
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "text"]


CATALOGUE = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8"\n\n'


def test_catalogues(tmp_path):
    """Messages that only one language has are training text; those of the test sets are nowhere else."""
    messages = [f"message number {i}" for i in range(60)] + ["number 1 again"]
    for code, has in (("fr", messages), ("de", messages[:40])):
        place = tmp_path / "locale" / code / "LC_MESSAGES"
        place.mkdir(parents=True)
        entries = [f'msgid "{m}"\nmsgstr "{translated(m, code)}"\n\n' for m in has]
        (place / "x.po").write_text(CATALOGUE + "".join(entries))
    output = tmp_path / "text"
    text.prepare(
        output, CODES, apart=("en", "fr"), catalogue_folders=[str(tmp_path / "locale")], held_out=0.2, mining=["en-de"]
    )
    held = [{code: lines(output / f"{split}.{code}") for code in CODES} for split in ("val", "test")]
    for of in held:
        assert len(of["en"]) == 8
        assert all([translated(m, code) for m in of["en"]] == of[code] for code in ("fr", "de"))
    train = {code: lines(output / f"train.{code}") for code in CODES}
    assert len(train["de"]) == 40 - 16 and len(train["en"]) + len(train["fr"]) == 61 - 16
    assert min(len(train["en"]), len(train["fr"])) > 10
    assert not {translated(m, "fr") for m in train["en"]} & set(train["fr"])
    for of, code in itertools.product(held, CODES):
        assert not set(of[code]) & set(train[code])


@pytest.mark.parametrize(
    ("options", "broken", "message"),
    [
        ({"languages": ["en"]}, {}, "the languages are en; wanted two or more"),
        ({"languages": ["en", "fr", "en"]}, {}, "none of them twice"),
        ({"apart": ["en", "es"]}, {}, "apart names es, and the languages are en, fr, de"),
        ({"mining": ["en-es"]}, {}, "mining names es"),
        ({"mining": ["en-en"]}, {}, "mining is of pairs such as en-fr, found en-en"),
        ({"mining": ["en-de-fr"]}, {}, "mining is of pairs such as en-fr, found en-de-fr"),
        ({"apart": ["en", "en"]}, {}, "apart are en, en; wanted none of them twice"),
        ({"names": ["train", "dev", "train"]}, {}, "names are train, dev, train; wanted three different ones"),
        ({"catalogue_folders": ["x"]}, {}, "from a folder or from catalogues, and both are given"),
        ({"apart": ["en", "fr"]}, {"train.fr": "frx\n" * 30}, "train.en, .*train.fr have 90, 30 lines; give aligned"),
        ({}, {"test.en": "swap test"}, r"test.en has \d+% of the words of the .* in fr and 0% of those in en"),
        ({"limit": 0}, {}, "limit is 0; wanted a whole number of 1"),
        ({"held_out": 0.5}, {}, "held_out is 0.5; wanted a share"),
        ({"names": ["train", "dev"]}, {}, "names are train, dev; wanted three"),
        ({"languages": ["en", "es"]}, {}, "train.es does not exist"),
        ({}, {"dev.fr": "frdev0\n"}, "dev.en has 12 lines and .*dev.fr 1; line i of all has to be the same"),
        ({}, {"dev.fr": "frdev0\n" * 5 + "\n" + "fr\n" * 6}, "dev.fr, line 6: no text"),
        ({}, {"train.en": "\n\n"}, "source: there is no sentence for train.en; it takes more text"),
        (
            {},
            {"train.en": "swap"},
            r"train.en has \d+% of the words of the .* in fr and 0% .* in en",
        ),
    ],
)
def test_what_can_not_be_used(folder, tmp_path, options, broken, message):
    for name, contents in broken.items():
        of = {"swap": "train.fr", "swap test": "test.fr"}.get(contents)
        swapped = (folder / of).read_text() if of else contents
        (folder / name).write_text(swapped)
    given = {"languages": CODES, "folder": folder, "names": ["train", "dev", "test"], **options}
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        text.prepare(tmp_path / "text", **given)
    assert not (tmp_path / "text").exists()


def test_catalogues_have_english(tmp_path):
    with pytest.raises(ValueError, match="catalogues translate English, and the languages are fr, de: add en"):
        text.prepare(tmp_path / "text", ["fr", "de"])


@pytest.mark.parametrize("output", ["source", "source/text", "."])
def test_the_source_is_never_written_over(folder, tmp_path, output):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ValueError, match="one of them is the other or lies in it; give an output elsewhere"):
        text.prepare(tmp_path / output, CODES, folder=folder, names=["train", "dev", "test"], overwrite=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "novel.txt").touch()
    with pytest.raises(FileExistsError, match="mine has no about.json, so vmsst_jax.text has not made it"):
        text.prepare(tmp_path / "mine", CODES, folder=folder, names=["train", "dev", "test"], overwrite=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert (tmp_path / "mine" / "novel.txt").exists()
