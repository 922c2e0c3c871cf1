"""Parameters of VMSST and its companions from a pre-trained (m)T5 (METHODS 2.3)."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np

from vmsst_jax.interop import trees

logger = logging.getLogger(__name__)

# Our stacks and the T5's that each starts from. Cross-attention comes along: models without it don't take it.
STACKS = {
    "semantic_encoder": "encoder",
    "language_encoder": "encoder",
    "decoder": "decoder",
    "translation_decoder": "decoder",
}
TABLE, HEAD = "token_embedder/embedding", "logits_dense/kernel"


def parameters(backbone: Mapping, target: Mapping, pieces: int) -> dict:
    """{flat name of VMSST: array} of all that a T5 has for the stacks in ``target``.

    Args:
      backbone: {"token_embedder", "encoder", "decoder" (a T5 with its decoder)} as imported models have it.
      target: {flat name: array} of the fresh model; it tells which stacks there are, how their layers are kept, and
        the rows of pieces that the T5 doesn't have.
      pieces: of the vocabulary; rows beyond them may be dropped.

    Raises:
      ValueError: the T5 has rows for pieces that the model has none for.
    """
    given = {TABLE: backbone["token_embedder"]["embedding"]}
    for ours, theirs in STACKS.items():
        names = [name for name in target if name.startswith(f"{ours}/")]
        if theirs not in backbone or not names:
            continue
        stack = dict(backbone[theirs])
        head = stack.pop("logits_dense", None)
        stacked = any("/layers/" in name for name in names)
        if stacked != ("layers" in stack):
            stack = trees.stack_layers(stack) if stacked else trees.unstack_layers(stack)
        copies = next((target[name].shape[0] for name in names if name.startswith(f"{ours}/stack/")), None)
        for name, array in trees.flatten(stack).items():
            if copies is None:
                given[f"{ours}/{name}"] = array
            else:  # several equal stacks, all of them from this one
                given[f"{ours}/stack/{name}"] = np.broadcast_to(array, (copies, *array.shape))
        if head is not None:
            given[f"{ours}/{HEAD}"] = head["kernel"]
    for name in list(given):
        if name in target and (name == TABLE or name.endswith(HEAD)):
            given[name] = _rows(name, given[name], target[name], pieces, axis=0 if name == TABLE else 1)
    return given


def _rows(name: str, given, fresh, pieces: int, axis: int):
    """``given`` with as many rows (columns for ``axis`` 1) as ``fresh``: cut, or completed by those of ``fresh``."""
    have, want = given.shape[axis], fresh.shape[axis]
    if have == want or given.shape[1 - axis] != fresh.shape[1 - axis]:
        return given
    if want < pieces:
        raise ValueError(f"{name}: the vocabulary has {pieces} pieces, the model rows for {want} of them")
    kept = min(have, want)
    what = "are new and random" if want > have else "are dropped: no piece has them"
    logger.warning("%s: %d of the T5's %d rows are taken, %d %s", name, kept, have, abs(want - have), what)
    if want < have:
        return given[:want] if axis == 0 else given[:, :want]
    rest = fresh[have:] if axis == 0 else fresh[:, have:]
    return np.concatenate([np.asarray(given), np.asarray(rest, given.dtype)], axis)
