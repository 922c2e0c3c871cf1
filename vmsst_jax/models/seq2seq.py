"""Encoder and decoder for translation between the languages of one model, as XLM has them (METHODS 4.3).

    encoder    ``Bert``: token, position and language tables, their norm, post-norm layers under ``encoder/encoder``
    decoder    the same tables anew, layers with attention to the encoder's states between self-attention and MLP, and
               the output layer: its token table and a bias

Both have the geometry of one ``BertConfig``, so that one bilingual masked language model starts both; all but
``cross_attention`` and ``cross_attention_norm`` comes from there. Every row, source or target, is
``</s> w1 .. wn </s>``: the first token is what the decoder begins with, and the language vector says into which
language it writes.
"""

from __future__ import annotations

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from vmsst_jax import checks
from vmsst_jax.models import generation
from vmsst_jax.models.bert import Attention, Bert, BertConfig, Mlp, norm
from vmsst_jax.models.generation import Decoding
from vmsst_jax.models.output_layer import OutputOptions, weighted_nll
from vmsst_jax.models.t5 import MASKED, REMAT_POLICIES


@dataclasses.dataclass(frozen=True)
class Seq2SeqConfig:
    """``backbone``: the geometry of encoder and decoder; ``eos_id``: what begins and ends every sentence."""

    backbone: BertConfig
    eos_id: int = 1

    def __post_init__(self):
        b = self.backbone
        checks.whole("eos_id", self.eos_id)
        if not b.num_languages or b.mlm_head == "none" or b.pooler or b.scan_layers:
            raise ValueError(
                "a translation model's BertConfig needs num_languages (language vectors say what to write in) and an "
                "mlm_head (the output layer), and has no use for pooler and scan_layers: found num_languages "
                f"{b.num_languages}, mlm_head {b.mlm_head!r}, pooler {b.pooler}, scan_layers {b.scan_layers}"
            )
        if self.eos_id in (b.pad_id, 0):
            raise ValueError(f"eos_id is {self.eos_id}; 0 and the padding {b.pad_id} can't end a sentence")

    def to_json(self) -> dict:
        """A dictionary ready for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, config: dict) -> Seq2SeqConfig:
        """The inverse of ``to_json``."""
        return cls(**{**config, "backbone": BertConfig(**config["backbone"])})


class DecoderLayer(nn.Module):
    """x = norm(x + attention(x)); x = norm(x + attention(x, memory)); x = norm(x + mlp(x))."""

    config: BertConfig

    def setup(self):
        c = self.config
        self.attention, self.cross_attention, self.mlp = Attention(c), Attention(c), Mlp(c)
        self.attention_norm, self.cross_attention_norm, self.mlp_norm = norm(c), norm(c), norm(c)
        self.dropout = nn.Dropout(c.dropout)

    def __call__(self, x, bias, memory, memory_bias, keep, deterministic: bool):
        """Whole rows: x [B, T, D], bias [1, 1, T, T], memory [B, S, D], memory_bias [B, 1, 1, S], keep [B, T, 1]."""
        y = self.dropout(self.attention(x, bias, deterministic), deterministic=deterministic)
        x = self.attention_norm(x + y)
        x = self._above(x, self.cross_attention.keys_values(memory), memory_bias, deterministic)
        return x if keep is None else x * keep

    def step(self, x, bias, cache, place, memory, memory_bias):
        """One more token of K hypotheses each: x [B, K, D] -> (x [B, K, D], cache).

        ``cache``: keys and values [B, K, T, heads, width] of the tokens before ``place``; ``memory``: those of the
        encoder's states; ``bias`` [1, 1, 1, T] hides what comes after ``place``.
        """
        rows = x.reshape(-1, 1, x.shape[-1])
        new = self.attention.keys_values(rows)
        cache = tuple(
            jax.lax.dynamic_update_slice_in_dim(old, one.reshape(*x.shape[:2], 1, *one.shape[2:]), place, axis=2)
            for old, one in zip(cache, new, strict=True)
        )
        flat = tuple(old.reshape(-1, *old.shape[2:]) for old in cache)
        x = self.attention_norm(x + self.attention(rows, bias, True, flat).reshape(x.shape))
        return self._above(x, memory, memory_bias, True), cache

    def _above(self, x, memory, memory_bias, deterministic: bool):
        y = self.dropout(self.cross_attention(x, memory_bias, deterministic, memory), deterministic=deterministic)
        x = self.cross_attention_norm(x + y)
        return self.mlp_norm(x + self.dropout(self.mlp(x), deterministic=deterministic))


class Decoder(Bert):
    """The causal stack on tables of its own; ``mlm`` of its base class is the output layer."""

    def setup(self):
        c = self.config
        self.setup_tables()
        layer = DecoderLayer
        if c.remat != "none":
            layer = nn.remat(layer, policy=REMAT_POLICIES[c.remat], static_argnums=6)  # deterministic; self is 0
        self.layers = [layer(c) for _ in range(c.num_layers)]

    def __call__(self, tokens, lang, memory, memory_mask, deterministic: bool):
        """tokens int32 [B, T], lang int32 [B], memory [B, S, D], memory_mask bool [B, S] -> states [B, T, D]."""
        c, length = self.config, tokens.shape[1]
        mask = tokens != c.pad_id
        languages = jnp.broadcast_to(lang[:, None], tokens.shape)
        x = self.embed_tokens(tokens, mask, None, languages, None, deterministic)
        bias = jnp.where(np.tril(np.ones((length, length), bool)), 0.0, MASKED)[None, None]
        keep = mask[..., None].astype(x.dtype) if c.mask_after_layer else None
        memory_bias = _bias(memory_mask)
        for layer in self.layers:
            x = layer(x, bias, memory, memory_bias, keep, deterministic)
        return x

    def start(self, memory, hypotheses: int, size: int):
        """(empty cache for K hypotheses of ``size`` tokens, keys and values of ``memory``), each a tuple of layers."""
        c = self.config
        shape = (memory.shape[0], hypotheses, size, c.num_heads, c.embed_dim // c.num_heads)
        empty = tuple((jnp.zeros(shape, memory.dtype),) * 2 for _ in self.layers)
        return empty, tuple(layer.cross_attention.keys_values(memory) for layer in self.layers)

    def step(self, tokens, lang, place, cache, memory, memory_mask):
        """One more token of each hypothesis: int32 [B, K] at ``place`` -> (logits [B, K, V], cache)."""
        languages, places = jnp.broadcast_to(lang[:, None], tokens.shape), jnp.full(tokens.shape, place)
        x = self.embed_tokens(tokens, jnp.ones(tokens.shape, bool), places, languages, None, True)
        size = cache[0][0].shape[2]
        bias = jnp.where(jnp.arange(size) <= place, 0.0, MASKED)[None, None, None]
        after = []
        for layer, own, of_memory in zip(self.layers, cache, memory, strict=True):
            x, own = layer.step(x, bias, own, place, of_memory, _bias(memory_mask))
            after.append(own)
        return self.logits(x), tuple(after)


def _bias(mask):
    """bool [B, S] -> what attention adds to its logits, [B, 1, 1, S]."""
    return jnp.where(mask[:, None, None, :], 0.0, MASKED)


class Seq2Seq(nn.Module):
    """Translates rows of tokens, ``source`` int32 [B, S], between languages ``*_lang`` int32 [B]; see the module.

    ``pieces``: see ``models.of_vocabulary``; tokens beyond are never written.
    """

    config: Seq2SeqConfig
    pieces: int | None = None
    kind = "seq2seq"

    def setup(self):
        b = self.config.backbone
        self.encoder = Bert(dataclasses.replace(b, mlm_head="none"))
        self.decoder = Decoder(b)

    @property
    def pad_id(self) -> int:
        return self.config.backbone.pad_id

    @property
    def eos_id(self) -> int:
        return self.config.eos_id

    @property
    def vocab_size(self) -> int:
        return self.config.backbone.vocab_size

    def encode(self, source, source_lang, deterministic: bool = True):
        """The encoder's last states, [B, S, D]."""
        languages = jnp.broadcast_to(source_lang[:, None], source.shape)
        return self.encoder(source, languages=languages, deterministic=deterministic)

    def translation_nll(
        self, source, source_lang, target, target_lang, weights, deterministic: bool = True, chunk_bytes=None
    ):
        """What the decoder makes of ``target`` int32 [B, T], whose first token it is given.

        Args:
          weights: float32 [B], each row's weight in the total.
          chunk_bytes: see ``OutputOptions``.
        Returns:
          (total, nll [B]): see ``output_layer.weighted_nll``; nll is summed over a row's tokens.
        """
        memory = self.encode(source, source_lang, deterministic)
        states = self.decoder(target[:, :-1], target_lang, memory, source != self.pad_id, deterministic)
        states, kernel, bias = self.decoder.mlm(states)
        wanted = jnp.where(target[:, 1:] == self.pad_id, 0, target[:, 1:])
        options = OutputOptions(chunk_bytes=chunk_bytes, dtype=self.config.backbone.dtype)
        ones = jnp.ones((target.shape[0], 1))
        total, (nll,) = weighted_nll((states,), (ones,), kernel, bias[None], (wanted,), (weights,), options)
        return total, nll

    def translate(self, source, source_lang, target_lang, options: Decoding = Decoding(), keys=None, writable=None):
        """Writes translations, without dropout and without gradient.

        A row of n tokens becomes at most int(1.3 n + 5), both ends counted (and no more than there are positions for);
        one of padding alone becomes the first token alone.

        Args:
          keys: a JAX key per row, for sampling.
          writable: bool [B, ``pieces``], the tokens that may be written, the end among them; None for any.

        Returns:
          (rows int32 [B, longest(S)], scores float32 [B]): see ``generation.write``.
        """
        module, variables = self.unbind()
        variables = jax.lax.stop_gradient(variables)

        def run(method, *args):
            return module.apply(variables, *args, method=method)

        mask = source != self.pad_id
        lengths = mask.sum(axis=1)
        size = min(generation.longest(source.shape[1]), self.config.backbone.max_tokens)
        limits = jnp.where(lengths > 0, jnp.minimum(generation.longest(lengths), size), 0)
        memory = run("encode", source, source_lang)
        cache, of_memory = run(lambda m: m.decoder.start(memory, options.beams, size))

        def step(tokens, place, cache):
            return run(lambda m: m.decoder.step(tokens, target_lang, place, cache, of_memory, mask))

        never = tuple(sorted({0, self.pad_id}))  # 0 is padding to the loss
        allowed = generation.log_likelihoods(limits, self.eos_id, never, self.pieces, writable)
        return generation.write(step, cache, limits, size, self.eos_id, self.pad_id, allowed, options, keys)

    def __call__(self, batch):
        """Touches every parameter; for initialisation by a bucketed batch."""
        tokens = batch["tokens"][0]
        lang = jnp.zeros(tokens.shape[0], jnp.int32)
        return self.translation_nll(tokens, lang, tokens, lang, jnp.ones(tokens.shape[0]))[0]
