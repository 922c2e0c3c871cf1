"""Where a fresh run's parameters come from: the seed, or another run's checkpoint."""

from __future__ import annotations

import re
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from vmsst_jax import checks
from vmsst_jax.sharding import path_of
from vmsst_jax.training import checkpoint, encoder_start, state, t5_start, translation_start

# Tables with a row per language: copied row by row, by language code.
LANGUAGE_TABLES = (
    *("language_tags/embedding", "decoder_tags/embedding", "backbone/language_embedder/embedding"),
    *("encoder/language_embedder/embedding", "decoder/language_embedder/embedding"),
)


def initial_state(module, optimizer, seed: int, mesh, init=None):
    """A fresh TrainState. ``init``: function (its parameters) -> the parameters to start from instead."""
    fresh = state.make_state(module, optimizer, seed, mesh)
    return fresh if init is None else fresh.replace(params=init(fresh.params))


def from_checkpoint(path: str, tokenizer, languages, allow_missing: Sequence[str] = ()):
    """The function (params) -> params that takes over the parameters of the run, or the imported model, at ``path``.

    Raises ValueError if that run's vocabulary is another one; see ``copy_parameters`` for names and shapes.
    """
    source = checkpoint.load_model(path)
    if source.tokenizer.sha256 != tokenizer.sha256:
        raise ValueError(
            f"{source.directory} was trained with another vocabulary (sha256 {source.tokenizer.sha256[:12]}..., this "
            f"run's is {tokenizer.sha256[:12]}...): its token embeddings mean other pieces. Use that run's own by "
            "train.tokenizer = @checkpoint_tokenizer and checkpoint_tokenizer.path"
        )

    kind, backbone = source.host["model"]["kind"], source.host["model"]["config"].get("backbone")

    def init(params):
        given = {"/".join(path_of(p)): leaf for p, leaf in jax.tree_util.tree_leaves_with_path(source.params)}
        flat = {"/".join(path_of(p)): leaf for p, leaf in jax.tree_util.tree_leaves_with_path(params)}
        allowed = list(allow_missing)
        if kind in encoder_start.ENCODERS and encoder_start.takes_encoders(flat):
            given = encoder_start.parameters(kind, source.params, flat)
            allowed += [] if kind == "ccp" else [encoder_start.HEAD]
        elif kind in ("encoder", "ccp") and translation_start.takes_language_models(flat):
            translation_start.check_languages(languages, source)
            given = translation_start.parameters(source.params)
            allowed += [translation_start.CROSS_ATTENTION]
        elif kind == "encoder" and backbone == "t5":
            given = t5_start.parameters(source.params["backbone"], flat, tokenizer.vocab_size)
        elif kind in encoder_start.ENCODERS:
            what = {"encoder": f"{backbone} encoder", "ccp": "CCP model", "dual_encoder": "dual encoder"}[kind]
            raise ValueError(f"{source.directory} is a {what}: only a T5's parameters fit this model's stacks")
        for name in LANGUAGE_TABLES:
            # Of another width, a table is left to copy_parameters, which lists everything that does not fit.
            if name in given and name in flat and given[name].shape[1:] == flat[name].shape[1:]:
                given[name] = rows_by_code(flat[name], given[name], languages.codes, source.languages.codes)
        return copy_parameters(params, given, allowed, str(source.directory))

    return init


def rows_by_code(table, source, codes: Sequence[str], source_codes: Sequence[str]):
    """``table`` [N, D] with the rows of ``source`` [M, D] for every language that both have."""
    rows = np.array(table)
    for i, code in enumerate(codes):
        if code in source_codes:
            rows[i] = source[source_codes.index(code)]
    return rows


def copy_parameters(params, given: dict, allow_missing: Sequence[str], origin: str):
    """``params`` with every leaf replaced by the array of ``given`` under its name ("a/b/c"); layouts and types stay.

    Names that only one side has, or that differ in shape, must match one of ``allow_missing`` (regular expressions for
    the whole name); what only ``params`` has keeps its value. Raises ValueError that lists what does not match.
    """
    checks.patterns("train.init_allow_missing", allow_missing)
    flat = {"/".join(path_of(p)): leaf for p, leaf in jax.tree_util.tree_leaves_with_path(params)}
    copied = {n for n in flat if n in given and given[n].shape == flat[n].shape}
    problems = []
    for name in sorted((flat.keys() | given.keys()) - copied):
        if any(re.fullmatch(pattern, name) for pattern in allow_missing):
            continue
        here, there = (str(x[name].shape) if name in x else "absent" for x in (flat, given))
        problems.append(f"  {name}: {here} in this model, {there} in the checkpoint")
    if problems:
        listed = "\n".join(problems[:40]) + ("\n  ..." if len(problems) > 40 else "")
        raise ValueError(
            f"parameters of {origin} do not fit this model:\n{listed}\n"
            "Use the recipe of that checkpoint's size, or name what may differ in train.init_allow_missing"
        )

    def pick(path, leaf):
        name = "/".join(path_of(path))
        if name not in copied:
            return leaf
        # A copy: several leaves may start from one array, and the step gives each leaf's buffer away (donation).
        return jax.device_put(jnp.array(given[name], leaf.dtype), leaf.sharding)

    return jax.tree_util.tree_map_with_path(pick, params)
