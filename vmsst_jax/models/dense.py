"""The matrix product of all dense layers, with a backward pass that CPUs can run at full speed."""

from __future__ import annotations

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from vmsst_jax import sharding


@jax.custom_vjp
def product(x, kernel):
    """x [..., K] times kernel [K, F] -> [..., F].

    XLA's CPU compiler would write the activation's derivative anew in a transposed order, on one core, for the kernel's
    gradient: a fifth of a T5 step. There the backward pass waits until the incoming gradient is in memory, once.
    """
    return (x.reshape(-1, x.shape[-1]) @ kernel).reshape(*x.shape[:-1], kernel.shape[1])


def _forward(x, kernel):
    return product(x, kernel), (x, kernel)


def _backward(residuals, cotangent):
    x, kernel = residuals
    if sharding.platform() == "cpu":
        cotangent = jax.lax.optimization_barrier(cotangent)
    rows, flat = cotangent.reshape(-1, cotangent.shape[-1]), x.reshape(-1, x.shape[-1])
    return (rows @ kernel.T).reshape(x.shape), flat.T @ rows


product.defvjp(_forward, _backward)


class Dense(nn.Module):
    """A linear map without bias: x [..., K] -> [..., features], computed in ``dtype``; its kernel stays in float32."""

    features: int
    kernel_init: Callable
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x):
        kernel = self.param("kernel", self.kernel_init, (x.shape[-1], self.features), jnp.float32)
        return product(x.astype(self.dtype), kernel.astype(self.dtype))
