"""Folders that transformers and sentence-transformers wrote, and that they read: the same vectors, the same bits."""

import io
import json

import numpy as np
import pytest
import sentencepiece

import vmsst_jax
from vmsst_jax import convert
from vmsst_jax.data import tokenizers
from vmsst_jax.data.tokenizer import Tokenizer
from vmsst_jax.data.tokenizer_json import wordpiece
from vmsst_jax.data.tokenizer_xlm import XlmTokenizer
from vmsst_jax.data.tokenizer_xlmr import XlmrTokenizer
from vmsst_jax.interop import files

pytestmark = pytest.mark.parity

WORDS = "one two three four five six seven eight nine ten".split()
TEXTS = ["one two three", "ten", "nine eight seven six five four three two one", "", "two two"]
SMALL = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24}
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2}


@pytest.fixture(scope="module")
def vocabularies():
    pairs = [f"{a} {b}" for a in WORDS for b in WORDS]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(pairs), model_writer=model, vocab_size=30, hard_vocab_limit=False, minloglevel=2
    )
    letters = sorted({c for word in WORDS for c in word})
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    return {
        "bert": wordpiece("\n".join(pieces).encode(), {}),
        "xlm-roberta": XlmrTokenizer(model.getvalue()),
        "xlm": XlmTokenizer.from_files(
            "o n 2\non e</w> 1\n", "one 3\n" + "".join(f"{c}@@ 2\n{c} 1\n" for c in letters)
        ),
        "mt5": Tokenizer.train(pairs, 28),
    }


def make(family, vocabularies, folder, **options):
    """A random model of a family, saved as transformers does it."""
    import torch
    import transformers as hf

    torch.manual_seed(0)
    size = vocabularies[family].vocab_size
    if family == "bert":
        model = hf.BertModel(hf.BertConfig(vocab_size=size, max_position_embeddings=40, **SMALL, **options))
    elif family == "xlm-roberta":
        positions = {"max_position_embeddings": 42, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
        model = hf.XLMRobertaForMaskedLM(hf.XLMRobertaConfig(vocab_size=size, **positions, **SMALL, **options))
    elif family == "xlm":
        sizes = {"emb_dim": 16, "n_layers": 3, "n_heads": 2, "max_position_embeddings": 40, "use_lang_emb": False}
        model = hf.XLMWithLMHeadModel(hf.XLMConfig(vocab_size=size, gelu_activation=True, **sizes, **options))
    else:
        model = hf.MT5ForConditionalGeneration(hf.MT5Config(vocab_size=size, **T5, **options))
    for p in model.parameters():  # biases and norms too: their defaults would hide mistakes
        p.data += 0.1 * torch.randn_like(p)
    model.save_pretrained(folder)
    for name, contents in tokenizers.files(vocabularies[family]).items():
        (folder / name).write_bytes(contents)
    settings = tokenizers.config(vocabularies[family], 32)
    (folder / "tokenizer_config.json").write_bytes(tokenizers.dump_json(settings))
    return model.eval()


def expected(model, tokenizer, texts, layer=-1):
    """Means over all tokens of a hidden state of the model itself, sentence by sentence."""
    import torch

    vectors = []
    for row in tokenizer.encode(texts, 32)[0]:
        encoder = getattr(model, "encoder", model) if hasattr(model, "lm_head") and hasattr(model, "encoder") else model
        with torch.no_grad():
            out = encoder(torch.tensor(row[None].astype(np.int64)), output_hidden_states=True)
        vectors.append(out.hidden_states[layer][0].mean(0).numpy())
    return np.stack(vectors)


FAMILIES = ["bert", "xlm-roberta", "xlm", "mt5"]


@pytest.mark.parametrize("family", FAMILIES)
def test_in_and_out_again(tmp_path, vocabularies, family):
    (tmp_path / "hf").mkdir()
    model = make(family, vocabularies, tmp_path / "hf")
    wanted = expected(model, vocabularies[family], TEXTS)
    found = vmsst_jax.load(tmp_path / "hf").encode(TEXTS)
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    if family != "mt5":
        first = vmsst_jax.load(tmp_path / "hf", layer=1).encode(TEXTS)
        np.testing.assert_allclose(first, expected(model, vocabularies[family], TEXTS, layer=1), atol=1e-5)

    convert.main([f"--input={tmp_path / 'hf.vmsst_jax'}", f"--output={tmp_path / 'out'}", "--to=hf"])
    before, after = files.open_weights(tmp_path / "hf"), files.open_weights(tmp_path / "out")
    assert after.shapes == before.shapes
    for name in before:
        np.testing.assert_array_equal(after[name], before[name], err_msg=name)

    import transformers

    again, report = type(model).from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    np.testing.assert_allclose(expected(again.eval(), vocabularies[family], TEXTS), wanted, atol=1e-5)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    rows = [row.tolist() for row in vocabularies[family].encode(TEXTS, 32)[0]]
    assert theirs(TEXTS, truncation=True, max_length=32)["input_ids"] == rows


def save_sentence_transformer(folder, transformer, pooling, dense, prompts):
    import torch
    from sentence_transformers import SentenceTransformer, models

    torch.manual_seed(1)
    modules = [models.Transformer(str(transformer)), models.Pooling(16, pooling)]
    modules += [models.Dense(16, 8, activation_function=torch.nn.Tanh())] * dense + [models.Normalize()]
    SentenceTransformer(modules=modules, **prompts).save(str(folder))
    return SentenceTransformer(str(folder))


@pytest.mark.parametrize(
    "family, pooling, dense", [("bert", "cls", True), ("xlm-roberta", "max", False), ("bert", "mean", True)]
)
def test_sentence_transformers_folders(tmp_path, vocabularies, family, pooling, dense):
    (tmp_path / "hf").mkdir()
    make(family, vocabularies, tmp_path / "hf")
    prompts = {"prompts": {"query": "one two ", "other": "ten "}, "default_prompt_name": "query"}
    theirs = save_sentence_transformer(tmp_path / "st", tmp_path / "hf", pooling, dense, prompts)
    ours = vmsst_jax.load(tmp_path / "st")
    assert ours.embedding["prefix"] == "one two " and ours.embedding["normalize"]
    np.testing.assert_allclose(ours.encode(TEXTS), theirs.encode(TEXTS), atol=1e-5)


@pytest.mark.parametrize(
    "family, flags", [("bert", []), ("xlm-roberta", ["--layer=2", "--normalize"]), ("mt5", ["--prefix=ten "])]
)
def test_our_sentence_transformers_folders(tmp_path, vocabularies, family, flags):
    from sentence_transformers import SentenceTransformer

    (tmp_path / "hf").mkdir()
    make(family, vocabularies, tmp_path / "hf")
    convert.main([f"--input={tmp_path / 'hf'}", f"--output={tmp_path / 'own'}", "--pooling=mean", *flags])
    ours = vmsst_jax.load(tmp_path / "own").encode(TEXTS)
    convert.main([f"--input={tmp_path / 'own'}", f"--output={tmp_path / 'st'}", "--to=sentence_transformers"])
    theirs = SentenceTransformer(str(tmp_path / "st")).encode(TEXTS)
    np.testing.assert_allclose(theirs, ours, atol=1e-5)
    assert json.loads((tmp_path / "st" / "modules.json").read_text())[0]["path"] == ""


def test_the_released_vmsst(tmp_path, vocabularies):
    """mt5_encoder.* and projection.weight; its embedding is the projected mean, by hand here."""
    import torch
    import transformers as hf

    torch.manual_seed(0)
    encoder = hf.MT5EncoderModel(hf.MT5Config(vocab_size=vocabularies["mt5"].vocab_size, **T5)).eval()
    projection = torch.nn.Linear(16, 16, bias=False)
    state = {f"mt5_encoder.{name}": value for name, value in encoder.state_dict().items()}
    torch.save(state | {"projection.weight": projection.weight}, tmp_path / "pytorch_model.bin")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "vmsst"}))
    (tmp_path / "spiece.model").write_bytes(vocabularies["mt5"].serialized)
    wanted = []
    for row in vocabularies["mt5"].encode(TEXTS, 32)[0]:
        with torch.no_grad():
            hidden = encoder(torch.tensor(row[None].astype(np.int64))).last_hidden_state[0]
            wanted.append(projection(hidden.mean(0)).numpy())
    np.testing.assert_allclose(vmsst_jax.load(tmp_path).encode(TEXTS), np.stack(wanted), atol=1e-5)

    from sentence_transformers import SentenceTransformer

    convert.main([f"--input={tmp_path}", f"--output={tmp_path / 'st'}", "--to=sentence_transformers"])
    np.testing.assert_allclose(SentenceTransformer(str(tmp_path / "st")).encode(TEXTS), np.stack(wanted), atol=1e-5)


def test_xlm_pth(tmp_path, vocabularies):
    """XLM's own file: its names without a prefix, its parameters, its dictionary, fastBPE's codes beside it."""
    import torch

    (tmp_path / "hf").mkdir()
    model = make("xlm", vocabularies, tmp_path / "hf")
    tokenizer = vocabularies["xlm"]
    state = {f"module.{name.removeprefix('transformer.')}": value for name, value in model.state_dict().items()}
    state.pop("module.position_ids", None)
    words = json.loads(tokenizer.hugging_face_files["vocab.json"])
    words = [w if i < 14 else w.removesuffix("</w>") if w.endswith("</w>") else w + "@@" for w, i in words.items()]
    c = model.config
    params = {"emb_dim": c.emb_dim, "n_layers": c.n_layers, "n_heads": c.n_heads, "n_langs": 2, "gelu_activation": True}
    params |= {"n_words": len(words), "use_lang_emb": False, "lang2id": {"de": 1, "en": 0}, "encoder_only": True}
    contents = {"model": state, "params": params, "dico_id2word": dict(enumerate(words)), "epoch": 1}
    torch.save(contents, tmp_path / "mlm.pth")
    (tmp_path / "codes_2").write_text("o n 2\non e</w> 1\n")
    ours = vmsst_jax.load(tmp_path / "mlm.pth", max_length=32)
    assert ours.languages.codes == ("en", "de") and ours.tokenizer.serialized == tokenizer.serialized
    np.testing.assert_allclose(ours.encode(TEXTS), expected(model, tokenizer, TEXTS), atol=1e-5)
