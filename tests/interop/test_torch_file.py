"""PyTorch's files without PyTorch: the archives here are laid out by hand, as its pickles would."""

import collections
import io
import os
import pickle
import struct
import zipfile

import numpy as np
import pytest

from vmsst_jax.interop import files
from vmsst_jax.interop.torch_file import LEGACY_MAGIC, Refused, TorchFile


class Storage:
    """Pickled as PyTorch's reference to a storage."""

    def __init__(self, kind, key, size):
        self.saved = ("storage", Global("torch", kind), key, "cpu", size)


class Global:
    """Pickled as the name of a class or function."""

    def __init__(self, module, name):
        self.module, self.name = module, name


class Tensor:
    def __init__(self, kind, key, size, shape, strides, offset=0):
        self.args = (Storage(kind, key, size), offset, shape, strides, False, collections.OrderedDict())


class Pickler(pickle._Pickler):
    """Writes what PyTorch writes for the classes above (the Python version of the pickler can be extended)."""

    def __init__(self, file, legacy=False):
        super().__init__(file, protocol=2)
        self.legacy = legacy

    def persistent_id(self, thing):
        if isinstance(thing, Storage):
            return (*thing.saved, None) if self.legacy else thing.saved
        return None

    def save(self, thing, save_persistent_id=True):
        if isinstance(thing, Global):
            self.write(pickle.GLOBAL + f"{thing.module}\n{thing.name}\n".encode())
        elif isinstance(thing, Tensor):
            self.save(Global("torch._utils", "_rebuild_tensor_v2"))
            self.save(thing.args)
            self.write(pickle.REDUCE)
        else:
            super().save(thing, save_persistent_id)


def pickled(thing, legacy=False):
    file = io.BytesIO()
    Pickler(file, legacy).dump(thing)
    return file.getvalue()


def write_zip(path, contents, storages, order=b"little"):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickled(contents))
        archive.writestr("archive/byteorder", order)
        for key, array in storages.items():
            archive.writestr(f"archive/data/{key}", array.tobytes())
    return path


def write_legacy(path, contents, storages):
    parts = [pickled(thing) for thing in (LEGACY_MAGIC, 1001, {"little_endian": True})]
    parts += [pickled(contents, legacy=True), pickled(sorted(storages))]
    for key in sorted(storages):
        parts += [struct.pack("<q", storages[key].size), storages[key].tobytes()]
    path.write_bytes(b"".join(parts))
    return path


STORAGES = {"0": np.arange(24, dtype=np.float32), "1": np.arange(3, dtype=np.float16)}
STATE = collections.OrderedDict(
    {
        "a.weight": Tensor("FloatStorage", "0", 24, (2, 3), (3, 1), 6),
        "turned": Tensor("FloatStorage", "0", 24, (3, 2), (1, 3), 6),
        "half": Tensor("HalfStorage", "1", 3, (3,), (1,)),
        "scalar": Tensor("FloatStorage", "0", 24, (), (), 4),
        "empty": Tensor("FloatStorage", "0", 24, (0, 3), (3, 1)),
    }
)


@pytest.mark.parametrize("write", [write_zip, write_legacy])
def test_both_layouts(tmp_path, write):
    weights = files.open_weights(write(tmp_path / "pytorch_model.bin", STATE, STORAGES))
    expected = np.arange(6, 12, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(weights["a.weight"], expected)
    np.testing.assert_array_equal(weights["turned"], expected.T)
    np.testing.assert_array_equal(weights["half"], np.float32([0, 1, 2]))
    assert weights["half"].dtype == np.float32
    assert weights["scalar"] == 4 and weights["empty"].shape == (0, 3)


@pytest.mark.parametrize("key", ["model", "state_dict"])
def test_a_state_dict_inside(tmp_path, key):
    contents = {key: {"module.a": STATE["a.weight"]}, "params": {"n_layers": 2, "lang2id": {"en": 0}}, "epoch": 3}
    weights = files.open_weights(write_zip(tmp_path / "x.pth", contents, STORAGES))
    assert list(weights) == ["a"] and weights.extra["params"] == {"n_layers": 2, "lang2id": {"en": 0}}


class Evil:
    """Runs a command when it is unpickled by anything that calls what it names."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.mark.parametrize("write", [write_zip, write_legacy])
def test_nothing_of_a_malicious_file_runs(tmp_path, write):
    trace = tmp_path / "ran"
    command = f"touch {trace}"
    pickle.loads(pickle.dumps(Evil(command)))
    assert trace.exists(), "the attack itself works"
    trace.unlink()
    path = write(tmp_path / "pytorch_model.bin", {**STATE, "extra": Evil(command)}, STORAGES)
    with pytest.raises(Refused, match=r"holds (posix|nt)\.system, which is neither a tensor nor a plain container"):
        files.open_weights(path)
    assert not trace.exists()


@pytest.mark.parametrize(
    "module, name",
    [
        ("builtins", "eval"),
        ("builtins", "getattr"),
        ("torch.storage", "_load_from_bytes"),
        ("torch._utils", "_rebuild_wrapper_subclass"),
        ("numpy", "load"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("argparse", "Namespace"),
        ("copyreg", "_reconstructor"),
        ("vmsst_jax.interop.torch_file", "TorchFile"),
    ],
)
def test_every_other_name_is_refused(tmp_path, module, name):
    path = write_zip(tmp_path / "x.bin", {"a": STATE["a.weight"], "b": Global(module, name)}, STORAGES)
    with pytest.raises(Refused, match=f"{module}.{name}"):
        TorchFile(path)


def test_attributes_can_not_be_set(tmp_path):
    """BUILD sets attributes on what a pickle has named."""
    attack = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}X\x08\x00\x00\x00__call__K\x01sb."
    with zipfile.ZipFile(tmp_path / "x.bin", "w") as archive:
        archive.writestr("archive/data.pkl", attack)
    with pytest.raises(ValueError):
        TorchFile(tmp_path / "x.bin")
    files.open_weights(write_zip(tmp_path / "y.bin", STATE, STORAGES))


@pytest.mark.parametrize(
    "tensor",
    [
        Tensor("FloatStorage", "0", 24, (5, 5), (5, 1)),
        Tensor("FloatStorage", "0", 24, (2, 3), (3, 1), 20),
        Tensor("FloatStorage", "0", 24, (2, 3), (-3, 1), 6),
        Tensor("FloatStorage", "0", 10**9, (10**9,), (1,)),
    ],
)
def test_tensors_that_reach_beyond_their_storage(tmp_path, tensor):
    path = write_zip(tmp_path / "x.bin", {"a": tensor}, STORAGES)
    with pytest.raises(ValueError, match="is damaged|is truncated"):
        files.open_weights(path)["a"]


@pytest.mark.parametrize(
    "contents, message",
    [
        ([1, 2], "holds a list without tensors by name"),
        ({"epoch": 1}, "holds a dict without tensors by name"),
    ],
)
def test_files_without_weights(tmp_path, contents, message):
    with pytest.raises(ValueError, match=message):
        files.open_weights(write_zip(tmp_path / "x.bin", contents, {}))


def test_damaged_files(tmp_path):
    whole = write_zip(tmp_path / "x.bin", STATE, STORAGES).read_bytes()
    (tmp_path / "cut.bin").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="is not a PyTorch file: neither a zip archive nor a pickle"):
        files.open_weights(tmp_path / "cut.bin")
    legacy = write_legacy(tmp_path / "y.bin", STATE, STORAGES).read_bytes()
    (tmp_path / "cut2.bin").write_bytes(legacy[:120])
    with pytest.raises(ValueError, match="damaged"):
        files.open_weights(tmp_path / "cut2.bin")
    (tmp_path / "cut3.bin").write_bytes(legacy[:-4])
    with pytest.raises(ValueError, match="is truncated"):
        files.open_weights(tmp_path / "cut3.bin")["half"]
    (tmp_path / "plain.bin").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(ValueError, match="is a pickle, but not one of PyTorch's weights"):
        files.open_weights(tmp_path / "plain.bin")
    with pytest.raises(ValueError, match="big-endian"):
        files.open_weights(write_zip(tmp_path / "big.bin", STATE, STORAGES, b"big"))
    with zipfile.ZipFile(tmp_path / "other.bin", "w") as archive:
        archive.writestr("code.txt", "x")
    with pytest.raises(ValueError, match=r"without PyTorch's data\.pkl; it holds code\.txt"):
        files.open_weights(tmp_path / "other.bin")


@pytest.mark.parity
@pytest.mark.parametrize("zipped", [True, False])
def test_files_of_pytorch_itself(tmp_path, zipped):
    import torch

    layer = torch.nn.Linear(3, 2)
    state = layer.state_dict() | {"half": torch.ones(2, dtype=torch.bfloat16) / 3, "view": torch.arange(6.0)[2:]}
    state |= {"parameter": torch.nn.Parameter(torch.arange(4.0).view(2, 2).T)}
    torch.save(state, tmp_path / "x.bin", _use_new_zipfile_serialization=zipped)
    weights = files.open_weights(tmp_path / "x.bin")
    assert set(weights) == set(state)
    for name, tensor in state.items():
        np.testing.assert_array_equal(weights[name], tensor.detach().float().numpy())
