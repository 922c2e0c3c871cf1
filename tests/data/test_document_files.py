"""Readers of documents: what they make of good files, and where they say that a bad one is bad."""

import gzip
import json
import os

import pytest

from vmsst_jax.data.document_files import cc_net, documents_of, keyed, labelled, plain_text, split_sentences
from vmsst_jax.data.text_pairs import CorpusError, LineFile


@pytest.fixture
def write(tmp_path):
    """Function (name, text or bytes) -> LineFile."""

    def put(name, contents):
        contents = contents if isinstance(contents, bytes) else contents.encode()
        path = tmp_path / name
        path.write_bytes(gzip.compress(contents) if name.endswith(".gz") else contents)
        return LineFile(str(path))

    return put


def read(file, rows, on_bad_line="error"):
    name = os.path.basename(file.path)
    return [(d.key.removeprefix(name), d.lang, d.sentences) for d in documents_of(file, rows, on_bad_line)]


@pytest.mark.parametrize(
    ("lang", "sentences"),
    [
        ("en", ["Dr. Smith came at 3.5 p.m. on Monday!", "Did he stay?", "No"]),
        ("zh", ["他来了。", "她走了!", "你好吗?"]),
        ("hi", ["यह एक वाक्य है।", "यह दूसरा है।"]),
        ("ar", ["مرحبا.", "كيف حالك؟", "بخير."]),
        ("de", ["Das ist z. B. ein Test.", "Am 3. Mai kam er."]),
        ("qqq", ["One.", "Two."]),
    ],
)
def test_sentences_of_running_text(lang, sentences):
    space = "" if lang == "zh" else " "
    assert split_sentences(space.join(sentences), lang) == sentences
    assert split_sentences("\n\n".join(sentences).replace(" ", " \t"), lang) == sentences
    assert split_sentences(" \n\t\n", lang) == []


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_plain_text(write, name):
    file = write(name, "\n\nOne. Still  one.\nTwo.\n\n \nThree.\r\nFour.")
    assert read(file, plain_text(file, "gd", "sentences")) == [
        (":3", "gd", ("One. Still one.", "Two.")),
        (":7", "gd", ("Three.", "Four.")),
    ]
    assert read(file, plain_text(file, "en", "paragraphs")) == [
        (":3", "en", ("One.", "Still one.", "Two.")),
        (":7", "en", ("Three.", "Four.")),
    ]


def record(**fields):
    return json.dumps(fields, ensure_ascii=False) + "\n"


def test_cc_net(write):
    lines = record(raw_content="One. Two.\nThree", language="en", digest="sha1:A", url="u")
    lines += record(raw_content="Uno.", language="es", url="http://x") + record(raw_content="Zwei.", language="de")
    file = write("x.json.gz", lines + record(raw_content=" \n", language="de"))
    assert read(file, cc_net(file, None)) == [
        ("sha1:A", "en", ("One.", "Two.", "Three")),
        ("http://x", "es", ("Uno.",)),
        (":3", "de", ("Zwei.",)),
    ]
    assert {lang for _, lang, _ in read(file, cc_net(file, "fr"))} == {"fr"}


GOOD = record(raw_content="Eins.", language="de")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"raw_content": "x"\n', "not JSON"),
        ("[1, 2]\n", "wanted a JSON object with the text in `raw_content`, found a list"),
        (record(text="x"), "`raw_content`, found the fields text"),
        (record(raw_content="x"), "a language code in `language`, found None"),
        ("\n", "an empty line"),
        (r'{"raw_content": "x\ud83d y", "language": "de"}' + "\n", "raw_content has half a character, .*, before ' y'"),
        (r'{"raw_content": "x", "language": "de", "url": "\ud83d"}' + "\n", "digest or url has half a character"),
        (r'{"raw_content": "x", "language": "\ud83d"}' + "\n", "language has half a character"),
        (b"\xff\xfe\n", "not valid UTF-8"),
    ],
)
def test_malformed_json_lines(write, line, message, caplog):
    line = line if isinstance(line, bytes) else line.encode()
    file = write("x.json", GOOD.encode() + line + GOOD.encode())
    with pytest.raises(CorpusError, match=rf"x.json, line 2: .*{message}.*on_bad_line='skip'"):
        read(file, cc_net(file, None))
    assert len(read(file, cc_net(file, None), "skip")) == 2
    assert "skipped 1 bad line(s) (first: line 2:" in caplog.text


def test_verses_make_chapters(write):
    file = write("en.tsv", "MRK 1:1\tOne\nMRK 1:2\t\nMRK 1:3\tThree\nMRK 2:1\tFour\nMRK 1:4\tFive\n")
    assert read(file, keyed(file, "en", pattern=r"(.+):\d+")) == [
        ("MRK 1", "en", ("One", "Three")),
        ("MRK 2", "en", ("Four",)),
        ("MRK 1", "en", ("Five",)),
    ]
    file = write("x.tsv", "2\t1\tOne. Two.\n2\t2\tThree\n10\t1\tFour\n")
    assert read(file, keyed(file, "en", text=2)) == [("2", "en", ("One. Two.", "Three")), ("10", "en", ("Four",))]
    split = read(file, keyed(file, "en", text=2, layout="paragraphs"))
    assert split[0] == ("2", "en", ("One.", "Two.", "Three"))


@pytest.mark.parametrize(
    ("line", "message"),
    [("MRK 1:2", "found 1 column"), ("MRK 1\tText", "the key 'MRK 1' does not match")],
)
def test_bad_keys(write, line, message):
    file = write("en.tsv", f"MRK 1:1\tOne\n{line}\nMRK 1:3\tThree\n")
    rows = keyed(file, "en", pattern=r"(.+):\d+")
    with pytest.raises(CorpusError, match=f"en.tsv, line 2: {message}"):
        read(file, rows)
    assert read(file, keyed(file, "en", pattern=r"(.+):\d+"), "skip") == [("MRK 1", "en", ("One", "Three"))]


def test_a_key_without_a_name(write):
    file = write("x.tsv", "MRK 1:1\tone\n:2\ttwo\n")
    with pytest.raises(CorpusError, match=r"line 2: the key ':2' does not match .*, with a name in its group"):
        read(file, keyed(file, "en", pattern=r"([A-Z]+ \d+)?:\d+"))


def test_labels_beside_the_sentences(write):
    file, labels = write("eng.txt", "One\nTwo\n\nThree\n"), write("ids.tsv", "a\na\na\nb\n")
    assert read(file, labelled(file, labels, "en")) == [("a", "en", ("One", "Two")), ("b", "en", ("Three",))]
    short = write("short.tsv", "a\n")
    with pytest.raises(CorpusError, match=r"eng.txt has 4 lines and .*short.tsv 1; wanted a label for each"):
        read(file, labelled(file, short, "en"))


@pytest.mark.parametrize("contents", ["", "\n \n"])
def test_an_empty_shard(write, contents, caplog):
    file = write("empty.txt", contents)
    with pytest.raises(CorpusError, match="empty.txt: no document in this file"):
        read(file, plain_text(file, "en", "sentences"))
    assert read(file, plain_text(file, "en", "sentences"), "skip") == []
    assert "empty.txt: no document in this file" in caplog.text
