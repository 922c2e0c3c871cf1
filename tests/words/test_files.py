"""From vectors to a mapping file: two languages and three, what is refused, what goes on after a kill."""

import dataclasses

import numpy as np
import pytest
import scipy.linalg

from vmsst_jax.words import files, lexicon, mapping, vectors
from vmsst_jax.words.mapped import WordMapping
from vmsst_jax.words.mapping import MappingSettings
from vmsst_jax.words.vectors import WordVectors

QUICK = MappingSettings(patience=3, keep=0.5)


@pytest.fixture(scope="module")
def written(tmp_path_factory, easy):
    """{code: file} of two languages with words such as a7 and the b that means the same, b7; a and b."""
    folder = tmp_path_factory.mktemp("vectors")
    number = np.argsort(easy.right)  # row j of the other is word number[j] of the one
    vectors.write(folder / "a.vec", WordVectors([f"a{i}" for i in range(easy.words)], easy.one))
    vectors.write(folder / "b.vec.gz", WordVectors([f"b{i}" for i in number], easy.other))
    return {"a": folder / "a.vec", "b": folder / "b.vec.gz"}


def right_share(found, a="a", b="b"):
    """How many words of a have their translation as the nearest of b by cosine."""
    sides = [found.languages[code] for code in (a, b)]
    x, z = (side.vectors / np.linalg.norm(side.vectors, axis=1, keepdims=True) for side in sides)
    nearest = (x @ z.T).argmax(axis=1)
    return np.mean([word[1:] == sides[1].words[j][1:] for word, j in zip(sides[0].words, nearest, strict=True)])


def test_two_languages_in_one_space(written, tmp_path):
    output, said = tmp_path / "m.npz", []
    made = files.map_files(written, output, QUICK, say=said.append)
    found = WordMapping.load(output)
    assert right_share(found) > 0.95 and right_share(found, "b", "a") > 0.95
    assert found.about["identity"]["last"] == "symmetric" and made["learned"]["b"]["objectives"][0] > 0.9
    assert said[0] == "b -> a: 240 pairs to begin with (similarities)"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.npz"]
    before = output.read_bytes()
    assert files.map_files(written, output, QUICK)["found"] and output.read_bytes() == before
    with pytest.raises(FileExistsError, match="m.npz exists and was made of other files or settings"):
        files.map_files(written, output, dataclasses.replace(QUICK, seed=1))
    orthogonal = files.map_files(written, output, QUICK, last="orthogonal", overwrite=True)
    assert not orthogonal["found"] and orthogonal["identity"]["pivot"] == "a"
    # Unlike a symmetric map, a rotation keeps the pivot and all inner products.
    found, plain = WordMapping.load(output).languages, {c: vectors.read(f).vectors for c, f in written.items()}
    np.testing.assert_array_equal(found["a"].vectors, mapping.normalized(plain["a"]))
    unit = mapping.normalized(plain["b"])
    np.testing.assert_allclose(found["b"].vectors @ found["b"].vectors.T, unit @ unit.T, atol=1e-5)
    with pytest.raises(ValueError, match="re-weighting makes a space for two languages, and there are 3"):
        files.map_files({**written, "c": written["a"]}, tmp_path / "n.npz", QUICK, last="symmetric")


def test_of_several_attempts_the_best_counts(written, tmp_path):
    lone = [
        files.map_files(written, tmp_path / f"{seed}.npz", dataclasses.replace(QUICK, seed=seed))["learned"]["b"]
        for seed in (3, 4)
    ]
    said = []
    settings = dataclasses.replace(QUICK, seed=3, attempts=2)
    both = files.map_files(written, tmp_path / "both.npz", settings, say=said.append)["learned"]["b"]
    objectives = [one["objectives"][0] for one in lone]
    best = int(np.argmax(objectives))
    assert both == {"rounds": lone[best]["rounds"], "objectives": objectives, "seed": 3 + best}
    assert f"attempt {best + 1} has the highest objective" in said[-1]
    found = [WordMapping.load(tmp_path / f"{name}.npz").languages["b"].vectors for name in ("both", 3 + best)]
    np.testing.assert_array_equal(*found)


def test_three_languages_in_the_pivot_s_space(written, tmp_path, easy):
    turn = scipy.linalg.qr(np.random.default_rng(8).normal(size=(8, 8)))[0]
    vectors.write(tmp_path / "c.vec", WordVectors([f"c{i}" for i in range(easy.words)], easy.one @ turn))
    files.map_files({"c": tmp_path / "c.vec", **written}, tmp_path / "m.npz", QUICK, pivot="a")
    found = WordMapping.load(tmp_path / "m.npz")
    assert right_share(found, "c", "a") > 0.97
    assert right_share(found, "c", "b") > 0.9  # never mapped to each other


def test_a_killed_run_goes_on(written, tmp_path, monkeypatch):
    straight = files.map_files(written, tmp_path / "straight.npz", QUICK)
    monkeypatch.setattr(files, "SECONDS_BETWEEN_SAVES", 0)
    rounds = []

    def killed(x, z, keep, number, settings, make=mapping.dictionary):
        rounds.append(number)
        if number == 4 and len(rounds) == 5:
            raise KeyboardInterrupt
        return make(x, z, keep, number, settings)

    monkeypatch.setattr(mapping, "dictionary", killed)
    with pytest.raises(KeyboardInterrupt):
        files.map_files(written, tmp_path / "m.npz", QUICK)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.npz.progress.npz", "straight.npz"]
    with pytest.raises(ValueError, match="is of an interrupted run with other files or settings"):
        files.map_files(written, tmp_path / "m.npz", dataclasses.replace(QUICK, seed=1))
    said = []
    resumed = files.map_files(written, tmp_path / "m.npz", QUICK, say=said.append)
    assert said[0] == "b -> a: goes on behind 4 rounds" and rounds[4:6] == [4, 4]
    assert resumed["learned"] == straight["learned"]
    assert (tmp_path / "m.npz").read_bytes() == (tmp_path / "straight.npz").read_bytes()
    (tmp_path / "n.npz.progress.npz").write_text("broken")
    with pytest.raises(ValueError, match="n.npz.progress.npz is damaged"):
        files.map_files(written, tmp_path / "n.npz", QUICK)
    assert files.map_files(written, tmp_path / "n.npz", QUICK, overwrite=True)["learned"] == straight["learned"]
    assert not (tmp_path / "n.npz.progress.npz").exists()


@pytest.mark.parametrize("pivot", ["a", "b"])
def test_a_dictionary_to_begin_with(written, tmp_path, pivot):
    """Its columns are in the order of the languages, whichever is the pivot."""
    (tmp_path / "seed.txt").write_text("\n".join(f"b{i}\ta{i}" for i in range(0, 120, 4)) + "\n\nb1 unknown\n")
    turned, said = {"b": written["b"], "a": written["a"]}, []
    settings = dataclasses.replace(QUICK, start="dictionary")
    files.map_files(
        turned, tmp_path / "m.npz", settings, pivot=pivot, dictionary=tmp_path / "seed.txt", say=said.append
    )
    assert said[0].endswith(f"-> {pivot}: 30 pairs to begin with (dictionary)")
    assert right_share(WordMapping.load(tmp_path / "m.npz")) > 0.95


def test_words_spelled_alike_to_begin_with(written, tmp_path):
    settings = dataclasses.replace(QUICK, start="identical")
    with pytest.raises(ValueError, match="have no words that are spelled alike among their 120 and 120"):
        files.map_files(written, tmp_path / "x.npz", settings)
    found = vectors.read(written["b"])
    words = ["a" + word[1:] if i % 9 == 0 else word for i, word in enumerate(found.words)]
    vectors.write(tmp_path / "alike.vec", WordVectors(words, found.vectors))
    files.map_files({"a": written["a"], "b": tmp_path / "alike.vec"}, tmp_path / "m.npz", settings)
    assert right_share(WordMapping.load(tmp_path / "m.npz")) > 0.95


def test_bad_inputs(written, tmp_path):
    narrow = tmp_path / "narrow.vec"
    vectors.write(narrow, WordVectors(["x", "y"], np.eye(2, dtype=np.float32)))
    (tmp_path / "seed.txt").write_text("q r\n")
    (tmp_path / "three.txt").write_text("a1 b1\na b c\n")
    (tmp_path / "blank.txt").write_text("\n\n")
    by_dictionary = dataclasses.replace(QUICK, start="dictionary")
    for given, options, error, message in (
        ({"a": written["a"]}, {}, ValueError, "there are vectors of a; wanted two languages or more"),
        ({**written, "b": narrow}, {}, ValueError, "different widths: .*a.vec 8, .*narrow.vec 2; train all with"),
        (written, {"pivot": "fr"}, ValueError, "the pivot is 'fr', and there are vectors of a, b"),
        (written, {"last": "bent"}, ValueError, "the last map is 'bent'; use one of symmetric, orthogonal"),
        (written, {"dictionary": narrow}, ValueError, "the start is 'similarities', the dictionary .*go together"),
        (written, {"settings": by_dictionary}, ValueError, "the start is 'dictionary', the dictionary None"),
        (written, {"idf_texts": {"a": narrow}}, ValueError, "document frequencies are of a; wanted a, b"),
        (written, {"idf_texts": {"a": narrow, "b": narrow}}, ValueError, "narrow.vec has none of the 120 words"),
        ({**written, "b": tmp_path / "no.vec"}, {}, FileNotFoundError, "there is no file .*no.vec"),
    ):
        with pytest.raises(error, match=message):
            files.map_files(given, tmp_path / "x.npz", **{"settings": QUICK, **options})
    for name, message in (
        ("seed", "a and b have no pairs of .*seed.txt among|b and a have no pairs of .*seed.txt among"),
        ("three", "three.txt, line 2: 'a b c' has 3 words; wanted a pair"),
        ("blank", "blank.txt has no pairs of words"),
    ):
        with pytest.raises(ValueError, match=message):
            files.map_files(written, tmp_path / "x.npz", by_dictionary, dictionary=tmp_path / f"{name}.txt")
    with pytest.raises(ValueError, match="wanted a name that ends in .npz"):
        files.map_files(written, tmp_path / "x.vec", QUICK)
    assert not (tmp_path / "x.npz").exists() and not list(tmp_path.glob("*.partial"))


def test_document_frequencies_by_hand(written, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("A0 a1 a0\na1 a2 !\n\na1\n")
    found = lexicon.idf(text, ["a0", "a1", "a2", "a3"])
    wanted = [np.log(1 + (3 - n + 0.5) / (n + 0.5)) for n in (1, 3, 1, 0)]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert 0 < found.min()
    other = tmp_path / "other.txt"
    other.write_text("b0 b1\n")
    files.map_files(written, tmp_path / "m.npz", QUICK, idf_texts={"a": text, "b": other})
    languages = WordMapping.load(tmp_path / "m.npz").languages
    np.testing.assert_allclose(languages["a"].weights[:4], wanted, rtol=1e-6)
    assert languages["b"].weights.shape == (120,)
