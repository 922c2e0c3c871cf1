"""Questions on one side, passages on the other: who embeds which, after which prefix, and the search between them."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import TypedDict

import numpy as np

from vmsst_jax.data.question_passages import without_question_mark
from vmsst_jax.retrieval import embedder as embedders
from vmsst_jax.retrieval import nearest, scann_index, shards
from vmsst_jax.retrieval.cache import Cached
from vmsst_jax.retrieval.embedder import Embedder
from vmsst_jax.retrieval.records import Records
from vmsst_jax.retrieval.rows import Joined
from vmsst_jax.retrieval.vector_checks import naming

SIMILARITIES = ("cosine", "dot")


class TowerOptions(TypedDict, total=False):
    """Options of benchmarks with questions and passages, see ``Retriever``."""

    passage_encoder: Embedder | str | os.PathLike | None
    query_prefix: str | None
    passage_prefix: str | None
    similarity: str
    strip_question_mark: bool


class CorpusOptions(TypedDict, total=False):
    """Options of benchmarks with a corpus that may be larger than memory, see ``Retriever``."""

    embeddings_dir: str | os.PathLike | None
    dtype: str
    shard_rows: int
    index: str


class RetrieverOptions(TowerOptions, CorpusOptions, total=False):
    """All options of ``Retriever``."""


class Retriever:
    """Two towers (METHODS 5.5), which are one and the same model unless a second one is given.

    Args:
      embedder: embeds questions.
      passage_encoder: embeds passages, an embedder or the path of a checkpoint (of a model of two towers, that for
        passages is taken); None is ``embedder``.
      query_prefix, passage_prefix: put before every question and every passage in place of the model's own prefix, also
        where it is ""; None leaves that.
      similarity: "cosine", or "dot", the inner product of vectors as the models give them.
      strip_question_mark: leave out one "?" at a question's end, as DPR does in training.
      embeddings_dir: where the vectors of corpora are kept; None is the user's own ~/.cache/vmsst_jax/passages.
      dtype: "float32" or "float16", how they are stored.
      shard_rows: passages to a file of vectors.
      index: how the nearest are found, one of ``nearest.KINDS``. "auto" is exact unless questions times passages are
        too many for the CPU; the result then says which share was found. Inner products are never searched by ScaNN.

    Raises:
      ValueError: an unknown similarity or index, towers of different width, or another prefix for a calibrated model
        that has one.
    """

    def __init__(
        self,
        embedder: Embedder,
        *,
        passage_encoder: Embedder | str | os.PathLike | None = None,
        query_prefix: str | None = None,
        passage_prefix: str | None = None,
        similarity: str = "cosine",
        strip_question_mark: bool = False,
        embeddings_dir: str | os.PathLike | None = None,
        dtype: str = "float32",
        shard_rows: int = shards.ROWS,
        index: str = "auto",
    ):
        if similarity not in SIMILARITIES:
            raise ValueError(f"similarity is {similarity!r}; use one of {', '.join(SIMILARITIES)}")
        nearest.choose(1, 1, index)
        if similarity == "dot" and index == "scann":
            raise ValueError("ScaNN's settings are for the cosine; leave index away, or take similarity cosine")
        if isinstance(passage_encoder, str | os.PathLike):
            passage_encoder = embedders.load_passages(passage_encoder)
        self._queries, self._passages = embedder, embedder if passage_encoder is None else passage_encoder
        if self._queries.dim != self._passages.dim:
            raise ValueError(
                f"the model's vectors have {self._queries.dim} numbers and those of passage_encoder "
                f"{self._passages.dim}; give two models that were trained together"
            )
        self._about = self._describe_sides(query_prefix, passage_prefix)
        bare = functools.cache(lambda model: model.without_prefix())  # one and the same for both sides of a model
        self._queries, self._query_prefix = _with_prefix(self._queries, query_prefix, bare)
        self._passages, self._passage_prefix = _with_prefix(self._passages, passage_prefix, bare)
        self._strip, self._normalize, self.similarity = strip_question_mark, similarity == "cosine", similarity
        self._store = {"folder": embeddings_dir, "dtype": dtype, "shard_rows": shard_rows}
        self._index = "exact" if similarity == "dot" and index == "auto" else index

    def questions(
        self, texts: Sequence[str], language: str, where: Callable[[int], str] = "text {}".format
    ) -> np.ndarray:
        """Questions of one language -> float32 [n, D].

        ``where`` says of the number of a text where it was read, for the error about its vector.
        """
        texts = [without_question_mark(text) if self._strip else text for text in texts]
        with naming(where):
            return self._encode(self._queries, self._query_prefix, texts, language, progress=True)

    def passages(
        self, texts: Sequence[str], language: str, where: Callable[[int], str] = "text {}".format
    ) -> np.ndarray:
        """A few passages of one language -> float32 [n, D]; those of a corpus go through ``corpus``."""
        with naming(where):
            return self._encode(self._passages, self._passage_prefix, texts, language, progress=True)

    def corpus(self, records: Records, text: Callable[..., str], text_form: str, language: str) -> Joined:
        """All passages of a corpus of one language -> [n, D]; see ``shards.embed``.

        Args:
          records: the passages.
          text: record -> what is embedded of it.
          text_form: in words what ``text`` does; vectors are kept under it.
          language: the code of their language.

        Raises ValueError for fewer than ScaNN can index, if that is wanted.
        """
        if self._index == "scann" and len(records) < scann_index.LEAST:
            raise ValueError(
                f"{records.files[0].path} has {len(records)} records, and ScaNN needs at least {scann_index.LEAST}; "
                "leave index=scann away"
            )
        identity = {
            "model": self._passages.fingerprint(),
            "prefix": self._passage_prefix,
            "language": language,
            "text": text_form,
            "similarity": self.similarity,
        }

        # The shards are the cache of a corpus: a second one, text by text, would double its size.
        model = self._passages.embedder if isinstance(self._passages, Cached) else self._passages

        def encode(block: list) -> np.ndarray:
            return self._encode(model, self._passage_prefix, [text(record) for record in block], language)

        return shards.embed(records, encode, identity, **self._store)

    def nearest(self, questions: np.ndarray, corpus: np.ndarray | Joined, k: int) -> nearest.Found:
        """The k nearest passages of each question [n, D] among a ``corpus`` [m, D]."""
        return nearest.top_k(questions, corpus, k, self._index)

    def _encode(self, model: Embedder, prefix: str, texts: Sequence[str], language: str, progress=False) -> np.ndarray:
        texts = [prefix + text for text in texts]
        return model.encode(texts, language=language, normalize=self._normalize, progress=progress)

    def describe(self) -> dict:
        """The two sides, ready for JSON."""
        return {
            "similarity": self.similarity,
            "strip_question_mark": self._strip,
            "stored_as": self._store["dtype"],
            **self._about,
        }

    def _describe_sides(self, query_prefix: str | None, passage_prefix: str | None) -> dict:
        """What stands before questions and passages in the end, and the model of passages if it is another."""
        queries, passages = self._queries, self._passages
        two = passages is not queries
        return {
            "query_prefix": _prefix_of(queries) if query_prefix is None else query_prefix,
            "passage_prefix": _prefix_of(passages) if passage_prefix is None else passage_prefix,
            "passage_encoder": {**passages.describe(), "fingerprint": passages.fingerprint()} if two else None,
        }


def _with_prefix(model: Embedder, prefix: str | None, bare: Callable[[Embedder], Embedder]) -> tuple[Embedder, str]:
    """The model to ask, and what to put before its texts, so that ``prefix`` stands there and not the model's own."""
    own = _prefix_of(model)
    if prefix is None or prefix == own:
        return model, ""
    return (bare(model) if own else model), prefix


def _prefix_of(model: Embedder) -> str:
    return model.embedding.get("prefix") or ""
