"""One post-norm Transformer encoder for BERT, DistilBERT, RoBERTa, XLM-R and XLM: they differ by a few options.

                 first position   pad_id   token_types   mask_after_layer   mlm_head   layer_norm_eps
    BERT         0                0        2             no                 dense      1e-12
    XLM-R        pad_id + 1 = 2   1        1             no                 dense      1e-5
    XLM          0                2        0             yes                bias       1e-12

Sources: Hugging Face transformers' modules for each of them, facebookresearch/XLM's ``TransformerModel``. Kernels are
two-dimensional, names follow ``models.t5`` where both have the part:

    token_embedder, position_embedder, token_type_embedder, language_embedder / embedding
    embedding_norm/{scale,bias}
    encoder/layers_0/attention/{query,key,value,out}/{kernel,bias}     all [D, D]
    encoder/layers_0/mlp/{wi,wo}/{kernel,bias}                         [D, F], wo [F, D]
    encoder/layers_0/{attention_norm,mlp_norm}/{scale,bias}
    pooler/{kernel,bias}    mlm_head/{dense/{kernel,bias}, norm/{scale,bias}, bias}

With ``scan_layers`` the layers' parameters are stacked on a leading axis under ``encoder/layers`` instead.
"""

from __future__ import annotations

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

from vmsst_jax import checks
from vmsst_jax.models.t5 import MASKED, REMAT_POLICIES, run_layers

ACTIVATIONS = {
    "gelu": functools.partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
}
CHOICES = {
    "family": ("bert", "distilbert", "roberta", "xlm-roberta", "camembert", "xlm"),
    "activation": tuple(ACTIVATIONS),
    "mlm_head": ("none", "dense", "bias"),
    "dtype": ("float32", "bfloat16"),
    "remat": ("none", *REMAT_POLICIES),
}
# The papers' own standard deviation; Hugging Face calls it initializer_range.
INIT_STD = 0.02
INIT = nn.initializers.normal(INIT_STD)


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """Geometry and options of the encoder. The defaults are XLM-R large (METHODS 1.2).

    Attributes:
      family: whose names the weights have outside; nothing is computed by it.
      mlp_dim: width between the two products of the feed-forward part.
      max_positions: rows of the position table, those before ``position_offset`` included.
      position_offset: row of a sentence's first token. From 1 on, rows count real tokens only and pads get the row
        before (XLM-R: ``position_offset`` 2, pads get 1); with 0 every position counts (BERT, XLM).
      pad_id: the token that fills up rows; attention never sees it.
      token_types: rows of the table that tells the segments of a pair apart; 0 is no table.
      num_languages: rows of the language table (XLM); 0 is no table.
      activation: "gelu" (exact, by erf), "gelu_tanh" or "relu".
      mask_after_layer: whether padding is set to zero after the embeddings and after every layer (XLM).
      mlm_head: "dense" (dense, activation, norm, then the token table and a bias: BERT, XLM-R), "bias" (the token table
        and a bias: XLM) or "none".
      pooler: whether there is BERT's tanh layer on the first token.
      init_std: of random tables and kernels; the papers' value suits widths around 768, narrow models want more
        (PyTorch's own, which XLM has, is (3 embed_dim) ** -0.5 for kernels).
      dropout: on the embeddings and on the output of each of a layer's two parts; ``attention_dropout`` on the weights.
      dtype: compute type; parameters are float32, and norms and softmax are computed in float32.
      remat: "none", "dots" (matrix products are kept) or "full" (only the layers' inputs are kept).
    """

    family: str = "xlm-roberta"
    vocab_size: int = 250_002
    embed_dim: int = 1024
    num_heads: int = 16
    mlp_dim: int = 4096
    num_layers: int = 24
    max_positions: int = 514
    position_offset: int = 2
    pad_id: int = 1
    token_types: int = 1
    num_languages: int = 0
    layer_norm_eps: float = 1e-5
    activation: str = "gelu"
    mask_after_layer: bool = False
    mlm_head: str = "none"
    pooler: bool = False
    init_std: float = INIT_STD
    dropout: float = 0.1
    attention_dropout: float = 0.1
    dtype: str = "float32"
    scan_layers: bool = False
    remat: str = "none"

    def __post_init__(self):
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}; use one of {', '.join(map(repr, allowed))}")
        for name in ("vocab_size", "embed_dim", "num_heads", "mlp_dim"):
            checks.whole(f"BertConfig.{name}", getattr(self, name))
        for name in ("num_layers", "position_offset", "pad_id", "token_types", "num_languages"):
            checks.whole(f"BertConfig.{name}", getattr(self, name), 0)
        checks.whole("BertConfig.max_positions", self.max_positions, self.position_offset + 1)
        checks.positive("BertConfig.layer_norm_eps", self.layer_norm_eps)
        checks.positive("BertConfig.init_std", self.init_std)
        for name in ("dropout", "attention_dropout"):
            checks.number(f"BertConfig.{name}", getattr(self, name), below=1)
        if self.embed_dim % self.num_heads:
            raise ValueError(f"embed_dim {self.embed_dim} does not divide into num_heads {self.num_heads}")

    @property
    def max_tokens(self) -> int:
        """The longest row that the position table serves."""
        return self.max_positions - self.position_offset


def dense(features: int, config: BertConfig, name: str | None = None) -> nn.Dense:
    init = nn.initializers.normal(config.init_std)
    return nn.Dense(features, kernel_init=init, dtype=jnp.dtype(config.dtype), param_dtype=jnp.float32, name=name)


def norm(config: BertConfig, name: str | None = None) -> nn.LayerNorm:
    # The fast variance, E[x^2] - E[x]^2, cancels where the mean is large: 1e-5 would be out of reach.
    return nn.LayerNorm(config.layer_norm_eps, dtype=jnp.dtype(config.dtype), use_fast_variance=False, name=name)


class Attention(nn.Module):
    """Multi-head attention: x [B, Q, D], bias [B or 1, 1, Q or 1, K] -> [B, Q, D].

    Keys and values are made of x itself, or are given, as ``keys_values`` has made them of another sequence.
    """

    config: BertConfig

    def setup(self):
        c = self.config
        self.query, self.key, self.value, self.out = (dense(c.embed_dim, c) for _ in range(4))
        self.dropout = nn.Dropout(c.attention_dropout)

    def _heads(self, x):
        c = self.config
        return x.reshape(*x.shape[:-1], c.num_heads, c.embed_dim // c.num_heads)

    def keys_values(self, memory):
        """[B, K, D] -> keys and values, each [B, K, heads, width]."""
        return self._heads(self.key(memory)), self._heads(self.value(memory))

    def __call__(self, x, bias, deterministic: bool, keys_values=None):
        q = self._heads(self.query(x)) * (self.config.embed_dim // self.config.num_heads) ** -0.5
        k, v = self.keys_values(x) if keys_values is None else keys_values
        logits = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) + bias
        weights = self.dropout(jax.nn.softmax(logits, axis=-1).astype(x.dtype), deterministic=deterministic)
        return self.out(jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape))


class Mlp(nn.Module):
    """wo(act(wi x)): [B, L, D] -> [B, L, D]."""

    config: BertConfig

    @nn.compact
    def __call__(self, x):
        c = self.config
        return dense(c.embed_dim, c, "wo")(ACTIVATIONS[c.activation](dense(c.mlp_dim, c, "wi")(x)))


class EncoderLayer(nn.Module):
    """x = norm(x + attention(x)); x = norm(x + mlp(x)); ``keep`` [B, L, 1] then zeroes padding where it is given."""

    config: BertConfig

    @nn.compact
    def __call__(self, x, bias, keep, deterministic: bool):
        c = self.config
        drop = nn.Dropout(c.dropout)
        y = drop(Attention(c, name="attention")(x, bias, deterministic), deterministic=deterministic)
        x = norm(c, "attention_norm")(x + y)
        y = drop(Mlp(c, name="mlp")(x), deterministic=deterministic)
        x = norm(c, "mlp_norm")(x + y)
        return x if keep is None else x * keep


class Encoder(nn.Module):
    """The layers: embeddings [B, L, D] and mask [B, L] (1 = token) -> (last state, tuple of the layers' outputs)."""

    config: BertConfig

    @nn.compact
    def __call__(self, x, mask, deterministic: bool, all_layers: bool):
        c = self.config
        bias = jnp.where(mask[:, None, None, :], 0.0, MASKED)
        keep = mask[..., None].astype(x.dtype) if c.mask_after_layer else None
        return run_layers(
            EncoderLayer, c, c.num_layers, x, bias, keep, deterministic=deterministic, all_layers=all_layers
        )


class MlmHead(nn.Module):
    """What stands between hidden states and the tied output product: [..., D] -> (states [..., D], bias [V])."""

    config: BertConfig

    @nn.compact
    def __call__(self, hidden):
        c = self.config
        if c.mlm_head == "dense":
            hidden = norm(c, "norm")(ACTIVATIONS[c.activation](dense(c.embed_dim, c, "dense")(hidden)))
        return hidden, self.param("bias", nn.initializers.zeros, (c.vocab_size,), jnp.float32)


class Bert(nn.Module):
    """Tokens to hidden states, with the heads that the configuration has."""

    config: BertConfig

    def setup(self):
        c = self.config
        self.setup_tables()
        self.encoder = Encoder(c)
        if c.pooler:
            self.pooler = dense(c.embed_dim, c)

    def setup_tables(self):
        """What stands below the layers, and the head above them."""
        c = self.config

        def table(rows):
            init = nn.initializers.normal(c.init_std)
            return nn.Embed(rows, c.embed_dim, embedding_init=init, dtype=jnp.dtype(c.dtype))

        self.token_embedder, self.position_embedder = table(c.vocab_size), table(c.max_positions)
        if c.token_types:
            self.token_type_embedder = table(c.token_types)
        if c.num_languages:
            self.language_embedder = table(c.num_languages)
        self.embedding_norm = norm(c)
        self.embedding_dropout = nn.Dropout(c.dropout)
        if c.mlm_head != "none":
            self.mlm_head = MlmHead(c)

    def __call__(
        self,
        tokens,
        *,
        positions=None,
        languages=None,
        token_types=None,
        deterministic: bool = True,
        all_layers: bool = False,
    ):
        """Hidden states of padded rows.

        Args:
          tokens: int32 [B, L], filled up with ``pad_id``.
          positions: int32 [B, L] counted from 0, for rows in which they start anew (pairs for TLM); None counts on.
          languages: int32 [B, L], ids of the language table; None adds no language vector.
          token_types: int32 [B, L]; None is type 0 everywhere.
          deterministic: no dropout; otherwise a "dropout" key is wanted.
          all_layers: return every hidden state.
        Returns:
          the last state [B, L, D], or the tuple of num_layers + 1 states: [0] the embeddings after their norm, [i] the
          output of layer i (METHODS 1.4).
        Raises:
          ValueError: rows longer than the position table, or ids for a table that the model does not have.
        """
        c = self.config
        mask = tokens != c.pad_id
        x = self.embed_tokens(tokens, mask, positions, languages, token_types, deterministic)
        last, states = self.encoder(x, mask, deterministic, all_layers)
        return (x, *states) if all_layers else last

    def embed_tokens(self, tokens, mask, positions, languages, token_types, deterministic: bool):
        """The embeddings after their norm, [B, L, D]; ``mask`` bool [B, L] is False at padding."""
        c = self.config
        x = self.token_embedder(tokens)
        if token_types is not None and not c.token_types or languages is not None and not c.num_languages:
            raise ValueError("token types or languages were given to a model without a table for them")
        if c.token_types:
            x = x + self.token_type_embedder(jnp.zeros_like(tokens) if token_types is None else token_types)
        x = x + self.position_embedder(self._rows(mask, positions))
        if languages is not None:
            x = x + self.language_embedder(languages)
        x = self.embedding_dropout(self.embedding_norm(x), deterministic=deterministic)
        return x * mask[..., None].astype(x.dtype) if c.mask_after_layer else x

    def _rows(self, mask, positions):
        """Rows of the position table, int32 [B, L] (or [1, L] where they are the same for all)."""
        c = self.config
        if positions is None:
            if mask.shape[1] > c.max_tokens:
                raise ValueError(
                    f"rows of {mask.shape[1]} tokens, but the position table serves {c.max_tokens}; lower max_length"
                )
            if c.position_offset == 0:
                return jnp.arange(mask.shape[1])[None]
            positions = jnp.cumsum(mask, axis=1) - 1
        if c.position_offset == 0:
            return positions
        return jnp.where(mask, positions, -1) + c.position_offset

    def pooled(self, hidden):
        """Hugging Face's ``pooler_output``: last state [B, L, D] -> [B, D]."""
        return jnp.tanh(self.pooler(hidden[:, 0]))

    def mlm(self, hidden):
        """The masked language model's output layer in parts, so that no caller has to make all logits.

        Args:
          hidden: last states [..., D]; those of the masked positions will do.
        Returns:
          (states [..., D], kernel [D, V], bias [V]); logits = states @ kernel + bias. ``output_layer.weighted_nll``
          takes the bias as ``w_z`` = bias[None] beside ``z`` = ones [R, 1].
        """
        states, bias = self.mlm_head(hidden)
        return states, self.token_embedder.embedding.T, bias

    def logits(self, hidden):
        """All logits of the masked language model, float32: last states [..., D] -> [..., V]."""
        states, kernel, bias = self.mlm(hidden)
        return jnp.dot(states, kernel.astype(states.dtype), preferred_element_type=jnp.float32) + bias

    def touch(self, tokens):
        """Every part once, for initialisation: tokens int32 [B, L] -> last state [B, L, D]."""
        hidden = self(tokens, languages=jnp.zeros_like(tokens) if self.config.num_languages else None)
        if self.config.pooler:
            self.pooled(hidden)
        if self.config.mlm_head != "none":
            self.mlm(hidden)
        return hidden
