"""word2vec's text form, against gensim's reader and writer, and files that are not in it."""

import gzip

import gensim.models
import numpy as np
import pytest

from vmsst_jax.words import vectors
from vmsst_jax.words.vectors import WordVectors

FOUND = WordVectors(["der", "straße", "l", "42", "हिन्दी"], np.arange(15, dtype=np.float32).reshape(5, 3) / 7 - 1)


@pytest.mark.parametrize("name", ["a.vec", "a.vec.gz"])
def test_gensim_reads_what_is_written(tmp_path, name):
    vectors.write(tmp_path / name, FOUND)
    other = gensim.models.KeyedVectors.load_word2vec_format(tmp_path / name)
    assert other.index_to_key == FOUND.words
    np.testing.assert_allclose(other.vectors, FOUND.vectors, atol=1e-6)
    again = vectors.read(tmp_path / name)
    assert again.words == FOUND.words
    np.testing.assert_allclose(again.vectors, FOUND.vectors, atol=1e-6)
    before = (tmp_path / name).read_bytes()
    vectors.write(tmp_path / name, again)
    assert (tmp_path / name).read_bytes() == before


def test_reads_what_gensim_writes(tmp_path):
    other = gensim.models.KeyedVectors(3)
    other.add_vectors(FOUND.words, FOUND.vectors)
    other.save_word2vec_format(tmp_path / "b.vec")
    found = vectors.read(tmp_path / "b.vec")
    assert found.words == FOUND.words
    np.testing.assert_allclose(found.vectors, FOUND.vectors, rtol=1e-6)


def test_most_frequent_words_and_repeated_ones(tmp_path):
    (tmp_path / "c.vec").write_text("4 2\na 1 2 \nb 3 4\na 5 6\nc 7 8e-1\n")  # word2vec ends lines in a space
    found = vectors.read(tmp_path / "c.vec")
    assert found.words == ["a", "b", "c"]
    np.testing.assert_allclose(found.vectors, [[1, 2], [3, 4], [7, 0.8]])
    assert vectors.read(tmp_path / "c.vec", 2).words == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"line 1: ''; wanted the number of words and the width"),
        ("a 1 2\n", "line 1: 'a 1 2'; wanted .*GloVe"),
        ("0 2\n", "line 1: '0 2'"),
        ("2 2\na 1 2\nb 1\n", "line 3: 'b 1' has 1 numbers; wanted a word and 2 numbers"),
        ("999999 99999999\na 1 2\n", "line 2: 'a 1 2' has 2 numbers; wanted a word and 99999999 numbers"),
        ("99999999999 2\na 1 2\n", "line 1 announces 99999999999 words, and it ends after 1"),
        ("1 2\na 1 2 3\n", "line 2: 'a 1 2 3' has 3 numbers"),
        ("1 2\na 1 x\n", "line 2, 'a': could not convert string to float: 'x'"),
        ("1 2\na 1 nan\n", "line 2: the vector of 'a' holds NaN"),
        ("1 2\na 0 0\n", "line 2: the vector of 'a' holds NaN or infinity, or nothing but zeros"),
        ("3 2\na 1 2\nb 1 2\n", "line 1 announces 3 words, and it ends after 2"),
        ("1 2\na 1 2\nb 1 2\n", "line 3: 'b 1 2' follows the 1 words that line 1 announces"),
    ],
)
def test_bad_lines_are_named(tmp_path, text, message):
    (tmp_path / "bad.vec").write_text(text)
    with pytest.raises(ValueError, match=f"bad.vec, {message}"):
        vectors.read(tmp_path / "bad.vec")


def test_other_files_are_refused(tmp_path):
    (tmp_path / "binary.vec").write_bytes(b"1 2\na \x00\x00\xff\x3f\x00\x00\x80\x3f\n")
    with pytest.raises(ValueError, match="binary.vec, line 2: not UTF-8 text; word2vec's binary form"):
        vectors.read(tmp_path / "binary.vec")
    whole = gzip.compress(b"2 2\na 1 2\nb 3 4\n")
    for contents in (whole[:-9], b"2 2\na 1 2\nb 3 4\n"):
        (tmp_path / "cut.vec.gz").write_bytes(contents)
        with pytest.raises(ValueError, match="cut.vec.gz is no whole gzip file"):
            vectors.read(tmp_path / "cut.vec.gz")
    with pytest.raises(FileNotFoundError, match="there is no file .*none.vec"):
        vectors.read(tmp_path / "none.vec")
    for word in ("", "two words", "tab\t"):
        with pytest.raises(ValueError, match="has white space"):
            vectors.write(tmp_path / "new.vec", WordVectors([word], np.ones((1, 2), np.float32)))
    assert not (tmp_path / "new.vec").exists()
