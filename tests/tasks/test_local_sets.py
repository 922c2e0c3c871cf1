"""The parallel sets of a data folder: small files in the four forms, wrong files, and the real ones if at hand."""

import os
import pathlib

import pytest

from vmsst_jax.data.text_pairs import CorpusError, is_held_out

DATA = pathlib.Path(os.environ.get("VMSST_DATA_DIR", pathlib.Path(__file__).parents[3] / "shared" / "data"))
NAMES = ("bible_gospels_acts", "quran", "python_docs", "multi30k")
LINES = 40


@pytest.fixture
def local_sets(gin_bindings):
    from vmsst_jax.tasks import local_sets

    return local_sets


@pytest.fixture
def folder(tmp_path, local_sets, gin_bindings):
    """A data folder with the four sets."""

    def put(path, line, numbers=range(LINES)):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("".join(line.format(i) + "\n" for i in numbers), "utf-8")

    for code, numbers in (("en", range(LINES)), ("de", range(2, LINES + 2)), ("zh", range(LINES))):
        put(f"bible_gospels_acts/{code}.tsv", f"MAT 1:{{0}}\t{code} verse {{0}}", numbers)
    for code in ("en", "ar"):
        put(f"quran/quran.{code}.tsv", f"2\t{{0}}\t{code} sura {{0}}")
    for code in ("pt-br", "zh-cn"):
        put(f"python_docs/en-{code}.tsv", f"faq/x\t{{0}}\ten text {{0}}\t{code} text {{0}}")
    put("python_docs/en-id.tsv", "", ())
    for code in ("en", "cs"):
        put(f"multi30k/train.{code}", f"{code} picture {{0}}")
    put("multi30k/val.cs", "not read")
    (tmp_path / "quran" / "README.md").write_text("# not a set\n")
    gin_bindings(f'local_sets.data_dir = "{tmp_path}"')
    return tmp_path


def pairs(local_sets, name):
    both = local_sets.read(name)
    return {(e["target_lang"], e["source"], e["target"]) for split in both.values() for e in split}


def test_the_four_forms(folder, local_sets):
    assert local_sets.languages() == ("en", "ar", "cs", "de", "pt", "zh")
    bible = {("de", f"en verse {i}", f"de verse {i}") for i in range(2, LINES)}  # keys that both have
    bible |= {("zh", f"en verse {i}", f"zh verse {i}") for i in range(LINES)}
    assert pairs(local_sets, "bible_gospels_acts") == bible
    assert pairs(local_sets, "quran") == {("ar", f"en sura {i}", f"ar sura {i}") for i in range(LINES)}
    assert pairs(local_sets, "python_docs") == {
        (code[:2], f"en text {i}", f"{code} text {i}") for i in range(LINES) for code in ("pt-br", "zh-cn")
    }
    assert pairs(local_sets, "multi30k") == {("cs", f"en picture {i}", f"cs picture {i}") for i in range(LINES)}


def test_only_some_languages(folder, local_sets, gin_bindings):
    gin_bindings(f'local_sets.data_dir = "{folder}"', 'local_sets.languages = ["ar", "cs", "zh"]')
    assert local_sets.languages() == ("en", "ar", "cs", "zh")
    assert {code for code, *_ in pairs(local_sets, "bible_gospels_acts")} == {"zh"}
    gin_bindings(f'local_sets.data_dir = "{folder}"', 'local_sets.languages = ["ar", "zh"]')
    with pytest.raises(CorpusError, match="multi30k has none of local_sets.languages, ar, zh; wanted one of cs"):
        local_sets.languages()


def test_english_texts_are_held_out_in_all_languages(folder, local_sets):
    for name in NAMES:
        splits = local_sets.read(name)
        for split, examples in splits.items():
            assert examples
            assert all(is_held_out(e["source"], 0.1) == (split == "validation") for e in examples)
        ids = [e["pair_id"] for examples in splits.values() for e in examples]
        assert len(ids) == len(set(ids))


def test_the_mixture_is_uniform_over_pairs(folder, local_sets, registry, read):
    from vmsst_jax.tasks import sources

    tasks = []
    for name in NAMES:  # a task reads its files once, so these are new ones
        source = sources.MemorySource(lambda name=name: local_sets.read(name), ("train", "validation"))
        tasks.append(sources.add_task(f"of_test_{name}", source))
    mixture = registry.MixtureRegistry.add("of_test", [t.name for t in tasks], default_rate=local_sets._size)
    for name, task in zip(NAMES, tasks, strict=True):
        assert mixture.get_rate(task) == len(local_sets.read(name)["train"])
        assert read(task) == local_sets.read(name)["train"]
    assert {task.name for task in registry.get_mixture_or_task("local_sets").tasks} == set(NAMES)


def test_missing_folders_and_files(folder, local_sets, gin_bindings):
    os.remove(folder / "quran/quran.en.tsv")
    with pytest.raises(CorpusError, match="quran.ar.tsv: there is no English file"):
        local_sets.read("quran")
    (folder / "quran/quran.ar.tsv").write_text("")
    with pytest.raises(CorpusError, match="quran: no file named quran.<language>.tsv with text in it"):
        local_sets.read("quran")
    gin_bindings(f'local_sets.data_dir = "{folder}/none"')
    with pytest.raises(CorpusError, match="local_sets.data_dir = .*none' is no folder"):
        local_sets.languages()
    gin_bindings("local_sets.data_dir = None")
    with pytest.raises(CorpusError, match="bind local_sets.data_dir"):
        local_sets.languages()


@pytest.mark.parametrize(
    ("name", "file", "text", "message"),
    [
        (
            "quran",
            "quran.ar.tsv",
            b"1\t1\ta\n1\tb\n",
            r"quran.ar.tsv, line 2: wanted 3 columns with text, found \['1', 'b'\]",
        ),
        ("quran", "quran.ar.tsv", b"1\t1\t \n", "line 1: wanted 3 columns with text"),
        ("bible_gospels_acts", "de.tsv", b"MAT 1:1\t\xff\n", "de.tsv, line 1: not valid UTF-8"),
        ("bible_gospels_acts", "de.tsv", b"JHN 1:1\tx\n", "de.tsv: no text has a key of the English file"),
        ("multi30k", "train.cs", b"a\nb\n", "need equal numbers of lines"),
        ("multi30k", "train.cs", b"a\n\n", "line 2: the target text is empty"),
    ],
)
def test_wrong_files_are_named_with_the_line(folder, local_sets, name, file, text, message):
    (folder / name / file).write_bytes(text)
    with pytest.raises(CorpusError, match=message):
        local_sets.read(name)


@pytest.mark.skipif(not (DATA / "quran").is_dir(), reason=f"no parallel sets at {DATA}: set VMSST_DATA_DIR")
def test_the_real_sets(local_sets, gin_bindings):
    gin_bindings(f'local_sets.data_dir = "{DATA}"')
    assert len(local_sets.languages()) == 35
    found = {name: local_sets.read(name) for name in NAMES}
    total = {name: sum(map(len, splits.values())) for name, splits in found.items()}
    assert total["quran"] == 10 * 6236
    assert total["multi30k"] == 3 * 29_000
    assert total["python_docs"] == 7 * 3000 + 817 + 903 + 1052
    assert 29 * 4700 < total["bible_gospels_acts"] < 29 * 4787
    for name, splits in found.items():
        assert 0.07 < len(splits["validation"]) / total[name] < 0.13
        assert not {e["source"] for e in splits["train"]} & {e["source"] for e in splits["validation"]}
