"""A folder of aligned text as documents and as pairs, and the files of synthetic pairs."""

import pytest

from vmsst_jax.data.text_pairs import CorpusError


@pytest.fixture
def folder(tmp_path):
    for name, count in (("train", 10), ("val", 3), ("test", 2)):
        for code in ("en", "de"):
            lines = [f"{name} {code} {i}" for i in range(1, count + 1)]
            (tmp_path / f"{name}.{code}").write_text("\n".join(lines) + "\n")
    return tmp_path


@pytest.fixture
def bind(gin_bindings, folder):
    from vmsst_jax.tasks import folder_text  # noqa: F401 (what is bound must be known)

    def given(*bindings, languages='("en", "de")'):
        gin_bindings(f'folder_text.data_dir = "{folder}"', f"folder_text.languages = {languages}", *bindings)

    return given


def texts(split, code):
    from vmsst_jax.tasks import folder_text

    found = [d for s, d in folder_text.read_documents() if s == split and d.lang == code]
    assert all(len(d.sentences) == 1 for d in found) and len({d.key for d in found}) == len(found)
    return [d.sentences[0] for d in found]


def test_languages_take_different_lines(bind):
    bind()
    assert texts("train", "en") == [f"train en {i}" for i in range(1, 6)]
    assert texts("train", "de") == [f"train de {i}" for i in range(6, 11)]
    assert texts("validation", "de") == [f"val de {i}" for i in range(1, 4)]


def test_or_all_of_them(bind):
    bind("folder_text.apart = False", 'folder_text.validation = "test"')
    assert len(texts("train", "en")) == len(texts("train", "de")) == 10
    assert texts("validation", "en") == ["test en 1", "test en 2"]


def test_pairs_of_every_two_languages(bind, folder):
    from vmsst_jax.tasks import folder_text

    for name, count in (("train", 10), ("val", 3)):
        (folder / f"{name}.fr").write_text("".join(f"{name} fr {i}\n" for i in range(1, count + 1)))
    bind(languages='("en", "de", "fr")')
    found = folder_text.read_pairs()
    assert {split: len(rows) for split, rows in found.items()} == {"train": 30, "validation": 9, "test": 0}
    assert len({e["pair_id"] for rows in found.values() for e in rows}) == 39
    for e in found["train"]:
        number = e["source"].split()[-1]
        assert e["source"] == f"train {e['source_lang']} {number}"
        assert e["target"] == f"train {e['target_lang']} {number}"


def test_text_that_is_not_aligned_has_no_pairs_to_train_on(bind, folder):
    from vmsst_jax.tasks import folder_text

    (folder / "train.de").write_text("one line\n")
    bind("folder_text.apart = False")
    assert {split: len(rows) for split, rows in folder_text.read_pairs().items()} == {
        "train": 0, "validation": 3, "test": 0,
    }  # fmt: skip


def test_the_test_split_is_one_that_is_named(bind):
    from vmsst_jax.tasks import folder_text

    bind('folder_text.test = "test"')
    assert [e["target"] for e in folder_text.read_pairs()["test"]] == ["test de 1", "test de 2"]
    bind('folder_text.test = "test_2016"')
    with pytest.raises(
        CorpusError, match="test_2016.* folder_text.test is 'test_2016'; bind it to the name of your test"
    ):
        folder_text.read_pairs()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: (f / "val.de").write_text("one\ntwo\n"), r"val.en: 3 and .*val.de: 2"),
        (lambda f: (f / "val.de").write_text("a\n\nc\n"), r"val.de, line 2"),
        (lambda f: (f / "train.de").write_text("a\n"), "{'en': 10, 'de': 1}.* bind folder_text.apart=False"),
        (lambda f: (f / "train.en").unlink(), r"train.en: no such file under folder_text.data_dir"),
    ],
)
def test_files_that_can_not_be_pairs(bind, folder, change, message):
    from vmsst_jax.tasks import folder_text

    change(folder)
    bind()
    with pytest.raises(CorpusError, match=message):
        folder_text.read_pairs()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: (f / "train.de").write_text("a\nb\n" + "\n" * 8), r"train.de: no text in the lines from 6 to 10"),
        (lambda f: (f / "train.de").write_bytes(b"a\n" * 9 + b"\xff\n"), r"train.de, line 10: not valid UTF-8"),
        (lambda f: (f / "train.de").write_text("a\n" * 8), "{'en': 10, 'de': 8}.* bind folder_text.apart=False"),
    ],
)
def test_files_that_can_not_be_documents(bind, folder, change, message):
    change(folder)
    bind()
    with pytest.raises(CorpusError, match=message):
        texts("train", "de")


def test_without_languages(gin_bindings, folder):
    from vmsst_jax.tasks import folder_text

    gin_bindings(f'folder_text.data_dir = "{folder}"', 'folder_text.languages = "en"')
    with pytest.raises(CorpusError, match="folder_text.languages is 'en'"):
        folder_text.read_pairs()


def test_synthetic_pairs(gin_bindings, tmp_path):
    from vmsst_jax.tasks import synthetic_pairs

    (tmp_path / "a.tsv").write_text("en\tde\ta house\tein Haus\n")
    (tmp_path / "b.tsv").write_text("de\ten\tein Baum\ta tree\nde\ten\trot\tred\n")
    gin_bindings(f'synthetic_pairs.files = "{tmp_path}/*.tsv"')
    found = synthetic_pairs.read()["train"]
    assert [tuple(e[name] for name in synthetic_pairs.COLUMNS) for e in found] == [
        ("en", "de", "a house", "ein Haus"),
        ("de", "en", "ein Baum", "a tree"),
        ("de", "en", "rot", "red"),
    ]
    assert len({e["pair_id"] for e in found}) == 3
    gin_bindings("synthetic_pairs.limit = 1")
    assert [e["target"] for e in synthetic_pairs.read()["train"]] == ["ein Haus", "a tree"]
    for line, message in (
        ("files = 3", "synthetic_pairs.files is 3; wanted a path"),
        (f"files = ['{tmp_path}/*.tsv', '{tmp_path}/*.tsv']", "synthetic_pairs.files names a file twice"),
    ):
        gin_bindings(f"synthetic_pairs.{line}")
        with pytest.raises(CorpusError, match=message):
            synthetic_pairs.read()
    gin_bindings(f'synthetic_pairs.files = "{tmp_path}/*.tsv"')
    gin_bindings("synthetic_pairs.limit = True")
    with pytest.raises(CorpusError, match="limit is True; wanted a whole number"):
        synthetic_pairs.read()
    gin_bindings("synthetic_pairs.limit = 0")
    with pytest.raises(CorpusError, match="synthetic_pairs.limit is 0; wanted a whole number"):
        synthetic_pairs.read()


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (b"en\tde\tonly one\n", "b.tsv, line 1: wanted 4 columns"),
        (b"en\tde\ta\tb\nen\tde\ta\t\n", "b.tsv, line 2: wanted 4 columns"),
        (b"en\tde\t\xff\tb\n", "b.tsv, line 1: not valid UTF-8"),
        (b"", "b.tsv: no pair of sentences"),
    ],
)
def test_files_that_are_no_synthetic_pairs(gin_bindings, tmp_path, contents, message):
    from vmsst_jax.tasks import synthetic_pairs

    (tmp_path / "b.tsv").write_bytes(contents)
    gin_bindings(f'synthetic_pairs.files = "{tmp_path}/b.tsv"')
    with pytest.raises(CorpusError, match=message):
        synthetic_pairs.read()


def test_no_files_named(gin_bindings):
    from vmsst_jax.tasks import synthetic_pairs

    gin_bindings()
    with pytest.raises(CorpusError, match="bind synthetic_pairs.files"):
        synthetic_pairs.read()
