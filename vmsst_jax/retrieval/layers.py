"""Every hidden state of an encoder as sentence vectors, from one pass (METHODS 1.4: state 0 is the embeddings)."""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

if TYPE_CHECKING:
    from vmsst_jax.retrieval.embedder import Embedder


def encode_layers(
    embedder: Embedder, texts: Sequence[str], language: str | None = None, progress: bool = False
) -> np.ndarray:
    """Every hidden state of every sentence, pooled: float32 [num_layers + 1, len(texts), D], see ``Embedder``.

    The states of a batch are pooled on the device, where they live no longer than the batch.
    """
    module = embedder.module
    if not hasattr(module, "hidden_states"):
        raise ValueError(f"a model of kind {module.kind!r} does not offer its layers")
    if getattr(module.config, "pooling", None) == "pooler":
        raise ValueError(
            "pooling 'pooler' reads the last hidden state alone; choose another pooling to compare the layers"
        )
    example = jax.ShapeDtypeStruct((1, embedder.widths[0]), np.int32)
    count, dim = jax.eval_shape(nn.apply(_pooled, module), {"params": embedder.params}, example).shape[1:]
    # One long vector per sentence: batches, widths, counts and checks are those of any embedding.
    flat = copy.copy(embedder)
    flat.dim, flat._embed = count * dim, _program(module, embedder.mesh)
    flat.embedding = {**embedder.embedding, "normalize": False}
    vectors = flat.encode(texts, progress=progress, language=language)
    return np.moveaxis(vectors.reshape(len(texts), count, dim), 1, 0)


def _pooled(module, tokens):
    """All states of tokens int32 [B, L], each pooled: float32 [B, num_layers + 1, D]."""
    return jnp.stack([module.pool(hidden, tokens) for hidden in module.hidden_states(tokens)], axis=1)


@functools.lru_cache(maxsize=4)
def _program(module, mesh: Mesh | None):
    def run(params, tokens):
        with jax.default_matmul_precision("highest"):
            pooled = nn.apply(_pooled, module)({"params": params}, tokens)
        return pooled.reshape(pooled.shape[0], -1)

    return jax.jit(run, out_shardings=NamedSharding(mesh, PartitionSpec()) if mesh else None)
