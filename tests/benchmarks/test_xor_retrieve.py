"""XOR-Retrieve: tokens as NLTK cuts them, the cut itself, and what counts as an answer, on cases made by hand."""

import json
from itertools import count

import pytest

from vmsst_jax.benchmarks import suite, xor_retrieve
from vmsst_jax.benchmarks.word_tokens import word_tokenizer
from vmsst_jax.benchmarks.xor_retrieve import first_tokens, has_answer


@pytest.fixture(scope="module")
def tokenize():
    return word_tokenizer()


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        # As nltk.tokenize.word_tokenize documents and gives it, with its English Punkt model.
        ("Good muffins cost $3.88\nin New York.", "Good muffins cost $ 3.88 in New York ."),
        ("They'll save and invest. I can't.", "They 'll save and invest . I ca n't ."),
        ("Mr. Smith was born Jan. 5, 1990. He left.", "Mr. Smith was born Jan. 5 , 1990 . He left ."),
        ('He said "No". Then he left.', "He said `` No '' . Then he left ."),
        ("I am here to . . . submit", "I am here to . . . submit"),
        ("東京 is Tokyo.", "東京 is Tokyo ."),
        ("", ""),
    ],
)
def test_tokens(tokenize, text, tokens):
    assert tokenize(text) == tokens.split()


def test_sentences_make_a_difference(tokenize):
    """Without the sentence model only the last full stop would be a token of its own."""
    assert tokenize("It ended. It began.").count(".") == 2
    assert tokenize("By J. R. Smith. It began.")[:4] == ["By", "J.", "R.", "Smith"]


def test_cut():
    texts, read = ["a b c", "d e", "f g h", "i"], count()
    assert first_tokens(texts, 5, str.split) == list("abcde")
    assert first_tokens(texts, 6, str.split) == list("abcdef")
    assert first_tokens(texts, 99, str.split) == list("abcdefghi")
    assert first_tokens([], 5, str.split) == []
    first_tokens((next(read) and text or text for text in texts), 4, str.split)
    assert next(read) == 2  # the third text was not asked for


def test_answers_are_case_sensitive_substrings():
    tokens = ["the", "Panthers", "of", "1999", ",", "U.S."]
    for answer, right in (
        ("Panthers", True), ("Panther", True), ("panthers", False), ("of 1999", True), ("1999,", False), ("U.S.", True),
    ):  # fmt: skip
        assert has_answer(tokens, [answer]) is right
    assert (
        has_answer(tokens, ["x", "1999"]) and not has_answer(tokens[:3], ["x", "1999"]) and not has_answer(tokens, [])
    )


def question(number, language, text, answers, **more):
    return {"id": number, "lang": language, "question": text, "answers": answers, "split": "dev", **more}


QUESTIONS = [
    question("f1", "fi", "aaaa", ["Anna"]),
    question("f2", "fi", "bbbb", ["yes"]),
    question("f3", "fi", "bbbb", ["no", "Bob"]),
    question("j1", "ja", "cccc", ["carl", ""]),
]
# What a question finds first shares its letter; the answer stands behind 2,000 or 5,000 tokens, or in the title alone.
PASSAGES = {
    "1": ("aaa " * 1999 + "Anna", "A"),
    "2": ("bbb " * 2000 + "Bob", "B"),
    "3": ('ccc ""quoted"" ' + "ccc " * 4995 + "Carl carl", "carl"),
    "4": ("zzz " * 7000, "Z"),
}


@pytest.fixture
def data(tmp_path):
    (tmp_path / "xor_dev_retrieve_eng_span_v1_1.jsonl").write_text("".join(json.dumps(q) + "\n" for q in QUESTIONS))
    lines = ["id\ttext\ttitle\n"] + [f'{i}\t"{text}"\t{title}\n' for i, (text, title) in PASSAGES.items()]
    (tmp_path / "en_wiki.tsv").write_text("".join(lines))
    return tmp_path


def test_scores_by_hand(data, letters, tmp_path):
    options = {"depth": 2, "embeddings_dir": tmp_path / "vectors", "shard_rows": 3}
    result, table = suite.run("xor_retrieve", model := letters(), data, options)
    # Anna is token 2,000, Bob token 2,001; of Carl's passage `` quoted '' are three tokens, so that Carl is token 5,000
    # and carl the one after it. Bob's passage and that of rank 2, Anna's, are 4,001 tokens together.
    assert result["per_language"] == {
        "fi": {"questions": 2, "skipped": 1, "short": 1, "R@2kt": 0.5, "R@5kt": 1.0},
        "ja": {"questions": 1, "skipped": 0, "short": 0, "R@2kt": 0.0, "R@5kt": 0.0},
    }
    assert result["means"]["all"] == {"languages": 2, "R@2kt": 0.25, "R@5kt": 0.5}
    assert [pair for pair in model.asked if pair[0] != "en"] == [("fi", "aaaa"), ("fi", "bbbb"), ("ja", "cccc")]
    assert ("en", 'carl ccc "quoted" ' + "ccc " * 4995 + "Carl carl") in model.asked
    assert "mean of 2" in table and suite.folder("xor_retrieve") == "xorqa"
    only = xor_retrieve.evaluate(letters(), data, languages=["ja"], **options | {"depth": 1})
    assert list(only["per_language"]) == ["ja"]


def predictions(folder, contexts, key="id", languages=("fi", "fi", "ja")):
    rows = [
        {key: name, "lang": language, "ctxs": texts}
        for name, language, texts in zip(("f1", "f3", "j1"), languages, contexts, strict=False)
    ]
    (folder / "run.json").write_text(json.dumps(rows))
    return folder / "run.json"


@pytest.mark.parametrize("key", ["id", "q_id"])
def test_ready_predictions(data, key):
    run = predictions(data, [["x y", "was Anna."], ["bob"], ["b " * 2500 + "carl"]], key)
    result = xor_retrieve.evaluate(None, data, run=run)
    assert result["per_language"]["fi"] == {"questions": 2, "skipped": 1, "short": 2, "R@2kt": 0.5, "R@5kt": 0.5}
    assert result["per_language"]["ja"] == {"questions": 1, "skipped": 0, "short": 1, "R@2kt": 0.0, "R@5kt": 1.0}
    assert result["index"]["kind"] == "ready run"


def test_questions_in_columns(data):
    (data / "full.tsv").write_text('dev\tfi\tf1\taaaa\t["Anna"]\ntest\tfi\tf9\tzzzz\t[]\ndev\tja\tj1\tcc\t["no"]\n')
    found, _ = xor_retrieve.read_questions(data / "full.tsv", "dev")
    assert [(q.id, q.language, q.answers) for q in found] == [("f1", "fi", ["Anna"]), ("j1", "ja", [])]
    with pytest.raises(ValueError, match="no question of the split 'test' with an answer other than yes and no"):
        xor_retrieve.read_questions(data / "full.tsv", "test")


def test_texts_without_a_vector_are_named(data, broken, tmp_path):
    with open(data / "xor_dev_retrieve_eng_span_v1_1.jsonl", "a") as file:
        file.write(json.dumps(question("f9", "fi", "zz", ["Anna"])) + "\n")
    with pytest.raises(ValueError, match="en_wiki.tsv, line 5: no vector"):
        xor_retrieve.evaluate(broken(), data, embeddings_dir=tmp_path / "vectors", depth=2)
    wiki = data / "en_wiki.tsv"
    wiki.write_text(wiki.read_text().replace("z", "y"))
    with pytest.raises(ValueError, match="v1_1.jsonl, line 5: no vector"):
        xor_retrieve.evaluate(broken(), data, embeddings_dir=tmp_path / "vectors", depth=2)
    with pytest.raises(ValueError, match="depth is 'all'; wanted a whole number"):
        xor_retrieve.evaluate(broken(), data, embeddings_dir=tmp_path / "vectors", depth="all")


def test_bad_data(data, letters, tmp_path):
    def fails(match, error=ValueError, **options):
        with pytest.raises(error, match=match):
            xor_retrieve.evaluate(letters(), data, embeddings_dir=tmp_path / "vectors", **options)

    fails("en_wiki.tsv holds 4 passages, but each question is to find 100")
    fails("no language 'te'", languages=["te"])
    fails("holds none of xor_train_retrieve", FileNotFoundError, split="train")
    fails("en_wiki.txt does not exist", FileNotFoundError, passages="en_wiki.txt")
    wiki, asked = data / "en_wiki.tsv", data / "xor_dev_retrieve_eng_span_v1_1.jsonl"
    with open(wiki, "a") as file:
        file.write("2\tagain\tB\n")
    fails("en_wiki.tsv, line 6: the passage id '2' is that of .*line 3 already", depth=1)
    wiki.write_text("1\tno title\n")
    fails("en_wiki.tsv, line 1: found 2 columns .*wanted 3: id, text, title", depth=1)
    good = json.dumps(QUESTIONS[0]) + "\n"
    for line, match in (
        (good, "line 2: the id f1 is that of .*line 1 already"),
        ('{"id": 2\n', "line 2: malformed JSON"),
        (json.dumps(question("f4", "fi", "x", "Anna")), "line 2: answers are 'Anna'; wanted a list"),
        (json.dumps(question("f4", "fi", " ", ["Anna"])), "line 2: the question f4 is blank"),
        ('{"id": 2, "question": "x", "lang": "fi"}', "line 2: the object has no answers"),
    ):
        asked.write_text(good + line)
        fails(match)


@pytest.mark.parametrize(
    ("contents", "match"),
    [
        ("[{", "malformed JSON"),
        ("{}", "holds the JSON of a dict"),
        ('[{"id": "f1", "lang": "fi"}]', 'object 1 is .*wanted "id" or "q_id"'),
        ('[{"id": "f1", "lang": "fi", "ctxs": [1]}]', "object 1 is"),
        ('[{"id": "x", "lang": "fi", "ctxs": []}]', "object 1: there is no question x in 'fi'"),
        ('[{"id": "f1", "lang": "ja", "ctxs": []}]', "object 1: there is no question f1 in 'ja'"),
        ('[{"id": "f1", "lang": "fi", "ctxs": []}]', "lacks 2 of 3 questions, the first being f3"),
        ('[{"id": "f1", "lang": "fi", "ctxs": []}, {"id": "f1", "lang": "fi", "ctxs": []}]', "f1 is there twice"),
    ],
)
def test_bad_predictions(data, contents, match):
    (data / "run.json").write_text(contents)
    with pytest.raises(ValueError, match=match):
        xor_retrieve.evaluate(None, data, run=data / "run.json")
