"""DPR: one sentence encoder for questions and one for passages, compared by inner product (METHODS 5.5).

    query_encoder, passage_encoder    two ``TextEncoder`` of one geometry, each with parameters of its own
    encoder                           in place of both where they are shared

A *question batch* holds B questions and their passages: ``question`` int32 [B, L], ``passage`` int32 [P, M],
``passage_id`` int32 [P]. Row i < B of the passages belongs to question i, the other P - B are negatives.
"""

from __future__ import annotations

import dataclasses

import flax.linen as nn

from vmsst_jax import checks
from vmsst_jax.models.text_encoder import TextEncoder, TextEncoderConfig
from vmsst_jax.models.vmsst import in_chunks

TOWERS = ("query", "passage")


@dataclasses.dataclass(frozen=True)
class DualEncoderConfig:
    """Everything that shapes parameters.

    Attributes:
      encoder: how text becomes a vector, in both towers; DPR takes the last layer's first token (pooling "cls").
      shared: one encoder in both roles.
      encoder_chunk: most rows that go through a tower at a time while training, for batches beyond memory: only a
        chunk's inputs are kept, and its states made again for the gradient. The value of the loss doesn't change.
    """

    encoder: TextEncoderConfig = TextEncoderConfig(pooling="cls")
    shared: bool = False
    encoder_chunk: int | None = None

    def __post_init__(self):
        if not isinstance(self.shared, bool):
            raise ValueError(f"DualEncoderConfig.shared is {self.shared!r}; wanted True or False")
        if self.encoder_chunk is not None:
            checks.whole("DualEncoderConfig.encoder_chunk", self.encoder_chunk)

    def to_json(self) -> dict:
        """A dictionary ready for JSON."""
        return {**{f.name: getattr(self, f.name) for f in dataclasses.fields(self)}, "encoder": self.encoder.to_json()}

    @classmethod
    def from_json(cls, config: dict) -> DualEncoderConfig:
        """The inverse of ``to_json``."""
        return cls(**{**config, "encoder": TextEncoderConfig.from_json(config["encoder"])})

    def parameters_of(self, tower: str) -> str:
        """The name of the subtree with the parameters of a tower, one of ``TOWERS``."""
        return "encoder" if self.shared else f"{tower}_encoder"


class DualEncoder(nn.Module):
    """Questions and passages to vectors of one space."""

    config: DualEncoderConfig
    kind = "dual_encoder"

    def setup(self):
        c = self.config
        if c.shared:
            self.encoder = TextEncoder(c.encoder)
        else:
            self.query_encoder, self.passage_encoder = TextEncoder(c.encoder), TextEncoder(c.encoder)

    @property
    def pad_id(self) -> int:
        return self.config.encoder.pad_id

    @property
    def vocab_size(self) -> int:
        return self.config.encoder.backbone.vocab_size

    def embed_questions(self, tokens, deterministic: bool = True):
        """tokens int32 [B, L] -> float32 [B, D]."""
        return self._embed("query", tokens, deterministic)

    def embed_passages(self, tokens, deterministic: bool = True):
        """tokens int32 [P, M] -> float32 [P, D]."""
        return self._embed("passage", tokens, deterministic)

    def _embed(self, tower: str, tokens, deterministic: bool):
        def encode(encoder, tokens):
            return encoder.embed(tokens, deterministic)

        encoder = getattr(self, self.config.parameters_of(tower))
        return in_chunks(encoder, encode, None if deterministic else self.config.encoder_chunk, tokens)

    def __call__(self, batch):
        """Touches every parameter; for initialisation by a bucketed batch."""
        towers = [self.encoder] if self.config.shared else [self.query_encoder, self.passage_encoder]
        return [tower(batch) for tower in towers]
