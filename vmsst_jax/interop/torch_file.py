"""PyTorch's ``.bin`` and ``.pth`` files without PyTorch, and without running anything that they hold.

Such a file is a pickle, which can name any function and have it called. The unpickler here knows tensors and plain
containers; at the first other name it stops. Tensors stay on disk until ``TorchTensor.read``. Two layouts are read: the
zip archive that PyTorch writes since 1.6, and the sequence of pickles and raw storages that it wrote before.
"""

from __future__ import annotations

import collections
import io
import math
import os
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from vmsst_jax.interop.safetensors_file import read_array

STORAGES = {
    **{"DoubleStorage": np.float64, "FloatStorage": np.float32, "HalfStorage": np.float16},
    **{"BFloat16Storage": ml_dtypes.bfloat16, "LongStorage": np.int64, "IntStorage": np.int32},
    **{"ShortStorage": np.int16, "CharStorage": np.int8, "ByteStorage": np.uint8, "BoolStorage": np.bool_},
}
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C


class Refused(ValueError):
    """The file names something that is neither a tensor nor a plain container."""


class TorchTensor:
    """A tensor that lies in a file: ``shape``, ``read() -> numpy array``."""

    __slots__ = ("_file", "_offset", "_storage", "_strides", "shape")

    def __init__(self, file, storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]):
        self._file, self._storage, self._offset, self.shape, self._strides = file, storage, offset, shape, strides

    def read(self) -> np.ndarray:
        """The values, contiguous, in memory of their own."""
        dtype, key, size = self._storage
        if 0 in self.shape:
            return np.empty(self.shape, dtype)
        last = self._offset + sum((n - 1) * s for n, s in zip(self.shape, self._strides, strict=True))
        if min(self._offset, *self._strides, 0) < 0 or last >= size:
            raise ValueError(f"{self._file.path} is damaged: a tensor reaches beyond its storage {key}")
        start = self._file.offsets[key] + self._offset * dtype.itemsize
        flat = read_array(self._file.path, dtype, last - self._offset + 1, start)
        strides = [s * dtype.itemsize for s in self._strides]
        return np.ascontiguousarray(np.lib.stride_tricks.as_strided(flat, self.shape, strides))


class TorchFile:
    """``contents``: what was pickled, with a ``TorchTensor`` for every tensor.

    Raises:
      Refused: the pickle names something else than tensors and plain containers. Nothing of it has run.
      ValueError: the file is truncated, or no such file.
    """

    def __init__(self, path: str | os.PathLike):
        self.path = Path(path)
        self.offsets: dict[str, int] = {}
        try:
            self.contents = self._read_zip() if zipfile.is_zipfile(self.path) else self._read_legacy()
        except ValueError:
            raise
        except (pickle.UnpicklingError, EOFError, zipfile.BadZipFile, struct.error, KeyError) as error:
            raise ValueError(f"{self.path} is damaged or not a PyTorch file: {error or type(error).__name__}") from None
        except Exception as error:  # a damaged pickle can fail in any way
            raise ValueError(f"{self.path} is damaged: {type(error).__name__}: {error}") from None

    def _read_zip(self) -> Any:
        with zipfile.ZipFile(self.path) as archive:
            pickles = [i for i in archive.infolist() if i.filename.split("/")[1:] == ["data.pkl"]]
            if len(pickles) != 1:
                raise ValueError(
                    f"{self.path} is a zip archive without PyTorch's data.pkl; it holds "
                    f"{', '.join(archive.namelist()[:5])}. TorchScript archives and others are not weights."
                )
            folder = pickles[0].filename.split("/")[0]
            order = f"{folder}/byteorder"
            if order in archive.namelist() and archive.read(order).strip() != b"little":
                raise ValueError(f"{self.path} was written in big-endian order, which is not read here")
            with self.path.open("rb") as file:
                for info in archive.infolist():
                    if info.filename.startswith(f"{folder}/data/"):
                        self.offsets[info.filename.rsplit("/", 1)[1]] = self._data_start(file, info)
            return _Unpickler(io.BytesIO(archive.read(pickles[0])), self).load()

    def _data_start(self, file, info: zipfile.ZipInfo) -> int:
        if info.compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"{self.path}: {info.filename} is compressed, which PyTorch never does")
        file.seek(info.header_offset)
        header = file.read(30)
        if header[:4] != b"PK\x03\x04":
            raise ValueError(f"{self.path} is damaged: no entry {info.filename} at byte {info.header_offset}")
        name, extra = struct.unpack("<HH", header[26:30])
        return info.header_offset + 30 + name + extra

    def _read_legacy(self) -> Any:
        with self.path.open("rb") as file:
            if file.read(1) != b"\x80":
                raise ValueError(
                    f"{self.path} ({self.path.stat().st_size} bytes) is not a PyTorch file: neither a zip archive nor "
                    "a pickle. A truncated download looks like this too; download it again."
                )
            file.seek(0)
            if _Unpickler(file, self).load() != LEGACY_MAGIC:
                raise ValueError(f"{self.path} is a pickle, but not one of PyTorch's weights")
            _Unpickler(file, self).load()  # the protocol's version
            system = _Unpickler(file, self).load()
            if not system.get("little_endian", True):
                raise ValueError(f"{self.path} was written in big-endian order, which is not read here")
            unpickler = _Unpickler(file, self)
            contents = unpickler.load()
            for key in _Unpickler(file, self).load():
                dtype, _, size = unpickler.storages[key]
                (count,) = struct.unpack("<q", file.read(8))
                if count != size:
                    raise ValueError(f"{self.path} is damaged: storage {key} has {count} values, {size} were announced")
                self.offsets[key] = file.tell()
                file.seek(count * dtype.itemsize, os.SEEK_CUR)
            return contents


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream, file: TorchFile):
        super().__init__(stream, encoding="utf-8")
        self._file, self.storages = file, {}

    def find_class(self, module: str, name: str):
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if module == "torch" and name in STORAGES:
            return np.dtype(STORAGES[name])
        if module == "torch._utils" and name in ("_rebuild_tensor_v2", "_rebuild_tensor"):
            return _Rebuild(self._file)
        if module == "torch._utils" and name == "_rebuild_parameter":
            return _FirstArgument()
        if (module, name) == ("torch", "Size"):
            return tuple
        raise Refused(
            f"{self._file.path} holds {module}.{name}, which is neither a tensor nor a plain container. Nothing of the "
            "file has been run. If you trust it, load it with PyTorch and save only the weights as safetensors."
        )

    def persistent_load(self, saved):
        if (
            not isinstance(saved, tuple)
            or len(saved) < 5
            or saved[0] != "storage"
            or not isinstance(saved[1], np.dtype)
        ):
            raise Refused(f"{self._file.path} refers to {str(saved)[:80]}, wanted the storage of a tensor")
        _, dtype, key, _, size, *view = saved
        if view and view[0] is not None:
            raise Refused(f"{self._file.path} has a storage that is a view of another, a form that is not read here")
        self.storages[key] = (dtype, key, size)
        return self.storages[key]


class _Rebuild:
    """Stands for PyTorch's function of that purpose. Without attributes, so that a pickle can't set any."""

    __slots__ = ("_file",)

    def __init__(self, file: TorchFile):
        self._file = file

    def __call__(self, storage, offset, shape, strides, *_):
        whole = (offset, *shape, *strides)
        if not (isinstance(storage, tuple) and len(storage) == 3 and all(type(n) is int for n in whole)):
            raise Refused(f"{self._file.path} builds a tensor from something else than a storage")
        if len(shape) != len(strides) or min(whole) < 0 or math.prod(shape) > max(storage[2], 1):
            raise ValueError(f"{self._file.path} is damaged: a tensor of shape {shape} in {storage[2]} values")
        return TorchTensor(self._file, storage, offset, tuple(shape), tuple(strides))


class _FirstArgument:
    __slots__ = ()

    def __call__(self, tensor, *_):
        return tensor
