"""What writing to a shared, finite disk needs: locks, files that appear whole, and messages that advise."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import pathlib
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO

logger = logging.getLogger(__name__)

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# What a network's storage answers for a while: trying again may help.
PASSING = (
    *(errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EBUSY, errno.EREMOTEIO, errno.ENOTCONN, errno.ECONNRESET),
    *(errno.ECONNREFUSED, errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTUNREACH, errno.EHOSTDOWN),
)
PASSING_TEXT = re.compile(r"UNAVAILABLE|DEADLINE_EXCEEDED|RESOURCE_EXHAUSTED: 429|\b50[234]\b")  # a cloud's storage
# What flock answers on file systems that have no locks.
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


def open_locked(path: str | os.PathLike) -> BinaryIO:
    """Opens a file, made if need be, for reading and writing until it is closed, to the exclusion of other callers.

    Raises BlockingIOError if another open file holds the lock. Where the file system has no locks, nothing is excluded.
    """
    file = open(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The holder may have renamed or removed the file between opening and locking.
        if not (os.path.exists(path) and os.path.samestat(os.fstat(file.fileno()), os.stat(path))):
            raise BlockingIOError(errno.EAGAIN, "replaced by another process just now", os.fspath(path))
    except OSError as error:
        if error.errno not in NO_LOCKS:
            file.close()
            raise
    return file


def open_alone(path: str | os.PathLike) -> BinaryIO:
    """``open_locked`` for an output that a command writes; BlockingIOError with advice if another process has it."""
    try:
        return open_locked(path)
    except BlockingIOError:
        raise BlockingIOError(f"another process is writing {path}; wait for it, or use another output") from None


def check_apart(source: str | os.PathLike, written: Iterable[str | os.PathLike]) -> None:
    """ValueError if the input ``source`` is one of the files to be written, by whatever name."""
    for path in written:
        same = os.path.exists(source) and os.path.exists(path) and os.path.samefile(source, path)
        if same or os.path.realpath(path) == os.path.realpath(source):
            raise ValueError(f"the input {source} is among the files to be written ({path}); use another output")


@contextlib.contextmanager
def replacing(path: str | os.PathLike, *, alone: bool = False) -> Iterator[BinaryIO]:
    """A file to write what is to lie at ``path``: a draft beside it, so that a kill at any moment leaves the old or the
    new, whole.

    Args:
      alone: nobody else writes there at the same time, so that what a killed writer left is written over.
    """
    path = pathlib.Path(path)
    draft = path.with_name(f".{path.name}{'' if alone else f'.{uuid.uuid4().hex}'}.new")
    try:
        with open(draft, "wb" if alone else "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def write_atomically(path: str | os.PathLike, contents: bytes) -> None:
    """Puts ``contents`` at ``path`` as ``replacing`` does. A file that has these contents already is left alone."""
    path = pathlib.Path(path)
    if path.is_file() and path.read_bytes() == contents:
        return
    with replacing(path) as file:
        file.write(contents)


def check_place(path: str | os.PathLike, endings: Sequence[str], what: str = "output") -> pathlib.Path:
    """The path of a file to be written, to be called before anything slow.

    Raises ValueError where its name ends otherwise, FileNotFoundError where its folder does not exist.
    """
    path = pathlib.Path(path)
    if path.suffix not in endings:
        raise ValueError(f"the {what} is {path}; wanted a name that ends in {', '.join(endings)}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} into; make it first")
    return path


@contextlib.contextmanager
def writing(path: str | os.PathLike) -> Iterator[None]:
    """A full disk inside this context is an OSError that names ``path`` and says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        advice = f"{os.strerror(error.errno)}; make room there, then give the same command again"
        raise OSError(error.errno, advice, os.fspath(path)) from error


SYSTEM_ERROR = re.compile(r"(?:os_error_code='?|OS error |\[Errno )(\d+)")  # as TensorStore, Orbax and Python write it


def may_pass(error: BaseException | None) -> bool:
    """Whether an error, or what caused it, is one of a network's storage that trying again may mend."""
    while error is not None:
        system = SYSTEM_ERROR.search(str(error))
        number = error.errno if isinstance(error, OSError) and error.errno else int(system[1]) if system else None
        if number in PASSING and not isinstance(error, TimeoutError):
            return True
        if number is None and PASSING_TEXT.search(str(error)):
            return True
        error = error.__cause__
    return False


def retrying(function: Callable, what: str, tries: int = 5, wait: float = 1.0):
    """``function()``, and again after 1, 2, 4, ... seconds while it fails in a way that may pass; the last error is
    raised. ``what`` it does, in words, for the warnings."""
    for left in reversed(range(tries)):
        try:
            return function()
        except Exception as error:
            if not left or not may_pass(error):
                raise
            logger.warning("%s failed (%s); trying again in %g s", what, cause(error), wait)
        time.sleep(wait)
        wait *= 2


def cause(error: BaseException, length: int = 300) -> str:
    """Why TensorStore or Orbax failed, in one line without the specification and the paths that they put around it."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    system = SYSTEM_ERROR.search(text)
    return os.strerror(int(system[1])) if system else text.rsplit('": ', 1)[-1][:length]


def os_error(error: BaseException, path: str | os.PathLike) -> OSError:
    """The failure of a write to ``path`` inside TensorStore or Orbax, as the system's own error."""
    system = SYSTEM_ERROR.search(str(error))
    return OSError(int(system[1]) if system else errno.EIO, cause(error), os.fspath(path))


def sha256(path: str | os.PathLike) -> str:
    """The SHA-256 of a file's contents, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
