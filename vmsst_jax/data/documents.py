"""Documents as a recipe names them: a seqio task or mixture as CCP's pairs, as blocks of text, as a vocabulary."""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import pathlib
import sys
import zlib
from collections.abc import Iterator

from vmsst_jax import checks
from vmsst_jax.data import registered
from vmsst_jax.data.document_cache import Cleaning, DocumentCache, clean_text
from vmsst_jax.data.document_pool import Corpus
from vmsst_jax.data.document_streams import BlockStream, PairStream
from vmsst_jax.data.languages import Languages
from vmsst_jax.data.tokenizer_xlmr import XlmrTokenizer
from vmsst_jax.disk import write_atomically

logger = logging.getLogger(__name__)
# How many documents are looked at, of all tasks together and of each at least, to learn which languages there are.
SAMPLE, SAMPLE_OF_TASK = 10_000, 100


@dataclasses.dataclass(frozen=True)
class DocumentSet:
    """The documents of a task or mixture, cleaned and tokenised; what ``Documents`` and ``MaskedText`` share.

    Attributes:
      task, split: a registered task or mixture that yields documents, and its split.
      cache: "memory", or a folder that keeps the tokens of each task between runs.
      cleaning: what is left out.
    """

    task: str
    split: str
    cache: str
    cleaning: Cleaning

    def check(self, languages: Languages) -> None:
        """ValueError for an unknown task or split, or documents in languages that are not in the table.

        The languages are those of the first documents of each task, or of all where a kept cache knows them.
        """
        for name in self._kept() or ():
            self._check_made_from(name)
        found = self._languages_found()
        if absent := sorted(found - set(languages.codes)):
            unused = sorted(set(languages.codes) - found)
            raise ValueError(
                f"LANGUAGES and the documents of {self.task!r} differ. In the documents but not in LANGUAGES: "
                f"{', '.join(absent)}; in LANGUAGES but in no document looked at: {', '.join(unused) or 'none'}. "
                "Correct the codes in the corpus, or start a run whose LANGUAGES hold them"
            )

    def open(self, tokenizer, languages: Languages) -> Corpus:
        """The whole corpus: read and tokenised now, or found in the kept cache, which needs no TensorFlow then.

        Raises:
          ValueError: no documents, a language that is not in the table, or a cache of other tasks or another tokenizer.
        """
        if self.cache == "memory":
            names = registered.task_names(self.task, self.split)
            return Corpus([self._build(name, tokenizer, languages, None) for name in names], languages)
        names = self._kept()
        if names is None:
            names = registered.task_names(self.task, self.split)
            for name in names:
                if not (self._folder(name) / "meta.json").is_file():
                    self._build(name, tokenizer, languages, self._folder(name))
            write_atomically(self._listing, json.dumps(names).encode())
        else:
            self._check_tasks(names)
            logger.warning("reading the documents of %s from the cache in %s", self.task, self.cache)
        for name in names:
            self._check_made_from(name)
        return Corpus([DocumentCache.open(self._folder(name), tokenizer, languages) for name in names], languages)

    def examples(self, split: str | None = None) -> Iterator[dict]:
        """Every document of a split (default: this one's) once, as text; cleaning leaves them alone."""
        return registered.examples_of(self.task, split or self.split, fields=registered.DOCUMENT)

    def cleaned(self, tokenizer, languages: Languages) -> Iterator[tuple[dict, list[str]]]:
        """Every document once, with the sentences that ``open`` would keep of it, as text."""
        return clean_text(self.examples(), tokenizer, languages, self.cleaning)

    def _build(self, name: str, tokenizer, languages: Languages, folder) -> DocumentCache:
        examples = registered.examples_of(name, self.split, fields=registered.DOCUMENT)
        source = f"{name}, split {self.split!r}"
        made_from = registered.made_from(name)
        return DocumentCache.build(examples, tokenizer, languages, self.cleaning, folder, source, made_from)

    def _check_made_from(self, name: str) -> None:
        """ValueError if the kept tokens of a task are of other text than it has now."""
        file = self._folder(name) / "meta.json"
        registered.check_made_from(name, _kept_meta(file).get("made_from", {}), file.parent)

    def _languages_found(self) -> set[str]:
        files = [self._folder(name) / "meta.json" for name in self._kept() or ()]
        if files and all(file.is_file() for file in files):
            return {code for file in files for code in _kept_meta(file)["per_language"]}
        names = registered.task_names(self.task, self.split)
        limit = max(SAMPLE_OF_TASK, SAMPLE // len(names))
        samples = (registered.examples_of(name, self.split, fields=registered.DOCUMENT) for name in names)
        return {example["lang"] for sample in samples for example in itertools.islice(sample, limit)}

    def _folder(self, name: str) -> pathlib.Path:
        """Where the tokens of one task of the mixture are kept: another cleaning is another folder."""
        return pathlib.Path(self.cache) / f"{name}-{self.split}-{self.cleaning}"

    @property
    def _listing(self) -> pathlib.Path:
        return pathlib.Path(self.cache) / f"{self.task}-{self.split}-{self.cleaning}.json"

    def _kept(self) -> list[str] | None:
        """The tasks in a kept cache's listing; with it neither seqio nor TensorFlow is needed."""
        if self.cache == "memory" or not self._listing.is_file():
            return None
        try:
            names = json.loads(self._listing.read_text("utf-8"))
            whole = (
                isinstance(names, list) and names and all(isinstance(name, str) and "/" not in name for name in names)
            )
        except ValueError:
            whole = False
        if not whole:
            raise ValueError(
                f'{self._listing} is damaged; wanted the names of tasks, as in ["{self.task}"]: remove it (what is '
                "tokenised is kept)"
            )
        return names

    def _check_tasks(self, kept: list[str]) -> None:
        """ValueError if the mixture, where it is registered, has other tasks now."""
        seqio = sys.modules.get("seqio")
        if not seqio or self.task not in {*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()}:
            return
        if (names := registered.task_names(self.task, self.split)) != kept:
            raise ValueError(
                f"the cache in {self.cache} of {self.task} was made with the tasks {kept}, now it has {names}; remove "
                f"{self._listing} to take the new ones (what is tokenised is kept), or name another folder"
            )


def _kept_meta(file: pathlib.Path) -> dict:
    """A kept cache's ``meta.json``, {} where it is not there; its ``per_language`` is a dict."""
    if not file.is_file():
        return {}
    try:
        meta = json.loads(file.read_text("utf-8"))
        return {**meta, "per_language": dict(meta["per_language"])}
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{file} is damaged: remove {file.parent} to build this cache anew") from None


def _leading(accumulate: int) -> tuple[int, ...]:
    return (accumulate,) if accumulate > 1 else ()


def _check_common(owner: str, settings, sizes: dict[str, int]) -> None:
    """What ``Documents`` and ``MaskedText`` check alike: names of theirs that are text, whole numbers, the exponent."""
    for name in ("task", "cache", "split"):
        if not isinstance(value := getattr(settings, name), str) or not value:
            raise ValueError(f"{owner}.{name} is {value!r}; wanted text in quotes, see its description")
    for name, least in sizes.items():
        checks.whole(f"{owner}.{name}", getattr(settings, name), least)
    checks.number(f"{owner}.exponent", settings.exponent)
    if settings.max_pieces is not None:
        checks.whole(f"{owner}.max_pieces", settings.max_pieces, settings.min_pieces)


@dataclasses.dataclass(frozen=True)
class Documents:
    """CCP's pairs: a sentence of a document and one near it, in groups of one language (METHODS 3.1, 3.3).

    Attributes:
      task: name of a registered task or mixture that yields documents (see docs/adding_a_corpus.md). The rates of a
        mixture don't matter: all documents of a language are equally likely.
      groups, pairs: G and N: a micro-batch over all devices is G groups of N pairs, each pair from another document.
        A language with fewer than N documents is not drawn, and the run's overview says so; one with fewer than G x N
        is drawn for no more groups of a micro-batch than it has documents for.
      max_length: longest sentence in tokens, special ones included; longer ones are cut and counted.
      window: w, how far from the centre the context may lie.
      exponent: of a language's number of sentences, in its probability; 1 follows the sizes, 0 is uniform.
      min_pieces, max_pieces: sentences with fewer or more pieces are dropped (None: none is too long), after those
        that repeat another of their document; a document of which fewer than two are left is dropped. What is
        neighbouring is what then stands side by side.
      cache: "memory" tokenises the corpus at the start; a folder keeps that between runs, which then need no
        TensorFlow, and memory-maps it.
      split: of the task.
    """

    task: str
    groups: int = 1
    pairs: int = 32
    max_length: int = 128
    window: int = 5
    exponent: float = 0.3
    min_pieces: int = 5
    max_pieces: int | None = 128
    cache: str = "memory"
    split: str = "train"

    def __post_init__(self):
        sizes = {"groups": 1, "pairs": 1, "max_length": 2, "window": 1, "min_pieces": 1}
        _check_common("Documents", self, sizes)

    @property
    def documents(self) -> DocumentSet:
        """The documents, cleaned for pairs."""
        return DocumentSet(self.task, self.split, self.cache, Cleaning(self.min_pieces, self.max_pieces))

    def check(self, languages: Languages, shards: int = 1, accumulate: int = 1) -> None:
        """ValueError for an unknown task or split, or documents in languages that are not in the table; cheap."""
        checks.whole("Stream.accumulate", accumulate)
        if self.groups % shards:
            logger.warning(
                "Documents.groups is %d, which does not divide over %d batch shards: every device gets all groups. "
                "More groups and fewer accumulated micro-batches use the devices better",
                self.groups,
                shards,
            )
        self.documents.check(languages)

    def shapes(self, shards: int = 1, accumulate: int = 1) -> dict:
        """Shapes of a batch's int32 arrays without opening the corpus."""
        groups = (*_leading(accumulate), self.groups)
        rows = (*groups, self.pairs)
        sentences = (*rows, self.max_length)
        return {"centre": sentences, "context": sentences, "lang": groups, "document_id": rows}

    def open(self, tokenizer, languages: Languages, seed: int, shards: int = 1, accumulate: int = 1) -> PairStream:
        """An endless stream of batches, the same for any number of ``shards``."""
        names = ("groups", "pairs", "max_length", "window", "exponent")
        sizes = {name: getattr(self, name) for name in names}
        corpus = self.documents.open(tokenizer, languages)
        return PairStream(corpus, tokenizer, **sizes, seed=seed, accumulate=accumulate)


@dataclasses.dataclass(frozen=True)
class MaskedText:
    """Blocks of running text in one language each, for the masked language model (METHODS 3.5).

    Which tokens are masked is drawn in the step (``vmsst_jax.objectives.masking``), so a batch holds plain text.

    Attributes:
      task, exponent, cache, split: as in ``Documents``. A language with less text than a block is not drawn.
      batch_size: B, blocks per micro-batch over all devices.
      length: L, tokens per block, special ones included.
      min_pieces, max_pieces: as in ``Documents``; min_sentences: what a document needs. By default nothing but
        repetitions is dropped. With 5, 128 and 2, and the same folder, both streams read one cache.
    """

    task: str
    batch_size: int
    length: int = 512
    exponent: float = 0.3
    min_pieces: int = 1
    max_pieces: int | None = None
    min_sentences: int = 1
    cache: str = "memory"
    split: str = "train"

    def __post_init__(self):
        _check_common("MaskedText", self, {"batch_size": 1, "length": 3, "min_pieces": 1, "min_sentences": 1})

    @property
    def documents(self) -> DocumentSet:
        """The documents, cleaned for running text."""
        cleaning = Cleaning(self.min_pieces, self.max_pieces, self.min_sentences)
        return DocumentSet(self.task, self.split, self.cache, cleaning)

    def check(self, languages: Languages, shards: int = 1, accumulate: int = 1) -> None:
        """ValueError for a batch that does not divide, an unknown task or split, or unknown languages; cheap."""
        checks.whole("Stream.accumulate", accumulate)
        if self.batch_size % shards:
            below = self.batch_size // shards * shards
            raise ValueError(
                f"MaskedText.batch_size is {self.batch_size}, which does not divide over {shards} batch shards. "
                f"Nearest that work: {f'{below} or ' if below else ''}{below + shards}"
            )
        self.documents.check(languages)

    def shapes(self, shards: int = 1, accumulate: int = 1) -> dict:
        """Shapes of a batch's int32 arrays without opening the corpus."""
        rows = (*_leading(accumulate), self.batch_size)
        return {"tokens": (*rows, self.length), "lang": rows}

    def open(self, tokenizer, languages: Languages, seed: int, shards: int = 1, accumulate: int = 1) -> BlockStream:
        """An endless stream of batches, the same for any number of ``shards``."""
        sizes = {name: getattr(self, name) for name in ("batch_size", "length", "exponent")}
        corpus = self.documents.open(tokenizer, languages)
        return BlockStream(corpus, tokenizer, **sizes, seed=seed, accumulate=accumulate)


def train_xlmr_sentencepiece(
    task: str, vocab_size: int, split: str = "train", max_sentences: int = 5_000_000, **options
) -> XlmrTokenizer:
    """A vocabulary in XLM-R's form, with ``<s>`` and ``<mask>``, trained on the sentences of a task's documents.

    Of a corpus with more than ``max_sentences`` a subset drawn by a hash of the text is taken: about that many.
    ``options`` go to ``XlmrTokenizer.train``. ValueError for sizes that are no whole numbers.
    """
    checks.whole("train_xlmr_sentencepiece.vocab_size", vocab_size, 6)  # five of them are special
    checks.whole("train_xlmr_sentencepiece.max_sentences", max_sentences)

    def texts() -> Iterator[str]:
        for example in registered.examples_of(task, split, fields=registered.DOCUMENT):
            yield from example["text"].split("\n")

    count = sum(1 for _ in texts())
    limit = int(2**32 * max_sentences / max(count, max_sentences, 1))
    return XlmrTokenizer.train((t for t in texts() if zlib.crc32(t.encode()) < limit), vocab_size, **options)
