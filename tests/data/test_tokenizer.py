import hashlib
import io
import re

import numpy as np
import pytest
import sentencepiece

from vmsst_jax.data.tokenizer import Tokenizer
from vmsst_jax.data.tokenizer_xlmr import XlmrTokenizer

TEXTS = [
    f"the {a} {b} sleeps on {c} %(count)s files" for a in "abcde" for b in ("cat", "dog") for c in ("mats", "sofas")
]


def test_ids_are_sentencepieces_own_followed_by_eos(tokenizer, examples):
    texts = [e["target"] for e in examples[:50]]
    rows, truncated = tokenizer.encode(texts, max_length=1000)
    plain = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.serialized)
    assert truncated == 0
    assert [row.tolist() for row in rows] == [[*plain.EncodeAsIds(text), 1] for text in texts]
    assert all(row.dtype == np.int32 for row in rows)
    assert (tokenizer.pad_id, tokenizer.eos_id, tokenizer.unk_id, tokenizer.vocab_size) == (0, 1, 2, 400)


def test_long_sentences_are_cut_before_their_eos_and_counted(tokenizer, examples):
    texts = [e["source"] for e in examples[:50]]
    whole, _ = tokenizer.encode(texts, max_length=1000)
    rows, truncated = tokenizer.encode(texts, max_length=9)
    assert truncated == sum(len(row) > 9 for row in whole) > 0
    for long, short in zip(whole, rows, strict=True):
        assert short.tolist() == (long.tolist() if len(long) <= 9 else [*long[:8], 1])


def test_no_texts_and_empty_texts(tokenizer):
    assert tokenizer.encode([], 8) == ([], 0)
    rows, truncated = tokenizer.encode(["", "", "nr1"], 8)
    assert rows[0].tolist() == rows[1].tolist() == [1] and rows[2][-1] == 1 and truncated == 0


def test_decode_gives_the_normalised_text_back(tokenizer):
    (row,), _ = tokenizer.encode(["  ㎏   nr１ "], 30)  # NFKC: square kg, full-width digit
    assert tokenizer.decode(np.concatenate([row, [0, 0]])) == "kg nr1"


def test_training_is_deterministic_and_the_model_survives_a_file(tmp_path):
    first, second = Tokenizer.train(iter(TEXTS), 36), Tokenizer.train(TEXTS, 36)
    assert first.serialized == second.serialized
    (tmp_path / "vocabulary.model").write_bytes(first.serialized)
    loaded = Tokenizer.load(tmp_path / "vocabulary.model")
    assert (
        loaded.sha256 == hashlib.sha256(first.serialized).hexdigest() == Tokenizer.from_bytes(first.serialized).sha256
    )
    assert loaded.encode(TEXTS, 20)[0][3].tolist() == first.encode(TEXTS, 20)[0][3].tolist()


def test_training_is_quiet(capfd):
    Tokenizer.train(TEXTS, 36)
    assert capfd.readouterr() == ("", "")


def test_byte_fallback_spells_out_what_coverage_leaves_out():
    tokenizer = Tokenizer.train(TEXTS, 290, byte_fallback=True)
    (row,), _ = tokenizer.encode(["猫"], 20)
    assert tokenizer.unk_id not in row.tolist() and tokenizer.decode(row) == "猫"


@pytest.mark.parametrize(
    ("texts", "size", "words"),
    [(TEXTS, 8000, "8000 pieces.*at most [0-9]+"), (TEXTS, 10, "10 pieces.*need [0-9]+"), ([""], 100, "no text")],
)
def test_impossible_vocabularies_say_what_is_possible(texts, size, words):
    with pytest.raises(ValueError, match=words):
        Tokenizer.train(texts, size)


def test_the_largest_vocabulary_is_counted_with_its_special_pieces():
    with pytest.raises(ValueError, match="vocabulary of 8000 pieces.*train_xlmr_sentencepiece.vocab_size") as caught:
        XlmrTokenizer.train(TEXTS, 8000)
    most = int(re.search(r"at most (\d+)", str(caught.value))[1])
    assert XlmrTokenizer.train(TEXTS, most).vocab_size == most
    with pytest.raises(ValueError, match=f"at most {most}"):
        XlmrTokenizer.train(TEXTS, most + 1)


def test_files_that_are_no_tokenizer(tmp_path, tokenizer):
    with pytest.raises(FileNotFoundError, match="absent.model"):
        Tokenizer.load(tmp_path / "absent.model")
    for content in (b"", b'{"version": "1.0"}', tokenizer.serialized[:100]):
        (tmp_path / "bad.model").write_bytes(content)
        with pytest.raises(ValueError, match=r"bad\.model .* is not a SentencePiece model"):
            Tokenizer.load(tmp_path / "bad.model")


def test_another_padding_id_is_refused():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(TEXTS), model_writer=model, vocab_size=36, minloglevel=2, pad_id=3, unk_id=0
    )
    with pytest.raises(ValueError, match="pad id 3"):
        Tokenizer.from_bytes(model.getvalue())
