"""Vectors of other people's models: what is asked of them, what is refused, what tells one from another."""

import sys
import types

import numpy as np
import pytest

from vmsst_jax.retrieval import embedders


def lengths(texts):
    """A model: number of letters, number of words, 1."""
    return [[len(text), len(text.split()), 1.0] for text in texts]


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Function (source) -> the name of a module with it, which can be imported."""
    monkeypatch.syspath_prepend(tmp_path)
    names = (f"model_of_test_{i}" for i in range(100))

    def write(source):
        name = next(names)
        (tmp_path / f"{name}.py").write_text(source)
        return name

    yield write
    for name in [name for name in sys.modules if name.startswith("model_of_test_")]:
        del sys.modules[name]


def test_a_function_embeds(module):
    name = module("def embed(texts):\n    return [[len(t), t.count('a')] for t in texts]\n")
    model = embedders.load(embedder=f"{name}:embed", batch_size=2)
    vectors = model.encode(["banana", "", "cab"])
    assert vectors.dtype == np.float32 and vectors.tolist() == [[6, 3], [0, 0], [3, 1]]
    assert model.counts == {"sentences": 3, "empty": 1, "truncated": 0}
    assert model.dim == 2 and model.describe()["name"] == f"{name}:embed"
    assert np.linalg.norm(model.encode(["banana", "cab"], normalize=True), axis=1) == pytest.approx(1.0)
    assert model.encode([]).shape == (0, 2)
    with pytest.raises(ValueError, match="function gives one vector per sentence"):
        model.encode_layers(["x"])


def test_a_function_gets_batches_prefix_and_language():
    calls = []

    def embed(texts, language=None):
        calls.append((tuple(texts), language))
        return np.ones((len(texts), 4), np.float16)

    model = embedders.load(embedder=embed, batch_size=2, prefix="q: ")
    assert model.uses_language and calls.pop(0) == (tuple("q: " + text for text in embedders.PROBE), None)
    model.encode(["a", "b", "c"], language="de")
    assert calls == [(("q: a", "q: b"), "de"), (("q: c",), "de")]
    assert not embedders.load(embedder=lengths).uses_language


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda n: np.ones(n), r"returned float64 \[2\] for 2 sentences; wanted numbers \[2, D\]"),
        (lambda n: np.ones((n + 1, 3)), r"returned float64 \[3, 3\] for 2 sentences"),
        (lambda n: [["a", "b"]] * n, "returned <U1"),
        (lambda n: np.full((n, 3), np.nan), r"NaN or infinity for 'Where is the library\?'"),
        (lambda n: np.ones((n, 0)), r"returned float64 \[2, 0\] for 2 sentences"),
    ],
)
def test_what_a_function_may_not_return(answer, message):
    with pytest.raises(ValueError, match=message):
        embedders.load(embedder=lambda texts: answer(len(texts)))


def test_a_function_may_not_change_its_width():
    model = embedders.load(embedder=lambda texts: np.ones((len(texts), 3 if len(texts) > 1 else 4)))
    with pytest.raises(ValueError, match="returned vectors of 4 numbers; its first had 3"):
        model.encode(["one"])


def test_what_changes_a_functions_fingerprint(module):
    source = "scale = {}\ndef embed(texts):\n    return [[scale, 1.0] for t in texts]\n"
    first, second = (module(source.format(scale)) for scale in (1, 2))
    prints = {embedders.load(embedder=f"{name}:embed").fingerprint() for name in (first, first, second)}
    assert len(prints) == 2

    # The same code with other weights.
    weights = types.SimpleNamespace(value=1.0)

    def embed(texts):
        return np.full((len(texts), 2), weights.value)

    before = embedders.load(embedder=embed).fingerprint()
    weights.value = 2.0
    assert embedders.load(embedder=embed).fingerprint() != before
    assert embedders.load(embedder=embed, prefix="q").fingerprint() != embedders.load(embedder=embed).fingerprint()


def test_functions_that_are_not_there(module):
    name = module("import no_such_library_of_test\n")
    value = module("embed = 3\n")
    for path, message in (
        ("model_of_nobody:embed", "there is no module model_of_nobody; give the command in the folder"),
        ("model_of_nobody", "wanted module:function"),
        (f"{value}:encode", f"{value} has no encode"),
        (f"{value}:embed", "of type int; wanted a function"),
    ):
        with pytest.raises(ValueError, match=message):
            embedders.load(embedder=path)
    with pytest.raises(ModuleNotFoundError, match="no_such_library_of_test"):
        embedders.load(embedder=f"{name}:embed")


def write_vectors(folder, name, lines, vectors):
    (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    file = folder / f"{name.removesuffix('.txt')}.npy"
    np.save(file, np.asarray(vectors))
    return file


def test_ready_vectors(tmp_path):
    first = write_vectors(tmp_path, "a.de", ["Hund", "Katze", "Hund"], np.arange(6.0).reshape(3, 2))
    second = write_vectors(tmp_path, "b.txt", ["two lines"], np.array([[9, 8]], np.float16))
    model = embedders.load(vectors=[first, second], trained_languages=["de", "en"])
    assert model.encode(["two\r\nlines", "Hund", "Katze"]).tolist() == [[9, 8], [0, 1], [2, 3]]
    assert model.languages.codes == ("de", "en") and model.dim == 2
    with pytest.raises(ValueError, match=r"have no vector for 'Maus' and 1 more of these 3 texts; .*--write_texts"):
        model.encode(["Hund", "Maus", "Ratte"])
    # A row that changes makes it another model.
    before = model.fingerprint()
    assert embedders.load(vectors=[first, second]).fingerprint() == before
    write_vectors(tmp_path, "b.txt", ["two lines"], np.array([[9, 7]], np.float16))
    assert embedders.load(vectors=[first, second]).fingerprint() != before


def test_ready_vectors_that_do_not_fit(tmp_path):
    good = write_vectors(tmp_path, "good.txt", ["a"], np.ones((1, 2)))
    short = write_vectors(tmp_path, "short.txt", ["a", "b"], np.ones((1, 2)))
    wide = write_vectors(tmp_path, "wide.txt", ["b"], np.ones((1, 3)))
    flat = write_vectors(tmp_path, "flat.txt", ["b"], np.ones(1))
    text = write_vectors(tmp_path, "text.txt", ["b"], np.array([["x", "y"]]))
    bad = write_vectors(tmp_path, "bad.txt", ["b"], [[1.0, np.inf]])
    alone = tmp_path / "alone.npy"
    np.save(alone, np.ones((1, 2)))
    broken = tmp_path / "broken.npy"
    (tmp_path / "broken").write_text("a\n")
    broken.write_text("no array")
    for files, message in (
        ([short], "short.txt has 2 lines and .*short.npy 1 rows"),
        ([good, wide], "good.npy has vectors of 2 numbers and .*wide.npy of 3"),
        ([flat], r"flat.npy holds float64 \[1\]; wanted numbers \[rows, D\]"),
        ([text], "text.npy holds <U1"),
        ([alone], "beside .*alone.npy is neither .*alone nor one with .txt"),
        ([broken], "broken.npy can't be read as an array"),
        ([tmp_path / "good.txt"], "wanted a file NAME.npy beside its text"),
    ):
        with pytest.raises(ValueError, match=message):
            embedders.load(vectors=files)
    with pytest.raises(FileNotFoundError, match="there is no file .*gone.npy"):
        embedders.load(vectors=tmp_path / "gone.npy")
    with pytest.raises(ValueError, match="bad.npy returned NaN or infinity for "):
        embedders.load(vectors=bad).encode(["b"])


def test_one_source_and_its_own_options():
    for given, message in (
        ({}, "wanted one of checkpoint, sentence_transformers, word_mapping, vectors, embedder, found none"),
        ({"checkpoint": "a", "embedder": lengths}, "found checkpoint and embedder"),
        ({"embedder": lengths, "layer": 3}, "layer can't be set for embedder; what can: batch_size, prefix"),
        ({"vectors": ["a.npy"], "prefix": "q"}, "prefix can't be set for vectors"),
    ):
        with pytest.raises(ValueError, match=message):
            embedders.load(**given)
    assert embedders.load(embedder=lengths, layer=None, step=None).dim == 3


def test_sentence_transformers_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ValueError, match="needs the library sentence-transformers.*as checkpoint"):
        embedders.load(sentence_transformers="some/model")
