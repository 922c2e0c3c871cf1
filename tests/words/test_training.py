"""Training by gensim: words that keep the same company come near; what is done is left alone."""

import dataclasses
import json

import numpy as np
import pytest

from vmsst_jax import word_mapping
from vmsst_jax.words import training, vectors
from vmsst_jax.words.training import TrainingSettings

QUICK = TrainingSettings(dim=12, epochs=20, min_count=2, sample=0)


@pytest.fixture
def text(tmp_path):
    """Cats and dogs bark at nothing; pears and apples are eaten."""
    rng = np.random.default_rng(0)
    beasts, fruits = ("Cat", "dog", "horse"), ("pear", "apple", "plum")
    lines = [
        f"the {rng.choice(beasts)} runs and sleeps , it jumps ." if i % 2 else f"we eat a ripe {rng.choice(fruits)} !"
        for i in range(300)
    ]
    (tmp_path / "text.txt").write_text("\n".join([*lines, "", "once"]) + "\n")
    return tmp_path / "text.txt"


def test_words_of_like_company_come_near(text):
    made = training.train(text, text.parent / "a.vec", QUICK, progress=False)
    found = vectors.read(text.parent / "a.vec")
    assert made["words"] == len(found.words) == 18 + 1 and made["dim"] == found.vectors.shape[1] == 12
    assert "once" not in found.words and "cat" in found.words and "!" in found.words
    unit = dict(zip(found.words, found.vectors / np.linalg.norm(found.vectors, axis=1, keepdims=True), strict=True))
    assert unit["cat"] @ unit["dog"] > unit["cat"] @ unit["pear"] + 0.2
    assert unit["pear"] @ unit["plum"] > unit["dog"] @ unit["plum"] + 0.2


def test_several_windows_stand_side_by_side(text):
    alone = {}
    for window in (1, 4):
        output = text.parent / f"{window}.vec"
        training.train(text, output, dataclasses.replace(QUICK, window=window), progress=False)
        alone[window] = vectors.read(output)
    both = dataclasses.replace(QUICK, window=(4, 1))
    output = text.parent / "both.vec"
    assert training.train(text, output, both, progress=False)["dim"] == 24
    found = vectors.read(output)
    assert found.words == alone[1].words == alone[4].words
    for part, window in zip(np.split(found.vectors, 2, axis=1), (4, 1), strict=True):
        np.testing.assert_allclose(np.linalg.norm(part, axis=1), 1, atol=1e-5)
        cosines = (part * alone[window].vectors).sum(axis=1) / np.linalg.norm(alone[window].vectors, axis=1)
        np.testing.assert_allclose(cosines, 1, atol=1e-5)
    assert training.train(text, output, both)["found"]
    with pytest.raises(FileExistsError, match="was made of other inputs or settings"):
        training.train(text, output, dataclasses.replace(QUICK, window=(1, 4)))
    word_mapping.main(["train_vectors", f"--input={text}", f"--output={text.parent}/c.vec", "--window=1,4", "--dim=6"])
    assert vectors.read(text.parent / "c.vec").vectors.shape[1] == 12


def test_what_is_done_is_left_alone(text, capsys):
    output = text.parent / "a.vec.gz"
    assert not training.train(text, output, QUICK)["found"]
    before = output.read_bytes()
    assert training.train(text, output, QUICK)["found"]
    other = TrainingSettings(dim=13, epochs=1, min_count=2)
    with pytest.raises(FileExistsError, match="was made of other inputs or settings"):
        training.train(text, output, other)
    assert output.read_bytes() == before
    output.write_bytes(before[:-9])
    with pytest.raises(FileExistsError, match="a.vec.gz is not as it was made, a part is missing or altered"):
        training.train(text, output, QUICK)
    output.unlink()  # as if killed before it was written
    assert not training.train(text, output, QUICK, progress=False)["found"]
    assert output.read_bytes() == before  # one thread, one seed
    assert training.train(text, output, other, overwrite=True, progress=False)["dim"] == 13
    assert json.loads((text.parent / "a.vec.gz.json").read_text())["settings"]["epochs"] == 1


def test_case_is_kept_if_wanted(text):
    settings = TrainingSettings(dim=4, epochs=1, min_count=2, lower=False)
    training.train(text, text.parent / "a.vec", settings, progress=False)
    assert "Cat" in vectors.read(text.parent / "a.vec").words


def test_words_are_written_as_they_stand_inside_sentences(tmp_path):
    lines = [
        "Der Hund schläft, der Mann nicht.",
        "Hund und Mann: ein HUND.",
        "Ein Hund sieht ein' Mann.",
        "- Das war's.",
    ]
    (tmp_path / "de.txt").write_text("\n".join(lines) + "\n")
    for true_case in (False, True):
        settings = TrainingSettings(dim=4, epochs=1, min_count=1, true_case=true_case)
        training.train(tmp_path / "de.txt", tmp_path / f"{true_case}.vec", settings, progress=False)
    plain, cased = (vectors.read(tmp_path / f"{case}.vec") for case in (False, True))
    assert [word.lower() for word in cased.words] == plain.words
    np.testing.assert_array_equal(cased.vectors, plain.vectors)
    assert set(cased.words) == {*"der Hund schläft Mann nicht und ein sieht das war s".split(), *"-,:.'"}


def test_bad_inputs(text):
    for options, message in (
        ({"algorithm": "glove"}, "the algorithm is 'glove'; use one of skip_gram, cbow"),
        ({"dim": 0}, "TrainingSettings.dim is 0"),
        ({"sample": 1.0}, "TrainingSettings.sample is 1.0"),
        ({"seed": 2**32}, "TrainingSettings.seed is 4294967296; wanted one below 2.32"),
        ({"true_case": True, "lower": False}, "true_case is for words that are lower-cased"),
        ({"window": (3, 0)}, "an entry of TrainingSettings.window is 0"),
        ({"window": (3, 3)}, "wanted one window, or different ones"),
    ):
        with pytest.raises(ValueError, match=message):
            TrainingSettings(**options)
    with pytest.raises(ValueError, match="0 words occur 5000 times or more in its 302 lines"):
        training.train(text, text.parent / "b.vec", TrainingSettings(min_count=5000), progress=False)
    with pytest.raises(ValueError, match="wanted a name that ends in .vec"):
        training.train(text, text.parent / "b.bin", QUICK)
    with pytest.raises(ValueError, match="is among the files to be written"):
        training.train(text, text, QUICK)
    with pytest.raises(FileNotFoundError, match="none.txt does not exist"):
        training.train(text.parent / "none.txt", text.parent / "b.vec", QUICK)
    assert not (text.parent / "b.vec").exists()
