import pytest

from vmsst_jax.words import tokens


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Ein Mann, der 3.5 km läuft!", "ein mann , der 3 . 5 km läuft !"),
        ("l'été don't", "l ' été don ' t"),
        ("snake_case  A-B\t\u00a0c", "snake _ case a - b c"),
        ("हिन्दी में लिखा है।", "हिन्दी में लिखा है ।"),  # vowel signs and virama stay in their words
        ("สวัสดี ครับ", "สวัสดี ครับ"),
        ("می\u200cروم", "می\u200cروم"),  # a joiner inside a word
        ("cafe\u0301", "caf\u00e9"),  # NFC
        ("ΟΔΟΣ Straße", "οδος straße"),
        (" \n ", ""),
    ],
)
def test_tokenize(text, wanted):
    assert tokens.tokenize(text) == wanted.split()


def test_case_and_looking_up():
    assert tokens.tokenize("Der Hund", lower=False) == ["Der", "Hund"]
    rows = {"der": 0, "Hund": 1, "hund": 2}
    assert [tokens.find(rows, token) for token in ("Der", "Hund", "HUND", "Katze")] == [0, 1, 2, None]
    assert [tokens.has_letter(token) for token in ("a1", "42", "!", "में")] == [True, False, False, True]


def test_words_without_spaces_are_cut_at_the_longest_known():
    rows = {word: i for i, word in enumerate(("北京", "北", "大学", "京大", "แมว", "cat"))}
    assert tokens.find_all(rows, "北京大学生北") == [0, 2, 1]  # the longest first, what isn't known passed over
    assert tokens.find_all(rows, "大学") == [2] and tokens.find_all(rows, "ลูกแมวดำ") == [4]
    assert tokens.find_all(rows, "生") == tokens.find_all(rows, "catcat") == tokens.find_all(rows, "") == []
