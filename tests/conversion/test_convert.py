"""python -m vmsst_jax.convert: forms in and out, what it says, what it refuses, and that a failure leaves nothing."""

import json
import os
import pickle
import resource
import zipfile

import numpy as np
import pytest

import vmsst_jax
from vmsst_jax import convert
from vmsst_jax.conversion import read, write
from vmsst_jax.interop import files, safetensors_file, t5x
from vmsst_jax.training import checkpoint

TEXTS = ["one two three", "ten", "", "nine eight seven"]


def run(source, output, *flags):
    convert.main([f"--input={source}", f"--output={output}", *flags])


def same_weights(a, b):
    a, b = files.open_weights(a), files.open_weights(b)
    assert a.shapes == b.shapes
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def test_bert_in_and_out(bert_folder, tmp_path, capsys):
    run(bert_folder, tmp_path / "own", "--prefix=one ", "--max_length=9", "--normalize", "--languages=en,de")
    printed = capsys.readouterr().out
    assert (
        "backbone/encoder/layers_1/attention/query/kernel  16x16  encoder.layer.1.attention.self.query.weight"
        in printed
    )
    assert "37 arrays, " in printed
    host = checkpoint.read_host(tmp_path / "own")
    assert host["embedding"] == {
        "pooling": "mean",
        "layer": None,
        "normalize": True,
        "prefix": "one ",
        "max_length": 9,
    }
    assert host["languages"] == ["en", "de"] and host["origin"]["model_type"] == "bert"
    run(tmp_path / "own", tmp_path / "out", "--to=hf")
    same_weights(bert_folder, tmp_path / "out")
    vectors = vmsst_jax.load(tmp_path / "own").encode(TEXTS)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    run(tmp_path / "out", tmp_path / "again", "--prefix=one ", "--normalize")
    np.testing.assert_array_equal(vmsst_jax.load(tmp_path / "again").encode(TEXTS), vectors)


def test_mt5_keeps_its_decoder(t5_folder, t5_state, tmp_path):
    run(t5_folder, tmp_path / "own")
    run(tmp_path / "own", tmp_path / "out", "--to=hf")
    same_weights(t5_folder, tmp_path / "out")
    run(tmp_path / "own", tmp_path / "t5x", "--to=t5x", "--t5x_layout=scanned")
    saved = t5x.T5xCheckpoint(tmp_path / "t5x")
    query = saved.read("decoder/decoder/self_attention/query/kernel")  # [D, layers, H, K]
    expected = t5_state["decoder.block.1.layer.0.SelfAttention.q.weight"].T
    np.testing.assert_array_equal(query[:, 1].reshape(16, 16), expected)
    run(tmp_path / "t5x", tmp_path / "own2")  # its tokenizer lies beside it
    run(tmp_path / "own2", tmp_path / "t5x2", "--to=t5x")
    assert t5x.T5xCheckpoint(tmp_path / "t5x2").shapes == saved.shapes  # the layout it came in
    run(tmp_path / "own2", tmp_path / "out2", "--to=hf")
    same_weights(t5_folder, tmp_path / "out2")


def test_prefixes_halves_and_pickles_do_not_matter(bert_folder, bert_state, tmp_path, save_folder, bert_tokenizer):
    config = json.loads((bert_folder / "config.json").read_text())
    wanted = vmsst_jax.load(bert_folder).encode(TEXTS)
    for prefix in ("bert.", "module.bert.", "module."):
        state = {prefix + name: array for name, array in bert_state.items()}
        folder = save_folder(tmp_path / prefix, config, state, bert_tokenizer)
        np.testing.assert_array_equal(vmsst_jax.load(folder).encode(TEXTS), wanted)
    halves = {name: array.astype(np.float16) for name, array in bert_state.items()}
    folder = save_folder(tmp_path / "half", config, halves, bert_tokenizer)
    np.testing.assert_allclose(vmsst_jax.load(folder).encode(TEXTS), wanted, atol=0.05)


def test_unmatched_names_are_an_error_unless_allowed(bert_folder, bert_state, tmp_path, save_folder, bert_tokenizer):
    config = json.loads((bert_folder / "config.json").read_text())
    more = save_folder(tmp_path / "more", config, bert_state | {"adapter.weight": np.ones(3)}, bert_tokenizer)
    with pytest.raises(ValueError, match=r"adapter\.weight: found, but unknown here"):
        run(more, tmp_path / "own")
    with pytest.raises(ValueError, match=r"--allow_missing: '\(' is no regular expression"):
        run(more, tmp_path / "own", "--allow_missing=(")
    run(more, tmp_path / "own", "--allow_missing=adapter.*")
    lacking = {n: a for n, a in bert_state.items() if n != "encoder.layer.1.output.dense.bias"}
    less = save_folder(tmp_path / "less", config, lacking, bert_tokenizer)
    with pytest.raises(ValueError, match=r"encoder\.layer\.1\.output\.dense\.bias.*: wanted, absent"):
        run(less, tmp_path / "own2")
    assert not (tmp_path / "own2").exists()


def test_rows_without_a_piece_are_kept_and_said(bert_folder, bert_state, tmp_path, save_folder, bert_tokenizer, capsys):
    config = json.loads((bert_folder / "config.json").read_text())
    table = "embeddings.word_embeddings.weight"
    wide = bert_state | {table: np.concatenate([bert_state[table], np.ones((3, 16), np.float32)])}
    run(save_folder(tmp_path / "wide", config, wide, bert_tokenizer), tmp_path / "own")
    printed = capsys.readouterr().out
    assert "the token table has 18 rows where config.json says 15" in printed
    assert "18 rows for 15 pieces: the last 3 stay unused" in printed
    narrow = save_folder(tmp_path / "narrow", config, bert_state | {table: bert_state[table][:9]}, bert_tokenizer)
    with pytest.raises(ValueError, match="the tokenizer has 15 pieces and the token table 9 rows"):
        run(narrow, tmp_path / "own2")


def damage_shape(folder):
    weights = files.open_weights(folder)
    state = {name: weights[name] for name in weights}
    state["encoder.layer.0.intermediate.dense.weight"] = np.ones((5, 16), np.float32)
    safetensors_file.write(folder / "model.safetensors", state, {})


def truncate(folder):
    file = folder / "model.safetensors"
    os.truncate(file, file.stat().st_size - 8)


def other_family(folder):
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2"}))


def no_tokenizer(folder):
    (folder / "tokenizer.json").write_bytes(b"\x89PNG")


def damaged_config(folder):
    (folder / "config.json").write_text("{")


def no_config(folder):
    (folder / "config.json").unlink()


@pytest.mark.parametrize(
    "damage, message",
    [
        (damage_shape, r"encoder\.layer\.0\.intermediate\.dense\.weight is \(5, 16\), wanted \(24, 16\)"),
        (truncate, "is truncated"),
        (other_family, "model_type 'gpt2'; supported families are bert"),
        (no_tokenizer, r"tokenizer\.json .* is not JSON"),
        (damaged_config, r"config\.json is not JSON"),
        (no_config, r"config\.json is missing: it says which family"),
    ],
)
def test_a_failure_leaves_nothing(bert_folder, tmp_path, damage, message):
    damage(bert_folder)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        run(bert_folder, tmp_path / "own")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bert"]


def test_a_failure_while_writing_leaves_nothing(bert_folder, tmp_path, monkeypatch):
    run(bert_folder, tmp_path / "own")
    monkeypatch.setattr(safetensors_file, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(OSError, match="No space left"):
        run(tmp_path / "own", tmp_path / "out", "--to=hf")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bert", "own"]
    run(bert_folder, tmp_path / "out")
    with pytest.raises(OSError, match="No space left.*; make room there.*/out'"):
        run(tmp_path / "own", tmp_path / "out", "--to=hf", "--overwrite")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bert", "out", "own"]
    assert (tmp_path / "out" / "checkpoints" / "0").is_dir()


@pytest.mark.filterwarnings("ignore:.*was never awaited")  # Orbax leaves coroutines behind when a write fails
@pytest.mark.parametrize("form", ["vmsst_jax", "t5x", "hf"])
def test_a_full_disk(t5_folder, tmp_path, form, small_files):
    """A limit on the size of files stands in for it."""
    model = read.read(t5_folder)
    small_files(1 << 10)
    with pytest.raises(OSError) as caught:
        write.write(model, tmp_path / "out", form)
    assert caught.value.filename == str(tmp_path / "out")
    assert "File too large; make room there" in str(caught.value) and len(str(caught.value)) < 300
    assert [p.name for p in tmp_path.iterdir()] == [t5_folder.name]


@pytest.fixture
def small_files():
    """A function that makes the system refuse files above a size, as a full disk would refuse them."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("form", ["vmsst_jax", "hf"])
def test_only_what_convert_wrote_is_replaced(bert_folder, tmp_path, form):
    run(bert_folder, tmp_path / "out", f"--to={form}")
    run(bert_folder, tmp_path / "out", f"--to={form}", "--overwrite")
    for name in ("metrics.jsonl", "checkpoints/5/state"):
        (tmp_path / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / name).write_text("mine")
        with pytest.raises(FileExistsError, match=f"convert did not write .*{name}.* is not replaced"):
            run(bert_folder, tmp_path / "out", "--overwrite")
        assert (tmp_path / "out" / name).read_text() == "mine"
        (tmp_path / "out" / name).unlink()
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.png").write_text("mine")
    for output in (tmp_path / "photos", tmp_path / "photos" / "cat.png"):
        with pytest.raises(FileExistsError, match="cat.png"):
            run(bert_folder, output, "--overwrite")
    assert (tmp_path / "photos" / "cat.png").read_text() == "mine"


def test_input_and_output_do_not_overlap(bert_folder, tmp_path):
    run(bert_folder, tmp_path / "own")
    for source in (tmp_path / "own", tmp_path / "own" / "checkpoints" / "0"):
        with pytest.raises(ValueError, match="is or holds the input .*; give another --output"):
            run(source, tmp_path / "own", "--overwrite")
    with pytest.raises(FileExistsError):
        run(tmp_path / "own", tmp_path / "own" / "checkpoints", "--overwrite")
    assert checkpoint.read_host(tmp_path / "own")


def test_an_output_that_exists(bert_folder, tmp_path):
    (tmp_path / "own").mkdir()
    run(bert_folder, tmp_path / "own")  # an empty folder is as good as none
    with pytest.raises(FileExistsError, match="exists; use --overwrite to replace it"):
        run(bert_folder, tmp_path / "own")
    run(bert_folder, tmp_path / "own", "--overwrite", "--prefix=ten ")
    assert checkpoint.read_host(tmp_path / "own")["embedding"]["prefix"] == "ten "


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--layer=3"], r"layer is 3; this backbone has 0 \(embeddings\) to 2"),
        (["--pooling=pooler"], "needs a backbone with a pooler"),
        (["--max_length=25"], "max_length is 25; this model has positions for 24 tokens"),
        (["--to=t5x"], "T5X has no form for a BERT-type model"),
        (["--to=sentence_transformers", "--skip_special_tokens"], "can't leave the special tokens out"),
    ],
)
def test_what_a_model_or_form_can_not_express(bert_folder, tmp_path, flags, message):
    with pytest.raises(ValueError, match=message):
        run(bert_folder, tmp_path / "out", *flags)
    assert not (tmp_path / "out").exists()


class Evil:
    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def test_a_malicious_pickle_runs_nothing(bert_folder, tmp_path):
    (bert_folder / "model.safetensors").unlink()
    with zipfile.ZipFile(bert_folder / "pytorch_model.bin", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"a": Evil(f"touch {tmp_path / 'ran'}")}))
    with pytest.raises(ValueError, match="Nothing of the file has been run"):
        run(bert_folder, tmp_path / "own")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bert"]


def test_an_old_config_without_model_type(bert_folder, tmp_path):
    config = json.loads((bert_folder / "config.json").read_text())
    del config["model_type"]
    (bert_folder / "config.json").write_text(json.dumps({**config, "architectures": ["BertForMaskedLM"]}))
    run(bert_folder, tmp_path / "own")
    assert checkpoint.read_host(tmp_path / "own")["origin"]["model_type"] == "bert"


def test_no_model_at_all(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        run(tmp_path / "none", tmp_path / "out")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds no model of a known form, but nothing. Known forms: our own"):
        run(tmp_path / "empty", tmp_path / "out")
    (tmp_path / "empty" / "a.pth").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="is not a PyTorch file"):
        run(tmp_path / "empty", tmp_path / "out")


def test_t5x_needs_a_tokenizer(t5_folder, tmp_path):
    run(t5_folder, tmp_path / "t5x", "--to=t5x")
    (tmp_path / "t5x" / "spiece.model").unlink()
    with pytest.raises(ValueError, match="holds no tokenizer: give its SentencePiece model with --tokenizer"):
        run(tmp_path / "t5x", tmp_path / "own")
    run(tmp_path / "t5x", tmp_path / "own", f"--tokenizer={t5_folder / 'spiece.model'}")
    vectors = vmsst_jax.load(tmp_path / "own").encode(TEXTS)
    np.testing.assert_array_equal(vectors, vmsst_jax.load(t5_folder).encode(TEXTS))


def test_sentence_transformers_folders_are_read_back(t5_folder, tmp_path):
    run(t5_folder, tmp_path / "st", "--to=sentence_transformers", "--normalize", "--prefix=ten ", "--max_length=7")
    ours = vmsst_jax.load(tmp_path / "st")
    assert ours.embedding == {"pooling": "mean", "layer": None, "normalize": True, "prefix": "ten ", "max_length": 7}
    wanted = vmsst_jax.load(t5_folder, prefix="ten ", max_length=7).encode(TEXTS, normalize=True)
    np.testing.assert_allclose(ours.encode(TEXTS), wanted, atol=1e-6)
    card = (tmp_path / "st" / "README.md").read_text()
    assert "license: other" in card and "SentenceTransformer(" in card and "Converted, not trained here" in card


@pytest.mark.parametrize(
    "file, change, message",
    [
        ("modules.json", [{"type": "sentence_transformers.models.CLIPModel", "path": ""}], "begins with"),
        ("1_Pooling/config.json", {"pooling_mode_weightedmean_tokens": True}, "pools by .*weightedmean"),
        ("1_Pooling/config.json", {"pooling_mode": ["cls", "mean"]}, "pools by .*supported is one of"),
        ("sentence_bert_config.json", {"do_lower_case": True}, "asks for lower-casing"),
        ("config_sentence_transformers.json", {"default_prompt_name": "x"}, "has the default prompt 'x'"),
    ],
)
def test_sentence_transformers_beyond_us(bert_folder, tmp_path, file, change, message):
    run(bert_folder, tmp_path / "st", "--to=sentence_transformers")
    (tmp_path / "st" / file).write_text(json.dumps(change))
    with pytest.raises(ValueError, match=message):
        run(tmp_path / "st", tmp_path / "own")
