"""A model between two forms: what was read, and where every array of it came from."""

from __future__ import annotations

import dataclasses
from typing import Any

from vmsst_jax.models.t5 import T5Config
from vmsst_jax.models.text_encoder import DenseOptions, TextEncoderConfig

# What stands for "no language is known" in a table that can't be empty (ISO 639).
UNDETERMINED = "und"


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the user says about a model, beside its files; None and () leave to the files what they say.

    Attributes:
      tokenizer: a tokenizer's file or folder.
      codes, vocabulary: fastBPE's two files of an XLM model.
      languages: codes of the languages that the model knows.
      allow_missing: regular expressions for whole names of arrays that only one side has.
      pooling, layer, pool_special, normalize, prefix, max_length: how sentences become vectors.
      tower: which of a dual encoder's towers is meant, "query" or "passage".
    """

    tokenizer: str | None = None
    codes: str | None = None
    vocabulary: str | None = None
    languages: tuple[str, ...] = ()
    allow_missing: tuple[str, ...] = ()
    pooling: str | None = None
    layer: int | None = None
    pool_special: bool | None = None
    normalize: bool | None = None
    prefix: str | None = None
    max_length: int | None = None
    tower: str | None = None


@dataclasses.dataclass
class Model:
    """A model that was read.

    Attributes:
      kind, config: as ``models.build`` takes them.
      params: nested dict of arrays.
      tokenizer: its own.
      languages: codes of the languages it was trained on, ("und",) where that is not known.
      embedding: {"pooling", "layer", "normalize", "prefix", "max_length"} as checkpoints keep it.
      origin: {"form", "path", ...}: where it was read.
      sources: {our flat name: the name in the file}; ignored: names in the file that nothing here takes.
      notes: sentences for the user about what was decided while reading.
      gin: the configuration it was trained with, "" for foreign models.
      step: updates it was trained for.
    """

    kind: str
    config: dict
    params: dict
    tokenizer: Any
    languages: tuple[str, ...]
    embedding: dict
    origin: dict
    sources: dict[str, str] = dataclasses.field(default_factory=dict)
    ignored: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    gin: str = ""
    step: int = 0

    def as_encoder(self) -> tuple[dict, dict]:
        """(configuration, parameters) of the kind "encoder" that gives the same vectors as this model."""
        if self.kind == "encoder":
            return self.config, self.params
        if self.kind == "ccp":
            return self.config["encoder"], self.params["encoder"]
        dense = DenseOptions(self.params["semantic_mean"]["kernel"].shape[1], bias=False, activation="identity")
        config = TextEncoderConfig(backbone=T5Config(**self.config["t5"]), dense=(dense,)).to_json()
        backbone = {"token_embedder": self.params["token_embedder"], "encoder": self.params["semantic_encoder"]}
        return config, {"backbone": backbone, "dense_0": {"linear": self.params["semantic_mean"]}}

    def table(self) -> str:
        """Every array with its shape and its name in the file, then the names that nothing takes, then the notes."""
        from vmsst_jax.interop import trees

        shapes = {name: tuple(leaf.shape) for name, leaf in trees.flatten(self.params).items()}
        own = self.origin["form"] == "vmsst_jax"
        rows = [("here", "shape", f"in {self.origin['path']}")]
        rows += [
            (name, "x".join(map(str, shape)), self.sources.get(name, name if own else "-"))
            for name, shape in shapes.items()
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(2)]
        lines = [f"{a:{widths[0]}}  {b:>{widths[1]}}  {c}" for a, b, c in rows]
        if self.ignored:
            lines += ["", "in the file, not taken: " + ", ".join(self.ignored)]
        count = sum(leaf.size for leaf in trees.flatten(self.params).values())
        lines += ["", f"{len(shapes)} arrays, {count:,} parameters", *self.notes]
        return "\n".join(lines)


def with_settings(config: dict, embedding: dict, kind: str, settings: Settings, special_ids) -> tuple[dict, dict]:
    """``config`` and ``embedding`` of a model with what the user says about pooling, prefix and so on.

    Raises:
      ValueError: pooling or layer of a model that is no "encoder": there they are part of what was trained.
    """
    said = {name: getattr(settings, name) for name in ("pooling", "layer", "pool_special")}
    said = {name: value for name, value in said.items() if value is not None}
    if kind == "ccp":
        encoder, embedding = with_settings(config["encoder"], embedding, "encoder", settings, special_ids)
        return {**config, "encoder": encoder}, embedding
    if said and kind != "encoder":
        raise ValueError(
            f"{' and '.join(said)} can't be chosen: a {kind} model was trained with its own pooling, the mean of all "
            "tokens of the last layer. Leave the flags out"
        )
    if kind == "encoder":
        config = {**config, **said}
        if not config["pool_special"] and not config["special_ids"]:
            config["special_ids"] = list(special_ids)
        TextEncoderConfig.from_json(config)  # an impossible layer or pooling is an error here
    embedding = {**embedding, **{name: value for name, value in said.items() if name in embedding}}
    for name in ("normalize", "prefix", "max_length"):
        if (value := getattr(settings, name)) is not None:
            embedding[name] = value
    return config, embedding
