"""Learning-rate schedules and loss weights: plain functions of the step.

A schedule maps the number of updates already made (0 for the first update; a Python int or a traced integer) to a
float32 scalar. Optimizers take such a function; objectives call the weights themselves.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from vmsst_jax import checks

Schedule = Callable[[jax.typing.ArrayLike], jax.Array]


def constant(value: float = 1e-3) -> Schedule:
    """The same value at every step."""
    checks.number("constant.value", value)
    return lambda step: jnp.full(jnp.shape(step), value, jnp.float32)


def warmup_rsqrt(base: float = 1e-3, warmup: int = 4000, floor: float = 1e-8) -> Schedule:
    """Linear warm-up to `base`, then ``base * sqrt(warmup / step)``, never below `floor`.

    T5X's ``constant * linear_warmup * rsqrt_normalized_decay``, the schedule of the VMSST paper: 1e-3 at step 4,000
    and 2e-4 at step 100,000 by default. (T5X's plain ``rsqrt_decay`` would peak at 1.6e-5 with the same base.)

    Raises:
      ValueError: `warmup` is no whole number of 1 or more, or the rates are no numbers of 0 or more.
    """
    checks.whole("warmup_rsqrt.warmup", warmup)
    checks.number("warmup_rsqrt.base", base)
    checks.number("warmup_rsqrt.floor", floor)

    def schedule(step):
        step = jnp.asarray(step, jnp.float32)
        value = base * jnp.minimum(1.0, step / warmup) * jnp.sqrt(warmup / jnp.maximum(step, warmup))
        return jnp.maximum(value, floor)

    return schedule


def warmup_linear(peak: float, warmup: int, total: int) -> Schedule:
    """Linear warm-up from 0 to `peak` at step `warmup`, then linearly down to 0 at step `total` and 0 after it.

    With a `total` of 0, a run that leaves its model as it begins, the rate is 0.

    Raises:
      ValueError: not ``0 <= warmup < total``, or no numbers.
    """
    checks.number("warmup_linear.peak", peak)
    checks.whole("warmup_linear.warmup", warmup, 0)
    checks.whole("warmup_linear.total", total, 0)
    if total == 0:
        return constant(0.0)
    if not warmup < total:
        raise ValueError(
            f"warmup_linear.warmup is {warmup} and warmup_linear.total {total}, as a rule TRAIN_STEPS; wanted a "
            "warm-up that ends before the last step: set one of them"
        )

    def schedule(step):
        step = jnp.asarray(step, jnp.float32)
        up = step / max(1, warmup)
        down = (total - step) / (total - warmup)
        return peak * jnp.where(step < warmup, up, jnp.maximum(0.0, down))

    return schedule


def inverse_sqrt(peak: float = 1e-4, warmup: int = 4000, start: float = 1e-7) -> Schedule:
    """Linear from `start` to `peak` at step `warmup`, then ``peak * sqrt(warmup / step)``.

    XLM's ``adam_inverse_sqrt`` (its defaults), used for the unsupervised translation models.

    Raises:
      ValueError: `warmup` is no whole number of 1 or more, or the rates are no numbers of 0 or more.
    """
    checks.whole("inverse_sqrt.warmup", warmup)
    checks.number("inverse_sqrt.peak", peak)
    checks.number("inverse_sqrt.start", start)

    def schedule(step):
        step = jnp.asarray(step, jnp.float32)
        up = start + step * ((peak - start) / warmup)
        down = peak * jnp.sqrt(warmup / jnp.maximum(step, warmup))
        return jnp.where(step < warmup, up, down)

    return schedule


def piecewise_linear(points: Sequence[tuple[int, float]]) -> Schedule:
    """Linear between `points` ``(step, value)``, constant before the first and after the last.

    ``piecewise_linear([(0, 1.0), (100_000, 0.1), (300_000, 0.0)])`` is XLM's lambda_ae.

    Raises:
      ValueError: no points, or their steps do not increase.
    """
    steps, values = [step for step, _ in points], [value for _, value in points]
    if not steps or any(late <= early for early, late in zip(steps, steps[1:], strict=False)):
        raise ValueError(f"piecewise_linear needs at least one point, with increasing steps, but got {list(points)}.")
    xs, ys = jnp.asarray(steps, jnp.float32), jnp.asarray(values, jnp.float32)
    return lambda step: jnp.interp(jnp.asarray(step, jnp.float32), xs, ys)


def linear_warmup(step: jax.typing.ArrayLike, total: int) -> jax.Array:
    """The weight ``min(1, step / total)``, float32; 1 throughout when `total` is 0.

    VMSST anneals its KL terms with it over 1,000,000 updates, so that a run of 100,000 ends at 0.1.
    """
    step = jnp.asarray(step, jnp.float32)
    return jnp.minimum(1.0, step / total) if total else jnp.ones_like(step)
