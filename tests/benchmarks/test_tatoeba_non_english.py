import numpy as np
import pytest

from vmsst_jax.benchmarks import metrics, suite, tatoeba_non_english


@pytest.fixture
def folder(tmp_path):
    for name, n in (("ara-deu", 14), ("deu-zho", 12), ("ell-rus", 13)):
        a, b = name.split("-")
        (tmp_path / f"{name}.tsv").write_text("".join(f"{a} {i}\t{b} {i % 11}\n" for i in range(n)), encoding="utf-8")
    (tmp_path / "README.md").write_text("not a pair")
    return tmp_path


def test_pairs_and_means(folder, text_vectors):
    model = text_vectors()
    result, table = suite.run("tatoeba_non_english", model, folder, {})
    vectors = [np.array([model.vector(f"{code} {i % m}") for i in range(14)]) for code, m in (("ara", 99), ("deu", 11))]
    expected = metrics.translation_scores(*vectors)
    found = result["per_language"]["ara-deu"]
    assert found["pairs"] == 14 and found["a->b"] == expected["xx->en"] and found["b->a"] == expected["en->xx"]
    assert found["skewness"] == pytest.approx(expected["skewness"])
    means = result["means"]
    assert {name: mean["languages"] for name, mean in means.items()} == {
        "all": 3, "ara": 1, "deu": 2, "ell": 1, "rus": 1, "zho": 1,
    }  # fmt: skip
    with_german = [result["per_language"][name]["mean"] for name in ("ara-deu", "deu-zho")]
    assert means["deu"]["mean"] == pytest.approx(np.mean(with_german))
    assert "ell-rus" in table and "mean of all" in table
    # One call for each language: German's sentences of both files together, and each once.
    assert [language for language, _ in model.asked] == [
        code for code, n in (("ara", 14), ("deu", 12), ("zho", 11), ("ell", 13), ("rus", 11)) for _ in range(n)
    ]


def test_choices(folder, text_vectors):
    def chosen(**options):
        return list(tatoeba_non_english.evaluate(text_vectors(), folder, **options)["per_language"])

    assert chosen(languages=["de", "zh", "ar"]) == ["ara-deu", "deu-zho"]
    assert chosen(pairs=["ell-rus"]) == ["ell-rus"]
    with pytest.raises(ValueError, match="has no pair deu-ell; it has ara-deu"):
        chosen(pairs=["deu-ell"])
    with pytest.raises(ValueError, match="no pair is chosen by languages"):
        chosen(languages=["ar", "ru"])


def test_bad_files(folder, text_vectors):
    (folder / "deu-zho.tsv").write_text("one\ttwo\nthree\n")
    with pytest.raises(ValueError, match="deu-zho.tsv, line 2: 1 columns; wanted 2"):
        tatoeba_non_english.evaluate(text_vectors(), folder)
    (folder / "deu-zho.tsv").write_text("")
    with pytest.raises(ValueError, match="deu-zho.tsv is empty"):
        tatoeba_non_english.evaluate(text_vectors(), folder)
    (folder / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="holds no files aaa-bbb.tsv"):
        tatoeba_non_english.evaluate(text_vectors(), folder / "empty")
