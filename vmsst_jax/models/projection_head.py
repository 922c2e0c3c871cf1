"""CCP's projection head, linear - batch norm - ReLU - linear, its batch norm asymmetric (METHODS 3.2, 3.4).

Both sentences of a pair go through one head. In the asymmetric mode one side is normalised by its own batch statistics
and the other by the running ones, and the sides change places with every micro-batch: what one side's statistics say of
the batch is of no use to the other. Conventions are PyTorch's: new running = 0.9 old + 0.1 batch, the biased variance
normalises, the unbiased one goes into the running estimate, which starts at mean 0 and variance 1.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

MOMENTUM, EPSILON = 0.1, 1e-5  # PyTorch's
BN_MODES, BN_STATS = ("asymmetric", "vanilla", "none"), ("shared", "per_language")


class PairBatchNorm(nn.Module):
    """Batch norm of the two sides of G groups of N pairs; its state is the collection "batch_stats".

    Attributes:
      mode: "asymmetric", or "vanilla": both sides by their own batch statistics, first the centres.
      sync: whether batch statistics are those of all groups together (with ``stats`` "per_language", of all groups of
        the language); otherwise each group has its own, and the running ones take their average.
      stats: one set of running statistics, "shared", or one "per_language".
      num_languages: size of the language table.
      momentum: the new batch's share in the running statistics. PyTorch's suits slow training; where parameters move
        much from one micro-batch to the next, the running statistics need a larger one to keep up.
    """

    mode: str
    sync: bool
    stats: str
    num_languages: int
    momentum: float = MOMENTUM

    @nn.compact
    def __call__(self, centre, context, lang, train: bool):
        """[G, N, H] of both sides, lang int32 [G] -> the same normalised, and metrics of the running statistics' drift.

        Without ``train`` both sides are normalised by the running statistics, and nothing changes. The side that is in
        this mode always sees them as they were before the micro-batch.
        """
        width = centre.shape[-1]
        rows = self.num_languages if self.stats == "per_language" else 1
        mean = self.variable("batch_stats", "mean", jnp.zeros, (rows, width))
        variance = self.variable("batch_stats", "variance", jnp.ones, (rows, width))
        turn = self.variable("batch_stats", "turn", jnp.zeros, (), jnp.int32) if self.mode == "asymmetric" else None
        scale = self.param("scale", nn.initializers.ones, (width,))
        bias = self.param("bias", nn.initializers.zeros, (width,))
        row = lang if self.stats == "per_language" else jnp.zeros_like(lang)

        def normalised(x, m, v):
            return (x - m[:, None]) * jax.lax.rsqrt(v[:, None] + EPSILON) * scale + bias

        def by_batch(x):
            m, v, count = self._moments(x, row)
            drift = _drift(m, v, mean.value[row], variance.value[row])
            mean.value = _running(mean.value, m, row, self.momentum)
            unbiased = v * (count / (count - 1))[:, None]
            variance.value = _running(variance.value, unbiased, row, self.momentum)
            return normalised(x, m, v), drift

        if not train:
            return *(normalised(x, mean.value[row], variance.value[row]) for x in (centre, context)), {}
        if self.mode == "vanilla":
            centre, _ = by_batch(centre)
            context, drift = by_batch(context)
            return centre, context, drift
        contexts_turn = turn.value == 1
        turn.value = 1 - turn.value
        one, other = jnp.where(contexts_turn, context, centre), jnp.where(contexts_turn, centre, context)
        other = normalised(other, mean.value[row], variance.value[row])
        one, drift = by_batch(one)
        return jnp.where(contexts_turn, other, one), jnp.where(contexts_turn, one, other), drift

    def _moments(self, x, row):
        """Batch statistics for every group of x [G, N, H]: (mean [G, H], biased variance [G, H], vectors behind them).

        Under jit these are global: their value doesn't depend on where the groups lie.
        """
        groups, pairs, _ = x.shape
        together = row[:, None] == row[None, :] if self.sync else jnp.eye(groups, dtype=bool)
        share = together / together.sum(axis=1, keepdims=True)  # [G, G]
        own = x.mean(axis=1)
        mean = jnp.einsum("gk,kh->gh", share, own, precision="highest")
        within = jnp.square(x - own[:, None]).mean(axis=1)
        # Between-group part by differences: the difference of squares would cancel where means are large.
        spread = jnp.square(own[None] - mean[:, None])  # [G, G, H]
        variance = jnp.einsum("gk,gkh->gh", share, within[None] + spread, precision="highest")
        return mean, variance, (pairs * together.sum(axis=1)).astype(jnp.float32)


def _running(old, batch, row, momentum):
    """``old`` [R, H] moved towards the average of ``batch`` [G, H] over each row's groups; other rows stay."""
    mine = (row[None, :] == jnp.arange(old.shape[0])[:, None]).astype(jnp.float32)  # [R, G]
    count = mine.sum(axis=1, keepdims=True)
    batch = jax.lax.stop_gradient(batch)
    average = jnp.einsum("rg,gh->rh", mine, batch, precision="highest") / jnp.maximum(count, 1.0)
    return jnp.where(count > 0, (1.0 - momentum) * old + momentum * average, old)


def _drift(mean, variance, running_mean, running_variance):
    """How far batch statistics lie from the running ones: in running deviations, and in logarithms of the variance."""
    ratio = (variance + EPSILON) / (running_variance + EPSILON)
    return {
        "bn_mean_drift": (jnp.abs(mean - running_mean) * jax.lax.rsqrt(running_variance + EPSILON)).mean(),
        "bn_variance_drift": jnp.abs(jnp.log(ratio)).mean(),
    }


class ProjectionHead(nn.Module):
    """z = W2 relu(BN(W1 h)) + b2 on both sides of pairs; float32.

    Attributes:
      hidden: width between the two products.
      features: width of z.
      relu: whether there is a ReLU, as in SimCLR, whose details the paper follows.
      bn, bn_sync, bn_stats, num_languages, bn_momentum: see ``PairBatchNorm``; ``bn`` may be "none".
    """

    hidden: int
    features: int
    relu: bool
    bn: str
    bn_sync: bool
    bn_stats: str
    num_languages: int
    bn_momentum: float = MOMENTUM

    @nn.compact
    def __call__(self, vectors, lang, train: bool):
        """Vectors [G, 2N, D], first the N centres of each group, then their contexts; lang int32 [G] -> (z [G, 2N,
        features], metrics).

        Raises:
          ValueError: batch statistics of a single pair are wanted.
        """
        pairs = vectors.shape[1] // 2
        x, metrics = nn.Dense(self.hidden, use_bias=False, name="hidden")(vectors.astype(jnp.float32)), {}
        if self.bn != "none":
            if train and pairs < 2:
                raise ValueError(
                    f"a group of {pairs} pair has no batch statistics: take groups of 2 or more, or bn none"
                )
            norm = PairBatchNorm(
                self.bn, self.bn_sync, self.bn_stats, self.num_languages, self.bn_momentum, name="norm"
            )
            centre, context, metrics = norm(x[:, :pairs], x[:, pairs:], lang, train)
            x = jnp.concatenate([centre, context], axis=1)
        x = jax.nn.relu(x) if self.relu else x
        return nn.Dense(self.features, name="projection")(x), metrics
