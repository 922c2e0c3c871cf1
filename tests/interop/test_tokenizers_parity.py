"""The same ids as transformers' own tokenizers, on texts of many scripts."""

import io
import json

import pytest
import sentencepiece

from vmsst_jax.data import tokenizers
from vmsst_jax.data.tokenizer import Tokenizer
from vmsst_jax.data.tokenizer_json import wordpiece
from vmsst_jax.data.tokenizer_xlm import XlmTokenizer
from vmsst_jax.data.tokenizer_xlmr import XlmrTokenizer

pytestmark = pytest.mark.parity

TEXTS = [
    *("Hello world!", "  two   spaces\tand a tab ", "", "L’été, c’est “beau” — n’est-ce pas…", "Größe & Maß: 3,5 %"),
    *(
        "東京都は日本の首都です。",
        "नमस्ते दुनिया",
        "Привет, мир!",
        "שלום עולם",
        "ﬁne １２３ ½",
        "a\u200bb\u00a0c",
        "emoji 😀",
    ),
    *("don't stop.", "U.S. policy, Mr. Smith's", "http://a.b/c?d=e", "Tom needed water."),
]


def check(ours, theirs):
    rows, _ = ours.encode(TEXTS, 24)
    expected = theirs(TEXTS, truncation=True, max_length=24)["input_ids"]
    assert [row.tolist() for row in rows] == expected


def folder(path, tokenizer, model_type):
    for name, contents in tokenizers.files(tokenizer).items():
        (path / name).write_bytes(contents)
    (path / "tokenizer_config.json").write_bytes(tokenizers.dump_json(tokenizers.config(tokenizer, 64)))
    (path / "config.json").write_text(json.dumps({"model_type": model_type}))
    return str(path)


def test_xlmr(tmp_path):
    from transformers import AutoTokenizer

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(TEXTS * 4), model_writer=model, vocab_size=170, hard_vocab_limit=False, minloglevel=2
    )
    ours = XlmrTokenizer(model.getvalue())
    theirs = AutoTokenizer.from_pretrained(folder(tmp_path, ours, "xlm-roberta"))
    assert type(theirs).__name__.startswith("XLMRoberta") and theirs.pad_token_id == ours.pad_id
    check(ours, theirs)


def test_t5_folder(tmp_path):
    from transformers import AutoTokenizer

    ours = Tokenizer.train(TEXTS * 4, 107)
    check(ours, AutoTokenizer.from_pretrained(folder(tmp_path, ours, "mt5")))


@pytest.mark.parametrize("lower", [True, False])
def test_wordpiece(tmp_path, lower):
    from transformers import BertTokenizer

    letters = sorted({c for text in TEXTS for c in text.lower() + text if not c.isspace()})
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{c}" for c in letters), "##ello", "wor"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces), encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lower}))
    theirs = BertTokenizer.from_pretrained(str(tmp_path))
    check(wordpiece((tmp_path / "vocab.txt").read_bytes(), {"do_lower_case": lower}), theirs)


def test_tokenizer_json(tmp_path):
    from transformers import PreTrainedTokenizerFast

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "hello", "world", "!"]
    ours = wordpiece("\n".join(pieces).encode(), {})
    theirs = PreTrainedTokenizerFast.from_pretrained(folder(tmp_path, ours, "bert"))
    assert theirs.pad_token_id == 0
    check(ours, theirs)


def test_xlm(tmp_path):
    """transformers frames with <s> ... </s>, XLM itself with </s> ... </s>: what stands between is compared."""
    from transformers import XLMTokenizer

    letters = sorted({c for text in TEXTS for c in text if not c.isspace()})
    words = [*(f"{c}@@ 2" for c in letters), *(f"{c} 1" for c in letters), "Hello 1", "ll@@ 1", "wat@@ 1", "er 1"]
    codes = "l l 9\nH e 8\nll o</w> 7\nHe llo</w> 6\ne r</w> 5\nw a 4\nwa t 3\n"
    ours = XlmTokenizer.from_files(codes, "\n".join(words))
    for name, text in ours.hugging_face_files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    theirs = XLMTokenizer(
        str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt"), do_lowercase_and_remove_accent=False
    )
    rows, _ = ours.encode(TEXTS, 512)
    expected = [theirs.convert_tokens_to_ids(theirs.tokenize(text)) for text in TEXTS]
    assert [row.tolist() for row in rows] == [[1, *ids, 1] for ids in expected]
