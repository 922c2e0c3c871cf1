"""A map between two spaces by adversarial training, as MUSE does it (Conneau et al. 2018; METHODS 3.8).

A discriminator learns to tell mapped source vectors W x from target vectors y; W learns to deceive it and is pulled
back towards the orthogonal matrices after every step. Where MUSE draws the most frequent words, vectors of sentences
are drawn uniformly: sentences have no ranks.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from vmsst_jax import checks

# Steps of W in one call of the compiled program: often enough for a line of progress.
CHUNK = 2_000


@dataclasses.dataclass(frozen=True)
class Adversarial:
    """Settings; the values are MUSE's.

    Attributes:
      epochs: after each of them the map is judged.
      epoch_size: source vectors that the steps of W see in an epoch.
      batch_size: vectors of each side in a step.
      discriminator_steps: for each step of W.
      layers, hidden: of the discriminator.
      input_dropout: before its first layer, while it learns.
      smoothing: labels are 1 - smoothing and smoothing.
      learning_rate: of plain gradient descent on both.
      decay: of the map's rate, per epoch.
      shrink: of the map's rate where an epoch ends below the best criterion, from the second time on.
      beta: W <- (1 + beta) W - beta W W^T W after each step.
      seed: of the draws and of the discriminator's start.
    """

    epochs: int = 5
    epoch_size: int = 1_000_000
    batch_size: int = 32
    discriminator_steps: int = 5
    layers: int = 2
    hidden: int = 2048
    input_dropout: float = 0.1
    smoothing: float = 0.1
    learning_rate: float = 0.1
    decay: float = 0.98
    shrink: float = 0.5
    beta: float = 0.001
    seed: int = 0

    def __post_init__(self):
        for name in ("epochs", "epoch_size", "batch_size", "discriminator_steps", "layers", "hidden"):
            checks.whole(f"Adversarial.{name}", getattr(self, name))
        for name in ("learning_rate", "decay", "shrink"):
            checks.positive(f"Adversarial.{name}", getattr(self, name))
        for name, below in (("input_dropout", 1.0), ("smoothing", 0.5), ("beta", 1.0)):
            checks.number(f"Adversarial.{name}", getattr(self, name), below=below)


class Discriminator(nn.Module):
    """Vectors [B, D] -> logits [B]: how likely each is a mapped source vector."""

    layers: int
    hidden: int
    input_dropout: float

    @nn.compact
    def __call__(self, x, train: bool):
        # PyTorch's start, on which MUSE's rates rest: uniform within 1 / sqrt(inputs).
        dense = functools.partial(nn.Dense, kernel_init=nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform"))
        x = nn.Dropout(self.input_dropout, deterministic=not train)(x)
        for _ in range(self.layers):
            x = nn.leaky_relu(dense(self.hidden)(x), 0.2)
        return dense(1)(x)[:, 0]


def train(
    x: np.ndarray,
    y: np.ndarray,
    settings: Adversarial,
    judge: Callable[[np.ndarray, str], float],
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """Trains W from the identity and has it judged after every epoch.

    Args:
      x, y: float32 [n, D] and [m, D].
      judge: ``(the orthogonal matrix nearest to W, "epoch 1") -> criterion``, higher being better; it keeps the best.
      say: is told how the discriminator does.

    Raises:
      ValueError: training diverged.
    """
    module = Discriminator(settings.layers, settings.hidden, settings.input_dropout)
    key = jax.random.key(settings.seed)
    x, y = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)
    params = module.init(jax.random.fold_in(key, 0), y[:1], train=False)["params"]
    state = jnp.eye(x.shape[1]), params
    rate, best, fell = settings.learning_rate, -np.inf, False
    steps, done = -(-settings.epoch_size // settings.batch_size), 0
    for epoch in range(1, settings.epochs + 1):
        for start in range(0, steps, CHUNK):
            length = min(CHUNK, steps - start)
            state, loss = run_steps(state, x, y, jax.random.fold_in(key, 1), done, rate, settings, length)
            done += length
            if not np.isfinite(loss := float(loss)):
                raise ValueError(
                    f"adversarial training diverged in epoch {epoch}; use a smaller learning rate, or refinement alone"
                )
            say(f"epoch {epoch}, step {start + length:,} of {steps:,}: discriminator's loss {loss:.4f}")
        u, _, v_t = np.linalg.svd(np.asarray(state[0], np.float64))
        criterion = judge(u @ v_t, f"epoch {epoch}")
        rate *= settings.decay
        if criterion < best:
            rate *= settings.shrink if fell else 1.0
            fell = True
        best = max(best, criterion)


@functools.partial(jax.jit, static_argnames=("settings", "length"))
def run_steps(state, x, y, key, first, rate, settings: Adversarial, length: int):
    """``length`` steps of W, each after ``discriminator_steps`` of the discriminator.

    Args:
      state: (W [D, D], the discriminator's parameters).
      x, y: [n, D] and [m, D].
      key, first: step i draws by ``fold_in(key, first + i)``.
      rate: of W.

    Returns:
      (state, mean loss of the discriminator).
    """
    module = Discriminator(settings.layers, settings.hidden, settings.input_dropout)
    optimizer = optax.sgd(settings.learning_rate)
    b = settings.batch_size
    labels = jnp.concatenate([jnp.full(b, 1 - settings.smoothing), jnp.full(b, settings.smoothing)])

    def batch(matrix, key):
        rows = [
            jax.random.randint(k, (b,), 0, len(side)) for k, side in zip(jax.random.split(key), (x, y), strict=True)
        ]
        return jnp.concatenate([x[rows[0]] @ matrix.T, y[rows[1]]])

    def loss(params, vectors, labels, key=None):
        rngs = None if key is None else {"dropout": key}
        logits = module.apply({"params": params}, vectors, train=key is not None, rngs=rngs)
        return optax.sigmoid_binary_cross_entropy(logits, labels).mean()

    def teach(carry, key):
        matrix, params = carry
        draw, dropout = jax.random.split(key)
        value, gradient = jax.value_and_grad(loss)(params, batch(matrix, draw), labels, dropout)
        updates, _ = optimizer.update(gradient, optimizer.init(params))
        return (matrix, optax.apply_updates(params, updates)), value

    def step(carry, i):
        keys = jax.random.split(jax.random.fold_in(key, first + i), settings.discriminator_steps + 1)
        (matrix, params), losses = jax.lax.scan(teach, carry, keys[1:])
        gradient = jax.grad(lambda w: loss(params, batch(w, keys[0]), 1 - labels))(matrix)
        matrix = matrix - rate * gradient
        matrix = (1 + settings.beta) * matrix - settings.beta * matrix @ matrix.T @ matrix
        return (matrix, params), losses.mean()

    with jax.default_matmul_precision("highest"):
        state, losses = jax.lax.scan(step, state, jnp.arange(length))
    return state, losses.mean()
