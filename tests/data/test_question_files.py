"""DPR's json in every layout that it comes in, XQuAD's tables, and what is wrong with damaged ones."""

import gzip
import json
import logging
import types

import pytest

from vmsst_jax.data.question_files import DprFiles, Passage, XquadFiles, json_values
from vmsst_jax.data.text_pairs import CorpusError, LineFile


def ctx(name, title="T"):
    text = name + '\nwith } and ] and "quotes" in it'
    return {"title": title, "text": text, "score": 1.5, "passage_id": name}


RECORDS = [
    {
        "dataset": "nq", "question": "who is a?", "answers": ["a"], "positive_ctxs": [ctx("a"), ctx("b")],
        "negative_ctxs": [ctx("c")], "hard_negative_ctxs": [ctx("d"), ctx("e")],
    },
    {"question": "who has none?", "positive_ctxs": [], "negative_ctxs": [], "hard_negative_ctxs": [ctx("a")]},
    {"question": "who is f?", "positive_ctxs": [ctx("f", None)], "negative_ctxs": [ctx("c")], "hard_negative_ctxs": []},
]  # fmt: skip
LAYOUTS = {
    "indented": json.dumps(RECORDS, indent=4),
    "one line": json.dumps(RECORDS),
    "lines": "".join(json.dumps(record) + "\n" for record in RECORDS),
    "flat": "[\n" + ",\n".join(json.dumps(record, indent=0) for record in RECORDS) + "\n]\n",
    "tight": "[" + ",".join(json.dumps(record, indent=1) for record in RECORDS) + "]",
}


def read(path):
    return list(DprFiles(str(path)).questions())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_of_dprs_json(tmp_path, layout, caplog):
    path = tmp_path / "nq.json.gz"
    path.write_bytes(gzip.compress(LAYOUTS[layout].encode()))
    with caplog.at_level(logging.WARNING):
        first, second = read(path)
    assert (first.text, second.text) == ("who is a?", "who is f?")
    assert first.positive == Passage("T", ctx("a")["text"]) and second.positive == Passage("", ctx("f")["text"])
    assert [p.text for p in first.negatives] == [ctx("d")["text"], ctx("e")["text"]]
    assert [p.text for p in second.negatives] == [ctx("c")["text"]]  # no hard ones: any others
    assert f"{path}: 1 of 3 questions have no positive passage" in caplog.text


@pytest.mark.parametrize("layout", LAYOUTS)
def test_lines_of_values(tmp_path, layout):
    path = tmp_path / "nq.json"
    path.write_text(LAYOUTS[layout])
    found = list(json_values(LineFile(str(path))))
    assert [value for _, value in found] == RECORDS
    lines = LAYOUTS[layout].splitlines()
    for line, value in found[1:]:  # a record's line, or the next but one where its brace has a line of its own
        assert any(value["question"] in text for text in lines[line - 1 : line + 1])


def test_a_value_is_read_as_soon_as_it_ends():
    """Files may be larger than memory: the lines after a record's end are not asked for."""
    lines = LAYOUTS["indented"].splitlines()
    end = lines.index("    },") + 1

    def feed():
        yield from (line.encode() for line in lines[:end])
        raise AssertionError("read on")

    assert next(json_values(types.SimpleNamespace(lines=feed))) == (2, RECORDS[0])


def broken(record, **changes):
    return json.dumps([RECORDS[0], {**record, **changes}], indent=2)


SECOND = 2 + len(json.dumps(RECORDS[0], indent=2).splitlines())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no question with a positive passage"),
        ("[]\n", "holds no question with a positive passage"),
        ("[3]", "line 1: found 3; wanted a JSON object with a question"),
        ("[[]]", "line 1: found a list; wanted a JSON object"),
        ("[" * 100_000, "line 1: JSON that can't be read"),
        ('[\n{"question": ' + "9" * 6000 + "}]", "line 2: JSON that can't be read .*digits"),
        (LAYOUTS["indented"].rstrip()[:-1], "the list ends without its closing bracket"),
        (LAYOUTS["one line"][:-1], "the list ends without its closing bracket"),
        (LAYOUTS["flat"].replace("[\n", "", 1), "line .*: not JSON"),
        (LAYOUTS["indented"] + "]", "line .*: not JSON .wanted nothing more, found ']'"),
        (LAYOUTS["one line"] * 2, "line 1: not JSON .wanted nothing more, found '\\["),
        (
            "[" + LAYOUTS["lines"] + "]",
            "line 2: not JSON .wanted a comma or the list's end, found '{",
        ),
        (LAYOUTS["one line"][:-1] + ",]", "line 1: not JSON"),
        (LAYOUTS["lines"].replace("}\n", "},\n"), "line 1: not JSON"),
        (json.dumps([{**RECORDS[0], "question": "x\ud83d?"}]), "line 1: question has half a character"),
        (
            json.dumps([RECORDS[0], {**RECORDS[0], "negative_ctxs": [], "hard_negative_ctxs": [{"text": "\udc00"}]}]),
            "line 1: hard_negative_ctxs's text has half a character",
        ),
        (json.dumps([{**RECORDS[0], "positive_ctxs": [ctx("a", "\udc00")]}]), "positive_ctxs's title has half a char"),
        (json.dumps([{**RECORDS[0], "positive_ctxs": [{"text": " "}]}]), "line 1: the positive passage .* has no text"),
        (broken(RECORDS[0], question=" "), f"line {SECOND}: wanted a text in question, found ' '"),
        (json.dumps([{"query": "x"}]), "line 1: wanted a text in question, found none among query"),
        (json.dumps([{"question": "x", "answers": []}]), "question 'x' has no positive_ctxs; it has question, answers"),
        (broken(RECORDS[0], positive_ctxs="x"), f"line {SECOND}: positive_ctxs is 'x'; wanted a list of passages"),
        (broken(RECORDS[0], hard_negative_ctxs=[{"title": ""}]), f"line {SECOND}: hard_negative_ctxs holds {{'title'"),
        (LAYOUTS["indented"][:-100], "the value that begins in line .* never ends"),
        (LAYOUTS["indented"].replace('"answers"', "answers"), "line 5: not JSON"),
        (LAYOUTS["lines"].replace('"question":', '"question"', 1), "line 1: not JSON"),
    ],
)
def test_what_is_wrong_and_where(tmp_path, text, message):
    path = tmp_path / "nq.json"
    path.write_text(text)
    with pytest.raises(CorpusError, match=f"{path}.*{message}" if "line" in message else message):
        read(path)


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "latin.json").write_bytes('[\n"é"]'.encode("latin-1"))
    with pytest.raises(CorpusError, match="latin.json, line 2: byte 2 is not UTF-8"):
        read(tmp_path / "latin.json")
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(LAYOUTS["indented"].encode())[:-20])
    with pytest.raises(CorpusError, match="cut.json.gz: damaged"):
        read(tmp_path / "cut.json.gz")
    with pytest.raises(FileNotFoundError, match="DprFiles.files names .*absent.json, which does not exist"):
        DprFiles([str(tmp_path / "latin.json"), str(tmp_path / "absent.json")]).check()
    with pytest.raises(ValueError, match=r"DprFiles.files is \[\]; wanted the path of a file"):
        DprFiles([])


@pytest.fixture
def xquad(tmp_path):
    """Three articles; the text of paragraph P of article A is "xx A P"."""

    def write(code, questions=((0, 1), (0, 0), (1, 0), (2, 0))):
        keys = [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0)]
        text = "".join(f"{a}\t{p}\tTitle\t{code} {a} {p}\n" for a, p in keys)
        (tmp_path / f"paragraphs.{code}.tsv").write_text(text)
        text = "".join(f"q{i}\t{a}\t{p}\t{code} asks {a} {p}?\tanswer\n" for i, (a, p) in enumerate(questions))
        (tmp_path / f"questions.{code}.tsv").write_text(text)
        return tmp_path

    write("en")
    write("de")
    return write


def test_xquad(xquad, tmp_path):
    source = XquadFiles(str(tmp_path), ("en", "de"), (0, 2))
    source.check()
    questions = list(source.questions())
    assert [q.text for q in questions] == [f"{code} asks {k}?" for code in ("en", "de") for k in ("0 1", "0 0", "1 0")]
    assert questions[3].positive == Passage("", "de 0 1")
    assert [p.text for p in questions[3].negatives] == ["de 0 0", "de 0 2"]
    assert questions[2].negatives == ()
    assert len(list(XquadFiles(str(tmp_path)).questions())) == 4


def test_xquad_bad_input(xquad, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"wants .*paragraphs.el.tsv, which does not exist; set DATA_DIR"):
        XquadFiles(str(tmp_path), ("en", "el")).check()
    with pytest.raises(CorpusError, match=r"holds no questions on the articles \(7, 9\)"):
        list(XquadFiles(str(tmp_path), articles=(7, 9)).questions())
    with pytest.raises(ValueError, match=r"XquadFiles.articles is \(3, 3\); wanted"):
        XquadFiles(str(tmp_path), articles=(3, 3))
    with pytest.raises(ValueError, match="XquadFiles.languages is 'en'; wanted a list"):
        XquadFiles(str(tmp_path), "en")
    xquad("en", [(0, 1), (5, 0)])
    with pytest.raises(CorpusError, match=r"questions.en.tsv, line 2: it asks for article 5, paragraph 0, which"):
        list(XquadFiles(str(tmp_path)).questions())
    (tmp_path / "paragraphs.en.tsv").write_bytes(b"0\t0\tTitle\tcaf\xe9 text\n")
    with pytest.raises(CorpusError, match=r"paragraphs.en.tsv, line 1: not valid UTF-8 \(.* at byte 14\)"):
        list(XquadFiles(str(tmp_path)).questions())
    (tmp_path / "paragraphs.en.tsv").write_text("0\t0\tTitle\ttext\nzero\t1\tTitle\ttext\n")
    with pytest.raises(CorpusError, match=r"paragraphs.en.tsv, line 2: found 4 columns .*the article a number"):
        list(XquadFiles(str(tmp_path)).questions())
