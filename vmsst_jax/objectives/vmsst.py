"""VMSST and VMSST Contrastive: the source-separation bound, and what it is trained together with (METHODS 2.1, 2.6)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from vmsst_jax import checks
from vmsst_jax.objectives.contrastive import symmetric_softmax
from vmsst_jax.objectives.latent import choose_source, kl_to_standard_normal, sample

LATENTS = ("sample", "mean")
REDUCTIONS = ("pair_mean", "batch_sum")


def vmsst(
    model,
    batch,
    step,
    key,
    train: bool,
    *,
    lam: float = 0.1,
    kl_warmup_steps: int = 1_000_000,
    kl: bool = True,
    latent: str = "sample",
    sem_source: str = "per_example",
    elbo_reduction: str = "pair_mean",
    translation: bool = True,
    contrastive: bool = False,
    sim: str = "dot",
    scale: float = 1.0,
    negative_mask: str = "none",
):
    """loss = [L_BT if ``translation``] + [L_C if ``contrastive``] + lam * mean over pairs of J, with

        J = -log p(s | z_sem, z_a) - log p(t | z_sem, z_b) + w(step) (KL(z_sem) + KL(z_a) + KL(z_b)),

    w = min(1, step / kl_warmup_steps). Likelihoods are summed over a sentence's tokens, KL over its dimensions.

    Args:
      model: a module with the methods in ``vmsst.needs``.
      batch: a bucketed parallel batch of B pairs.
      lam: the paper's lambda, the weight of the bound.
      kl: False is the ablation "no KL"; it also takes the means, since without KL the variances would collapse.
      latent: "sample" draws the latents of the bound, "mean" takes their means (the ancestor's code).
      sem_source: see ``choose_source``.
      elbo_reduction: "pair_mean", or "batch_sum", which multiplies the bound by B (METHODS 2.6).
      sim, scale, negative_mask: see ``symmetric_softmax``.
    Returns:
      (loss, metrics): nats per pair, but ``translation``, which is per sentence.
    """
    check_options(lam, kl_warmup_steps, latent, elbo_reduction)
    source_key, sem_key, lang_key = jax.random.split(key, 3)
    batch = model.embedded(batch)
    mu_sem, logvar_sem = model.semantic_posterior(batch, deterministic=not train)
    mu_lang, logvar_lang = model.language_posterior(batch, deterministic=not train)
    pairs = mu_sem.shape[0] // 2

    from_source = choose_source(pairs, source_key, step, sem_source)[:, None]
    mu_x = jnp.where(from_source, mu_sem[:pairs], mu_sem[pairs:])
    logvar_x = jnp.where(from_source, logvar_sem[:pairs], logvar_sem[pairs:])
    z_sem, z_lang = mu_x, mu_lang
    if latent == "sample" and kl and train:
        z_sem, z_lang = sample(mu_x, logvar_x, sem_key), sample(mu_lang, logvar_lang, lang_key)

    bound_weight = lam * (pairs if elbo_reduction == "batch_sum" else 1.0)
    elbo = jnp.concatenate([jnp.concatenate([z_sem, z_sem]), z_lang], axis=-1)[None]
    nll_total, nll_elbo, nll_bt = decode(model, batch, elbo, mu_sem, bound_weight / pairs, translation, train)

    kl_sem = kl_to_standard_normal(mu_x, logvar_x).mean()
    kl_lang = kl_to_standard_normal(mu_lang, logvar_lang).sum() / pairs
    weight = jnp.minimum(1.0, step / kl_warmup_steps) if kl else jnp.zeros(())
    loss = nll_total + bound_weight * weight * (kl_sem + kl_lang)
    metrics = {
        "reconstruction": nll_elbo.sum() / pairs,
        "kl_semantic": kl_sem,
        "kl_language": kl_lang,
        "kl_weight": weight,
    }
    if translation:
        metrics["translation"] = nll_bt.mean()
    if contrastive:
        loss_c, metrics["contrastive_accuracy"] = symmetric_softmax(
            mu_sem[:pairs], mu_sem[pairs:], batch["text_id"], sim=sim, scale=scale, negative_mask=negative_mask
        )
        metrics["contrastive"] = loss_c
        loss = loss + loss_c
    return loss, metrics


vmsst.needs = ("embedded", "semantic_posterior", "language_posterior", "translation_passes", "reconstruct")


def check_options(lam, kl_warmup_steps, latent, elbo_reduction) -> None:
    """ValueError for values that define no loss."""
    checks.number("lam", lam)
    checks.whole("kl_warmup_steps", kl_warmup_steps)
    if latent not in LATENTS or elbo_reduction not in REDUCTIONS:
        raise ValueError(
            f"latent {latent!r} must be one of {LATENTS}, elbo_reduction {elbo_reduction!r} of {REDUCTIONS}"
        )


def decode(model, batch, elbo, mu_sem, elbo_weight, translation: bool, train: bool):
    """The bound's pass and, if asked, the translation pass, in one call where they share a decoder.

    elbo [1, 2B, 2k] conditions, mu_sem [2B, k]. Returns (weighted total, nll of the bound [2B], of translation [2B]).
    """
    sentences = mu_sem.shape[0]
    weights = jnp.full((1, sentences), elbo_weight)
    if not translation:
        total, nll = model.reconstruct(batch, elbo, weights, deterministic=not train)
        return total, nll[0], None
    conditions_bt, weights_bt = model.translation_passes(mu_sem, 1.0 / sentences)
    if model.config.bt_decoder == "separate":
        total, nll = model.reconstruct(batch, elbo, weights, deterministic=not train)
        total_bt, nll_bt = model.reconstruct(
            batch, conditions_bt, weights_bt, deterministic=not train, decoder=model.translation_decoder
        )
        return total + total_bt, nll[0], nll_bt[0]
    conditions = jnp.concatenate([elbo, conditions_bt])
    total, nll = model.reconstruct(batch, conditions, jnp.concatenate([weights, weights_bt]), deterministic=not train)
    return total, nll[0], nll[1]


def vmsst_contrastive(
    model,
    batch,
    step,
    key,
    train: bool,
    *,
    lam: float = 0.0005,
    kl_warmup_steps: int = 1_000_000,
    kl: bool = True,
    latent: str = "sample",
    sem_source: str = "per_example",
    elbo_reduction: str = "pair_mean",
    with_bitranslation: bool = False,
    sim: str = "dot",
    scale: float = 1.0,
    negative_mask: str = "none",
):
    """VMSST Contrastive: L_C + lam * mean of J, without L_BT unless asked (METHODS 2.6). Options as for ``vmsst``."""
    bound = {"lam": lam, "kl_warmup_steps": kl_warmup_steps, "kl": kl, "latent": latent}
    bound |= {"sem_source": sem_source, "elbo_reduction": elbo_reduction}
    likeness = {"sim": sim, "scale": scale, "negative_mask": negative_mask}
    return vmsst(model, batch, step, key, train, translation=with_bitranslation, contrastive=True, **bound, **likeness)


vmsst_contrastive.needs = vmsst.needs
vmsst_contrastive.needs_whole_batch = True
