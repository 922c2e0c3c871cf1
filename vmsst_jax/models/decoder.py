"""The decoder that reconstructs a sentence from its latent vectors, and sets of several equal stacks."""

from __future__ import annotations

import dataclasses

import flax.linen as nn
import jax.numpy as jnp

from vmsst_jax.models import t5
from vmsst_jax.models.output_layer import OutputOptions, weighted_nll


def stacked(module_class, size: int):
    """``module_class`` as a set of ``size`` equal stacks: parameters and outputs get a leading axis [size, ...].

    Every stack runs on every row, and the caller chooses: exact and simple, ``size`` times the arithmetic. It serves
    the ablations only (4 language encoders; an encoder and a decoder per language).
    """
    return nn.vmap(
        module_class,
        variable_axes={"params": 0},
        split_rngs={"params": True, "dropout": True},
        in_axes=None,
        out_axes=0,
        axis_size=size,
    )


def choose(outputs, which, lengths: tuple[int, ...]):
    """outputs [S, R, L, D], which int32 [R, segments] -> [R, L, D]: a segment's states from the stack that it names."""
    rows, positions = jnp.arange(outputs.shape[1])[:, None], jnp.arange(outputs.shape[2])[None]
    return outputs[t5.spread(which, lengths), rows, positions]


class EncoderSet(nn.Module):
    """One T5 encoder, or ``size`` of them and each segment routed to one.

    x [R, L, D], mask [R, L], which int32 [R, segments] -> [R, L, D].
    """

    config: t5.T5Config
    size: int = 1

    def setup(self):
        if self.size == 1:
            self.encoder = t5.Encoder(self.config, self.config.encoder_layers)
            nn.share_scope(self, self.encoder)
        else:
            self.stack = stacked(t5.Encoder, self.size)(self.config, self.config.encoder_layers)

    def __call__(self, x, mask, which, deterministic: bool, lengths: tuple[int, ...]):
        if self.size == 1:
            return self.encoder(x, mask, deterministic, False, lengths)
        return choose(self.stack(x, mask, deterministic, False, lengths), which, lengths)


class ConditionalDecoder(nn.Module):
    """Decoder without encoder tokens: each sentence is written from its condition vector c alone (METHODS 2.3).

    ``condition`` says how c enters: "bgt_linear" through a linear map in every layer and beside the hidden state at the
    output layer, "output_only" there only, "memory2" through cross-attention over c's vectors (each ``embed_dim`` wide)
    and at the output layer. ``factored_output`` narrows [h ; c] to D before the product with the vocabulary.
    ``tied_output`` takes the token embeddings as the kernel of h, scaled by D^-1/2 as T5 1.0 does, instead of its own.
    ``size`` > 1 keeps one stack per entry and routes each row; the output layer is shared.
    """

    config: t5.T5Config
    condition_dim: int
    condition: str = "bgt_linear"
    factored_output: bool = False
    tied_output: bool = False
    size: int = 1
    output: OutputOptions = OutputOptions()

    def setup(self):
        c = self.config
        if self.size == 1:
            self.decoder = t5.Decoder(c, c.decoder_layers)
            nn.share_scope(self, self.decoder)
        else:
            self.stack = stacked(t5.Decoder, self.size)(c, c.decoder_layers)
        width = c.embed_dim + self.condition_dim
        init = t5.fan_in_normal(width, truncated=True)
        if self.factored_output:
            self.logits_down = t5.dense(c.embed_dim, init, jnp.dtype(c.dtype), None)
            self.logits_down_latent = t5.dense(c.embed_dim, init, jnp.dtype(c.dtype), None)
            init = t5.fan_in_normal(c.embed_dim, truncated=True)
        else:
            self.logits_latent = Kernel((self.condition_dim, c.vocab_size), init)
        if not self.tied_output:
            self.logits_dense = Kernel((c.embed_dim, c.vocab_size), init)

    def hidden(self, inputs, condition, which, deterministic: bool, lengths: tuple[int, ...]):
        """inputs [R, L, D] (shifted right), condition [R, segments, C], which [R, segments] -> [R, L, D]."""
        c, kwargs = self.config, {}
        if self.condition == "bgt_linear":
            kwargs["condition"] = condition
        elif self.condition == "memory2":
            kwargs["memory"] = condition.reshape(condition.shape[0], -1, c.embed_dim)
            kwargs["memory_mask"] = jnp.ones(kwargs["memory"].shape[:2], jnp.int32)
        order = ("condition", "memory", "memory_mask")
        args = (*(kwargs.get(name) for name in order), deterministic, lengths)  # nn.vmap takes positions only
        if self.size == 1:
            return self.decoder(inputs, *args)
        return choose(self.stack(inputs, *args), which, lengths)

    def __call__(self, inputs, condition, targets, weights, table, which=None, deterministic: bool = True):
        """Tuples over groups: inputs [R, L, D], condition [R, C], targets [R, L], weights [R], which [R] or None.

        ``table`` [V, D]: the token embeddings, read where the output is tied.
        Returns (weighted sum of losses, tuple of each row's negative log-likelihood [R]); see ``weighted_nll``.
        """
        lengths = tuple(x.shape[1] for x in inputs)
        routes = jnp.stack(which, axis=1) if which else None
        h = self.hidden(jnp.concatenate(inputs, axis=1), jnp.stack(condition, axis=1), routes, deterministic, lengths)
        options = dataclasses.replace(self.output, dtype=self.config.dtype)
        w_h = t5.tied_kernel(table) if self.tied_output else self.logits_dense()
        if not self.factored_output:
            h = tuple(t5.split(h, lengths))
            return weighted_nll(h, tuple(condition), w_h, self.logits_latent(), targets, weights, options)
        latent = self.logits_down_latent(jnp.stack(condition, axis=1))
        h = tuple(t5.split(self.logits_down(h) + t5.spread(latent, lengths), lengths))
        return weighted_nll(h, (None,) * len(h), w_h, None, targets, weights, options)


class Kernel(nn.Module):
    """A matrix that is handed out instead of applied (the output layer walks over it in chunks)."""

    shape: tuple[int, ...]
    init: object

    @nn.compact
    def __call__(self):
        return self.param("kernel", self.init, self.shape, jnp.float32)
