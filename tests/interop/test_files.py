"""Weights as files have them: types, shards, prefixes, and every way of being broken."""

import json
import pathlib

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from vmsst_jax.interop import files, safetensors_file


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return {"a.weight": rng.normal(size=(3, 4)).astype(np.float32), "b": np.arange(5), "c": np.float32([[1]])}


@pytest.fixture
def folder(tmp_path, arrays):
    save_file(arrays, tmp_path / "model.safetensors")
    return tmp_path


def test_reads_what_the_library_wrote(folder, arrays):
    weights = files.open_weights(folder)
    assert weights.shapes == {name: array.shape for name, array in arrays.items()}
    for name, array in arrays.items():
        np.testing.assert_array_equal(weights[name], array)
        assert weights[name].dtype == array.dtype and weights.file_of(name) == "model.safetensors"
    assert "d" not in weights and sorted(weights.without("b")) == ["a.weight", "c"]


def test_the_library_reads_what_is_written(tmp_path, arrays):
    arrays["turned"] = arrays["a.weight"].T
    safetensors_file.write(tmp_path / "x.safetensors", arrays, {"format": "pt"})
    again = load_file(tmp_path / "x.safetensors")
    assert again.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(again[name], array)


def test_half_precision_is_widened(tmp_path):
    values = np.float32([1.5, -3, 1e-3])
    halves = {"f16": values.astype(np.float16), "bf16": values.astype(ml_dtypes.bfloat16)}
    safetensors_file.write(tmp_path / "model.safetensors", halves, {})
    weights = files.open_weights(tmp_path)
    for name, array in halves.items():
        assert weights[name].dtype == np.float32
        np.testing.assert_array_equal(weights[name], array.astype(np.float32))


def test_memory_that_jax_takes_over(folder):
    assert files.open_weights(folder)["a.weight"].ctypes.data % 64 == 0


def test_a_leading_module_is_taken_off(tmp_path, arrays):
    save_file({f"module.{name}": array for name, array in arrays.items()}, tmp_path / "model.safetensors")
    assert set(files.open_weights(tmp_path)) == set(arrays)
    save_file({"module.b": arrays["b"], "b": arrays["b"]}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"holds both b and module\.b"):
        files.open_weights(tmp_path)


def shards(folder, arrays, weight_map):
    for file in {*weight_map.values()}:
        save_file({n: a for n, a in arrays.items() if weight_map[n] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def test_shards(tmp_path, arrays):
    weight_map = {"a.weight": "1.safetensors", "b": "2.safetensors", "c": "1.safetensors"}
    shards(tmp_path, arrays, weight_map)
    weights = files.open_weights(tmp_path)
    assert {name: weights.file_of(name) for name in weights} == weight_map
    np.testing.assert_array_equal(weights["b"], arrays["b"])

    (tmp_path / "2.safetensors").rename(tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError, match=r"1 of 2 shards are missing in .*: 2\.safetensors"):
        files.open_weights(tmp_path)
    save_file({"other": arrays["b"]}, tmp_path / "2.safetensors")
    with pytest.raises(ValueError, match=r"2\.safetensors lacks b, which model\.safetensors\.index\.json says"):
        files.open_weights(tmp_path)


def test_an_index_that_leads_elsewhere(tmp_path):
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "../secret.safetensors"}}))
    with pytest.raises(ValueError, match="names a shard outside its folder"):
        files.open_weights(tmp_path)
    index.write_text("[]")
    with pytest.raises(ValueError, match="is not an index of shards"):
        files.open_weights(tmp_path)


def cut(path: pathlib.Path, size):
    path.write_bytes(path.read_bytes()[:size])


def header(path, change):
    """Rewrites the header of a safetensors file."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    changed = json.loads(raw[8 : 8 + length])
    change(changed)
    text = json.dumps(changed).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda p: cut(p, -4), r"is truncated: .* ends at byte \d+, the file has \d+"),
        (lambda p: cut(p, 40), r"is truncated: a header of \d+ bytes, a file of 40"),
        (lambda p: cut(p, 3), "is not a safetensors file"),
        (lambda p: p.write_bytes(b"<!DOCTYPE html> not found"), "is not a safetensors file: its first bytes"),
        (lambda p: p.write_bytes((4).to_bytes(8, "little") + b"nope"), "its header is damaged"),
        (lambda p: header(p, lambda h: h["b"].update(shape=[6])), r"is damaged: b int64\[6\] lies in bytes"),
        (lambda p: header(p, lambda h: h["b"].update(dtype="F4")), "b has type F4; known are F64"),
    ],
)
def test_damaged_safetensors(folder, damage, message):
    damage(folder / "model.safetensors")
    with pytest.raises(ValueError, match=message):
        files.open_weights(folder)


def test_no_weights(tmp_path):
    with pytest.raises(FileNotFoundError, match="it holds nothing"):
        files.open_weights(tmp_path)
    (tmp_path / "tf_model.h5").write_bytes(b"")
    with pytest.raises(FileNotFoundError, match=r"it holds tf_model\.h5\. Save it from PyTorch"):
        files.open_weights(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        files.open_weights(tmp_path / "none.bin")
