"""Every family's ids, special tokens and padding, against hand-made vocabularies; records and folders."""

import io
import json

import numpy as np
import pytest
import sentencepiece

from vmsst_jax.data import tokenizers
from vmsst_jax.data.tokenizer import Tokenizer
from vmsst_jax.data.tokenizer_json import JsonTokenizer, wordpiece
from vmsst_jax.data.tokenizer_xlm import SPECIALS, XlmTokenizer
from vmsst_jax.data.tokenizer_xlmr import XlmrTokenizer

TEXTS = ["Hello world!", "two words", "", "über größe"]
WORDPIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hel", "##lo", "world", "!", "He"]
CODES = "l o 9\nlo w</w> 8\nn e 7\ne w</w> 5\n"
WORDS = "low 10\nne@@ 7\nw 4\nlo@@ 3\nnew 2\n"


@pytest.fixture(scope="module")
def model_bytes():
    """A SentencePiece model with the special pieces where XLM-R has them: <unk> <s> </s>."""
    words = "hello world two words über größe one three four five".split()
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(f"{a} {b}!" for a in words for b in words),
        model_writer=model,
        vocab_size=60,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return model.getvalue()


@pytest.fixture(scope="module")
def t5():
    return Tokenizer.train([f"{a} {b}" for a in "one two three".split() for b in "four five six".split()], 22)


@pytest.fixture(scope="module")
def families(model_bytes, t5):
    """A tokenizer of every kind."""
    return [
        t5,
        XlmrTokenizer(model_bytes),
        wordpiece("\n".join(WORDPIECES).encode(), {"do_lower_case": False}),
        XlmTokenizer.from_files(CODES, WORDS),
    ]


def test_xlmr_moves_ids_by_one(model_bytes):
    processor = sentencepiece.SentencePieceProcessor(model_proto=model_bytes)
    tokenizer = XlmrTokenizer(model_bytes)
    rows, truncated = tokenizer.encode(TEXTS, 64)
    for text, row in zip(TEXTS, rows, strict=True):
        pieces = [3 if i == 0 else i + 1 for i in processor.Encode(text)]
        assert row.tolist() == [0, *pieces, 2] and row.dtype == np.int32
    assert truncated == 0
    assert tokenizer.pad_id == 1 and tokenizer.vocab_size == len(processor) + 2
    assert tokenizer.mask_id == tokenizer.vocab_size - 1 and tokenizer.special_ids == (0, 2)
    assert tokenizer.decode(rows[1]) == "two words"


def test_cutting_keeps_the_frame(model_bytes):
    tokenizer = XlmrTokenizer(model_bytes)
    whole = tokenizer.encode(["one two three four"], 64)[0][0]
    rows, truncated = tokenizer.encode(["one two three four", ""], 4)
    assert rows[0].tolist() == [0, *whole[1:3], 2] and rows[1].tolist() == [0, 2] and truncated == 1
    flat, lengths, cut = tokenizer.encode_flat(["one two three four", ""], 4)
    assert flat.tolist() == [*rows[0], *rows[1]] and lengths.tolist() == [4, 2] and cut.tolist() == [True, False]
    with pytest.raises(ValueError, match="max_length is 2; wanted 3 or more"):
        tokenizer.encode(["one"], 2)


def test_wordpiece():
    tokenizer = wordpiece("\n".join(WORDPIECES).encode(), {"do_lower_case": True})
    rows, _ = tokenizer.encode(["Hello World!", "[PAD] foo", ""], 16)
    assert rows[0].tolist() == [2, 5, 6, 7, 8, 3]
    assert rows[2].tolist() == [2, 3] and tokenizer.pad_id == 0 and tokenizer.special_ids == (2, 3)
    cased = wordpiece("\n".join(WORDPIECES).encode(), {"do_lower_case": False})
    assert cased.encode(["Hello"], 16)[0][0].tolist() == [2, 1, 3]  # "He" has no continuation "##llo"


def test_xlm_byte_pairs():
    """low -> low</w>; new -> ne w</w>, as "ne" comes first and (ne, w</w>) is no pair; lo -> lo@@ is not lo</w>."""
    tokenizer = XlmTokenizer.from_files(CODES, WORDS)
    first = len(SPECIALS)
    assert tokenizer.encode(["low new"], 16)[0][0].tolist() == [1, first, first + 1, first + 2, 1]
    assert tokenizer.encode(["Low"], 16)[0][0].tolist() == [1, 3, 3, first + 2, 1]  # not lower-cased
    assert tokenizer.pad_id == 2 and tokenizer.mask_id == 5 and tokenizer.vocab_size == first + 5
    assert tokenizer.decode([1, first, first + 1, first + 2, 1, 2]) == "low new"
    files = tokenizer.hugging_face_files
    again = XlmTokenizer.from_hugging_face(json.loads(files["vocab.json"]), files["merges.txt"], "here")
    assert again.serialized == tokenizer.serialized


def test_xlm_normalises_punctuation():
    tokenizer = XlmTokenizer.from_files(CODES, WORDS)
    assert tokenizer.words("“low”，new。") == ['"', "low", ",", '"', "new", "."]


def test_the_dictionary_of_a_checkpoint():
    words = [*SPECIALS, "low", "ne@@", "w", "lo@@", "new"]
    assert XlmTokenizer.from_files(CODES, words).serialized == XlmTokenizer.from_files(CODES, WORDS).serialized


def test_records_give_the_same_tokenizer(families):
    for tokenizer in families:
        record = json.loads(json.dumps(tokenizers.to_record(tokenizer)))
        again = tokenizers.from_record(record)
        assert type(again) is type(tokenizer) and again.sha256 == tokenizer.sha256 == record["sha256"]
        rows, expected = again.encode(TEXTS, 16)[0], tokenizer.encode(TEXTS, 16)[0]
        assert [r.tolist() for r in rows] == [r.tolist() for r in expected]
        assert again.pad_id == tokenizer.pad_id and again.vocab_size == tokenizer.vocab_size


def test_damaged_records(families):
    record = tokenizers.to_record(families[0])
    with pytest.raises(ValueError, match="kind 'words'; known: sentencepiece, xlmr_sentencepiece"):
        tokenizers.from_record({**record, "kind": "words"})
    with pytest.raises(ValueError, match="has the sha256 .* 0000"):
        tokenizers.from_record({**record, "sha256": "0000"}, "DIR")


def write(folder, tokenizer, model_type):
    for name, contents in tokenizers.files(tokenizer).items():
        (folder / name).write_bytes(contents)
    (folder / "tokenizer_config.json").write_bytes(tokenizers.dump_json(tokenizers.config(tokenizer, 128)))
    return tokenizers.load(folder, model_type)


@pytest.mark.parametrize("index, model_type", [(0, "mt5"), (1, "xlm-roberta"), (1, "bert"), (2, "bert"), (3, "xlm")])
def test_folders_give_the_same_tokenizer(families, tmp_path, index, model_type):
    """An XLM-R tokenizer on a BERT model is multilingual-e5's case."""
    again = write(tmp_path, families[index], model_type)
    assert type(again) is type(families[index]) and again.sha256 == families[index].sha256


def test_tokenizer_json_is_taken_before_sentencepiece_except_for_t5(families, tmp_path, model_bytes, t5):
    (tmp_path / "tokenizer.json").write_bytes(families[2].serialized)
    (tmp_path / "sentencepiece.bpe.model").write_bytes(model_bytes)
    assert isinstance(tokenizers.load(tmp_path, "xlm-roberta"), JsonTokenizer)
    (tmp_path / "spiece.model").write_bytes(t5.serialized)
    assert tokenizers.load(tmp_path, "mt5").sha256 == t5.sha256
    assert tokenizers.load(tmp_path / "spiece.model").sha256 == t5.sha256
    assert isinstance(tokenizers.load(tmp_path / "sentencepiece.bpe.model"), XlmrTokenizer)


@pytest.mark.parametrize(
    "name, contents, model_type, message",
    [
        ("tokenizer.json", b"{", "bert", "tokenizer.json .* is not JSON"),
        ("tokenizer.json", b'{"a": 1}', "bert", "is not a tokenizer.json that the library tokenizers"),
        ("sentencepiece.bpe.model", b"text", "xlm-roberta", "is not a SentencePiece model"),
        ("sentencepiece.bpe.model", b"text", "camembert", "'camembert' model .* put its tokenizer.json beside it"),
        ("vocab.txt", b"a\nb\n", "bert", r"lacks the special pieces \[PAD\], \[UNK\]"),
        ("vocab.txt", b"\xff\n", "bert", "byte 0 is not UTF-8"),
        ("vocab.json", b'{"a": 0}', "xlm", "merges.txt is missing"),
        ("vocab.json", b'{"a": 0}', "roberta", "give tokenizer.json"),
        ("notes.md", b"", "bert", "no tokenizer in .* wanted tokenizer.json"),
    ],
)
def test_what_is_no_tokenizer_is_named(tmp_path, name, contents, model_type, message):
    (tmp_path / name).write_bytes(contents)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        tokenizers.load(tmp_path, model_type)


def test_the_wrong_family_of_sentencepiece(model_bytes, t5):
    with pytest.raises(ValueError, match=r"XLM-R's model has them at \[0, 1, 2\]"):
        XlmrTokenizer(t5.serialized)
    with pytest.raises(ValueError, match="wanted pad id 0"):
        Tokenizer(model_bytes)


def test_an_xlm_dictionary_that_is_none():
    with pytest.raises(ValueError, match="the dictionary begins with"):
        XlmTokenizer.from_files(CODES, ["low", "new"])
    with pytest.raises(ValueError, match="line 1 lacks two symbols"):
        XlmTokenizer.from_files("low\n", WORDS)
