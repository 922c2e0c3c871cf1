"""What a line becomes, and which sentences count as the same."""

import gzip

import pytest

from vmsst_jax.data.text_pairs import CorpusError
from vmsst_jax.preparation.cleaning import PairRules, TestSentences, clean, match_key


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("  a \t b\u00a0\u3000c\u2028d\u0085e ", "a b c d e"),
        ("e\u0301", "é"),
        ("bell\x07 and\x00 mark\ufeff", "bell and mark"),
        ("½ ﬁ Ｗ", "½ ﬁ Ｗ"),  # NFC changes no letter for another
        ("می\u200cخواهم", "می\u200cخواهم"),  # Persian needs its zero-width non-joiner
    ],
)
def test_cleaned_text(text, wanted):
    assert clean(text) == wanted


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Hello, world!", "ＨＥＬＬＯ　ＷＯＲＬＤ"),
        ("Straße", "STRASSE"),
        ("バカ", "ﾊ ﾞ ｶ"),
        ("e\u0301cole", "École…"),
        ("ὀδυσσεύς", "ὈΔΥΣΣΕΎΣ"),
        ("نص عربي", "نصعربي؟"),
        ("a_b", "A\u200bB"),
    ],
)
def test_the_same_sentence(one, other):
    assert match_key(one) == match_key(other)


@pytest.mark.parametrize(
    ("one", "other"), [("कि", "की"), ("คา", "ค่า"), ("resume", "résumé"), ("5 apples", "6 apples"), ("?!", "...")]
)
def test_another_sentence(one, other):
    """Marks are vowels and tones in many scripts: \\w, which has none, would take these for the same."""
    assert match_key(one) != match_key(other)


def test_test_sentences_are_read_from_lines_and_fields(tmp_path):
    (tmp_path / "a.eng").write_text("One two.\n\n Three \n")
    (tmp_path / "b.tsv.gz").write_bytes(gzip.compress("4\tfünf\tsechs\n".encode()))
    tests = TestSentences.read([str(tmp_path / "a.eng"), str(tmp_path / "b.tsv.gz")])
    assert all(text in tests for text in ("ONE, TWO", "three", "Fünf!", "sechs", "4"))
    assert not any(text in tests for text in ("one", "two", "", "fünf sechs"))
    assert tests.describe()["sentences"] == 5
    assert TestSentences(tests.array.tolist()).describe() == tests.describe()
    (tmp_path / "empty").write_text(" \n\t\n")
    (tmp_path / "latin").write_bytes("na\u00efve\n".encode("latin-1"))
    for name, message in (("empty", "no test sentence in there"), ("latin", "line 1: not valid UTF-8")):
        with pytest.raises(CorpusError, match=f"{name}.*{message}"):
            TestSentences.read([str(tmp_path / name)])


def test_rules_at_their_borders():
    rules, tests = PairRules(max_characters=50, max_ratio=3.0), TestSentences()
    assert rules.outcome("a" * 50, "b" * 50, tests) == ""
    assert rules.outcome("a" * 51, "b" * 50, tests) == "long"
    assert rules.outcome("a" * 5, "b" * 35, tests) == ""  # (35 + 10) / (5 + 10) = 3
    assert rules.outcome("b" * 36, "a" * 5, tests) == "ratio"
    with pytest.raises(ValueError, match="max_ratio is 0.5; wanted a number of 1"):
        PairRules(max_ratio=0.5)
