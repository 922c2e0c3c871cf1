"""Word by word: CSLS by brute force, what is copied, the file, the score against a dictionary."""

import json

import numpy as np
import pytest

from vmsst_jax import word_mapping
from vmsst_jax.words import translation
from vmsst_jax.words.mapped import Mapped, WordMapping
from vmsst_jax.words.translation import WordTranslator

EN = ["the", "dog", "cat", "man", "woman", "sees", "runs", "red", "house", "street", "a", "black"]
DE = ["der", "hund", "katze", "mann", "frau", "sieht", "läuft", "rot", "haus", "straße", "ein", "schwarz"]


@pytest.fixture(scope="module")
def mapping():
    rng = np.random.default_rng(0)
    space = rng.normal(size=(12, 8))
    sides = {c: (space + 0.1 * rng.normal(size=space.shape)).astype(np.float32) for c in ("en", "de")}
    order = rng.permutation(12)
    return WordMapping(
        {"en": Mapped(EN, sides["en"]), "de": Mapped([DE[i] for i in order], 3 * sides["de"][order])}, {"by": "hand"}
    )


@pytest.fixture
def saved(mapping, tmp_path):
    mapping.save(tmp_path / "map.npz")
    return tmp_path / "map.npz"


def test_words_are_replaced_in_their_places(mapping):
    translator = WordTranslator(mapping, "eng", "de")
    texts = ["The man  sees a red House, 3.5 km!", "DOG zebra\tcat", "", "  "]
    assert translator.translate(texts) == ["Der mann  sieht ein rot haus, 3.5 km!", "Hund zebra\tkatze", "", "  "]
    assert translator.counts == {"words": 10, "unknown": 2}  # km and zebra
    assert WordTranslator(mapping, "de", "en").translate(["Die STRASSE, die Straße"]) == ["Die STRASSE, die street"]
    assert WordTranslator(mapping, "en", "de", candidates=11).translate(["cat"]) != [""]


def test_the_nearest_by_csls_is_taken():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(80, 6)) + 0.6, rng.normal(size=(70, 6)) + 0.6
    names = [f"w{i}" for i in range(80)], [f"v{i}" for i in range(70)]
    found = WordMapping({"a": Mapped(names[0], a.astype(np.float32)), "b": Mapped(names[1], b.astype(np.float32))}, {})
    a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b))
    for candidates in (50_000, 40):
        sims = a @ b[:candidates].T
        among = a[:candidates] @ b[:candidates].T
        scores = sims - np.sort(among, axis=0)[-10:].mean(axis=0) / 2
        got = WordTranslator(found, "a", "b", candidates=candidates).words(list(range(80)))
        assert got == [f"v{j}" for j in scores.argmax(axis=1)]
        assert (scores.argmax(axis=1) != sims.argmax(axis=1)).any()


def test_no_word_becomes_a_mark_or_number(mapping):
    """The vector of "!" is that of the right translation, and the word behind it is taken."""
    de = mapping.languages["de"]
    found = {**mapping.languages, "de": Mapped([*"!7", *de.words], np.r_[de.vectors[:2] * 1.01, de.vectors])}
    assert WordTranslator(WordMapping(found, {}), "en", "de").translate([" ".join(EN)]) == [" ".join(DE)]


def test_the_command_translates_and_scores(saved, tmp_path, capsys):
    (tmp_path / "in.txt").write_text("The dog runs.\n\nblack cat?\n")
    (tmp_path / "words.txt").write_text("dog hund\ndog köter\ncat hund\nman mann\nunicorn einhorn\nred rouge\n")
    pair = [f"--mapping={saved}", "--source=en", "--target=de"]
    flags = ["translate", *pair, f"--input={tmp_path}/in.txt", f"--output={tmp_path}/out.txt"]
    word_mapping.main(flags)
    assert (tmp_path / "out.txt").read_text() == "Der hund läuft.\n\nSchwarz katze?\n".replace("Schwarz", "schwarz")
    assert "3 lines, 5 words, 0 of them unknown" in capsys.readouterr().out
    assert json.loads((tmp_path / "out.txt.json").read_text())["languages"] == ["en", "de"]
    word_mapping.main(flags)
    assert "it is there already, 3 lines" in capsys.readouterr().out
    text = (tmp_path / "out.txt").read_text()
    (tmp_path / "out.txt").write_text(text.replace("hund", "rind"))  # as many lines and letters
    with pytest.raises(FileExistsError, match="out.txt is not as it was made, .* use --overwrite"):
        word_mapping.main(flags)
    made = json.loads((tmp_path / "out.txt.json").read_text())
    del made["output_sha256"]  # as if killed before that was known
    (tmp_path / "out.txt.json").write_text(json.dumps(made))
    word_mapping.main(flags)
    assert (tmp_path / "out.txt").read_text() == text
    (tmp_path / "in.txt").write_text("cat\n")
    with pytest.raises(FileExistsError, match="out.txt exists and was made of other"):
        word_mapping.main(flags)
    word_mapping.main([*flags, "--overwrite"])
    assert (tmp_path / "out.txt").read_text() == "katze\n"
    capsys.readouterr()
    word_mapping.main(["score", *pair, f"--dictionary={tmp_path}/words.txt"])
    # cat is hund by this list; unicorn and rouge are not known.
    assert "66.7 % of 3 words are translated rightly (CSLS); the dictionary has 5" in capsys.readouterr().out
    found = translation.accuracy(WordMapping.load(saved), tmp_path / "words.txt", "en", "de")
    assert found == {"words": 5, "covered": 3, "accuracy": pytest.approx(2 / 3)}


def test_scores_do_not_depend_on_case(mapping, tmp_path):
    """German nouns of a --true_case mapping, against a dictionary in lower case, and the other way round."""
    de = mapping.languages["de"]
    upper = Mapped([word.capitalize() for word in de.words], de.vectors)
    cased = WordMapping({**mapping.languages, "de": upper}, {})
    (tmp_path / "lower.txt").write_text("dog hund\nman mann\n")
    (tmp_path / "upper.txt").write_text("Dog Hund\nMAN MANN\n")
    for name in ("lower.txt", "upper.txt"):
        found = translation.accuracy(cased, tmp_path / name, "en", "de")
        assert found == {"words": 2, "covered": 2, "accuracy": 1.0}
        assert translation.accuracy(mapping, tmp_path / name, "en", "de") == found
        (tmp_path / "back.txt").write_text(
            "".join(" ".join(line.split()[::-1]) + "\n" for line in (tmp_path / name).open())
        )
        assert translation.accuracy(cased, tmp_path / "back.txt", "de", "en") == found


def test_pairs_are_written_beside(saved, tmp_path):
    """In the form of tests/tasks/test_folder_text.py, without empty lines and with no more tabs than columns."""
    (tmp_path / "in.txt").write_text("The dog runs.\n\na  black\tcat\n")
    flags = ["translate", f"--mapping={saved}", "--source=en", "--target=de", f"--input={tmp_path}/in.txt"]
    flags += [f"--output={tmp_path}/out.txt", f"--pairs={tmp_path}/out.tsv"]
    wanted = "en\tde\tThe dog runs.\tDer hund läuft.\nen\tde\ta black cat\tein schwarz katze\n"
    for left in ("nothing", "everything", "all but the pairs"):
        if left == "all but the pairs":
            (tmp_path / "out.tsv").unlink()
        word_mapping.main(flags)
        assert (tmp_path / "out.tsv").read_text() == wanted, left
    (tmp_path / "out.tsv").write_text("mine\n")
    with pytest.raises(FileExistsError, match="out.tsv exists and has other pairs; use --overwrite"):
        word_mapping.main(flags)
    assert (tmp_path / "out.tsv").read_text() == "mine\n" and not (tmp_path / "out.tsv.new").exists()
    word_mapping.main([*flags, "--overwrite"])
    assert (tmp_path / "out.tsv").read_text() == wanted
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError, match="folder is a folder; give the name of a file"):
        word_mapping.main([*flags[:-1], f"--pairs={tmp_path}/folder"])
    with pytest.raises(ValueError, match="out.txt would be written twice"):
        word_mapping.main([*flags[:-1], f"--pairs={tmp_path}/out.txt"])


def test_bad_inputs(saved, mapping, tmp_path):
    for pair, message in (
        (("en", "fr"), "the word mapping has no language 'fr', only en, de"),
        (("en", "eng"), "source and target are both 'en'"),
    ):
        with pytest.raises(ValueError, match=message):
            WordTranslator(mapping, *pair)
    with pytest.raises(ValueError, match="CSLS compares with 10 neighbours"):
        WordTranslator(mapping, "en", "de", candidates=5)
    (tmp_path / "in.txt").write_text("dog\n")
    with pytest.raises(ValueError, match="is among the files to be written"):
        translation.translate_file(saved, tmp_path / "in.txt", tmp_path / "in.txt", "en", "de")
    with pytest.raises(FileNotFoundError, match="there is no folder .*nowhere"):
        translation.translate_file(saved, tmp_path / "in.txt", tmp_path / "nowhere" / "out.txt", "en", "de")
    (tmp_path / "words.txt").write_text("x y\n")
    with pytest.raises(ValueError, match="the mapping covers none of its 1 words; is en its first column"):
        translation.accuracy(mapping, tmp_path / "words.txt", "en", "de")


def test_the_whole_way_by_commands(tmp_path, capsys):
    """Two languages with one grammar and other words, from text to translations."""
    rng = np.random.default_rng(2)
    share = 1 / np.arange(1, 101)
    follow = np.cumsum(rng.dirichlet(share, size=100), axis=1)  # which word follows which
    text = [rng.choice(100, size=2000, p=share / share.sum())]
    for _ in range(7):
        text.append(np.minimum((follow[text[-1]] < rng.random((2000, 1))).sum(axis=1), 99))
    text = np.stack(text, axis=1)
    for seed, (code, letter) in enumerate((("one", "x"), ("two", "y"))):
        lines = [" ".join(f"{letter}{word}" for word in line) for line in text]
        (tmp_path / f"{code}.txt").write_text("\n".join(lines) + "\n")
        word_mapping.main(
            ["train_vectors", f"--input={tmp_path}/{code}.txt", f"--output={tmp_path}/{code}.vec", f"--seed={seed}"]
            + ["--dim=10", "--window=2", "--epochs=10", "--sample=0"]
        )
    (tmp_path / "seed.txt").write_text("".join(f"x{i} y{i}\n" for i in range(0, 100, 5)))
    vectors = f"--vectors=one={tmp_path}/one.vec,two={tmp_path}/two.vec"
    word_mapping.main(
        ["map", vectors, f"--output={tmp_path}/m.npz", "--start=dictionary", f"--dictionary={tmp_path}/seed.txt"]
        + [f"--idf_texts=one={tmp_path}/one.txt,two={tmp_path}/two.txt", "--patience=2"]
    )
    assert "one, two in one space" in capsys.readouterr().out
    (tmp_path / "gold.txt").write_text("".join(f"x{i} y{i}\n" for i in range(100) if i % 5))
    found = translation.accuracy(WordMapping.load(tmp_path / "m.npz"), tmp_path / "gold.txt", "one", "two")
    assert found["covered"] > 60 and found["accuracy"] > 0.8
