"""Mean of mapped words against a loop, what unknown words do, and how the commands say which language a text is in."""

import json

import numpy as np
import pytest

from vmsst_jax import embed, evaluate, mine, search
from vmsst_jax.retrieval import cache, embedders
from vmsst_jax.words.mapped import Mapped, WordMapping

RNG = np.random.default_rng(0)
WORDS = {"en": ["the", "dog", "cat", "barks", "sleeps", "."], "de": ["der", "hund", "katze", "bellt", "schläft", "."]}
SPACE = RNG.normal(size=(6, 5)).astype(np.float32)
WEIGHTS = {"en": np.array([0.1, 2, 3, 4, 5, 0.2], np.float32), "de": np.array([0.2, 2, 3, 4, 5, 0.1], np.float32)}


@pytest.fixture
def saved(tmp_path):
    """A mapping in which translations lie close together."""
    noise = {code: 0.05 * RNG.normal(size=SPACE.shape) for code in WORDS}
    languages = {c: Mapped(WORDS[c], (SPACE + noise[c]).astype(np.float32), WEIGHTS[c]) for c in WORDS}
    WordMapping(languages, {"identity": {"pivot": "en"}}).save(tmp_path / "map.npz")
    return tmp_path / "map.npz"


def by_hand(path, code, text, weigh=False):
    """Words between spaces, one by one."""
    one = WordMapping.load(path).languages[code]
    total, weights = np.zeros(5), 0.0
    for word in text.lower().split():
        if word in one.words:
            row = one.words.index(word)
            weight = one.weights[row] if weigh else 1.0
            total, weights = total + weight * one.vectors[row], weights + weight
    return total / weights


@pytest.mark.parametrize("idf", [False, True])
def test_the_mean_of_known_words(saved, idf):
    model = embedders.load(word_mapping=saved, idf=idf or None)
    texts = ["The dog barks .", "the the cat", "A zebra sleeps ."]
    vectors = model.encode(texts, language="eng", batch_size=2)
    wanted = [by_hand(saved, "en", text, idf) for text in texts]
    np.testing.assert_allclose(vectors, wanted, rtol=1e-5)
    assert vectors.dtype == np.float32 and model.dim == 5 and model.languages.codes == ("en", "de")
    counts = {"sentences": 3, "empty": 0, "truncated": 0, "words": 11, "unknown_words": 2, "placed_at_random": 0}
    assert model.counts == counts
    np.testing.assert_array_equal(model.encode(texts[::-1], language="en")[::-1], vectors)  # whatever their neighbours
    german = model.encode(["der hund bellt"], language="de", normalize=True)
    np.testing.assert_allclose(np.linalg.norm(german), 1, rtol=1e-6)
    assert model.describe()["pooling"] == ("mean of words, by idf" if idf else "mean of words")
    assert cache.cached(model) is model


def test_sentences_without_known_words_are_found_by_chance(saved, caplog):
    model = embedders.load(word_mapping=saved)
    texts = ["zebra", "giraffe", "", "the dog"]
    vectors = model.encode(texts, language="en")
    assert model.counts["placed_at_random"] == 3 and model.counts["empty"] == 1
    assert "some sentences have no known word, such as 'zebra'" in caplog.text
    np.testing.assert_array_equal(model.encode(texts[::-1], language="en")[::-1], vectors)
    np.testing.assert_allclose(vectors[3], by_hand(saved, "en", "the dog"), rtol=1e-5)
    assert not np.allclose(model.encode(["zebra"], language="de"), vectors[0])  # its own direction in each language
    many = [f"word{i}" for i in range(400)]
    with pytest.raises(ValueError, match="of 400 sentences in 'de' none has a word that .* knows, such as 'word0'"):
        model.encode(many, language="de")
    many = model.encode([*many, "der hund"], language="de", normalize=True)
    cosines = many[:400] @ many[400]
    assert abs(cosines.mean()) < 0.1 and cosines.std() == pytest.approx(5**-0.5, abs=0.05)


def test_the_language_has_to_be_known(saved):
    model = embedders.load(word_mapping=saved)
    with pytest.raises(ValueError, match="say which it is: .*--language=CODE; there are en, de"):
        model.encode(["the dog"])
    with pytest.raises(ValueError, match="the word mapping has no language 'fr', only en, de"):
        model.encode(["le chien"], language="fr")
    german = model.in_language("deu")
    np.testing.assert_array_equal(german.encode(["hund"]), model.encode(["hund"], language="de"))
    prints = {
        m.fingerprint() for m in (model, german, model.in_language("en"), embedders.load(word_mapping=saved, idf=True))
    }
    assert len(prints) == 4 and embedders.load(word_mapping=saved).fingerprint() == model.fingerprint()
    with pytest.raises(ValueError, match="one vector per sentence, not one per layer"):
        model.encode_layers(["hund"], language="de")


def test_bad_files_and_options(saved, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file .*none.npz; make one with"):
        embedders.load(word_mapping=tmp_path / "none.npz")
    whole = saved.read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    (tmp_path / "text.npz").write_text("en de")
    np.savez(tmp_path / "old.npz", about=np.array(json.dumps({"format": "another"})))
    for name in ("cut", "other", "text", "old"):
        with pytest.raises(ValueError, match=f"{name}.npz is no word mapping or is damaged"):
            embedders.load(word_mapping=tmp_path / f"{name}.npz")
    found = WordMapping.load(saved).languages
    bare = {code: Mapped(one.words, one.vectors) for code, one in found.items()}
    WordMapping(bare, {}).save(tmp_path / "bare.npz")
    with pytest.raises(ValueError, match="bare.npz has no document frequencies of en, de"):
        embedders.load(word_mapping=tmp_path / "bare.npz", idf=True)
    for change in (
        {"de": Mapped(found["de"].words[:5], found["de"].vectors)},
        {"de": Mapped(found["de"].words, found["de"].vectors * np.float32(np.nan))},
        {"de": Mapped(found["de"].words, found["de"].vectors[:, :4])},
        {"de": Mapped(found["de"].words, found["de"].vectors, 0 * WEIGHTS["de"])},
    ):
        WordMapping(found | change, {}).save(tmp_path / "bad.npz")
        with pytest.raises(ValueError, match="bad.npz is no word mapping or is damaged"):
            WordMapping.load(tmp_path / "bad.npz")
    with pytest.raises(ValueError, match="prefix can't be set for word_mapping; what can: idf"):
        embedders.load(word_mapping=saved, prefix="query: ")
    with pytest.raises(ValueError, match="idf can't be set for checkpoint"):
        embedders.load(checkpoint="dir", idf=True)


PAIRS = {
    "en": ["the dog barks .", "the cat sleeps .", "dog", "cat cat dog"],
    "de": ["der hund bellt .", "der katze schläft .", "hund", "katze katze hund"],
}


@pytest.fixture
def newstest(tmp_path):
    folder = tmp_path / "newstest"
    folder.mkdir()
    for code, lines in PAIRS.items():
        (folder / f"newstest2012.{code}").write_text("\n".join([*lines, "xyzzy"]) + "\n")
    return folder


def test_evaluate(saved, newstest, tmp_path, capsys):
    flags = ["--benchmark=psm", f"--data_dir={newstest}", f"--output={tmp_path}/out", f"--word_mapping={saved}"]
    evaluate.main([*flags, "--idf"])
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert found["per_language"]["de->en"]["accuracy"] >= 0.8 and found["model"]["idf"]
    assert found["sentences"]["placed_at_random"] == 2 and found["sentences"]["unknown_words"] == 2
    assert "layers" not in found
    models = {"words": {"word_mapping": str(saved)}}
    evaluate.main(
        [
            "--gin_file=include/evaluate.gin",
            f"--gin.evaluate.models={models!r}",
            "--gin.evaluate.benchmarks={'psm': {}}",
            f"--gin.DATA_DIR='{tmp_path}'",
            f"--gin.OUTPUT='{tmp_path}/grid'",
        ]
    )
    assert (tmp_path / "grid" / "words" / "psm" / "results.json").exists()


def test_other_commands_are_told_the_language(saved, tmp_path, capsys):
    for code, lines in PAIRS.items():
        (tmp_path / f"{code}.txt").write_text("\n".join(lines) + "\n")
    mapping = f"--word_mapping={saved}"
    embed.main([mapping, f"--input={tmp_path}/de.txt", f"--output={tmp_path}/de.npy", "--language=de"])
    np.testing.assert_allclose(np.load(tmp_path / "de.npy")[0], by_hand(saved, "de", PAIRS["de"][0]), rtol=1e-5)
    sides = [f"--source={tmp_path}/de.txt", f"--target={tmp_path}/en.txt", f"--output={tmp_path}/mined.tsv"]
    mine.main([mapping, *sides, "--source_language=de", "--target_language=en", f"--cache_dir={tmp_path}/c"])
    rows = [line.split("\t") for line in (tmp_path / "mined.tsv").read_text().splitlines()]
    assert len(rows) >= 3 and all(row[1] == row[2] for row in rows)
    corpus = [f"--corpus={tmp_path}/en.txt", "--language=en", f"--cache_dir={tmp_path}/c"]
    capsys.readouterr()
    search.main([mapping, *corpus, "--query_language=de", "--query=Hund", "--top_k=1"])
    assert "line 3: dog" in capsys.readouterr().out
    for main, flags, message in (
        (
            embed.main,
            [f"--input={tmp_path}/de.txt", "--output=x.npy"],
            "say with --language which it is: .* has en, de",
        ),
        (search.main, corpus, "a word mapping treats every language differently; say with --query_language"),
        (
            mine.main,
            [*sides, "--overwrite", "--source_language=de", "--target_language=fr"],
            "--target_language: .*'fr'",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            main([mapping, *flags])
