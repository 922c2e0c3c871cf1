"""Text in, vectors out: the sentence encoder of a trained model behind one ``encode`` call.

Every sentence is padded to the smallest of a few fixed widths that holds it, and all batches of a width have the same
number of rows, so that few programs are compiled and neither a sentence's neighbours nor their order change its
embedding.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import logging
import os
from collections.abc import Iterator, Sequence

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from vmsst_jax import sharding
from vmsst_jax.retrieval import layers
from vmsst_jax.retrieval.exact import normalize as normalize_rows
from vmsst_jax.retrieval.progress import Progress
from vmsst_jax.retrieval.vector_checks import BadVector

logger = logging.getLogger(__name__)

BATCH_SIZE = 128  # on accelerators
PRECISION = "highest"  # of matrix products in float32
CPU_TOKENS = 512  # rows times width on CPU, for each of its cores: larger batches fall out of its caches
NARROWEST = 8
# Sentences tokenised and sorted into widths together.
BLOCK = 8192


def load(
    path: str | os.PathLike,
    step: int | str | None = None,
    *,
    max_length: int | None = None,
    batch_size: int | None = None,
    cache_dir: str | os.PathLike | None = None,
    pooling: str | None = None,
    layer: int | None = None,
    pool_special: bool | None = None,
    prefix: str | None = None,
    tower: str | None = None,
) -> Embedder:
    """Loads a trained model for embedding.

    Args:
      path: a model directory, its ``checkpoints`` folder or one step folder; or a model of another project, which is
        converted on first use (see ``conversion.cached``).
      step: a step number or "best"; None takes the last checkpoint.
      max_length: most tokens of a sentence, special ones included; None takes the checkpoint's own limit.
      batch_size: sentences per device call.
      cache_dir: where converted models are kept; None keeps them beside the originals.
      pooling, layer, pool_special, prefix: other than the checkpoint's own (see ``conversion.model.Settings``).
      tower: "query" or "passage", which encoder of a dual encoder.

    Several local devices share each batch.

    Raises:
      FileNotFoundError, CheckpointError: from ``training.checkpoint.load_model``, where there is no such checkpoint.
      ValueError: a model of another project that can't be read; a pooling, layer or tower that this model doesn't have,
        or two towers and none is named.
    """
    from vmsst_jax import models
    from vmsst_jax.conversion import cached, towers
    from vmsst_jax.conversion.model import Settings, with_settings
    from vmsst_jax.training import checkpoint

    mesh = sharding.make_mesh(devices=jax.local_devices()) if jax.local_device_count() > 1 else None
    model = checkpoint.load_model(cached.own_form(path, cache_dir), step=step, mesh=mesh)
    described, params = towers.choose(model.host["model"], model.params, tower, path)
    settings = Settings(pooling=pooling, layer=layer, pool_special=pool_special, prefix=prefix)
    special_ids = getattr(model.tokenizer, "special_ids", (1,))
    config, embedding = with_settings(described["config"], model.embedding, described["kind"], settings, special_ids)
    source = {"directory": str(model.directory), "step": model.step, "kind": model.host["model"]["kind"]}
    source |= {"tower": tower} if tower else {}
    return Embedder(
        models.build(described["kind"], config),
        params,
        model.tokenizer,
        model.languages,
        embedding,
        max_length=max_length,
        batch_size=batch_size,
        mesh=mesh,
        source=source | ({"origin": model.host["origin"]} if "origin" in model.host else {}),
    )


def load_passages(path: str | os.PathLike, **options) -> Embedder:
    """The embedder of passages of a model: its passage tower if it has two, else the model. Options are ``load``'s."""
    from vmsst_jax.conversion import towers

    return load(path, **options, **({"tower": "passage"} if towers.has_two(path) else {}))


class Embedder:
    """Embeds sentences with ``module.apply({"params": params}, tokens, method="embed")``.

    Args:
      module: a Flax module with the method ``embed``: tokens int32 [B, L] -> float32 [B, D]. Padding is its ``pad_id``,
        0 where it has none.
      params: its parameters, on the device or mesh where they are to be used.
      tokenizer: ``encode(texts, max_length) -> (list of int32 arrays ending in eos, number truncated)``, ``sha256``,
        ``pad_id``, which must be the module's.
      languages: the table of the languages in training, ``codes``.
      embedding: {"pooling", "layer", "normalize", "prefix", "max_length"} as the checkpoint keeps it: ``prefix`` is put
        before every sentence, ``normalize`` makes every vector unit length.
      max_length: most tokens of a sentence; None takes ``embedding["max_length"]``.
      batch_size: sentences per device call; None is 128, or on CPU as many as make 512 tokens a core.
      mesh: the mesh on which ``params`` live, if any; each batch is split over its batch axes.
      source: where the model comes from, for ``describe``.

    Attributes:
      counts: {"sentences", "empty", "truncated"} embedded so far, empty meaning nothing but white space.
    """

    def __init__(
        self,
        module,
        params,
        tokenizer,
        languages,
        embedding: dict,
        *,
        max_length: int | None = None,
        batch_size: int | None = None,
        mesh: Mesh | None = None,
        source: dict | None = None,
    ):
        self.module, self.params, self.tokenizer, self.languages = module, params, tokenizer, languages
        self.embedding, self.source = dict(embedding), dict(source or {})
        self.max_length = max_length or embedding["max_length"]
        if self.max_length < 2:
            raise ValueError(
                f"max_length is {self.max_length}; wanted 2 or more: one token and the end of the sentence"
            )
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}; wanted 1 or more")
        if tokenizer.pad_id != (pad_id := getattr(module, "pad_id", 0)):
            raise ValueError(
                f"the tokenizer pads with {tokenizer.pad_id}, the model with {pad_id}: padding would be read as text. "
                "Give the model's own tokenizer, or set the model's pad_id to the tokenizer's"
            )
        self.batch_size, self.mesh = batch_size, mesh
        self.widths = tuple(growing_widths(NARROWEST, self.max_length))
        self.counts = {"sentences": 0, "empty": 0, "truncated": 0}
        self._reported = set()

        def embed(params, tokens):
            # A model that computes in float32 keeps float32 on accelerators too; one in bfloat16 is not touched.
            with jax.default_matmul_precision(PRECISION):
                return module.apply({"params": params}, tokens, method="embed")

        # Replicated, so that every process of a multi-host run can read the result.
        self._embed = jax.jit(embed, out_shardings=NamedSharding(mesh, PartitionSpec()) if mesh else None)
        # The widest rows: a max_length that the model has no positions for fails here.
        example = jax.ShapeDtypeStruct((1, self.widths[-1]), np.int32)
        self.dim: int = jax.eval_shape(embed, params, example).shape[-1]

    def with_params(self, params) -> Embedder:
        """The same embedder with other parameters of the same shapes; compiled programs are shared."""
        other = copy.copy(self)
        other.params = params
        other.counts = dict.fromkeys(self.counts, 0)
        return other

    def without_prefix(self) -> Embedder:
        """The same embedder with nothing before a sentence; what either embeds is in the ``counts`` of both."""
        other = copy.copy(self)
        other.embedding = {**self.embedding, "prefix": ""}
        return other

    def encode(
        self,
        texts: Sequence[str],
        batch_size: int | None = None,
        normalize: bool = False,
        progress: bool = False,
        *,
        language: str | None = None,
    ) -> np.ndarray:
        """Embeds sentences: float32 [len(texts), D], row i = sentence i.

        Sentences beyond ``max_length`` tokens are truncated, empty ones embedded as their special tokens alone;
        both are counted in ``counts`` and reported once through ``logging``.

        Args:
          texts: any number of sentences.
          batch_size: sentences per device call; another number compiles anew. None takes the embedder's own, or fewer
            where there are fewer texts: a single sentence need not pay for a whole batch.
          normalize: unit length vectors, also where the model itself doesn't normalise.
          progress: show rate and time left.
          language: the code of their language, for embedders that treat languages differently; this one doesn't.

        Raises:
          ValueError: a sentence is no text (not a string, or one with half a surrogate pair), or its embedding came
            out as NaN or infinite; it is named.
        """
        if isinstance(texts, str):
            raise ValueError("encode() wants a list of sentences, found a single string; write encode([text])")
        check_texts(texts)
        rows = [self._rows(width, len(texts), batch_size) for width in self.widths]
        out = np.empty((len(texts), self.dim), np.float32)
        with Progress("embedding", len(texts), shown=progress) as shown:
            for start in range(0, len(texts), BLOCK):
                block = texts[start : start + BLOCK]
                self._encode_block(block, out[start : start + len(block)], rows, shown)
        if not np.isfinite(out).all():
            row = int(np.argmin(np.isfinite(out).all(axis=1)))
            raise BadVector(f"the vector of {texts[row][:80]!r} is not finite; is the model damaged?", row)
        return normalize_rows(out, texts) if len(out) and (normalize or self.embedding["normalize"]) else out

    def encode_layers(self, texts: Sequence[str], *, language: str | None = None, progress: bool = False) -> np.ndarray:
        """Every hidden state in one pass: float32 [num_layers + 1, len(texts), D], [0] the embeddings (METHODS 1.4).

        Each is pooled as this embedder pools, without dense layers or heads, and not made unit length.

        Raises:
          ValueError: a pooling that reads the last state only; and what ``encode`` raises.
        """
        return layers.encode_layers(self, texts, language, progress)

    def _rows(self, width: int, texts: int, batch_size: int | None) -> int:
        """Rows of the batches of one width, a multiple of the devices that share them."""
        rows = batch_size or self.batch_size
        if rows is None:
            rows = max(CPU_TOKENS * (os.cpu_count() or 1) // width, 1) if jax.default_backend() == "cpu" else BATCH_SIZE
        if batch_size is None:
            rows = min(rows, 1 << (texts - 1).bit_length())
        shards = sharding.batch_shards(self.mesh) if self.mesh is not None else 1
        return -(-rows // shards) * shards

    def _encode_block(self, texts: Sequence[str], out: np.ndarray, rows: list[int], shown: Progress) -> None:
        ids, truncated = self.tokenizer.encode([self.embedding["prefix"] + t for t in texts], self.max_length)
        self._count(len(texts), sum(not t.strip() for t in texts), truncated)
        waiting: list[tuple[np.ndarray, jax.Array]] = []
        for members, tokens in self._batches(ids, rows):
            if self.mesh is not None:
                tokens = sharding.put_batch(tokens, self.mesh)
            waiting.append((members, self._embed(self.params, tokens)))
            if len(waiting) > 1:  # one batch ahead: the device never waits for the host, and little piles up
                self._collect(*waiting.pop(0), out, shown)
        for members, vectors in waiting:
            self._collect(members, vectors, out, shown)

    def _batches(self, ids: list[np.ndarray], rows: list[int]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(positions in ``ids`` [n], tokens int32 [rows, width], n <= rows), from the narrowest width to the widest.

        ``rows`` are given for each width.
        """
        lengths = np.array([len(row) for row in ids])
        bucket = np.searchsorted(self.widths, lengths)  # the first width >= length
        for b, width in enumerate(self.widths):
            members = np.flatnonzero(bucket == b)
            for start in range(0, len(members), rows[b]):
                chosen = members[start : start + rows[b]]
                tokens = np.full((rows[b], width), self.tokenizer.pad_id, np.int32)
                for r, i in enumerate(chosen):
                    tokens[r, : len(ids[i])] = ids[i]
                tokens[len(chosen) :] = tokens[len(chosen) - 1]  # any sentence will do: the rows are dropped
                yield chosen, tokens

    @staticmethod
    def _collect(members: np.ndarray, vectors: jax.Array, out: np.ndarray, shown: Progress) -> None:
        out[members] = np.asarray(vectors)[: len(members)]
        shown.update(len(members))

    def truncated(self, texts: Sequence[str]) -> np.ndarray:
        """bool [n]: which sentences have more than ``max_length`` tokens; nothing is embedded or counted."""
        prefix = self.embedding["prefix"]
        return np.array([self.tokenizer.encode([prefix + t], self.max_length)[1] > 0 for t in texts], bool)

    def _count(self, sentences: int, empty: int, truncated: int) -> None:
        for name, number in (("sentences", sentences), ("empty", empty), ("truncated", truncated)):
            self.counts[name] += number
        if truncated and "truncated" not in self._reported:
            logger.warning("some sentences have more than %d tokens and are truncated", self.max_length)
            self._reported.add("truncated")
        if empty and "empty" not in self._reported:
            logger.warning("some sentences are empty; their embedding is that of the special tokens alone")
            self._reported.add("empty")

    def describe(self) -> dict:
        """Which model this is and how it embeds, ready for JSON."""
        config = self.module.config
        return {
            **self.source,
            "layer": self.embedding["layer"],
            "pooling": self.embedding["pooling"],
            "pool_special": getattr(getattr(config, "encoder", config), "pool_special", True),
            "prefix": self.embedding["prefix"],
            "model_normalizes": self.embedding["normalize"],
            "max_length": self.max_length,
            "dim": self.dim,
            "tokenizer_sha256": self.tokenizer.sha256,
            "languages": len(self.languages.codes),
        }

    def fingerprint(self) -> str:
        """A checksum over all that decides an embedding but the program itself: parameters, tokenizer, settings."""
        config = chosen(self.module.config)
        settings = f"{self.tokenizer.sha256} {self.max_length} {sorted(self.embedding.items())} {config}"
        return fingerprint(settings, self.params)


def chosen(config) -> dict:
    """The fields of a configuration (a dataclass, also of dataclasses) that differ from their defaults.

    A field that a later version adds with the old behaviour as its default changes nothing here.
    """
    values = {
        f.name: (getattr(config, f.name), f.default) for f in sorted(dataclasses.fields(config), key=lambda f: f.name)
    }
    return {
        name: chosen(value) if dataclasses.is_dataclass(value) else value
        for name, (value, default) in values.items()
        if value != default
    }


def fingerprint(settings: str, params) -> str:
    """A checksum over what ``settings`` say and over every parameter's name, shape, type and value."""
    digest = hashlib.sha256(settings.encode())
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        digest.update(f"{jax.tree_util.keystr(path)} {leaf.shape} {leaf.dtype}".encode())
        digest.update(np.ascontiguousarray(jax.device_get(leaf)).reshape(-1).view(np.uint8))
    return digest.hexdigest()


def check_texts(texts: Sequence[str]) -> None:
    """ValueError naming the first of ``texts`` that is no string of whole characters."""
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"sentence {i} is {text!r:.80} ({type(text).__name__}); encode() wants strings")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"sentence {i} ({text[:80]!r}) is not valid Unicode: character {error.start} is half a surrogate pair"
            ) from None


def growing_widths(first: int, last: int) -> Iterator[int]:
    """Widths of rows: first, 1.5 first, 2 first, 3 first, 4 first, ..., last: at most a third of a row is padding."""
    width = first
    while width < last:
        yield width
        if width * 3 // 2 < last:
            yield width * 3 // 2
        width *= 2
    yield last
