import numpy as np
import pytest

from vmsst_jax.benchmarks import metrics, psm, sentences, suite

LINES = 20


def meaning(text):
    """A vector that depends on the sentence's number alone."""
    return np.random.default_rng(int(text.split()[1])).normal(size=4)


def language(text):
    """One that depends on the language too, so that few sentences find theirs."""
    return meaning(text) + 3 * np.random.default_rng(sum(map(ord, text))).normal(size=4)


@pytest.fixture
def folder(tmp_path):
    for code in ("cs", "en", "ru"):
        text = "".join(f"{code} {i}\n" for i in range(LINES))
        (tmp_path / f"newstest2012.{code}").write_text(text, encoding="utf-8")
    (tmp_path / "README.md").write_text("not a language")
    return tmp_path


@pytest.fixture
def model(text_vectors):
    """Its own vectors are those of ``language``, its middle layer knows the meaning."""
    model = text_vectors(layers=(lambda text: np.ones(4), meaning, language))
    model.vector = language
    return model


def test_all_directions(folder, model):
    result = psm.evaluate(model, folder, layers=False)
    sides = {c: np.array([language(f"{c} {i}") for i in range(LINES)]) for c in ("cs", "en", "ru")}
    expected = {}
    for a, b in (("cs", "en"), ("cs", "ru"), ("en", "ru")):
        expected[f"{a}->{b}"], expected[f"{b}->{a}"] = metrics.match_rows(sides[a], sides[b])
    found = result["per_language"]
    assert list(found) == ["cs->en", "cs->ru", "en->cs", "en->ru", "ru->cs", "ru->en"]
    for key, scores in expected.items():
        assert {name: found[key][name] for name in scores} == pytest.approx(scores), key
    assert len({s["accuracy"] for s in found.values()}) > 2
    mean = result["means"]
    assert {name: m["languages"] for name, m in mean.items()} == {
        "all": 6, "with en": 4, "without en": 2,
        "from cs": 2, "to cs": 2, "from en": 2, "to en": 2, "from ru": 2, "to ru": 2,
    }  # fmt: skip
    assert mean["to ru"]["accuracy"] == np.mean([found["cs->ru"]["accuracy"], found["en->ru"]["accuracy"]])
    assert result["split"] == "newstest2012" and "layers" not in result
    assert [code for code, _ in model.asked] == [c for c in ("cs", "en", "ru") for _ in range(LINES)]


def test_layer_sweep(folder, model):
    result, table = suite.run("psm", model, folder, {})
    layers = result["layers"]
    assert [row["layer"] for row in layers] == [0, 1, 2]
    assert layers[0]["accuracy"] == pytest.approx(1 / LINES)  # all are the same: the first one is everybody's neighbour
    assert layers[1] == {"layer": 1, "accuracy": 1.0, "lowest": 1.0, "highest": 1.0}
    own = [s["accuracy"] for s in result["per_language"].values()]
    assert layers[2]["accuracy"] == pytest.approx(np.mean(own)) == result["means"]["all"]["accuracy"]
    assert (layers[2]["lowest"], layers[2]["highest"]) == (min(own), max(own))
    assert result["best_layer"] == 1
    (figure,) = result["figures"]
    assert figure["kind"] == "lines" and figure["series"]["accuracy"][:2] == [[0, 5.0], [1, 100.0]]
    assert figure["marks"] == [[1, 100.0, "best: 1"]]
    assert "1 best" in table and table.splitlines()[0].split() == ["from", "\\", "to", "cs", "en", "ru"]


def test_languages_embedded_in_parts(folder, model, monkeypatch):
    whole = psm.evaluate(model, folder)
    monkeypatch.setattr(sentences, "BLOCK", 7)
    assert psm.evaluate(model, folder) == whole


def test_a_model_without_layers(folder, text_vectors):
    assert "layers" not in psm.evaluate(text_vectors(), folder)
    with pytest.raises(ValueError, match="has no layers"):
        psm.evaluate(text_vectors(), folder, layers=True)


def test_one_pair_has_no_mean_without_english(folder, model):
    result, table = suite.run("psm", model, folder, {"languages": ["ces", "en"], "layers": False})
    assert list(result["per_language"]) == ["cs->en", "en->cs"]
    assert result["means"]["without en"]["languages"] == 0 and "without en" not in table


def test_bad_data(folder, model):
    def fails(error, match, data=folder, **options):
        with pytest.raises(error, match=match):
            psm.evaluate(model, data, **options)

    fails(FileNotFoundError, "holds no files newstest2013.xx; it has newstest2012", test_set="newstest2013")
    fails(FileNotFoundError, "holds no files newstest2012.xx; it has none", folder / "none")
    fails(ValueError, "there is only .*newstest2012.cs; wanted two", languages=["cs"])
    fails(ValueError, "no language 'fr'", languages=["fr", "en"])
    (folder / "newstest2013.cs").write_text("a\n")
    fails(ValueError, "several sets; say which by test_set: newstest2012, newstest2013")
    (folder / "newstest2012.en").write_text("en 0\nen 1\n")
    fails(ValueError, "newstest2012.cs has 20 lines and .*newstest2012.en 2", test_set="newstest2012")
    (folder / "newstest2012.en").write_text("")
    fails(ValueError, "newstest2012.en is empty", test_set="newstest2012")
