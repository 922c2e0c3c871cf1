"""Which tower of a dual encoder embeds: the query tower questions, the passage tower what they are to find."""

from __future__ import annotations

import os
from typing import Any

from vmsst_jax.models.dual_encoder import TOWERS, DualEncoderConfig

KIND = "dual_encoder"


def choose(described: dict, params: dict, tower: str | None, path: str | os.PathLike) -> tuple[dict, Any]:
    """(description of the kind "encoder", its parameters) of one tower; other kinds come back as they are.

    Args:
      described, params: of the checkpoint at ``path``.
      tower: "query" or "passage"; it may be left out where both are one.

    Raises:
      ValueError: two towers and none is named, a name that isn't one, or one for a model that has no towers.
    """
    if tower is not None and tower not in TOWERS:
        raise ValueError(f"tower is {tower!r}; use one of {', '.join(TOWERS)}")
    if described["kind"] != KIND:
        if tower is not None:
            raise ValueError(f"{path} is a {described['kind']} model, which has no {tower} tower: leave --tower out")
        return described, params
    config = DualEncoderConfig.from_json(described["config"])
    if tower is None and not config.shared:
        raise ValueError(
            f"{path} has two towers: say with --tower=query that it is questions which are embedded, with "
            "--tower=passage that it is what they are to find (benchmarks with passages take both by themselves)"
        )
    return {"kind": "encoder", "config": config.encoder.to_json()}, params[config.parameters_of(tower or TOWERS[0])]


def has_two(path: str | os.PathLike) -> bool:
    """Whether the checkpoint at ``path`` has two towers; False for whatever is no checkpoint of ours."""
    from vmsst_jax.training import checkpoint

    try:
        described = checkpoint.read_host(path)["model"]
    except (OSError, ValueError):  # loading it says what is wrong
        return False
    return described["kind"] == KIND and not described["config"]["shared"]
