"""Sentence encoders as the world keeps them: a backbone, a pooling, dense layers, unit length.

    tokens [B, L] -> hidden states of ``Bert`` or a T5 encoder -> one layer of them, pooled [B, D] -> dense layers

What sentence-transformers splits into modules (Transformer, Pooling, Dense, Normalize) is one module and one
configuration here, the model kind "encoder". The backbone's parameters are under ``backbone``, those of dense layer i
under ``dense_i/linear``.
"""

from __future__ import annotations

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from vmsst_jax import checks
from vmsst_jax.models import t5
from vmsst_jax.models.bert import INIT, Bert, BertConfig
from vmsst_jax.models.output_layer import OutputOptions, weighted_nll
from vmsst_jax.models.pooling import POOLINGS, token_mask

BACKBONES = {"bert": BertConfig, "t5": t5.T5Config}
ACTIVATIONS = {
    "identity": lambda x: x,
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
}


@dataclasses.dataclass(frozen=True)
class DenseOptions:
    """One dense layer on the pooled vector; ``activation`` is "identity", "tanh", "relu" or "gelu" (exact)."""

    features: int
    bias: bool = True
    activation: str = "tanh"

    def __post_init__(self):
        checks.whole("dense features", self.features)
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"dense activation is {self.activation!r}; known are {sorted(ACTIVATIONS)}")


@dataclasses.dataclass(frozen=True)
class TextEncoderConfig:
    """How text becomes a vector.

    Attributes:
      backbone: a ``BertConfig``, or a ``T5Config`` whose encoder is meant.
      layer: which hidden state is pooled, 0 the embeddings (METHODS 1.4); None is the last.
      pooling: "mean", "cls", "max", "mean_sqrt_len", "last" (see ``models.pooling``), or "pooler": BERT's own.
      pool_special: whether the special tokens count in the pooling (METHODS 4.2).
      special_ids: which those are; only wanted where they don't count.
      dense: layers on the pooled vector, in order.
      normalize: whether vectors get unit length.
    """

    backbone: BertConfig | t5.T5Config = BertConfig()
    layer: int | None = None
    pooling: str = "mean"
    pool_special: bool = True
    special_ids: tuple[int, ...] = ()
    dense: tuple[DenseOptions, ...] = ()
    normalize: bool = False

    def __post_init__(self):
        object.__setattr__(self, "special_ids", checks.wholes("special_ids", self.special_ids, 0))
        object.__setattr__(self, "dense", tuple(self.dense))
        if self.pooling not in (*POOLINGS, "pooler"):
            raise ValueError(f"pooling is {self.pooling!r}; use one of {', '.join(POOLINGS)}, pooler")
        if self.layer is not None:
            checks.whole("layer", self.layer, 0)
        if self.layer is not None and self.layer > self.num_layers:
            raise ValueError(f"layer is {self.layer}; this backbone has 0 (embeddings) to {self.num_layers}")
        if self.pooling == "pooler" and not (getattr(self.backbone, "pooler", False) and self.layer is None):
            raise ValueError("pooling 'pooler' needs a backbone with a pooler (bert.pooler) and its last layer")
        if not self.pool_special and not self.special_ids:
            raise ValueError("pool_special is False, but special_ids names no token; give the tokenizer's")

    @property
    def num_layers(self) -> int:
        b = self.backbone
        return b.num_layers if isinstance(b, BertConfig) else b.encoder_layers

    @property
    def width(self) -> int:
        """Of the sentence vector."""
        return self.dense[-1].features if self.dense else self.backbone.embed_dim

    @property
    def pad_id(self) -> int:
        """The token that fills up rows."""
        return getattr(self.backbone, "pad_id", 0)  # T5 knows no other

    @property
    def has_mlm_head(self) -> bool:
        return getattr(self.backbone, "mlm_head", "none") != "none"

    @property
    def has_languages(self) -> bool:
        """Whether the backbone adds a vector of the language to every token (XLM's option)."""
        return getattr(self.backbone, "num_languages", 0) > 0

    def to_json(self) -> dict:
        """A dictionary ready for JSON: the backbone's kind under "backbone", its own fields under that kind."""
        kind = next(k for k, v in BACKBONES.items() if isinstance(self.backbone, v))
        rest = dataclasses.asdict(self)
        return {"backbone": kind, kind: rest.pop("backbone"), **rest}

    @classmethod
    def from_json(cls, config: dict) -> TextEncoderConfig:
        """The inverse of ``to_json``. Raises ValueError for an unknown backbone."""
        rest = dict(config)
        kind = rest.pop("backbone", None)
        if kind not in BACKBONES or kind not in rest:
            raise ValueError(
                f"backbone is {kind!r} beside {sorted(rest)}; wanted one of {sorted(BACKBONES)} and its fields"
            )
        backbone = BACKBONES[kind](**rest.pop(kind))
        dense = tuple(DenseOptions(**options) for options in rest.pop("dense", ()))
        return cls(backbone=backbone, dense=dense, **rest)


class T5Backbone(nn.Module):
    """Token table and encoder of a T5: tokens int32 [B, L], 0 = padding -> states as ``t5.Encoder`` gives them."""

    config: t5.T5Config

    def setup(self):
        c = self.config
        self.token_embedder = nn.Embed(
            c.vocab_size, c.embed_dim, embedding_init=nn.initializers.normal(1.0), dtype=jnp.dtype(c.dtype)
        )
        self.encoder = t5.Encoder(c, c.encoder_layers)

    def __call__(self, tokens, *, deterministic: bool = True, all_layers: bool = False):
        return self.encoder(self.token_embedder(tokens), tokens > 0, deterministic, all_layers)

    def touch(self, tokens):
        return self(tokens)


class Dense(nn.Module):
    """One dense layer, in float32: [B, D] -> [B, features]."""

    options: DenseOptions

    @nn.compact
    def __call__(self, x):
        o = self.options
        return ACTIVATIONS[o.activation](nn.Dense(o.features, use_bias=o.bias, kernel_init=INIT, name="linear")(x))


class TextEncoder(nn.Module):
    """Tokens to sentence vectors."""

    config: TextEncoderConfig
    pieces: int | None = None  # see ``models.of_vocabulary``
    kind = "encoder"

    def setup(self):
        c = self.config
        self.backbone = (Bert if isinstance(c.backbone, BertConfig) else T5Backbone)(c.backbone)
        self.dense = [Dense(options) for options in c.dense]

    @property
    def pad_id(self) -> int:
        return self.config.pad_id

    @property
    def vocab_size(self) -> int:
        return self.config.backbone.vocab_size

    @property
    def num_pieces(self) -> int:
        """Rows of the token table that stand for pieces."""
        return self.vocab_size if self.pieces is None else self.pieces

    @property
    def has_mlm_head(self) -> bool:
        return self.config.has_mlm_head

    @property
    def has_languages(self) -> bool:
        return self.config.has_languages

    def hidden_states(self, tokens):
        """tokens int32 [B, L] -> tuple of num_layers + 1 states [B, L, D]; [0] the embeddings (METHODS 1.4)."""
        return self.backbone(tokens, all_layers=True)

    def pool(self, hidden, tokens):
        """One hidden state [B, L, D] of ``tokens`` [B, L], pooled: float32 [B, D]. Any layer's state will do."""
        c = self.config
        if c.pooling == "pooler":
            return self.backbone.pooled(hidden).astype(jnp.float32)
        return POOLINGS[c.pooling](hidden, token_mask(tokens, self.pad_id, () if c.pool_special else c.special_ids))

    def embed(self, tokens, deterministic: bool = True):
        """The sentence embedding: tokens int32 [B, L] -> float32 [B, D], unit length if the configuration says so."""
        c = self.config
        hidden = self.backbone(tokens, deterministic=deterministic, all_layers=c.layer is not None)
        return self._finish(self.pool(hidden if c.layer is None else hidden[c.layer], tokens))

    def masked_nll(
        self,
        tokens,
        positions,
        targets,
        weights,
        deterministic: bool = True,
        chunk_bytes: int = 2**26,
        token_positions=None,
        languages=None,
    ):
        """What the masked language model head makes of ``targets`` at some positions of every row.

        Args:
          tokens: int32 [B, L], some of them masked.
          positions, targets: int32 [B, P], where to predict, and what stood there; 0 predicts nothing.
          weights: [B], each row's weight in the total.
          chunk_bytes: see ``OutputOptions``.
          token_positions, languages: int32 [B, L] of every token, or None; see ``Bert``.
        Returns:
          (total, nll [B]): see ``output_layer.weighted_nll``; nll is summed over a row's targets.
        """
        about = {"positions": token_positions, "languages": languages}
        hidden = self.backbone(tokens, deterministic=deterministic, **about)
        states = jnp.take_along_axis(hidden, positions[..., None], axis=1)  # [B, P, D]
        states, kernel, bias = self.backbone.mlm(states)
        options = OutputOptions(chunk_bytes=chunk_bytes, dtype=self.config.backbone.dtype)
        ones = jnp.ones((tokens.shape[0], 1))
        total, (nll,) = weighted_nll((states,), (ones,), kernel, bias[None], (targets,), (weights,), options)
        return total, nll

    def _finish(self, x):
        for layer in self.dense:
            x = layer(x)
        if not self.config.normalize:
            return x
        return x / jnp.maximum(jnp.linalg.norm(x, axis=-1, keepdims=True), 1e-12)

    def __call__(self, batch):
        """Touches every parameter; for initialisation by a bucketed batch."""
        tokens = batch["tokens"][0]
        return self._finish(self.pool(self.backbone.touch(tokens), tokens))
