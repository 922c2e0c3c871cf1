"""MKQA matching by hand, in both of the forms in which its questions are to be had."""

import json

import numpy as np
import pytest

from vmsst_jax.benchmarks import mkqa, mkqa_matching, suite

# What a text's letters are is all that the stand-in for a model sees.
ENGLISH = {"-5": "aab", "7": "bbcd", "9": "efg", "12": "hij"}
TURKISH = {"7": "bcd", "9": "hjj", "12": "hij", "-5": "aaab"}


@pytest.fixture
def data(tmp_path):
    write(tmp_path / "mkqa.en.tsv", ENGLISH)
    write(tmp_path / "mkqa.tr.tsv", TURKISH)
    write(tmp_path / "mkqa.zh_cn.tsv", ENGLISH)
    return tmp_path


def write(path, questions):
    splits = {"9": "test", "12": "test"}
    path.write_text("".join(f"{splits.get(i, 'dev')}\t{i}\t{text}\n" for i, text in questions.items()))


def test_scores_by_hand(data, letters):
    result, table = suite.run("mkqa_matching", model := letters(), data, {})
    # Turkish "hjj" of id 9 is nearest to English "hij" of id 12; English "efg" shares no letter with Turkish and goes
    # to the first row.
    scores = result["per_language"]["tr"]
    assert (scores["xx->en"], scores["en->xx"], scores["mean"]) == (0.75, 0.75, 0.75)
    assert (scores["questions"], scores["repeated"]) == (4, 0)
    assert result["per_language"]["zh_cn"]["mean"] == 1
    assert result["means"]["all"]["mean"] == pytest.approx(0.875) and result["means"]["all"]["languages"] == 2
    assert {language for language, _ in model.asked} == {"en", "tr", "zh"} and len(model.asked) == 12
    assert result["split"] == "all" and "id" in result["scoring"] and "87.5" in table
    assert suite.folder("mkqa_matching") == "mkqa"


def test_a_question_without_a_vector_is_named(data, broken):
    write(data / "mkqa.tr.tsv", {**TURKISH, "9": "zz"})
    with pytest.raises(ValueError, match="mkqa.tr.tsv, question 9: no vector"):
        mkqa_matching.evaluate(broken(), data)


def test_splits_and_languages(data, letters):
    result = mkqa_matching.evaluate(letters(), data, split="dev", languages=["tr", "en"])
    assert list(result["per_language"]) == ["tr"] and result["data"]["questions"] == 2
    assert result["per_language"]["tr"]["mean"] == 1 and result["split"] == "dev"
    assert result["data"]["sha256"] != mkqa_matching.evaluate(letters(), data)["data"]["sha256"]


def example(number, kind="entity", answers=("x",), **queries):
    answer = [{"type": kind, "text": text, "aliases": ["al"]} for text in answers]
    return {"example_id": number, "queries": queries, "query": queries.get("en"), "answers": {"en": answer, "tr": []}}


def test_as_published(data, letters, tmp_path):
    before = mkqa_matching.evaluate(letters(), data, languages=["tr"])
    folder = tmp_path / "published"
    folder.mkdir()
    lines = [example(int(i), en=text, tr=TURKISH[i]) for i, text in ENGLISH.items()]
    lines.insert(1, example(99, "unanswerable", (None,), en="no", tr="yok"))
    lines.append(example(98, "long_answer", (None,), en="long", tr="uzun"))
    (folder / "mkqa.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = mkqa_matching.evaluate(letters(), folder)
    assert result["per_language"] == before["per_language"]
    examples, _ = mkqa.read_examples(folder / "mkqa.jsonl")
    assert [e.id for e in examples] == list(ENGLISH) and examples[0].answers == ["x", "al"]
    with open(folder / "mkqa.jsonl", "a") as file:
        file.write(json.dumps(example(97, en="a", tr=" ")))
    with pytest.raises(ValueError, match="mkqa.jsonl, line 7: the question 97 is missing or blank in tr"):
        mkqa_matching.evaluate(letters(), folder)
    with pytest.raises(ValueError, match="mkqa.jsonl has no splits; leave split='dev' away"):
        mkqa_matching.evaluate(letters(), folder, split="dev")


def test_a_repeated_question_is_an_error_at_its_second_place(data, letters):
    write(data / "mkqa.tr.tsv", {**ENGLISH, "12": "aab"})
    scores = mkqa_matching.evaluate(letters(), data, languages=["tr"])["per_language"]["tr"]
    assert scores["repeated"] == 1 and scores["xx->en"] == 0.75
    assert np.isclose(scores["mean"], 0.75)


def test_bad_data(data, letters, tmp_path):
    def fails(match, error=ValueError, folder=data, **options):
        with pytest.raises(error, match=match):
            mkqa_matching.evaluate(letters(), folder, **options)

    fails("no language is chosen but English", languages=["en"])
    fails("no language 'de'", languages=["de"])
    fails("mkqa.en.tsv has no split 'train'; it has dev, test", split="train")
    write(data / "mkqa.tr.tsv", {i: t for i, t in TURKISH.items() if i != "9"})
    fails(r"mkqa.tr.tsv lacks 1 questions of .*mkqa.en.tsv, the first being 9")
    write(data / "mkqa.tr.tsv", {**TURKISH, "13": "k"})
    fails(r"mkqa.tr.tsv, line 5: the question 13 is not in .*mkqa.en.tsv")
    (data / "mkqa.tr.tsv").write_text("dev\t7\tb\ndev\t7\tc\n")
    fails(r"mkqa.tr.tsv, line 2: the id 7 is that of .*mkqa.tr.tsv, line 1 already")
    (data / "mkqa.tr.tsv").write_text("dev\t7\tb\ndev\t9\t \n")
    fails("mkqa.tr.tsv, line 2: the question 9 is blank")
    (data / "mkqa.tr.tsv").write_text("dev\t7\n")
    fails("mkqa.tr.tsv, line 1: found 2 columns")
    (data / "mkqa.en.tsv").unlink()
    fails("has no English questions")
    fails("there is no folder", FileNotFoundError, data / "none")
    (tmp_path / "empty").mkdir()
    fails("holds neither mkqa.jsonl nor files", FileNotFoundError, tmp_path / "empty")


@pytest.mark.parametrize(
    ("lines", "match"),
    [
        (['{"example_id": 1'], "line 1: malformed JSON"),
        ([example(1, en="a"), {"example_id": 2, "queries": {}}], "line 2: the object has no answers"),
        ([{**example(1, en="a"), "answers": {"en": []}}], "line 1: the question 1 is not as MKQA's are"),
        ([example(1, tr="a")], "line 1: the question 1 is not as MKQA's are .*'en'"),
        ([example(1, en="a"), example(1, en="b")], "line 2: the id 1 is that of"),
        ([example(1, en="a", answers=())], "not as MKQA's are"),
        ([{**example(1, en="a"), "answers": {"en": [{"type": "date", "text": ""}]}}], "has no English answer"),
        ([example(1, "unanswerable", (None,), en="a")], "holds no question with an answer"),
    ],
)
def test_bad_published_files(tmp_path, lines, match):
    path = tmp_path / "mkqa.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    with pytest.raises(ValueError, match=match):
        mkqa.read_examples(path)
