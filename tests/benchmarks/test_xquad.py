"""XQuAD retrieval by hand: every pair of languages, and files that don't belong together."""

import pytest

from vmsst_jax.benchmarks import suite, xquad

PARAGRAPHS = {
    "en": {("0", "0"): "aaa bb", ("0", "1"): "ccc d", ("1", "0"): "ee f"},
    "de": {("0", "0"): "aab", ("0", "1"): "ccc", ("1", "0"): "cee"},
    "el": {("0", "0"): "ggg", ("0", "1"): "ccd", ("1", "0"): "eef"},
}
QUESTIONS = {
    "en": [("q1", "0", "0", "ab"), ("q2", "1", "0", "e"), ("q3", "1", "0", "ef")],
    "de": [("q1", "0", "0", "aa"), ("q2", "1", "0", "ec"), ("q3", "1", "0", "cc")],
    "el": [("q1", "0", "0", "g"), ("q2", "1", "0", "e"), ("q3", "1", "0", "f")],
}


@pytest.fixture
def data(tmp_path):
    for code in PARAGRAPHS:
        write(tmp_path, code)
    return tmp_path


def write(folder, code, paragraphs=None, questions=None):
    paragraphs = PARAGRAPHS[code] if paragraphs is None else paragraphs
    lines = [f"{a}\t{p}\tTitle\t{text}\n" for (a, p), text in paragraphs.items()]
    (folder / f"paragraphs.{code}.tsv").write_text("".join(lines))
    lines = ["\t".join(row) + "\tanswer\n" for row in questions or QUESTIONS[code]]
    (folder / f"questions.{code}.tsv").write_text("".join(lines))


def test_scores_by_hand(data, letters):
    result, table = suite.run("xquad", model := letters(), data, {})
    # Paragraphs are rows 0, 1, 2. What shares no letter with any of them goes to row 0.
    two = pytest.approx(2 / 3)
    assert result["matrix"]["en"] == {"de": 1.0, "el": 1.0, "en": 1.0}
    assert result["matrix"]["de"]["de"] == two and result["matrix"]["el"]["el"] == 1
    assert result["matrix"]["el"]["en"] == 1  # g resembles no English paragraph: row 0, which is right
    assert result["matrix"]["el"]["de"] == two  # nor does f a German one: row 0, which is wrong
    scores = result["per_language"]
    assert scores["en"] == {
        "questions": 3, "paragraphs": 3, "same": 1.0, "xx->en": None, "en->xx": None, "cross": 1.0
    }  # fmt: skip
    assert scores["el"]["cross"] == pytest.approx((1 + 2 / 3) / 2) and scores["el"]["xx->en"] == 1
    assert scores["de"]["xx->en"] == pytest.approx(1 / 3)  # "ec" and "cc" are nearer to "ccc d" than to "ee f"
    assert result["means"]["all"]["same"] == pytest.approx((1 + 2 / 3 + 1) / 3)
    assert result["means"]["all"]["en->xx"] == 1 and result["means"]["all"]["languages"] == 3
    assert "own protocol" in result["scoring"] and "mean of 3" in table
    assert [text for language, text in model.asked if language == "de"] == ["aab", "ccc", "cee", "aa", "ec", "cc"]
    assert len(model.asked) == 18


def test_texts_without_a_vector_are_named(data, broken):
    write(data, "de", questions=[*QUESTIONS["de"][:2], ("q3", "1", "0", "zz")])
    with pytest.raises(ValueError, match="questions.de.tsv, question q3: no vector"):
        xquad.evaluate(broken(), data)
    write(data, "el", paragraphs={**PARAGRAPHS["el"], ("0", "1"): "zz"})
    with pytest.raises(ValueError, match="paragraphs.el.tsv, article 0, paragraph 1: no vector"):
        xquad.evaluate(broken(), data)


def test_choice_of_languages_and_towers(data, letters):
    questions, passages = letters(), letters()
    result = xquad.evaluate(questions, data, languages=["de"], passage_encoder=passages, passage_prefix="p ")
    assert result["per_language"]["de"]["cross"] is None and result["means"]["all"]["cross"] is None
    assert result["retriever"]["passage_prefix"] == "p " and result["retriever"]["passage_encoder"]
    assert passages.asked == [("de", f"p {text}") for text in PARAGRAPHS["de"].values()]
    assert [text for _, text in questions.asked] == ["aa", "ec", "cc"]


def test_bad_data(data, letters, tmp_path):
    def fails(match, error=ValueError, folder=data, **options):
        with pytest.raises(error, match=match):
            xquad.evaluate(letters(), folder, **options)

    english = QUESTIONS["en"]
    fails("no language 'fi'", languages=["fi"])
    write(data, "en", questions=[*english, ("q1", "0", "0", "again")])
    fails("questions.en.tsv, line 4: the question id q1 is there twice")
    write(data, "en", questions=[*english, ("q4", "2", "0", "what")])
    fails(r"questions.en.tsv, line 4: it asks for article 2, paragraph 0, which .*paragraphs.en.tsv does not have")
    write(data, "en", questions=[english[0], english[2], english[1]])
    fails("questions.el.tsv and questions.de.tsv|questions.en.tsv and questions.de.tsv differ from line 2 on")
    write(data, "en", paragraphs=dict(list(PARAGRAPHS["en"].items())[::-1]))
    fails("paragraphs.en.tsv and paragraphs.de.tsv differ from line 1 on")
    write(data, "en")
    with open(data / "paragraphs.en.tsv", "a") as file:
        file.write("0\t1\tTitle\tonce more\n")
    fails("paragraphs.en.tsv, line 4: article 0, paragraph 1 is that of .*line 2 already")
    (data / "paragraphs.en.tsv").write_text("0\t9\ttext without title\n")
    fails("paragraphs.en.tsv, line 1: found 3 columns")
    write(data, "en")
    (data / "questions.en.tsv").write_text("q1\t0\t0\tno answer\n")
    fails("questions.en.tsv, line 1: found 4 columns")
    (data / "paragraphs.en.tsv").unlink()
    fails("paragraphs.en.tsv does not exist", FileNotFoundError)
    fails("there is no folder", FileNotFoundError, data / "none")
    (tmp_path / "empty").mkdir()
    fails("holds no files questions.xx.tsv", FileNotFoundError, tmp_path / "empty")


def test_only_some_articles(data, letters):
    result = xquad.evaluate(model := letters(), data, languages=["en", "de"], articles=(1, 2), strip_question_mark=True)
    assert {code: (s["questions"], s["paragraphs"]) for code, s in result["per_language"].items()} == {
        "de": (2, 1), "en": (2, 1)
    }  # fmt: skip
    assert result["split"] == "articles 1 to 1" and result["matrix"]["de"]["de"] == 1
    assert [text for _, text in model.asked] == ["cee", "ee f", "ec", "cc", "e", "ef"]
    for articles, message in (
        ((3, 9), "articles are \\(3, 9\\), and .*asks for none of them"),
        ((-1, 2), "entry of articles"),
    ):
        with pytest.raises(ValueError, match=message):
            xquad.evaluate(letters(), data, articles=articles)
