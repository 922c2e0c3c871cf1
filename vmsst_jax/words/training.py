"""Word vectors of one language, trained by gensim on a text file with one sentence a line."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path

from vmsst_jax import checks, disk
from vmsst_jax.retrieval.lines import TextFile, scan
from vmsst_jax.retrieval.progress import Progress
from vmsst_jax.retrieval.store import write_json
from vmsst_jax.words import tokens, vectors

BLOCK = 4096
ALGORITHMS = ("skip_gram", "cbow")


@dataclasses.dataclass(frozen=True)
class TrainingSettings:
    """Of word2vec (Mikolov et al. 2013); the paper's vectors have 300 numbers, the rest is ours.

    Attributes:
      algorithm: "skip_gram" or "cbow".
      dim: numbers of a vector.
      window: words to either side.
      min_count: rarer words have no vector.
      epochs: passes over the text.
      negative: words drawn against each that was seen.
      sample: words more frequent than this are thinned out.
      lower: whether words are lower-cased.
      seed: with one thread, the same seed gives the same vectors.
      threads: of gensim.
    """

    algorithm: str = "skip_gram"
    dim: int = 300
    window: int = 5
    min_count: int = 5
    epochs: int = 5
    negative: int = 10
    sample: float = 1e-4
    lower: bool = True
    seed: int = 0
    threads: int = 1

    def __post_init__(self):
        if self.algorithm not in ALGORITHMS:
            raise ValueError(f"the algorithm is {self.algorithm!r}; use one of {', '.join(ALGORITHMS)}")
        for name in ("dim", "window", "min_count", "epochs", "negative", "threads"):
            checks.whole(f"TrainingSettings.{name}", getattr(self, name))
        checks.whole("TrainingSettings.seed", self.seed, 0)
        checks.number("TrainingSettings.sample", self.sample, below=1.0)


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
    about = {"text": read.identity(), "settings": dataclasses.asdict(settings)}
    beside = output.with_name(output.name + ".json")
    if (made := finished(output, beside, about, overwrite)) is not None:
        return {**made, "found": True}
    model = _train(read, settings, progress)
    found = vectors.WordVectors(list(model.wv.index_to_key), model.wv.vectors)
    about = {**about, "words": len(found.words), "dim": settings.dim, "sentences": read.rows}
    # The description first: without the vectors it says nothing, vectors without it couldn't be told from others.
    write_json(beside, about)
    vectors.write(output, found)
    return {**about, "found": False}


def finished(output: Path, beside: Path, about: dict, overwrite: bool) -> dict | None:
    """What lies in ``beside`` if ``output`` exists and both were made as ``about`` says; None if it is to be made.

    Raises FileExistsError where another output lies there. With ``overwrite`` everything is made anew.
    """
    if overwrite or not output.exists():
        return None
    try:
        made = json.loads(beside.read_text(encoding="utf-8"))
        if all(made[name] == value for name, value in about.items()):
            return made
    except (OSError, ValueError, KeyError, TypeError):  # no or no whole description
        pass
    raise FileExistsError(
        f"{output} exists and was made of other inputs or settings; use --overwrite to replace it, or another --output"
    )


def _train(text: TextFile, settings: TrainingSettings, progress: bool):
    """gensim's model of a text."""
    try:
        from gensim.models import Word2Vec
    except ImportError as error:
        raise ValueError(
            f"training word vectors needs gensim ({error}); install it with pip install 'vmsst_jax[word_vectors]', or "
            "bring vectors in word2vec's text form"
        ) from None
    passes = 1 + settings.epochs
    model = Word2Vec(
        vector_size=settings.dim,
        window=settings.window,
        min_count=settings.min_count,
        sg=int(settings.algorithm == "skip_gram"),
        negative=settings.negative,
        sample=settings.sample,
        seed=settings.seed,
        workers=settings.threads,
        epochs=settings.epochs,
    )
    with Progress(f"word vectors of {text.path}, {passes} passes", passes * text.rows, shown=progress) as told:
        sentences = Sentences(text, settings.lower, told)
        model.build_vocab(sentences)
        if len(model.wv) < 2:
            raise ValueError(
                f"{text.path}: {len(model.wv)} words occur {settings.min_count} times or more in its {text.rows:,} "
                "lines; give more text, or a lower --min_count"
            )
        model.train(sentences, total_examples=model.corpus_count, epochs=model.epochs)
    return model
