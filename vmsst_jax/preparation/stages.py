"""The four steps, cut into units that know nothing of each other but the files they leave.

    split    a source           its records, cleaned, into the partitions of its set
    merge    a partition        all its records in memory: each kept once, sorted
    take     a set              the first records of its partitions, up to the amount, become its text
    tokens   a set              its text becomes token caches

One hash of (seed, record) does three things. A record's place among the partitions is the hash's first bits, so equal
records meet in one partition and partition i holds smaller hashes than partition i + 1. Sorted by the hash, the
partitions one after another are the whole set in random order. And its first N records are a random sample.

A unit writes beside its place and renames, then leaves a mark: its counts, as JSON. A marked unit is never run again,
and one that is killed leaves nothing that counts.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import os
import pathlib
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np

from vmsst_jax import disk
from vmsst_jax.data import tokenizers
from vmsst_jax.data.text_pairs import CorpusError
from vmsst_jax.preparation import documents, pairs
from vmsst_jax.preparation.cleaning import TestSentences
from vmsst_jax.preparation.plan import Plan, Set

STAGES = ("split", "merge", "take", "tokens")
KINDS = {"pairs": pairs, "documents": documents}
BUFFER = 2**24  # bytes of records that a split holds for all partitions together
SECONDS_BETWEEN_BEATS = 2


class Work:
    """An output folder with its folder ``work``: the plan, what the stages need, their marks and what they leave."""

    def __init__(self, output: str):
        self.output = pathlib.Path(output)
        self.folder = self.output / "work"

    @functools.cached_property
    def plan(self) -> Plan:
        return self.read(self.folder / "plan.json", Plan.from_json)

    @functools.cached_property
    def tests(self) -> TestSentences:
        return TestSentences(np.load(self.folder / "tests.npy", allow_pickle=False).tolist())

    @functools.cached_property
    def tokenizer(self):
        return tokenizers.from_record(json.loads((self.folder / "tokenizer.json").read_bytes()), "the work folder")

    @functools.cached_property
    def named(self) -> dict[str, Set]:
        """The plan's sets by their names."""
        return {of.name: of for of in self.plan.sets}

    @property
    def tokens(self) -> pathlib.Path:
        return self.output / "tokens"

    def mark(self, stage: str, of: Set, number: int = 0) -> pathlib.Path:
        """Where the unit's counts are once it is done."""
        return self.folder / stage / of.name / f"{number:05}.json"

    def place(self, stage: str, of: Set, number: int) -> pathlib.Path:
        """The folder of what the unit leaves to the next stage."""
        return self.mark(stage, of, number).with_suffix("")

    def counts(self, stage: str, of: Set, number: int = 0) -> dict:
        return self.read(self.mark(stage, of, number), json.loads)

    def read(self, path: pathlib.Path, parse: Callable[[bytes], object]):
        """What ``parse`` makes of a file of the work folder; CorpusError if it can't."""
        contents = path.read_bytes()
        try:
            return parse(contents)
        except (ValueError, KeyError, TypeError, AttributeError, EOFError):
            raise self.damaged(path) from None

    def damaged(self, path: pathlib.Path) -> CorpusError:
        """The error for a file that isn't as it was written: what others were made of may be gone by then."""
        return CorpusError(f"{path} is damaged; remove the folder {self.output} to prepare it anew")

    def text_files(self, of: Set) -> list[str]:
        """The set's text, in order."""
        return sorted(map(str, (self.output / of.folder).iterdir()))

    def units(self, stage: str) -> list[tuple[Set, int]]:
        """What the stage consists of."""
        plan = self.plan
        sizes = {"split": lambda of: len(of.sources), "merge": plan.partitions}
        return [(of, n) for of in plan.sets for n in range(sizes.get(stage, lambda of: 1)(of))]


def run(work: Work, stage: str, of: Set, number: int, beat: Callable[[int], None]) -> None:
    """Runs one unit unless it is marked; ``beat`` is told from time to time how many lines are done."""
    mark = work.mark(stage, of, number)
    if mark.exists():
        return
    mark.parent.mkdir(parents=True, exist_ok=True)
    with disk.writing(work.output):
        counts = {"split": split, "merge": merge, "take": take, "tokens": tokens}[stage](work, of, number, beat)
        disk.write_atomically(mark, json.dumps(counts, sort_keys=True).encode())
    if stage == "merge":  # after the mark: a unit that is run again would miss them
        for n in range(len(of.sources)):
            (work.place("split", of, n) / f"{number:05}").unlink(missing_ok=True)
    if stage == "take":
        shutil.rmtree(work.folder / "merge" / of.name / "records", ignore_errors=True)


def beats(path: pathlib.Path) -> Callable[[int], None]:
    """A function that writes how far a unit is to ``path``, for whoever shows progress, every two seconds at most."""
    last = time.monotonic()

    def beat(done: int) -> None:
        nonlocal last
        if time.monotonic() - last >= SECONDS_BETWEEN_BEATS:
            last = time.monotonic()
            path.write_text(str(done))

    return beat


@contextlib.contextmanager
def appearing(place: pathlib.Path, mark: pathlib.Path) -> Iterator[pathlib.Path]:
    """A folder to write into that gets its name at the end; what has that name by then is replaced.

    Unless there is the mark by then: a runner may start a unit again that it believes lost.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = pathlib.Path(tempfile.mkdtemp(prefix=f".{place.name}.partial-", dir=place.parent))
    try:
        yield draft
        if mark.exists():
            return
        os.chmod(draft, 0o755)  # mkdtemp's folders are private
        if place.is_symlink():
            place.unlink()
        elif place.exists():  # of a unit that was killed before its mark
            shutil.rmtree(place)
        draft.rename(place)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def order_key(record: bytes, seed: int) -> int:
    """Where a record stands in the shuffled set: 0 <= key < 2**64, the same on every machine."""
    digest = hashlib.blake2b(record, digest_size=8, salt=seed.to_bytes(16, "little")).digest()
    return int.from_bytes(digest, "big")


def split(work: Work, of: Set, number: int, beat: Callable[[int], None]) -> dict:
    """Reads one source. Counts: {"records": {outcome: lines}, "sentences": {outcome: sentences in them}}."""
    plan, kind = work.plan, KINDS[work.plan.kind]
    lines, sentences = Counter(), Counter()
    partitions = plan.partitions(of)
    with appearing(work.place("split", of, number), work.mark("split", of, number)) as folder:
        buffers = [bytearray() for _ in range(partitions)]
        held = 0
        for outcome, record, inside, removed in kind.records(of.sources[number], of, plan.rules, work.tests):
            lines[outcome or "clean"] += 1
            sentences[outcome or "clean"] += inside
            sentences["test"] += removed
            if not lines.total() % 4096:
                beat(lines.total())
            if outcome:
                continue
            buffers[order_key(record, plan.seed) * partitions >> 64] += record + b"\n"
            held += len(record) + 1
            if held >= BUFFER:
                _flush(folder, buffers)
                held = 0
        _flush(folder, buffers)
    return {"records": lines, "sentences": sentences}


def _flush(folder: pathlib.Path, buffers: list[bytearray]) -> None:
    for number, buffer in enumerate(buffers):
        if buffer:
            with open(folder / f"{number:05}", "ab") as file:
                file.write(buffer)
            buffer.clear()


def merge(work: Work, of: Set, number: int, beat: Callable[[int], None]) -> dict:
    """Sorts one partition. Counts per source: {"records": {"duplicate", "unique"}, "sentences": likewise}.

    Of equal records the one of the first source stays. Memory: the partition's distinct records.
    """
    first: dict[bytes, int] = {}  # record with its line end -> source
    counts = [{"records": Counter(), "sentences": Counter()} for _ in of.sources]
    for source in range(len(of.sources)):
        path = work.place("split", of, source) / f"{number:05}"
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as lines:
            for line in lines:
                kind = "duplicate" if line in first else "unique"
                first.setdefault(line, source)
                counts[source]["records"][kind] += 1
                counts[source]["sentences"][kind] += _sentences(line)
        beat(len(first))
    if work.mark("merge", of, number).exists():  # a unit that was believed lost is done, and has removed the parts
        return work.counts("merge", of, number)
    records = list(first)
    keys = np.fromiter((order_key(line[:-1], work.plan.seed) for line in records), np.uint64, len(records))
    order = np.argsort(keys, kind="stable")
    sources = np.fromiter(first.values(), np.uint32, len(records))[order]
    folder = work.folder / "merge" / of.name / "records"
    folder.mkdir(parents=True, exist_ok=True)
    with disk.replacing(folder / f"{number:05}") as file:
        for i in order.tolist():
            file.write(records[i])
    with disk.replacing(folder / f"{number:05}.npy") as file:
        np.save(file, sources, allow_pickle=False)
    return {"sources": counts}


def _sentences(line: bytes) -> int:
    return line.count(b"\t") + 1


def take(work: Work, of: Set, number: int, beat: Callable[[int], None]) -> dict:
    """Writes a set's text. Counts per source: {"records": {"kept": lines}, "sentences": {"kept": sentences}}.

    Raises ValueError where nothing is left of the set and the plan doesn't skip such sets.
    """
    plan = work.plan
    counts = [{"records": Counter(kept=0), "sentences": Counter(kept=0)} for _ in of.sources]
    folder = work.folder / "merge" / of.name / "records"
    left = np.inf if of.amount is None else of.amount
    done = 0
    with appearing(work.output / of.folder, work.mark("take", of)) as text:
        for part in range(plan.partitions(of)):
            records = folder / f"{part:05}"
            sources = work.read(records.with_suffix(".npy"), _array)
            wanted = int(min(left, len(sources)))
            if not wanted:
                continue
            with open(records, "rb") as lines, open(text / f"{part:05}{_suffix(plan)}", "wb") as out:
                for source in sources[:wanted].tolist():
                    line = next(lines, b"")
                    if not line.endswith(b"\n"):
                        raise work.damaged(records)
                    out.write(line)
                    counts[source]["records"]["kept"] += 1
                    counts[source]["sentences"]["kept"] += _sentences(line)
            done += wanted
            left -= wanted
            beat(done)
    if not done:
        shutil.rmtree(work.output / of.folder)
        if not plan.skip_empty:
            raise ValueError(
                f"{of.name}: of {len(of.sources)} source(s) nothing is left that could be trained on "
                f"({', '.join(s.name for s in of.sources[:3])}); --missing=skip leaves such sets out"
            )
    return {"sources": counts}


def _array(contents: bytes) -> np.ndarray:
    return np.load(io.BytesIO(contents), allow_pickle=False)


def _suffix(plan: Plan) -> str:
    return KINDS[plan.kind].SUFFIX


def tokens(work: Work, of: Set, number: int, beat: Callable[[int], None]) -> dict:
    """Builds a set's token caches, none for a set without text."""
    kind, made = KINDS[work.plan.kind], []
    if (work.output / of.folder).is_dir():
        for path in kind.caches(work.tokens, work.plan, of):
            if not path.exists():  # whole if it exists
                kind.tokenise(path, work.text_files(of), work.plan, of, work.tokenizer)
            made.append(path.name)
    return {"caches": made}
