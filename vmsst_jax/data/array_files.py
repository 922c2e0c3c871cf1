"""Folders of flat arrays: one ``.npy`` file each and a ``meta.json``, written as they grow, read memory-mapped."""

import contextlib
import errno
import json
import os
import shutil
import tempfile
import zlib
from pathlib import Path

import numpy as np

from vmsst_jax import disk

CHECKED = 2**26  # bytes: checksums of larger arrays are not compared, since that would read them whole


def room(folder: str | os.PathLike | None):
    """A context in which a full disk is reported as ``disk.writing`` does; without a folder there is none to fill."""
    return contextlib.nullcontext() if folder is None else disk.writing(folder)


class MemorySink:
    """Gathers blocks of arrays in memory: name -> type."""

    def __init__(self, dtypes: dict[str, np.dtype]):
        self._parts: dict[str, list] = {name: [] for name in dtypes}
        self._dtypes = dtypes

    def add(self, block: dict[str, np.ndarray]) -> None:
        """Appends one block, an array for each name."""
        for name, dtype in self._dtypes.items():
            self._parts[name].append(block[name].astype(dtype))

    def finish(self, meta: dict) -> dict[str, np.ndarray]:
        """The whole arrays."""
        return {name: np.concatenate(parts) for name, parts in self._parts.items()}

    def discard(self) -> None:
        """Forgets everything."""
        self._parts.clear()


class FolderSink:
    """Appends blocks to `.npy` files in a hidden folder beside the wanted one, renamed to it at the end.

    A `.npy` header written for an empty array has room for any length (NumPy pads it on purpose), so the sizes are
    filled in at the end and the corpus is never held in memory.
    """

    def __init__(self, dtypes: dict[str, np.dtype], folder: Path):
        if folder.exists():
            raise FileExistsError(f"{folder} exists: open it as a cache, or remove it to build it anew.")
        folder.parent.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.partial-", dir=folder.parent))
        self._dtypes = dtypes
        self._sizes, self._crc32 = dict.fromkeys(dtypes, 0), dict.fromkeys(dtypes, 0)
        self._files: dict = {}
        try:
            for name in dtypes:
                self._files[name] = open(self._partial / f"{name}.npy", "wb")
                self._write_header(name)
        except OSError:
            self.discard()
            raise

    def _write_header(self, name: str) -> None:
        header = {"descr": self._dtypes[name].str, "fortran_order": False, "shape": (self._sizes[name],)}
        np.lib.format.write_array_header_1_0(self._files[name], header)

    def add(self, block: dict[str, np.ndarray]) -> None:
        """Appends one block, an array for each name."""
        for name, dtype in self._dtypes.items():
            content = block[name].astype(dtype).tobytes()
            self._files[name].write(content)
            self._crc32[name] = zlib.crc32(content, self._crc32[name])
            self._sizes[name] += len(block[name])

    def finish(self, meta: dict) -> None:
        """Completes the files and gives the folder its name."""
        for name, file in self._files.items():
            file.seek(0)
            self._write_header(name)
            file.close()
        meta = {**meta, "crc32": self._crc32}
        (self._partial / "meta.json").write_text(json.dumps(meta, indent=1, ensure_ascii=False) + "\n", "utf-8")
        os.chmod(self._partial, 0o755)  # mkdtemp's folders are private; a cache is to be shared like any other folder
        try:
            self._partial.rename(self._folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            raise FileExistsError(
                f"another run has made {self._folder} meanwhile: the same command reads it, if its tokenizer is the "
                "same; else name another folder"
            ) from None

    def discard(self) -> None:
        """Removes what was written."""
        for file in self._files.values():
            with contextlib.suppress(OSError):  # closing writes what is left, and the disk may be full
                file.close()
        shutil.rmtree(self._partial, ignore_errors=True)


def sink(arrays: dict[str, type | None], vocab_size: int, folder: str | os.PathLike | None) -> MemorySink | FolderSink:
    """What gathers the blocks of a cache, in memory without a folder.

    Args:
      arrays: name -> type, None for tokens: uint16 where the vocabulary allows, int32 otherwise.

    Raises FileExistsError where the folder exists, OSError where it can't be made.
    """
    tokens = np.uint16 if vocab_size <= 2**16 else np.int32
    dtypes = {name: np.dtype(dtype or tokens) for name, dtype in arrays.items()}
    with room(folder):
        return MemorySink(dtypes) if folder is None else FolderSink(dtypes, Path(folder))


def open_arrays(folder: Path, sizes: dict[str, int], meta: dict) -> dict[str, np.ndarray]:
    """Maps one array per name of ``sizes``; ValueError where a file is missing, damaged or of another length.

    ``meta`` has the checksums, which arrays of up to CHECKED bytes are compared with.
    """
    arrays = {}
    for name, size in sizes.items():
        path = folder / f"{name}.npy"
        try:
            # A plain view of the map: np.memmap's own indexing is several times slower.
            arrays[name] = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        except (OSError, ValueError, EOFError) as error:
            raise ValueError(
                f"{path} is missing or damaged ({error}): remove the folder {folder} and build the cache anew."
            ) from None
        if arrays[name].shape != (size,):
            raise ValueError(
                f"{path} has shape {arrays[name].shape}, meta.json says ({size},): remove the "
                f"folder {folder} and build the cache anew."
            )
        if arrays[name].nbytes <= CHECKED and zlib.crc32(arrays[name]) != meta["crc32"].get(name):
            raise ValueError(
                f"{path} is damaged (its CRC-32 is not that of meta.json): remove the folder {folder} and build the "
                "cache anew."
            )
    return arrays


def read_meta(folder: Path, wanted: int, fields: dict[str, type], tokenizer_sha256: str) -> dict:
    """The contents of a cache's ``meta.json``.

    Args:
      wanted: its format.
      fields: name -> type of what must be in there, "format" and "tokenizer_sha256" among them.
      tokenizer_sha256: of the tokenizer that is to go on reading.

    Raises:
      FileNotFoundError: there is none.
      ValueError: it is damaged, of another format, lacks a field, or another tokenizer made the cache.
    """
    if not (folder / "meta.json").is_file():
        raise FileNotFoundError(f"no cache in {folder} (no meta.json): build it first.")
    try:
        meta = json.loads((folder / "meta.json").read_text("utf-8"))
        if not isinstance(meta, dict):
            raise ValueError(f"a JSON {type(meta).__name__}, wanted an object")
        if "format" in meta and meta["format"] != wanted:
            raise ValueError(f"cache format {meta['format']}, wanted {wanted}")
        wrong = [name for name, kind in fields.items() if not isinstance(meta.get(name), kind)]
        if wrong:
            raise ValueError(f"{', '.join(wrong)} missing or of another type")
    except ValueError as error:
        what = f"{folder / 'meta.json'} is damaged or of another version ({error})"
        raise ValueError(f"{what}: remove the folder {folder} and build the cache anew.") from None
    if meta["tokenizer_sha256"] != tokenizer_sha256:
        raise ValueError(
            f"{folder} was built with the tokenizer {meta['tokenizer_sha256'][:12]}..., this run has "
            f"{tokenizer_sha256[:12]}... (sha256): use that tokenizer, or build the cache anew in another folder."
        )
    return meta
