"""Contrastive context prediction: a sentence tells its neighbour from others of its language (METHODS 3.3).

A batch holds G groups of N pairs, each group in one language. Of the 2N vectors u of a group and the bank's vectors b
of the language, for an anchor c whose neighbour is i:

    l(c, i) = -log exp(u_c.u_i / tau) / ( sum_{k != c} exp(u_c.u_k / tau) + sum_m exp(u_c.b_m / tau) )

The loss is the mean over all anchors, both sentences of each pair. All groups read the bank as it stands, then their
vectors go into it, so that micro-batches of one update see those before them.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from vmsst_jax import checks

MASKS = ("none", "document")


def ccp(
    model,
    batch,
    step,
    key,
    train: bool,
    *,
    temperature: float = 0.1,
    l2_norm: bool = True,
    bank_mask: str = "none",
):
    """The CCP objective on a model with ``encode_pairs``, ``project``, ``negatives`` and ``remember``.

    Args:
      batch: a document batch, see ``models.ccp``.
      temperature: tau, which the paper leaves open.
      l2_norm: unit vectors before the product; without, the plain product is divided by tau (an ablation).
      bank_mask: "none" is the paper's, right where a language has far more sentences than the bank slots. With fewer,
        the bank holds the anchor itself and its neighbours: "document" leaves out all that is of the anchor's document.
    Returns:
      (loss, metrics). Cosines, alignment and uniformity (Wang and Isola's, over a group's sentences) are of the head's
      vectors; ranks are effective ranks within groups, of the embedding and of the head's vectors. ``bank_filled`` is a
      share of the slots, ``bank_negatives`` the number that an anchor meets on average, ``bank_masked`` the share that
      the mask takes away.
    """
    lang, documents = batch["lang"], _documents(batch)
    h = model.encode_pairs(batch, deterministic=not train)
    z, metrics = model.project(h, lang, train)
    unit = z * jax.lax.rsqrt(jnp.maximum(jnp.sum(z * z, axis=-1, keepdims=True), 1e-12))
    u = unit if l2_norm else z
    bank = model.negatives(u / temperature, lang, documents if bank_mask == "document" else None)
    loss, accuracy = anchor_loss(u, temperature, bank.log_sum, bank.top)
    if train:
        model.remember(u, lang, documents, after=bank)
    used, masked = (count.mean(dtype=jnp.float32) for count in (bank.used, bank.masked))
    metrics |= {
        "ccp": loss,
        "contrastive_accuracy": accuracy,
        "embedding_rank": effective_rank(h),
        "head_rank": effective_rank(z),
        "bank_filled": bank.filled,
        "bank_negatives": used,
        "bank_masked": masked / jnp.maximum(masked + used, 1e-6),
        **cosines(unit),
    }
    return loss, metrics


ccp.needs = ("encode_pairs", "project", "negatives", "remember")


def _check(module, options) -> None:
    """ValueError for options that mean nothing."""
    checks.positive("ccp.temperature", options["temperature"])
    if options["bank_mask"] not in MASKS:
        raise ValueError(f"ccp.bank_mask is {options['bank_mask']!r}; use one of {', '.join(map(repr, MASKS))}")


ccp.check = _check


def _check_batch(module, shapes, devices: int) -> None:
    """ValueError for batches of these ``shapes`` that the head or the bank of ``module`` can't take."""
    if "centre" not in shapes:
        raise ValueError(
            f"ccp takes pairs of sentences, and its stream gives {', '.join(shapes)}: give it @Documents()"
        )
    module.check_groups(shapes["centre"][-2], devices)


ccp.check_batch = _check_batch


def _documents(batch):
    """int32 [G, 2N], the document of every sentence."""
    if "document_id" not in batch:
        raise ValueError(f"the batch has {', '.join(sorted(batch))}; wanted document_id too, which the bank keeps")
    return jnp.concatenate([batch["document_id"]] * 2, axis=1)


def anchor_loss(u, temperature, bank_log_sum=-jnp.inf, bank_top=-jnp.inf):
    """Mean over anchors of l(c, i).

    Args:
      u: [G, 2N, D], the N centres of each group before their contexts.
      bank_log_sum, bank_top: [G, 2N], log sum_m exp(u_c.b_m / tau), and the greatest of these exponents; -inf for an
        empty bank.
    Returns:
      (loss, accuracy): float32 scalars; accuracy is the share of anchors whose neighbour beats all negatives.
    """
    pairs = u.shape[1] // 2
    logits = jnp.einsum("gcd,gkd->gck", u, u, precision="highest") / temperature
    logits = jnp.where(jnp.eye(2 * pairs, dtype=bool), -jnp.inf, logits)
    neighbour = (jnp.arange(2 * pairs) + pairs) % (2 * pairs)
    positive = jnp.take_along_axis(logits, neighbour[None, :, None], axis=2)[..., 0]
    total = jnp.logaddexp(jax.nn.logsumexp(logits, axis=2), bank_log_sum)
    others = jnp.where(jnp.arange(2 * pairs) == neighbour[:, None], -jnp.inf, logits).max(axis=2)
    right = positive > jnp.maximum(others, bank_top)  # a draw is none: where all vectors have collapsed, this is 0
    return (total - positive).mean(), right.mean(dtype=jnp.float32)


def cosines(unit):
    """Metrics of unit vectors [G, 2N, D]: neighbours should agree, others spread over the sphere.

    Groups of one pair have no others, and two metrics less.
    """
    pairs = unit.shape[1] // 2
    cosine = jnp.einsum("gcd,gkd->gck", unit, unit)
    index = jnp.arange(2 * pairs)
    negative = (index[:, None] - index[None, :]) % pairs != 0  # neither the anchor itself nor its neighbour
    positive = jnp.einsum("gnd,gnd->gn", unit[:, :pairs], unit[:, pairs:]).mean()
    found = {"positive_cosine": positive, "alignment": 2.0 - 2.0 * positive}
    if pairs == 1:
        return found
    count = negative.sum() * unit.shape[0]
    spread = jnp.where(negative, jnp.exp(4.0 * (cosine - 1.0)), 0.0).sum() / count  # exp(-2 |u - v|^2), at least e^-8
    return found | {
        "negative_cosine": jnp.where(negative, cosine, 0.0).sum() / count,
        "uniformity": jnp.log(spread),
    }


def effective_rank(x):
    """(sum of eigenvalues)^2 / sum of their squares, of the covariance of x [G, M, D] within each group; mean over G.

    1 where all vectors lie on a line, at most M - 1; taken from the M x M products, which needs no eigenvalues.
    """
    x = jax.lax.stop_gradient(x.astype(jnp.float32))
    x = x - x.mean(axis=1, keepdims=True)
    gram = jnp.einsum("gmd,gkd->gmk", x, x)
    trace = jnp.einsum("gmm->g", gram)
    return jnp.mean(trace**2 / jnp.maximum(jnp.square(gram).sum(axis=(1, 2)), 1e-30))
