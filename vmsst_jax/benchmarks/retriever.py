"""Questions on one side, passages on the other: who embeds which, after which prefix, and the search between them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np

from vmsst_jax.data.question_passages import without_question_mark
from vmsst_jax.retrieval import embedder as embedders
from vmsst_jax.retrieval import shards
from vmsst_jax.retrieval.cache import Cached
from vmsst_jax.retrieval.embedder import Embedder
from vmsst_jax.retrieval.records import Records

SIMILARITIES = ("cosine", "dot")


class Retriever:
    """Two towers (METHODS 5.5), which are one and the same model unless a second one is given.

    Args:
      embedder: embeds questions.
      passage_encoder: embeds passages, an embedder or the path of a checkpoint (of a model of two towers, that for
        passages is taken); None is ``embedder``.
      query_prefix, passage_prefix: put before every question and every passage. Only for models that have no prefix of
        their own.
      similarity: "cosine", or "dot", the inner product of vectors as the models give them.
      strip_question_mark: leave out one "?" at a question's end, as DPR does in training.
      embeddings_dir: where the vectors of corpora are kept; None is the user's own ~/.cache/vmsst_jax/passages.
      dtype: "float32" or "float16", how they are stored.
      shard_rows: passages to a file of vectors.

    Raises:
      ValueError: an unknown similarity, towers of different width, or a prefix before a model's own prefix.
    """

    def __init__(
        self,
        embedder: Embedder,
        *,
        passage_encoder: Embedder | str | os.PathLike | None = None,
        query_prefix: str = "",
        passage_prefix: str = "",
        similarity: str = "cosine",
        strip_question_mark: bool = False,
        embeddings_dir: str | os.PathLike | None = None,
        dtype: str = "float32",
        shard_rows: int = shards.ROWS,
    ):
        if similarity not in SIMILARITIES:
            raise ValueError(f"similarity is {similarity!r}; use one of {', '.join(SIMILARITIES)}")
        if isinstance(passage_encoder, str | os.PathLike):
            passage_encoder = embedders.load_passages(passage_encoder)
        self._queries, self._passages = embedder, embedder if passage_encoder is None else passage_encoder
        if self._queries.dim != self._passages.dim:
            raise ValueError(
                f"the model's vectors have {self._queries.dim} numbers and those of passage_encoder "
                f"{self._passages.dim}; give two models that were trained together"
            )
        _check_prefix("query_prefix", query_prefix, self._queries)
        _check_prefix("passage_prefix", passage_prefix, self._passages)
        self._query_prefix, self._passage_prefix = query_prefix, passage_prefix
        self._strip, self._normalize, self.similarity = strip_question_mark, similarity == "cosine", similarity
        self._store = {"folder": embeddings_dir, "dtype": dtype, "shard_rows": shard_rows}

    def questions(self, texts: Sequence[str], language: str) -> np.ndarray:
        """Questions of one language -> float32 [n, D]."""
        texts = [without_question_mark(text) if self._strip else text for text in texts]
        return self._encode(self._queries, self._query_prefix, texts, language, progress=True)

    def passages(self, texts: Sequence[str], language: str) -> np.ndarray:
        """A few passages of one language -> float32 [n, D]; those of a corpus go through ``corpus``."""
        return self._encode(self._passages, self._passage_prefix, texts, language, progress=True)

    def corpus(self, records: Records, text: Callable[..., str], text_form: str, language: str) -> list[np.ndarray]:
        """All passages of a corpus of one language, for ``shards.top_k``; see ``shards.embed``.

        Args:
          records: the passages.
          text: record -> what is embedded of it.
          text_form: in words what ``text`` does; vectors are kept under it.
          language: the code of their language.
        """
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

    def _encode(self, model: Embedder, prefix: str, texts: Sequence[str], language: str, progress=False) -> np.ndarray:
        texts = [prefix + text for text in texts]
        return model.encode(texts, language=language, normalize=self._normalize, progress=progress)

    def describe(self) -> dict:
        """The two sides, ready for JSON."""
        two = self._passages is not self._queries
        return {
            "similarity": self.similarity,
            "query_prefix": self._query_prefix,
            "passage_prefix": self._passage_prefix,
            "strip_question_mark": self._strip,
            "stored_as": self._store["dtype"],
            "passage_encoder": {**self._passages.describe(), "fingerprint": self._passages.fingerprint()}
            if two
            else None,
        }


def _check_prefix(option: str, prefix: str, model: Embedder) -> None:
    own = model.embedding.get("prefix")
    if prefix and own:
        raise ValueError(
            f"{option} is {prefix!r}, but the model itself puts {own!r} before every text; load it with an empty "
            "prefix, then give query_prefix and passage_prefix"
        )
