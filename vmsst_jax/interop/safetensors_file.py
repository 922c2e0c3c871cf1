"""The file format safetensors, read and written tensor by tensor: no more than one is in memory beside the caller's.

A file is eight bytes (little-endian, the length of the header), a JSON header {name: {"dtype", "shape",
"data_offsets": [first byte, end]}, "__metadata__": {...}}, and the tensors' bytes.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np

DTYPES = {
    **{"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16},
    **{"I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8},
    **{"U64": np.uint64, "U32": np.uint32, "U16": np.uint16, "U8": np.uint8, "BOOL": np.bool_},
}
NAMES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
# A header of a model with a million tensors has about 100 MB.
LONGEST_HEADER = 100_000_000
ALIGNMENT = 64


class SafetensorsFile:
    """A safetensors file: ``shapes[name]``, ``read(name) -> numpy array``.

    Raises ValueError, with what was found, for a file that is truncated, damaged or something else.
    """

    def __init__(self, path: str | os.PathLike):
        self.path = Path(path)
        size = self.path.stat().st_size
        with self.path.open("rb") as file:
            start = file.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
            if not 2 <= length <= LONGEST_HEADER:
                raise ValueError(f"{self.path} ({size} bytes) is not a safetensors file: its first bytes are {start!r}")
            if 8 + length > size:
                raise ValueError(
                    f"{self.path} is truncated: a header of {length} bytes, a file of {size}. Download it again."
                )
            raw = file.read(length)
        try:
            header = json.loads(raw)
            header.pop("__metadata__", None)
            entries = {name: (e["dtype"], tuple(e["shape"]), *e["data_offsets"]) for name, e in header.items()}
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"{self.path} is not a safetensors file: its header is damaged ({error})") from None
        self._entries = {}
        for name, (dtype, shape, first, end) in entries.items():
            if dtype not in DTYPES:
                raise ValueError(f"{self.path}: {name} has type {dtype}; known are {', '.join(DTYPES)}")
            dtype = np.dtype(DTYPES[dtype])
            if end - first != math.prod(shape) * dtype.itemsize or first < 0:
                raise ValueError(f"{self.path} is damaged: {name} {dtype}{list(shape)} lies in bytes {first} to {end}")
            if 8 + length + end > size:
                raise ValueError(
                    f"{self.path} is truncated: {name} ends at byte {8 + length + end}, the file has {size}. "
                    "Download it again."
                )
            self._entries[name] = (dtype, shape, 8 + length + first)
        self.shapes = {name: shape for name, (_, shape, _) in self._entries.items()}

    def read(self, name: str) -> np.ndarray:
        """One tensor, in memory of its own."""
        dtype, shape, offset = self._entries[name]
        return read_array(self.path, dtype, math.prod(shape), offset).reshape(shape)


def read_array(path: Path, dtype: np.dtype, count: int, offset: int) -> np.ndarray:
    """``count`` values from byte ``offset`` of a file, in memory that JAX can take over without a copy."""
    size = count * np.dtype(dtype).itemsize
    room = np.empty(size + ALIGNMENT, np.uint8)
    first = -room.ctypes.data % ALIGNMENT
    with path.open("rb") as file:
        file.seek(offset)
        found = file.readinto(room[first : first + size])
    if found != size:
        raise ValueError(f"{path} is truncated: {size} bytes wanted at byte {offset}, {found} are there")
    return room[first : first + size].view(dtype)


def write(path: str | os.PathLike, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
    """Writes ``arrays`` (of any memory layout) with ``metadata``; {"format": "pt"} is what PyTorch's readers want."""
    header: dict = {"__metadata__": dict(metadata)}
    end = 0
    for name, array in arrays.items():
        first, end = end, end + array.nbytes
        header[name] = {"dtype": NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [first, end]}
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        for array in arrays.values():
            # Not array.tofile: its error on a full disk has no number.
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
