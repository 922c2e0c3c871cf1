"""Word vectors of one language, trained by gensim on a text file with one sentence a line."""

from __future__ import annotations

import collections
import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from vmsst_jax import checks, disk
from vmsst_jax.retrieval.lines import TextFile, scan
from vmsst_jax.retrieval.progress import Progress
from vmsst_jax.retrieval.store import write_json
from vmsst_jax.words import tokens, vectors

BLOCK = 4096
ALGORITHMS = ("skip_gram", "cbow")
SEAL = "output_sha256"  # in an output's description


@dataclasses.dataclass(frozen=True)
class TrainingSettings:
    """Of word2vec (Mikolov et al. 2013); the paper's vectors have 300 numbers, the rest is ours.

    Attributes:
      algorithm: "skip_gram" or "cbow".
      dim: numbers of a vector, or of its part for every window.
      window: words to either side. Of several windows, each has vectors of its own, whose directions stand side by side
        in one vector of ``dim`` numbers for each: less is left to chance, which helps small texts.
      min_count: rarer words have no vector.
      epochs: passes over the text.
      negative: words drawn against each that was seen.
      sample: words more frequent than this are thinned out.
      lower: whether words are lower-cased.
      true_case: whether words that were lower-cased are written as they most often stand in the text, the beginnings of
        sentences not counted: German "Hund" and "der", English "dog" and "London".
      seed: with one thread, the same seed gives the same vectors.
      threads: of gensim.
    """

    algorithm: str = "skip_gram"
    dim: int = 300
    window: int | tuple[int, ...] = 5
    min_count: int = 5
    epochs: int = 5
    negative: int = 10
    sample: float = 1e-4
    lower: bool = True
    true_case: bool = False
    seed: int = 0
    threads: int = 1

    def __post_init__(self):
        if self.algorithm not in ALGORITHMS:
            raise ValueError(f"the algorithm is {self.algorithm!r}; use one of {', '.join(ALGORITHMS)}")
        for name in ("dim", "min_count", "epochs", "negative", "threads"):
            checks.whole(f"TrainingSettings.{name}", getattr(self, name))
        if isinstance(self.window, tuple | list):
            checks.wholes("TrainingSettings.window", self.window)
            if len(set(self.window)) < len(self.window) or not self.window:
                raise ValueError(f"TrainingSettings.window is {self.window!r}; wanted one window, or different ones")
        else:
            checks.whole("TrainingSettings.window", self.window)
        if self.true_case and not self.lower:
            raise ValueError("TrainingSettings.true_case is for words that are lower-cased, and lower is False")
        checks.whole("TrainingSettings.seed", self.seed, 0)
        if self.seed >= 2**32:
            raise ValueError(
                f"TrainingSettings.seed is {self.seed}; wanted one below 2^32, as numpy's generator takes it"
            )
        checks.number("TrainingSettings.sample", self.sample, below=1.0)

    @property
    def windows(self) -> tuple[int, ...]:
        """One or several."""
        return tuple(self.window) if isinstance(self.window, tuple | list) else (self.window,)

    def to_json(self) -> dict:
        """A dictionary as JSON gives it back."""
        window = list(self.window) if isinstance(self.window, tuple | list) else self.window
        made = {**dataclasses.asdict(self), "window": window}
        return {name: value for name, value in made.items() if value or name != "true_case"}  # as before there was one


class Sentences:
    """The token lists of a text file, to be read any number of times; counts them in ``told``."""

    def __init__(self, text: TextFile, lower: bool, told: Progress):
        self._text, self._lower, self._told = text, lower, told

    def __iter__(self) -> Iterator[list[str]]:
        for lines in self._text.blocks(0, BLOCK):
            for line in lines:
                yield tokens.tokenize(line, self._lower)
            self._told.update(len(lines))


def train(
    text: str | os.PathLike,
    output: str | os.PathLike,
    settings: TrainingSettings | None = None,
    *,
    overwrite: bool = False,
    progress: bool = True,
) -> dict:
    """Trains and writes ``output`` in word2vec's text form, and what it is to the same name with .json behind it.

    An output that was made of the same text with the same settings is left alone.

    Args:
      text: UTF-8, one sentence a line.
      output: a file to be written, such as en.vec or en.vec.gz.
      settings: None takes the defaults.
      overwrite: make it anew, whatever is there.
      progress: show rate and time left.

    Returns:
      The contents of the .json: "words", "dim", "sentences", "text", "settings"; and "found": whether it was there.

    Raises:
      ValueError: gensim is missing; no word of the text is frequent enough; what ``lines.scan`` raises.
      FileExistsError: the output exists, and is of something else. FileNotFoundError: its folder doesn't.
    """
    settings = settings or TrainingSettings()
    output = disk.check_place(output, (".vec", ".txt", ".gz"), "file for the vectors")
    disk.check_apart(text, (output,))
    read = scan(text)
    about = {"text": read.identity(), "settings": settings.to_json()}
    beside = output.with_name(output.name + ".json")
    if (made := finished(output, beside, about, overwrite)) is not None:
        return {**made, "found": True}
    found = _train(read, settings, progress)
    about = {**about, "words": len(found.words), "dim": found.vectors.shape[1], "sentences": read.rows}
    # The description first: without the vectors it says nothing, vectors without it couldn't be told from others.
    write_json(beside, about)
    vectors.write(output, found)
    return {**seal(output, beside, about), "found": False}


def finished(output: Path, beside: Path, about: dict, overwrite: bool) -> dict | None:
    """What lies in ``beside`` if ``output`` exists and both were made as ``about`` says; None if it is to be made.

    Raises FileExistsError where another output lies there, or one that was altered since. With ``overwrite`` everything
    is made anew.
    """
    if overwrite or not output.exists():
        return None
    advice = "use --overwrite to replace it, or another --output"
    try:
        made = json.loads(beside.read_text(encoding="utf-8"))
        same = all(made[name] == value for name, value in about.items())
    except (OSError, ValueError, KeyError, TypeError):  # no or no whole description
        same = False
    if not same:
        raise FileExistsError(f"{output} exists and was made of other inputs or settings; {advice}")
    if (sha256 := made.pop(SEAL, None)) is None:  # killed between the output and its checksum
        return None
    if sha256 != disk.sha256(output):
        raise FileExistsError(f"{output} is not as it was made, a part is missing or altered; {advice}")
    return made


def seal(output: Path, beside: Path, about: dict) -> dict:
    """Writes ``about`` again, now with the checksum of the output that lies in its place; returns ``about``."""
    write_json(beside, about | {SEAL: disk.sha256(output)})
    return about


def _train(text: TextFile, settings: TrainingSettings, progress: bool) -> vectors.WordVectors:
    """The words of a text and their vectors; of several windows, each has the same weight."""
    passes = len(settings.windows) * (1 + settings.epochs)
    with Progress(f"word vectors of {text.path}, {passes} passes", passes * text.rows, shown=progress) as told:
        sentences = Sentences(text, settings.lower, told)
        models = [_trained(sentences, text, settings, window) for window in settings.windows]
    words, parts = list(models[0].wv.index_to_key), [model.wv.vectors for model in models]
    if len(parts) > 1:
        parts = [part / np.linalg.norm(part, axis=1, keepdims=True) for part in parts]
    if settings.true_case:
        forms = true_cases(text)
        words = [forms.get(word, word) for word in words]
    return vectors.WordVectors(words, np.concatenate(parts, axis=1))


def true_cases(text: TextFile) -> dict[str, str]:
    """{lower-cased word: as it is written most often}; a word's first places in lines count only if it has no other."""
    inside, first = collections.defaultdict(collections.Counter), {}
    for lines in text.blocks(0, BLOCK):
        for line in lines:
            begun = False
            for token in tokens.tokenize(line, lower=False):
                if begun:
                    inside[token.lower()][token] += 1
                else:
                    first.setdefault(token.lower(), token.lower())
                begun = begun or tokens.has_letter(token)
    return first | {word: counts.most_common(1)[0][0] for word, counts in inside.items()}


def _trained(sentences: Sentences, text: TextFile, settings: TrainingSettings, window: int):
    """gensim's model of a text."""
    try:
        from gensim.models import Word2Vec
    except ImportError as error:
        raise ValueError(
            f"training word vectors needs gensim ({error}); install it with pip install 'vmsst_jax[word-vectors]', or "
            "bring vectors in word2vec's text form"
        ) from None
    model = Word2Vec(
        vector_size=settings.dim,
        window=window,
        min_count=settings.min_count,
        sg=int(settings.algorithm == "skip_gram"),
        negative=settings.negative,
        sample=settings.sample,
        seed=settings.seed,
        workers=settings.threads,
        epochs=settings.epochs,
    )
    model.build_vocab(sentences)
    if len(model.wv) < 2:
        raise ValueError(
            f"{text.path}: {len(model.wv)} words occur {settings.min_count} times or more in its {text.rows:,} "
            "lines; give more text, or a lower --min_count"
        )
    model.train(sentences, total_examples=model.corpus_count, epochs=model.epochs)
    return model
