"""Parallel text as a recipe names it: a seqio task or mixture, its batches, its held-out pairs, its vocabulary."""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import pathlib
import sys
import time
import zlib
from collections.abc import Iterator

import numpy as np

from vmsst_jax import checks
from vmsst_jax.data import batching, registered, streams
from vmsst_jax.data.cache import TokenCache
from vmsst_jax.data.languages import Languages
from vmsst_jax.data.text_pairs import CorpusError
from vmsst_jax.data.tokenizer import Tokenizer
from vmsst_jax.disk import write_atomically

logger = logging.getLogger(__name__)
# How many pairs are looked at, of all tasks together and of each at least, to learn which languages a corpus has.
SAMPLE, SAMPLE_OF_TASK = 50_000, 100


@dataclasses.dataclass(frozen=True)
class ParallelText:
    """Pairs of a seqio task or mixture as bucketed batches.

    Attributes:
      task: name of a registered task or mixture that yields text (see docs/adding_a_corpus.md).
      batch_size: B, pairs per micro-batch over all devices.
      max_length: longest sentence in tokens, eos included; longer ones are cut and counted.
      widths: static widths of equal groups of sentences sorted by length, as (8, 12, 20, 32): less padding, one
        compiled shape. None plans ``groups`` widths from the corpus' lengths (streamed: from its first 20,000 pairs).
      cache: "memory" tokenises the corpus once at the start, and shuffles it as a whole; a folder keeps that
        tokenisation there between runs, which then need no TensorFlow; "none" streams through seqio, for corpora that
        don't fit.
      split: of the task.
    """

    task: str
    batch_size: int
    max_length: int = 32
    widths: tuple[int, ...] | None = None
    groups: int = 1
    cache: str = "memory"
    split: str = "train"

    def __post_init__(self):
        for name, least in {"batch_size": 1, "max_length": 2, "groups": 1}.items():
            checks.whole(f"ParallelText.{name}", getattr(self, name), least)
        if self.widths is not None:
            object.__setattr__(self, "widths", checks.wholes("ParallelText.widths", self.widths))
        for name in ("task", "cache", "split"):
            if not isinstance(value := getattr(self, name), str) or not value:
                raise ValueError(f"ParallelText.{name} is {value!r}; wanted text in quotes, see its description")

    def check(self, languages: Languages, shards: int = 1, accumulate: int = 1) -> None:
        """Finds what :meth:`open` could only find after a tokenizer was trained or a corpus tokenised; cheap.

        The languages are those of the first pairs of each task, or of all pairs where a kept cache knows them.

        Raises:
          ValueError: batch sizes and widths that do not work, an unknown task or split, or a corpus with languages that
            are not in the table.
        """
        batching.BatchPlan(self.batch_size, self._plain_widths(), self.max_length, shards, accumulate)
        for name in self._kept_rates() or ():
            self._check_made_from(name)
        found, all_seen = self._languages_found()
        if absent := sorted(found - set(languages.codes)):
            unused = sorted(set(languages.codes) - found)
            where = "in no corpus" if all_seen else "in no pair looked at"
            raise ValueError(
                f"LANGUAGES and the corpus {self.task!r} differ. In the corpus but not in LANGUAGES: "
                f"{', '.join(absent)}; in LANGUAGES but {where}: {', '.join(unused) or 'none'}. "
                "Correct the codes in the corpus, or start a run whose LANGUAGES hold them"
            )

    def shapes(self, shards: int = 1, accumulate: int = 1) -> dict:
        """Shapes of a batch's arrays without opening the corpus; where ``widths`` are planned, the widest possible."""
        plan = batching.BatchPlan(self.batch_size, self._plain_widths(), self.max_length, shards, accumulate)
        return plan.shapes()

    def _plain_widths(self) -> tuple[int, ...]:
        return (self.max_length,) * self.groups if self.widths is None else self.widths

    def _languages_found(self) -> tuple[set[str], bool]:
        """(codes, whether every pair was seen)."""
        if rates := self._kept_rates():
            files = [self._folder(name) / "meta.json" for name in rates]
            if all(file.is_file() for file in files):
                return {code for file in files for code in _kept_meta(file)["sentences"]}, True
        names = [name for name, _ in registered.task_rates(self.task, self.split)]
        codes, all_seen, limit = set(), True, max(SAMPLE_OF_TASK, SAMPLE // len(names))
        for name in names:
            count = 0
            for example in itertools.islice(registered.examples_of(name, self.split), limit):
                codes |= {example["source_lang"], example["target_lang"]}
                count += 1
            all_seen = all_seen and count < limit
        return codes, all_seen

    def open(self, tokenizer: Tokenizer, languages: Languages, seed: int, shards: int = 1, accumulate: int = 1):
        """An endless stream of batches for ``shards`` batch shards; see :mod:`vmsst_jax.data.streams`."""
        streamed = self.cache == "none"
        if streamed:
            caches, rates = [], []
            lengths = self._sampled_lengths(tokenizer) if self.widths is None else None
        else:
            caches, rates = self.caches(tokenizer, languages)
            lengths = np.concatenate([c.lengths for c in caches]) if self.widths is None else None
        widths = self.widths
        if widths is None:
            widths = batching.plan_widths(lengths, self.batch_size, self.groups, self.max_length)
        common = (self.batch_size, widths, self.max_length, seed, accumulate, shards)
        if streamed:
            return streams.SeqioStream(self.task, self.split, tokenizer, languages, *common)
        return streams.CachedStream(caches, rates, *common)

    def caches(self, tokenizer: Tokenizer, languages: Languages) -> tuple[list[TokenCache], list[float]]:
        """The tokenised pairs of each task, made now or found in the kept cache, and the tasks' rates."""
        if self.cache == "memory":
            rates = dict(registered.task_rates(self.task, self.split))
            return [self._build(name, tokenizer, languages, None) for name in rates], list(rates.values())
        rates = self._kept_rates()
        kept = rates is not None
        if kept:
            self._check_rates(rates)
        else:
            rates = dict(registered.task_rates(self.task, self.split))
            for name in rates:
                if not (self._folder(name) / "meta.json").is_file():
                    self._build(name, tokenizer, languages, self._folder(name))
            write_atomically(self._listing, json.dumps(rates).encode())
        for name in rates:
            self._check_made_from(name)
        caches = [TokenCache.open(self._folder(name), tokenizer, languages) for name in rates]
        if kept:
            made = time.localtime(self._listing.stat().st_mtime)
            sources = "; ".join(cache.meta["source"] for cache in caches[:3]) + ("; ..." if len(caches) > 3 else "")
            when = time.strftime("%Y-%m-%d %H:%M", made)
            # A warning, so that it is seen: what changed in the corpus since then is not.
            logger.warning("reading the cache in %s, made on %s from %s", self.cache, when, sources)
        return caches, list(rates.values())

    def _folder(self, name: str) -> pathlib.Path:
        """Where the tokenised pairs of one task of the mixture are kept."""
        return pathlib.Path(self.cache) / f"{name}-{self.split}"

    @property
    def _listing(self) -> pathlib.Path:
        return pathlib.Path(self.cache) / f"{self.task}-{self.split}.json"

    def _kept_rates(self) -> dict[str, float] | None:
        """The rates in a kept cache's listing, {task: rate}; with them neither seqio nor TensorFlow is needed."""
        if self.cache in ("memory", "none") or not self._listing.is_file():
            return None
        try:
            rates = json.loads(self._listing.read_text("utf-8"))
            for name, rate in rates.items():
                checks.positive(name, rate)
            whole = bool(rates) and not any("/" in name for name in rates)
        except (ValueError, AttributeError):
            whole = False
        if not whole:
            raise ValueError(
                f'{self._listing} is damaged; wanted the rates of tasks, as in {{"{self.task}": 1.0}}: remove it '
                "(what is tokenised is kept)"
            )
        return rates

    def _check_rates(self, kept: dict[str, float]) -> None:
        """ValueError if the mixture, where it is registered, has other tasks or rates now."""
        seqio = sys.modules.get("seqio")
        if not seqio or self.task not in {*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()}:
            return
        try:
            rates = dict(registered.task_rates(self.task, self.split))
        except (OSError, CorpusError) as error:  # rates by size read the corpus, which need not be on this machine
            logger.warning("the rates of %s can't be compared with those in %s: %s", self.task, self._listing, error)
            return
        if rates != kept:
            raise ValueError(
                f"the cache in {self.cache} of {self.task} was made with tasks and rates {kept}, now it has {rates}; "
                f"remove {self._listing} to take the new ones (what is tokenised is kept), or name another folder by "
                "ParallelText.cache"
            )

    def _build(self, name: str, tokenizer: Tokenizer, languages: Languages, folder: pathlib.Path | None) -> TokenCache:
        examples = registered.examples_of(name, self.split)
        source = f"{name}, split {self.split!r}"
        made_from = registered.made_from(name)
        return TokenCache.build(examples, tokenizer, languages, self.max_length, folder, source, made_from)

    def _check_made_from(self, name: str) -> None:
        """ValueError if the kept tokens of a task are of other text than it has now."""
        file = self._folder(name) / "meta.json"
        registered.check_made_from(name, _kept_meta(file).get("made_from", {}), file.parent)

    def _sampled_lengths(self, tokenizer: Tokenizer) -> np.ndarray:
        sample = list(itertools.islice(self.examples(), 20_000))
        texts = [text for example in sample for text in (example["source"], example["target"])]
        return tokenizer.encode_flat(texts, self.max_length)[1].reshape(-1, 2)

    def examples(self, split: str | None = None) -> Iterator[dict]:
        """Every pair of a split (default: this one's) once, as text."""
        return registered.examples_of(self.task, split or self.split)


def _kept_meta(file: pathlib.Path) -> dict:
    """A kept cache's ``meta.json``, {} where it is not there; its ``sentences`` is a dict."""
    if not file.is_file():
        return {}
    try:
        meta = json.loads(file.read_text("utf-8"))
        return {**meta, "sentences": dict(meta["sentences"])}
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{file} is damaged: remove {file.parent} to build this cache anew") from None


def sentencepiece_file(path: str) -> Tokenizer:
    """The vocabulary in a SentencePiece ``.model`` file, mT5's for instance."""
    return Tokenizer.load(path)


def train_sentencepiece(
    task: str, vocab_size: int, split: str = "train", max_sentences: int = 5_000_000, **options
) -> Tokenizer:
    """A SentencePiece vocabulary of exactly ``vocab_size`` pieces, trained on both sides of a task's split.

    Of a corpus with more than ``max_sentences`` a subset drawn by a hash of the text is taken: about that many.
    ``options`` go to ``Tokenizer.train``. ValueError for sizes that are no whole numbers.
    """
    checks.whole("train_sentencepiece.vocab_size", vocab_size, 4)  # three pieces are special
    checks.whole("train_sentencepiece.max_sentences", max_sentences)
    if "character_coverage" in options:
        checks.positive("train_sentencepiece.character_coverage", options["character_coverage"])

    def texts():
        for example in registered.examples_of(task, split):
            yield example["source"]
            yield example["target"]

    count = sum(1 for _ in texts())
    if count <= max_sentences:
        return Tokenizer.train(texts(), vocab_size, **options)
    limit = int(2**32 * max_sentences / count)
    return Tokenizer.train((t for t in texts() if zlib.crc32(t.encode()) < limit), vocab_size, **options)
