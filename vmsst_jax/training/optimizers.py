"""Optimizers as optax transformations: Adafactor as T5X defines it, AdamW and Adam.

Parameters may be *stacked*: scanned layers below a path component ``layers``, and the parameters of several encoders
or decoders of one shape below a component ``stack``, each add one leading axis. A stack is a storage form only: the
update of every member is that of a parameter stored alone.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from vmsst_jax import checks, sharding
from vmsst_jax.training.adafactor import adafactor as of_matrices
from vmsst_jax.training.schedules import Schedule

# T5X never lets the rate fall below this, which only matters at step 0 of a warm-up.
MIN_LEARNING_RATE = 1e-8


class Optimizer(NamedTuple):
    """An optax transformation that tells its rate, for the log; of other transformations it is not logged.

    Attributes:
      init, update: of ``optax.GradientTransformation``.
      schedule: the rate by the number of updates already made.
    """

    init: Callable
    update: Callable
    schedule: Schedule


def batch_axes(path: Sequence) -> int:
    """The number of leading axes of the parameter at `path` that are stacks: 0, 1 or 2.

    Args:
      path: a key path of ``jax.tree_util``, or plain component names.
    """
    return sharding.stack_axes(sharding.path_of(path))


def adafactor(
    schedule: Schedule,
    *,
    decay_rate: float = 0.8,
    clipping_threshold: float = 1.0,
    min_dim_size_to_factor: int = 128,
) -> Optimizer:
    """Adafactor with T5X's settings: factored, scaled by the parameter's RMS, no momentum, no weight decay.

    ``beta2 = 1 - (step + 1)^-decay_rate``; the update of a matrix of a stack is clipped to RMS `clipping_threshold`
    and scaled by ``max(RMS(matrix), 1e-3)``, as if the matrix were a parameter of its own (T5X's batch axes).
    Dimensions below `min_dim_size_to_factor` are not factored. Second moments take the parameter's dtype, so keep
    parameters in float32. The rate is ``max(schedule(step), 1e-8)``.

    Raises:
      ValueError: at ``init``, when a parameter has fewer dimensions than its path says it has stacks.
    """
    _check("adafactor", schedule)
    checks.positive("adafactor.decay_rate", decay_rate)
    checks.positive("adafactor.clipping_threshold", clipping_threshold)
    checks.whole("adafactor.min_dim_size_to_factor", min_dim_size_to_factor)
    matrix_update = of_matrices(decay_rate, clipping_threshold, min_dim_size_to_factor)

    def bounded(step):
        return jnp.maximum(schedule(step), MIN_LEARNING_RATE)

    made = optax.chain(_for_each_member(matrix_update), optax.scale_by_schedule(bounded))
    return Optimizer(made.init, made.update, bounded)


def adamw(
    schedule: Schedule,
    *,
    b1: float = 0.9,
    b2: float = 0.98,
    eps: float = 1e-6,
    weight_decay: float = 0.01,
    clip: float | None = None,
) -> Optimizer:
    """AdamW with decoupled weight decay on matrices only: norms' scales and biases are left out.

    Args:
      clip: bound on the global norm of the gradients, applied first; None leaves them as they are.
    """
    _check("adamw", schedule, b1, b2, eps, clip)
    checks.number("adamw.weight_decay", weight_decay)
    return _clipped(clip, optax.adamw(schedule, b1, b2, eps, weight_decay=weight_decay, mask=_is_matrix), schedule)


def adam(
    schedule: Schedule,
    *,
    b1: float = 0.9,
    b2: float = 0.98,
    eps: float = 1e-6,
    clip: float | None = None,
) -> Optimizer:
    """Adam; `clip` as in :func:`adamw`."""
    _check("adam", schedule, b1, b2, eps, clip)
    return _clipped(clip, optax.adam(schedule, b1, b2, eps), schedule)


def _check(name: str, schedule, b1=0.0, b2=0.0, eps=1.0, clip=None) -> None:
    """ValueError for a setting of the optimizer ``name`` that optax would only trip over while training."""
    if not callable(schedule):
        raise ValueError(f"{name}.schedule is {schedule!r}; wanted a schedule, as in @warmup_rsqrt() or @constant()")
    checks.number(f"{name}.b1", b1, below=1)
    checks.number(f"{name}.b2", b2, below=1)
    checks.positive(f"{name}.eps", eps)
    if clip is not None:
        checks.positive(f"{name}.clip", clip)


def _clipped(clip, transformation, schedule) -> Optimizer:
    made = transformation if clip is None else optax.chain(optax.clip_by_global_norm(clip), transformation)
    return Optimizer(made.init, made.update, schedule)


def _is_matrix(params):
    """Tree of bools: whether a parameter, stacks aside, has two dimensions or more."""
    return jax.tree_util.tree_map_with_path(lambda path, x: x.ndim - batch_axes(path) >= 2, params)


def _for_each_member(transformation):
    """Applies `transformation`, which treats leaves independently, to every member of every stack separately."""

    def by_stack(params):
        # Mapping over a stack needs leaves of equal stack sizes, hence one group for each: plain, stack_24, stack_4_6.
        def group(path, x):
            depth = batch_axes(path)
            if x.ndim < depth:
                name = jax.tree_util.keystr(path)
                raise ValueError(f"Parameter {name} should begin with {depth} stack axes but has the shape {x.shape}.")
            return "_".join(["stack", *map(str, x.shape[:depth])]) if depth else "plain"

        labels = jax.tree_util.tree_map_with_path(group, params)
        members = {label: _mapped(transformation, depth=label.count("_")) for label in jax.tree.leaves(labels)}
        return optax.partition(members, labels)

    return optax.GradientTransformation(
        init=lambda params: by_stack(params).init(params),
        update=lambda updates, state, params=None: by_stack(updates).update(updates, state, params),
    )


def _mapped(transformation, depth):
    init, update = transformation.init, transformation.update
    for _ in range(depth):
        init, update = jax.vmap(init), jax.vmap(update)
    return optax.GradientTransformation(init, update)
