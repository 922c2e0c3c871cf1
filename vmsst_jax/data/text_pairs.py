"""Parallel text on disk, read and checked line by line in plain Python: TSV files, aligned files, OPUS zip archives.

Nothing here needs TensorFlow. `tasks/` turns what is read here into seqio tasks; every rule (which line is bad, which
text is held out, what a pair's id is) lives in this one place, for corpora in memory and for streamed ones alike.
"""

import contextlib
import dataclasses
import functools
import glob
import gzip
import hashlib
import io
import logging
import math
import os
import re
import shutil
import unicodedata
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence

from vmsst_jax import disk

_LOG = logging.getLogger(__name__)
TRAIN = "train"
VALIDATION = "validation"
# Text compresses 3 to 10 times and a line is a sentence or a document: beyond these a file was made to fill a memory.
MOST_UNPACKED = 200  # times the packed size
LONGEST_LINE = 2**24  # bytes
HASHED = 2**26  # bytes that are hashed of a file to tell whether it has changed
_BOM = b"\xef\xbb\xbf"
_NOT_A_LETTER = re.compile(r"[\W_]+")


class CorpusError(ValueError):
    """A corpus that can't be used as it is; the message names the file, and the line where there is one."""


def check_characters(name: str, text: str) -> None:
    """ValueError for a text with half a character: JSON's escapes can write one (\\ud83d), UTF-8 can't."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name} has half a character, {text[error.start]!r}, before {text[error.end : error.end + 20]!r}; wanted "
            "both halves of the escape, or neither"
        ) from None


def hash62(text: bytes) -> int:
    """A stable hash, 0 <= h < 2**62: the same on every machine, in every process and version."""
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 2


def is_held_out(text: str, share: float) -> bool:
    """True for a `share` (0..1) of all texts, chosen by a hash of the text alone.

    Texts that differ only in case, spacing or punctuation get the same answer, in every corpus and language pair.
    """
    key = _NOT_A_LETTER.sub("", unicodedata.normalize("NFKC", text).casefold()) or text
    return hash62(key.encode()) < share * 2.0**62


@dataclasses.dataclass(frozen=True)
class LineFile:
    """A text file: plain, `.gz`, or one member of a zip archive."""

    path: str
    member: str | None = None

    def __str__(self) -> str:
        return self.path if self.member is None else f"{self.path}:{self.member}"

    def size(self) -> int:
        """Bytes of text (for `.gz` an estimate: 4 times the compressed size)."""
        if self.member is not None:
            with zipfile.ZipFile(self.path) as archive:
                return archive.getinfo(self.member).file_size
        return os.path.getsize(self.path) * (4 if self.path.endswith(".gz") else 1)

    def lines(self) -> Iterator[bytes]:
        """Yields the lines without line ends; carriage returns and byte-order marks at their starts are dropped.

        Raises:
          CorpusError: the file is missing, a folder, unreadable, its compressed data is damaged or unpacks to more than
            MOST_UNPACKED times its size, or a line is longer than LONGEST_LINE.
        """
        number = size = 0
        try:
            with contextlib.ExitStack() as stack:
                file, most = self._open(stack), self.most()
                for line in iter(functools.partial(file.readline, LONGEST_LINE + 1), b""):
                    number += 1
                    size += len(line)
                    if size > most:
                        raise CorpusError(self.too_much(f"by line {number:,}"))
                    if len(line) > LONGEST_LINE:
                        raise CorpusError(
                            f"{self}, line {number:,}: longer than {LONGEST_LINE:,} bytes; wanted text in lines"
                        )
                    yield line.removesuffix(b"\n").replace(b"\r", b"").removeprefix(_BOM)
        except FileNotFoundError:
            raise CorpusError(f"{self}: no such corpus file; correct the path where the task is registered") from None
        except (EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
            raise CorpusError(
                f"{self}: damaged or unreadable compressed data after line {number} ({error}); fetch the file again"
            ) from error
        except OSError as error:
            raise CorpusError(f"{self}: can't be read: {error.strerror or error}") from error

    def _open(self, stack: contextlib.ExitStack) -> io.BufferedIOBase:
        if self.member is not None:
            archive = stack.enter_context(zipfile.ZipFile(self.path))
            # Its own readline is a loop in Python as soon as it is given a limit.
            return io.BufferedReader(stack.enter_context(archive.open(self.member)))
        if self.path.endswith(".gz"):
            return stack.enter_context(gzip.open(self.path, "rb"))
        return stack.enter_context(open(self.path, "rb"))

    def most(self) -> float:
        """How many unpacked bytes are believable: MOST_UNPACKED times the packed ones, or a few repeated lines."""
        if self.member is not None:
            with zipfile.ZipFile(self.path) as archive:
                return max(MOST_UNPACKED * archive.getinfo(self.member).compress_size, LONGEST_LINE)
        return max(MOST_UNPACKED * os.path.getsize(self.path), LONGEST_LINE) if self.path.endswith(".gz") else math.inf

    def too_much(self, where: str) -> str:
        """The message about a file that unpacks to more than ``most``."""
        return (
            f"{self}: more than {MOST_UNPACKED} times its packed size ({where}), which text is not; it may be a "
            "decompression bomb. Unpack it yourself if you trust it"
        )


@dataclasses.dataclass(frozen=True)
class PairFile:
    """Parallel lines: a TSV file (`target` is None, texts in two `columns` of it), or two files aligned by line."""

    source: LineFile
    target: LineFile | None = None
    columns: tuple[int, int] = (0, 1)

    def __str__(self) -> str:
        return str(self.source) if self.target is None else f"{self.source} | {self.target}"

    def size(self) -> int:
        return self.source.size() + (self.target.size() if self.target else 0)

    def outline(self) -> dict:
        """What changes with a corpus, and not where it is moved: the files' outlines, the columns."""
        parts = [part for part in (self.source, self.target) if part]
        return {"files": [(part.member, *outline(part.path)) for part in parts], "columns": self.columns}

    def pairs(self) -> Iterator[tuple[bytes, bytes, str]]:
        """Yields (source, target, problem) per line, in order; `problem` is "" for a good line.

        Texts are UTF-8 bytes without ASCII white space around them; those of a bad line mean nothing.

        Raises:
          CorpusError: a file can't be read, is empty, or aligned files have unequal numbers of lines.
        """
        for source, target, problem in self.rows():
            yield source, target, problem or _text_problem(source, target)

    def rows(self) -> Iterator[tuple[bytes, bytes, str]]:
        """Like :meth:`pairs` without a look at the texts: they may be empty or no UTF-8."""
        empty = True
        for row in self._tsv_rows() if self.target is None else self._aligned_rows():
            empty = False
            yield row
        if empty:
            raise CorpusError(f"{self}: the corpus file is empty; wanted lines of parallel text")

    def _tsv_rows(self):
        first, second = self.columns
        wanted = max(self.columns) + 1
        for line in self.source.lines():
            fields = line.split(b"\t")
            if len(fields) < wanted:
                yield b"", b"", f"found {len(fields)} column(s), wanted at least {wanted}, separated by tabs"
            else:
                yield fields[first].strip(), fields[second].strip(), ""

    def _aligned_rows(self):
        left, right = self.source.lines(), self.target.lines()
        number = 0
        while True:
            source, target = next(left, None), next(right, None)
            if source is None or target is None:
                break
            number += 1
            yield source.strip(), target.strip(), ""
        counts = [
            number + (text is not None) + sum(1 for _ in rest) for text, rest in ((source, left), (target, right))
        ]
        if counts[0] != counts[1]:
            raise CorpusError(
                f"aligned files need equal numbers of lines, found {self.source}: {counts[0]:,} and "
                f"{self.target}: {counts[1]:,}; the files don't belong together or one is cut off"
            )


def _text_problem(source: bytes, target: bytes) -> str:
    """Says what is wrong with a pair of texts, "" if nothing."""
    for side, text in (("source", source), ("target", target)):
        if not text:
            return f"the {side} text is empty"
        try:
            text.decode()
        except UnicodeDecodeError as error:
            return f"the {side} text is not valid UTF-8 ({error.reason} at byte {error.start + 1} of the text)"
    return ""


def are_paths(value) -> bool:
    """Whether this is a path or pattern, or some of them."""
    if isinstance(value, str | os.PathLike):
        return bool(os.fspath(value))
    return isinstance(value, Sequence) and bool(value) and all(isinstance(v, str | os.PathLike) for v in value)


def expand(patterns: str | os.PathLike | Sequence[str | os.PathLike]) -> list[str]:
    """Turns paths and glob patterns into existing paths: in the order given, each pattern's matches sorted.

    Raises:
      CorpusError: a path doesn't exist or a pattern matches nothing.
    """
    found = []
    for pattern in [patterns] if isinstance(patterns, str | os.PathLike) else patterns:
        pattern = os.path.expanduser(os.fspath(pattern))
        if os.path.exists(pattern):
            found.append(pattern)
            continue
        matches = sorted(glob.glob(pattern, recursive=True)) if glob.has_magic(pattern) else []
        if not matches:
            raise CorpusError(
                f"{pattern}: no such corpus file (looked from {os.getcwd()}); correct the path where the task is "
                "registered, or put the file there"
            )
        found += matches
    return found


def outline(path: str | os.PathLike) -> tuple[str, int, str]:
    """(name without its folder, bytes, a hash) of a file: what changes with a corpus, and not where it is moved.

    The hash is of the whole content up to HASHED bytes, of parts all over it beyond.
    """
    stat = os.stat(path)
    return os.path.basename(path), stat.st_size, _digest(os.fspath(path), stat.st_size, stat.st_mtime_ns)


@functools.cache  # a run looks at its files more than once
def _digest(path: str, size: int, mtime_ns: int) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        if size <= HASHED:
            digest.update(file.read())
        else:
            for start in range(0, size, size // 64):
                file.seek(start)
                digest.update(file.read(HASHED // 64))
    return digest.hexdigest()[:16]


def outlines(paths: Sequence[str | os.PathLike]) -> list[tuple[str, int, str]]:
    """``outline`` of each."""
    return [outline(path) for path in paths]


def distinct(paths: Sequence[str]) -> list[str]:
    """The paths without further ones of the same file, of which a warning tells."""
    first: dict[str, str] = {}
    times = Counter(os.path.realpath(path) for path in paths)
    for path in paths:
        first.setdefault(os.path.realpath(path), path)
    if again := [path for real, path in first.items() if times[real] > 1]:
        _LOG.warning("named more than once, and read once: %s", ", ".join(again))
    return list(first.values())


def opus_members(path: str, codes: tuple[str, str]) -> PairFile:
    """Finds the two text members of an OPUS archive in Moses form, `<Corpus>.<a>-<b>.<a>` and `<Corpus>.<a>-<b>.<b>`.

    Only names without a folder count, and nothing is ever written under a member's name: an archive made to escape
    its folder has no effect.

    Args:
      path: the zip archive.
      codes: the two language codes as OPUS spells them in the names, in the order (source, target).

    Raises:
      CorpusError: no zip archive, or not exactly one such pair of members in it.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = [info.filename for info in archive.infolist() if not info.is_dir()]
    except FileNotFoundError:
        raise CorpusError(f"{path}: no such corpus file; correct the path where the task is registered") from None
    except (zipfile.BadZipFile, OSError) as error:
        raise CorpusError(f"{path}: not a readable zip archive ({error}); fetch the file again") from error
    pair = "|".join(re.escape(f"{a}-{b}") for a, b in (codes, codes[::-1]))
    found = []
    for code in codes:
        pattern = re.compile(rf"[^/\\]+\.(?:{pair})\.{re.escape(code)}")
        matches = [name for name in names if pattern.fullmatch(name)]
        if len(matches) != 1:
            listing = ", ".join(repr(name) for name in names[:10]) + (", ..." if len(names) > 10 else "")
            raise CorpusError(
                f"{path}: wanted one member named <Corpus>.{codes[0]}-{codes[1]}.{code}, found {len(matches)}; the "
                f"archive holds {listing or 'nothing'}. Give OPUS's own codes: `codes` of the task, or NAME:CODE among "
                "a table's corpora"
            )
        file = LineFile(path, matches[0])
        if file.size() > file.most():
            raise CorpusError(file.too_much("its directory says"))
        found.append(file)
    return PairFile(*found)


def extracted(file: LineFile, cache_dir: str) -> LineFile:
    """Copies a zip member into `cache_dir`, once per archive state, under a name made of a hash only.

    Raises:
      CorpusError: the disk lacks room for the member, or the member is damaged.
    """
    state = os.stat(file.path)
    identity = f"{os.path.abspath(file.path)}\0{state.st_size}\0{state.st_mtime_ns}\0{file.member}"
    target = os.path.join(cache_dir, f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.txt")
    if not os.path.exists(target):
        os.makedirs(cache_dir, exist_ok=True)
        size, free = file.size(), shutil.disk_usage(cache_dir).free
        if size > free:
            raise CorpusError(
                f"{file}: {size:,} bytes unpacked, but {cache_dir} has {free:,} free; name another folder by cache_dir"
            )
        # Several processes may unpack at once: each writes its own draft, the last rename wins, all are equal.
        with disk.replacing(target) as out:
            for line in file.lines():
                out.write(line + b"\n")
    return LineFile(target)
