"""T5X checkpoints, laid out here by hand with the names and shapes of T5X's own network files."""

import ml_dtypes
import numpy as np
import pytest
import tensorstore
from flax import serialization

from vmsst_jax.interop import t5x, trees

V, D, H, K, F, BUCKETS = 50, 16, 2, 4, 24, 32
LAYERS = {"encoder": 3, "decoder": 2}


def layer(stack):
    """Names and shapes in one layer of t5x/examples/scalable_t5/network.py."""
    attention = {"query": (D, H, K), "key": (D, H, K), "value": (D, H, K), "out": (H, K, D)}
    mlp = {"mlp/wi_0/kernel": (D, F), "mlp/wi_1/kernel": (D, F), "mlp/wo/kernel": (F, D)}
    names = {"encoder": ["attention"], "decoder": ["self_attention", "encoder_decoder_attention"]}[stack]
    norms = {
        "encoder": ["pre_attention_layer_norm", "pre_mlp_layer_norm"],
        "decoder": ["pre_self_attention_layer_norm", "pre_cross_attention_layer_norm", "pre_mlp_layer_norm"],
    }[stack]
    shapes = {f"{name}/{p}/kernel": shape for name in names for p, shape in attention.items()}
    shapes |= mlp | {f"{norm}/scale": (D,) for norm in norms} | {"relpos_bias/rel_embedding": (H, BUCKETS)}
    return shapes


def shapes(layout):
    """Names and shapes of a whole model: t5x/examples/t5 is "per_layer", t5x/examples/scalable_t5 the other two."""
    out = {"token_embedder/embedding": (V, D), "decoder/logits_dense/kernel": (D, V)}
    for stack, count in LAYERS.items():
        out[f"{stack}/{stack}_norm/scale"] = (D,)
        for name, shape in layer(stack).items():
            if layout == "scanned":
                out[f"{stack}/{stack}/{name}"] = (shape[0], count, *shape[1:])
            elif layout == "unscanned":
                out |= {f"{stack}/layers_{i}/{name}": shape for i in range(count)}
            elif name == "relpos_bias/rel_embedding":
                out[f"{stack}/{name}"] = shape
            else:
                flat = shape if len(shape) < 3 else (H * K, D) if name.endswith("out/kernel") else (D, H * K)
                out |= {f"{stack}/layers_{i}/{name}": flat for i in range(count)}
    return out


def arrays(layout, seed=0):
    """Random arrays; a stack's relative biases are equal in all its layers."""
    rng = np.random.default_rng(seed)
    out = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes(layout).items()}
    for name in out:
        if "rel_embedding" in name and layout == "scanned":
            out[name][:] = out[name][:, :1]
        elif "/layers_" in name and "rel_embedding" in name:
            out[name] = out[name.split("/")[0] + "/layers_0/relpos_bias/rel_embedding"]
    return out


def write(folder, given, *, version=3, step=7, driver="gfile", old_path=False, inline=1):
    """A checkpoint as T5X writes it: arrays of more than ``inline`` axes in zarr folders, in several chunks."""
    place = folder / f"checkpoint_{step}"
    place.mkdir(parents=True)
    tree = {}
    for name, array in given.items():
        leaf = array
        if array.ndim > inline:
            path = f"target.{name.replace('/', '.')}"
            bits = array.view(np.uint16) if array.dtype == ml_dtypes.bfloat16 and version == 2 else array
            chunks = [max(1, n // 2) for n in array.shape]
            metadata = {"compressor": {"id": "gzip"}, "shape": list(array.shape), "chunks": chunks}
            leaf = {"driver": "zarr", "dtype": bits.dtype.name, "kvstore": {"driver": driver}, "metadata": metadata}
            (leaf if old_path else leaf["kvstore"])["path"] = path
            here = {"driver": "zarr", "dtype": bits.dtype.name, "metadata": metadata}
            here["kvstore"] = {"driver": "file", "path": str(place / path)}
            tensorstore.open(here, create=True).result().write(bits).result()
        t5x.put(tree, name, leaf)
    state = {"step": np.int32(step), "param_states": {}}
    contents = {"version": version, "optimizer": {"target": tree, "state": state}}
    (place / "checkpoint").write_bytes(serialization.msgpack_serialize(contents))
    return place


@pytest.mark.parametrize("layout", t5x.LAYOUTS)
def test_in_and_out_again(tmp_path, layout):
    given = arrays(layout)
    params, found, sources = t5x.read(write(tmp_path / "in", given))
    assert found == layout
    flat = trees.flatten(params)
    assert {name: x.shape for name, x in flat.items()} == shapes("per_layer")
    assert set(sources) == set(flat)
    assert {name for name in given if "relpos" not in name} <= set(sources.values()) <= set(given)
    out = t5x.T5xCheckpoint(t5x.write(tmp_path / "out", params, layout, K, step=7))
    assert out.shapes == shapes(layout) and (out.version, out.step) == (3, 7)
    for name, array in given.items():
        np.testing.assert_array_equal(out.read(name), array, err_msg=name)


def test_a_layer_in_every_layout_is_the_same_one(tmp_path):
    """Layer 1's matrices from the stacked arrays by plain indexing."""
    given = arrays("scanned")
    params, _, _ = t5x.read(write(tmp_path, given))
    attention = params["encoder"]["layers_1"]["attention"]
    query, out = given["encoder/encoder/attention/query/kernel"], given["encoder/encoder/attention/out/kernel"]
    np.testing.assert_array_equal(attention["query"]["kernel"], query[:, 1].reshape(D, H * K))
    np.testing.assert_array_equal(attention["out"]["kernel"], out[:, 1].reshape(H * K, D))
    scale = given["encoder/encoder/pre_mlp_layer_norm/scale"]
    np.testing.assert_array_equal(params["encoder"]["layers_1"]["pre_mlp_layer_norm"]["scale"], scale[:, 1])


@pytest.mark.parametrize("options", [{"driver": "gcs", "old_path": True}, {"driver": "file"}, {"inline": 9}])
def test_wherever_it_was_written(tmp_path, options):
    given = arrays("per_layer")
    params, _, _ = t5x.read(write(tmp_path, given, **options))
    np.testing.assert_array_equal(params["token_embedder"]["embedding"], given["token_embedder/embedding"])


@pytest.mark.parametrize("version", [2, 3])
def test_bfloat16(tmp_path, version):
    """Version 2 keeps its bits as uint16."""
    given = {name: x.astype(ml_dtypes.bfloat16) for name, x in arrays("per_layer").items()}
    params, _, _ = t5x.read(write(tmp_path, given, version=version))
    flat = trees.flatten(params)
    for name, array in given.items():
        assert flat[name].dtype == np.float32
        np.testing.assert_array_equal(flat[name], array.astype(np.float32))


def test_the_newest_of_several(tmp_path):
    given = {"token_embedder/embedding": np.zeros((2, 2), np.float32)}
    for step in (9, 10):
        write(tmp_path, given, step=step)
    assert t5x.T5xCheckpoint(tmp_path).step == 10
    assert t5x.T5xCheckpoint(tmp_path / "checkpoint_9").step == 9
    assert t5x.T5xCheckpoint(tmp_path / "checkpoint_9" / "checkpoint").step == 9


def test_relative_biases_that_differ(tmp_path):
    given = arrays("scanned")
    given["encoder/encoder/relpos_bias/rel_embedding"][0, 1, 0] += 1
    with pytest.raises(ValueError, match="the encoder .* has another relative position bias in every layer"):
        t5x.read(write(tmp_path, given))


def test_what_is_missing_or_damaged(tmp_path):
    place = write(tmp_path / "a", arrays("per_layer"))
    folder = place / "target.decoder.logits_dense.kernel"
    zarray = (folder / ".zarray").read_text()
    (folder / ".zarray").write_text(zarray.replace(f"[{D},{V}]", f"[{D},{V + 1}]").replace(f"{V},", f"{V + 1},"))
    with pytest.raises(ValueError, match=r"target\.decoder\.logits_dense\.kernel is damaged: its shape is"):
        t5x.read(place)
    (folder / ".zarray").write_text("{}")
    with pytest.raises(ValueError, match=r"target\.decoder\.logits_dense\.kernel is damaged"):
        t5x.read(place)
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError, match="is missing: it holds decoder/logits_dense/kernel"):
        t5x.read(place)
    contents = (place / "checkpoint").read_bytes()
    for damaged in (contents[:100], b"", serialization.msgpack_serialize({"params": {}})):
        (place / "checkpoint").write_bytes(damaged)
        with pytest.raises(ValueError, match="is not a T5X checkpoint, or damaged"):
            t5x.T5xCheckpoint(place)
    with pytest.raises(ValueError, match=r"has version 1; versions \(2, 3\)"):
        t5x.T5xCheckpoint(write(tmp_path / "b", {"a": np.zeros(2, np.float32)}, version=1))
    with pytest.raises(FileNotFoundError, match="no T5X checkpoint in"):
        t5x.T5xCheckpoint(tmp_path / "elsewhere")


def test_arrays_outside_the_folder_are_not_read(tmp_path):
    place = write(tmp_path, {"a": np.zeros((2, 2), np.float32)})
    contents = serialization.msgpack_restore((place / "checkpoint").read_bytes())
    spec = contents["optimizer"]["target"]["a"]
    for change in ({"kvstore": {"path": "../secret"}}, {"kvstore": {"path": "/etc"}}, {"driver": "json"}):
        contents["optimizer"]["target"]["a"] = {**spec, **change}
        (place / "checkpoint").write_bytes(serialization.msgpack_serialize(contents))
        with pytest.raises(ValueError, match="wanted a zarr folder beside it"):
            t5x.T5xCheckpoint(place).read("a")
