"""CCP: any sentence encoder, and beside it what only its pre-training needs (METHODS 3.2 to 3.5).

    encoder        a ``TextEncoder``; its own vector is the embedding, its masked language model head serves MLM
    head           ``ProjectionHead``, with the batch statistics and the mode bit of its batch norm as state
    memory_bank    ``MemoryBank``, state alone

A *document batch* holds G groups of N pairs of neighbouring sentences, each group in one language: ``centre`` and
``context`` int32 [G, N, L], ``lang`` int32 [G], ``document_id`` int32 [G, N].
"""

from __future__ import annotations

import dataclasses

import flax.linen as nn
import jax.numpy as jnp

from vmsst_jax import checks, sharding
from vmsst_jax.models.memory_bank import LAYOUTS, MemoryBank, check_size
from vmsst_jax.models.projection_head import BN_MODES, BN_STATS, MOMENTUM, ProjectionHead
from vmsst_jax.models.text_encoder import TextEncoder, TextEncoderConfig

CHOICES = {"bn": BN_MODES, "bn_stats": BN_STATS, "bank": LAYOUTS, "bank_dtype": ("float32", "bfloat16")}


@dataclasses.dataclass(frozen=True)
class CcpConfig:
    """Everything that shapes parameters and state.

    Attributes:
      encoder: how text becomes a vector; the paper takes the last layer's first token (pooling "cls").
      num_languages: size of the language table.
      head_hidden: width between the head's two products; None is the encoder's.
      head_features: width of what the loss compares.
      head_relu: whether the head has a ReLU.
      bn: the head's batch norm: "asymmetric", "vanilla" (both sides by their batch statistics: information leaks) or
        "none".
      bn_sync: batch statistics of all groups together; otherwise each group's own.
      bn_stats: running statistics "shared" by all languages or "per_language".
      bn_momentum: share of a micro-batch in the running statistics, above 0 and at most 1.
      bank: "per_language", "tagged" (one ring for all; a vector counts for its own language) or "plain" (for all).
      bank_size: K, slots of a ring.
      bank_dtype: what its vectors are kept in.
    """

    encoder: TextEncoderConfig = TextEncoderConfig(pooling="cls")
    num_languages: int = 1
    head_hidden: int | None = None
    head_features: int = 128
    head_relu: bool = True
    bn: str = "asymmetric"
    bn_sync: bool = True
    bn_stats: str = "shared"
    bn_momentum: float = MOMENTUM
    bank: str = "per_language"
    bank_size: int = 32_768
    bank_dtype: str = "float32"

    def __post_init__(self):
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"ccp_model.{name} is {getattr(self, name)!r}; use one of {', '.join(map(repr, allowed))}"
                )
        for name in ("num_languages", "head_features", "bank_size"):
            checks.whole(f"ccp_model.{name}", getattr(self, name))
        checks.positive("ccp_model.bn_momentum", self.bn_momentum)
        if self.bn_momentum > 1:
            raise ValueError(f"ccp_model.bn_momentum is {self.bn_momentum}; wanted a share of 1, as 0.1")
        if self.head_hidden is not None:
            checks.whole("ccp_model.head_hidden", self.head_hidden)

    def to_json(self) -> dict:
        """A dictionary ready for JSON."""
        return {**{f.name: getattr(self, f.name) for f in dataclasses.fields(self)}, "encoder": self.encoder.to_json()}

    @classmethod
    def from_json(cls, config: dict) -> CcpConfig:
        """The inverse of ``to_json``."""
        return cls(**{**config, "encoder": TextEncoderConfig.from_json(config["encoder"])})


class Ccp(nn.Module):
    """A sentence encoder in its pre-training by contrastive context prediction."""

    config: CcpConfig
    pieces: int | None = None  # see ``models.of_vocabulary``
    kind = "ccp"

    def setup(self):
        c = self.config
        self.encoder = TextEncoder(c.encoder)
        self.head = ProjectionHead(
            hidden=c.head_hidden or c.encoder.width,
            features=c.head_features,
            relu=c.head_relu,
            bn=c.bn,
            bn_sync=c.bn_sync,
            bn_stats=c.bn_stats,
            bn_momentum=c.bn_momentum,
            num_languages=c.num_languages,
        )
        self.memory_bank = MemoryBank(c.bank, c.bank_size, c.head_features, c.num_languages, c.bank_dtype)

    @property
    def pad_id(self) -> int:
        return self.config.encoder.pad_id

    @property
    def vocab_size(self) -> int:
        return self.config.encoder.backbone.vocab_size

    @property
    def num_pieces(self) -> int:
        """Rows of the token table that stand for pieces."""
        return self.vocab_size if self.pieces is None else self.pieces

    @property
    def has_mlm_head(self) -> bool:
        return self.config.encoder.has_mlm_head

    @property
    def has_languages(self) -> bool:
        return self.config.encoder.has_languages

    def hidden_states(self, tokens):
        """As ``TextEncoder.hidden_states``."""
        return self.encoder.hidden_states(tokens)

    def pool(self, hidden, tokens):
        """As ``TextEncoder.pool``."""
        return self.encoder.pool(hidden, tokens)

    def embed(self, tokens):
        """The encoder's own sentence embedding: tokens int32 [B, L] -> float32 [B, D]."""
        return self.encoder.embed(tokens)

    def check_groups(self, pairs: int, devices: int) -> None:
        """ValueError for groups of so many pairs that the head or the bank can't take, or a bank that can't be shared
        out over so many devices."""
        c = self.config
        if pairs == 1 and c.bn != "none":
            raise ValueError(
                "Documents.pairs is 1, and one pair has no batch statistics: take groups of 2 or more, or ccp_model.bn "
                "'none'"
            )
        if 2 * pairs > c.bank_size:
            raise ValueError(
                f"ccp_model.bank_size is {c.bank_size}, and a group of {pairs} pairs gives {2 * pairs} vectors: take a "
                "larger bank, or lower Documents.pairs"
            )
        check_size(c.bank_size, devices)

    def encode_pairs(self, batch, deterministic: bool = True):
        """Document batch -> vectors [G, 2N, D], the centres of each group before their contexts."""
        tokens = jnp.concatenate([batch["centre"], batch["context"]], axis=1)
        groups, sentences, length = tokens.shape
        # By sentences, so that one group's are shared out over all devices too.
        rows = sharding.split_rows(tokens.reshape(-1, length))
        return self.encoder.embed(rows, deterministic).reshape(groups, sentences, -1)

    def project(self, vectors, lang, train: bool):
        """See ``ProjectionHead``."""
        return self.head(vectors, lang, train)

    def negatives(self, queries, lang, document=None):
        """See ``MemoryBank.__call__``."""
        return self.memory_bank(queries, lang, document)

    def remember(self, vectors, lang, document, after):
        """See ``MemoryBank.push``."""
        self.memory_bank.push(vectors, lang, document, after)

    def masked_nll(self, *args, **options):
        """See ``TextEncoder.masked_nll``."""
        return self.encoder.masked_nll(*args, **options)

    def __call__(self, batch):
        """Touches every parameter and all state; for initialisation by a bucketed batch."""
        vectors = self.encoder(batch)[None]
        lang = jnp.zeros(1, jnp.int32)
        z, _ = self.project(vectors, lang, train=False)
        return self.negatives(z, lang).log_sum
