"""Does the decoder use z_sem? Reconstruction with the right, another pair's, and no semantic vector."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np


def reconstructions(model, batch):
    """Held-out reconstruction in nats per pair, posterior means throughout: float32 [3].

    [0] with the pair's own z_sem, [1] with that of the next pair in the batch, [2] with zeros; z_lang stays right.
    """
    mu_sem, _ = model.semantic_posterior(batch)
    mu_lang, _ = model.language_posterior(batch)
    pairs = mu_sem.shape[0] // 2
    own = mu_sem[:pairs]  # the source speaks for both sides
    variants = [own, jnp.roll(own, 1, axis=0), jnp.zeros_like(own)]
    conditions = jnp.stack([jnp.concatenate([jnp.tile(z, (2, 1)), mu_lang], axis=-1) for z in variants])
    _, nll = model.reconstruct(batch, conditions, jnp.ones(conditions.shape[:2]))
    return nll.sum(axis=1) / pairs


def latent_use(module, params, batches, mesh) -> dict[str, float]:
    """Means over batches: {"own", "other", "zero"} in nats per pair. ``module`` is a ``Vmsst``."""
    import flax.linen as nn

    function = jax.jit(nn.apply(reconstructions, module))
    with jax.set_mesh(mesh):
        values = np.mean([np.asarray(function({"params": params}, batch)) for batch in batches], axis=0)
    return dict(zip(("own", "other", "zero"), map(float, values), strict=True))


def latent_use_text(values: dict[str, float]) -> str:
    """The figures with their change against the right z_sem."""
    own = values["own"]
    lines = [f"reconstruction of held-out pairs, nats per pair: {own:.2f} with the right z_sem"]
    for name, words in (("other", "with another pair's z_sem"), ("zero", "with z_sem = 0")):
        lines.append(f"  {values[name]:.2f} {words} ({values[name] / own - 1:+.1%})")
    return "\n".join(lines)
