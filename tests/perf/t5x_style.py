"""An encoder-decoder written the way T5X writes it, as something to be compared with: one-hot embeddings, kernels
[D, H, K], relative positions through a one-hot product, all logits at once with a one-hot cross-entropy."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from vmsst_jax.models.t5 import MASKED, RMSNorm, T5Config, relative_buckets


class Attention(nn.Module):
    config: T5Config

    @nn.compact
    def __call__(self, x, memory, bias):
        c = self.config

        def heads(name, y):
            kernel = self.param(name, nn.initializers.normal(0.05), (c.embed_dim, c.num_heads, c.head_dim))
            return jnp.einsum("bld,dhk->blhk", y, kernel)

        weights = jnp.einsum("bqhk,bmhk->bhqm", heads("query", x), heads("key", memory)) + bias
        y = jnp.einsum("bhqm,bmhk->bqhk", nn.softmax(weights), heads("value", memory))
        out = self.param("out", nn.initializers.normal(0.05), (c.num_heads, c.head_dim, c.embed_dim))
        return jnp.einsum("bqhk,hkd->bqd", y, out)


class Mlp(nn.Module):
    config: T5Config

    @nn.compact
    def __call__(self, x):
        gate = nn.gelu(nn.Dense(self.config.mlp_dim, use_bias=False)(x))
        return nn.Dense(self.config.embed_dim, use_bias=False)(gate * nn.Dense(self.config.mlp_dim, use_bias=False)(x))


class Bias(nn.Module):
    config: T5Config
    bidirectional: bool

    @nn.compact
    def __call__(self, length):
        c = self.config
        table = self.param("rel_embedding", nn.initializers.normal(0.1), (c.num_heads, c.relative_buckets))
        buckets = relative_buckets(
            length, length, bidirectional=self.bidirectional, buckets=c.relative_buckets,
            max_distance=c.relative_max_distance,
        )  # fmt: skip
        return jnp.einsum("hn,qkn->hqk", table, jax.nn.one_hot(buckets, c.relative_buckets))[None]


class Stack(nn.Module):
    config: T5Config
    causal: bool

    @nn.compact
    def __call__(self, x, mask, memory=None, memory_mask=None):
        c = self.config
        bias = Bias(c, not self.causal)(x.shape[1]) + jnp.where(mask, 0.0, MASKED)
        for _ in range(c.decoder_layers if self.causal else c.encoder_layers):
            y = RMSNorm()(x)
            x = x + Attention(c)(y, y, bias)
            if memory is not None:
                x = x + Attention(c)(RMSNorm()(x), memory, jnp.where(memory_mask, 0.0, MASKED))
            x = x + Mlp(c)(RMSNorm()(x))
        return RMSNorm()(x)


class EncoderDecoder(nn.Module):
    config: T5Config

    @nn.compact
    def __call__(self, source, target):
        """Mean loss per token of ``target`` [B, L] given ``source`` [B, L]; 0 is padding."""
        c = self.config
        table = self.param("embedding", nn.initializers.normal(1.0), (c.vocab_size, c.embed_dim))

        def embed(tokens):
            return jax.nn.one_hot(tokens, c.vocab_size) @ table

        source_mask = (source > 0)[:, None, None, :]
        memory = Stack(c, causal=False)(embed(source), source_mask)
        length = target.shape[1]
        inputs = jnp.pad(target[:, :-1], ((0, 0), (1, 0)))
        causal = jnp.tril(jnp.ones((length, length), bool))[None, None]
        hidden = Stack(c, causal=True)(embed(inputs), causal, memory, source_mask)
        logits = nn.Dense(c.vocab_size, use_bias=False)(hidden)
        log_p = logits - jax.nn.logsumexp(logits, axis=-1, keepdims=True)
        loss = -(jax.nn.one_hot(target, c.vocab_size) * log_p).sum(-1)
        return (loss * (target > 0)).sum() / (target > 0).sum()
