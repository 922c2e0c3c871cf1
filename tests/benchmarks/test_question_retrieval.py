"""Question retrieval on a small base in the formats of PAQ and NQ-open, by hand."""

import json

import pytest

from vmsst_jax.benchmarks import checksums, question_retrieval, suite
from vmsst_jax.benchmarks.question_retrieval import is_right, normalize_answer, open_base


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  Beatles!", "beatles"),
        ("a theatre, an Anthem", "theatre anthem"),
        ("December-1972 (UTC)", "december1972 utc"),
        ("the-end", "theend"),
        ("A", ""),
        ("Ähtäri’s", "ähtäri’s"),
        ("  \n", ""),
    ],
)
def test_normal_form(text, normal):
    assert normalize_answer(text) == normal


def test_any_answer_against_any_gold_one():
    assert is_right(["x", "The Beatles"], ["wings", "beatles."])
    assert not is_right(["Beatles"], ["The Beatles band"]) and not is_right([], ["x"]) and not is_right(["x"], [])


@pytest.fixture
def data(tmp_path):
    for folder in ("nq_open", "mkqa", "paq"):
        (tmp_path / folder).mkdir()
    nq = [("aab", ["The Anna"]), ("ccd", ["x", "carl"]), ("efg", ["Gina"]), ("hh", ["nobody"])]
    (tmp_path / "nq_open" / "NQ-open.dev.tsv").write_text("".join(f"{q}\t{json.dumps(a)}\n" for q, a in nq))
    base = [
        {"question": "aabz", "answer": ["anna."]},
        {"question": "ccdd", "answer": "Carla", "subsets": ["L1"]},
        {"question": "efgz", "answer": ["y", "gina"]},
        {"question": "hhhz", "answer": ["Nobody!"]},
        {"question": "hhh", "answer": ["somebody"]},
    ]
    for name, part in (("a.jsonl", base[:2]), ("b.jsonl", base[2:])):
        (tmp_path / "paq" / name).write_text("".join(json.dumps(pair) + "\n" for pair in part))
    return tmp_path


def write_mkqa(folder):
    def example(number, kind, text, aliases=(), **queries):
        answer = [{"type": kind, "text": text, "aliases": list(aliases)}]
        return {"example_id": number, "queries": queries, "answers": {"en": answer, "fi": [{"text": "suomi"}]}}

    lines = [
        example(1, "entity", "Annabel", ["Anna"], en="ab", fi="aab", zh_cn="bba"),
        example(2, "binary", "yes", en="cd", fi="cc", zh_cn="d"),
        example(3, "unanswerable", None, en="x", fi="x", zh_cn="x"),
        example(4, "long_answer", None, en="x", fi="x", zh_cn="x"),
        example(5, "date", "Carla", en="dc", fi="ee", zh_cn="c"),
    ]
    (folder / "mkqa" / "mkqa.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_scores_by_hand(data, letters, tmp_path):
    write_mkqa(data)
    options = {"embeddings_dir": tmp_path / "vectors", "shard_rows": 2}
    result, table = suite.run("question_retrieval", model := letters(), data, options)
    # NQ: aab and efg find their like; ccdd's answer is Carla, not carl; hh finds hhh, whose answer is somebody.
    # MKQA, English: ab -> aabz, Anna is an alias; cd -> ccdd, not yes; dc -> ccdd, Carla.
    assert result["per_language"] == {
        "NQ": {"questions": 4, "accuracy": 0.5},
        "MKQA en": {"questions": 3, "accuracy": pytest.approx(2 / 3)},
        "MKQA fi": {"questions": 3, "accuracy": pytest.approx(1 / 3)},
        "MKQA zh_cn": {"questions": 3, "accuracy": pytest.approx(2 / 3)},
    }
    assert result["means"] == {
        "NQ": {"languages": 1, "accuracy": 0.5},
        "MKQA": {"languages": 3, "accuracy": pytest.approx(5 / 9)},
    }
    assert result["data"]["base_pairs"] == 5 and "5 questions" in result["scoring"] and "base: 5 questions" in table
    assert model.asked[:5] == [("en", text) for text in ("aabz", "ccdd", "efgz", "hhhz", "hhh")]
    assert {language for language, _ in model.asked[5:]} == {"en", "fi", "zh"}
    assert len(list((tmp_path / "vectors").glob("*/*.npy"))) == 3
    spans = question_retrieval.evaluate(model := letters(), data, drop_binary=True, languages=["fi"], **options)
    assert spans["per_language"] == {"MKQA fi": {"questions": 2, "accuracy": 0.5}} and list(spans["means"]) == ["MKQA"]
    assert len(model.asked) == 2  # the base was there


def test_the_checksum_is_over_the_files_that_are_read(data):
    write_mkqa(data)
    (data / "other").mkdir()
    (data / "other" / "huge.bin").write_text("never read")
    read = suite.files("question_retrieval", data, {})
    assert [path.relative_to(data).as_posix() for path in read] == [
        "nq_open/NQ-open.dev.tsv", "mkqa/mkqa.jsonl", "paq/a.jsonl", "paq/b.jsonl",
    ]  # fmt: skip
    before = checksums.folder(data, read)
    (data / "other" / "huge.bin").write_text("changed")
    (data / "nq_open" / "NQ-open.train.tsv").write_text("not read either")
    assert checksums.folder(data, suite.files("question_retrieval", data, {})) == before
    assert len(suite.files("question_retrieval", data, {"mkqa_file": "x", "base": "paq/a.jsonl", "dtype": "x"})) == 2
    (data / "paq" / "a.jsonl").write_text('{"question": "x", "answer": "y"}\n')
    assert checksums.folder(data, read) != before
    with pytest.raises(FileNotFoundError, match="there is no .*wiki"):
        suite.files("question_retrieval", data, {"base": "wiki"})
    with pytest.raises(FileNotFoundError, match="holds no questions"):
        suite.files("question_retrieval", data / "other", {})
    assert suite.files("tatoeba", data, {}) is None


def test_ties_go_to_the_first_question(data, letters, tmp_path):
    (data / "paq" / "0.jsonl").write_text('{"question": "hh", "answer": ["nobody"]}\n')
    scores = question_retrieval.evaluate(letters(), data, embeddings_dir=tmp_path / "vectors")["per_language"]
    assert scores["NQ"]["accuracy"] == 0.75


def test_lists_as_python_and_json_write_them(data, letters, tmp_path):
    (data / "base.tsv").write_text('aab\t[\'it\'\'s "Anna"\']\nccd\t["carl", "x"]\n')
    pairs = open_base(data / "base.tsv")
    assert [pair.answers for pair in pairs] == [['its "Anna"'], ["carl", "x"]]
    result = question_retrieval.evaluate(
        letters(), data, base="base.tsv", nq="nq_open/NQ-open.dev.tsv", embeddings_dir=tmp_path / "vectors"
    )
    assert result["per_language"]["NQ"]["accuracy"] == 0.25


def test_texts_without_a_vector_are_named(data, broken, tmp_path):
    def fails(match, **options):
        with pytest.raises(ValueError, match=match):
            question_retrieval.evaluate(broken(), data, embeddings_dir=tmp_path / "vectors", **options)

    with open(data / "nq_open" / "NQ-open.dev.tsv", "a") as file:
        file.write('zz\t["x"]\n')
    fails("NQ-open.dev.tsv, line 5: no vector")
    with open(data / "paq" / "b.jsonl", "a") as file:
        file.write('{"question": "zz", "answer": ["x"]}\n')
    fails("b.jsonl, line 4: no vector", shard_rows=4)
    write_mkqa(data)
    mkqa_file = data / "mkqa" / "mkqa.jsonl"
    mkqa_file.write_text(mkqa_file.read_text().replace('"aab"', '"zz"'))
    fails("mkqa.jsonl, line 1: no vector", languages=["fi"], base="paq/a.jsonl")
    fails("a.jsonl has 2 records, and ScaNN needs at least 16", index="scann", base="paq/a.jsonl")


def test_bad_data(data, letters, tmp_path):
    def fails(match, error=ValueError, **options):
        with pytest.raises(error, match=match):
            question_retrieval.evaluate(letters(), data, embeddings_dir=tmp_path / "vectors", **options)

    fails("there is no .*wiki; name the question-answer base", FileNotFoundError, base="wiki")
    fails("no language 'fi'", languages=["fi"])
    fails("holds no questions: none of x.tsv, y", FileNotFoundError, nq="x.tsv", mkqa_file="y")
    base = data / "paq" / "b.jsonl"
    for line, match in (
        ('{"question": "x"', "b.jsonl, line 2: malformed JSON"),
        ('{"question": "x"}', "b.jsonl, line 2: the object has no answer"),
        ('{"question": "x", "answer": []}', "b.jsonl, line 2: found the question 'x' and answers"),
        ('{"question": " ", "answer": ["y"]}', "b.jsonl, line 2: found the question ' '"),
        ('{"question": "x", "answer": [1]}', r"b.jsonl, line 2: found the question 'x' and answers \[1\]"),
    ):
        base.write_text('{"question": "a", "answer": ["y"]}\n' + line)
        fails(match)
    (data / "paq" / "README").write_text("x")
    fails("holds files of several kinds")
    (data / "paq" / "README").unlink()
    base.rename(data / "paq" / "b.json")
    (data / "paq" / "a.jsonl").unlink()
    fails("b.json is neither .jsonl nor .tsv")
    (data / "paq" / "b.json").rename(data / "paq" / "b.jsonl.gz")
    fails("b.jsonl.gz is neither .jsonl nor .tsv; unpack or rename it")
    (data / "paq" / "b.jsonl.gz").unlink()
    fails("paq is empty; wanted the files", FileNotFoundError)
    (data / "nq_open" / "NQ-open.dev.tsv").write_text('a\t["b"]\nc\tdef\n')
    fails("NQ-open.dev.tsv, line 2: the answers are 'def'")
