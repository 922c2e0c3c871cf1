"""Arithmetic, traffic and memory counted before a program runs, against counts by hand."""

import functools

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from vmsst_jax import sharding
from vmsst_jax.training import cost

X, W = jnp.ones((3, 4)), jnp.ones((4, 4))
PRODUCT = 2 * 3 * 4 * 4


def loop(x, w):
    return jax.lax.scan(lambda c, _: (jnp.tanh(c @ w), None), x, None, length=5)[0]


@pytest.mark.parametrize(
    ("function", "products"),
    [
        (lambda x, w: x @ w, 1),
        (loop, 5),
        (jax.jit(lambda x, w: loop(x, w) @ w), 6),
        # Backward: two products for each one forward, but for the constant x.
        (jax.grad(lambda x, w: loop(x, w).sum(), argnums=1), 15),
        (jax.grad(lambda x, w: jax.checkpoint(loop)(x, w).sum(), argnums=1), 20),
        (lambda x, w: jax.lax.cond(x[0, 0] > 0, lambda: x @ w @ w, lambda: x @ w), 2),
    ],
)
def test_products_are_counted_as_often_as_they_run(function, products):
    assert cost.matmul_flops(function, X, W) == products * PRODUCT


def test_a_loop_that_may_end_early_counts_with_its_most_turns():
    def write(x, w):
        carry = (jnp.int32(1), jnp.zeros(3, bool), x @ w)
        return jax.lax.while_loop(lambda c: (c[0] < 7) & ~c[1].all(), lambda c: (c[0] + 1, c[1], c[2] @ w), carry)

    assert cost.matmul_flops(write, X, W) == (1 + 6) * PRODUCT
    assert cost.matmul_flops(write, X, W, writing=False) == PRODUCT
    assert cost.matmul_flops(lambda n: jax.lax.while_loop(lambda c: c < 7, lambda c: c + 1, n), 0) == 0


def test_products_of_a_while_loop_without_a_counter_are_refused():
    with pytest.raises(ValueError, match="a while loop holds matrix products"):
        cost.matmul_flops(lambda x, w: jax.lax.while_loop(lambda c: c[0, 0] < 9, lambda c: c @ w, x), X, W)


def test_a_transformer_costs_what_the_textbook_says(tiny_model, make_batch):
    """2 x parameters of the products x tokens, and attention's two products of [L, L]."""
    module, batch = tiny_model("contrastive", scan_layers=True), make_batch(8, length=7)
    params = module.init(jax.random.key(0), batch)["params"]
    rows, length = batch["tokens"][0].shape
    per_layer = 4 * 16 * 16 + 3 * 16 * 32
    expected = 2 * rows * length * 2 * per_layer + 2 * (2 * 2 * rows * length * length * 16)
    expected += 2 * rows * length * 16 + 2 * rows * 16 * 16  # the mean over tokens, the head
    assert cost.matmul_flops(functools.partial(module.apply, method="semantic"), {"params": params}, batch) == expected


def test_products_inside_shard_map_count_on_every_device():
    mesh = sharding.make_mesh()
    spec = P(sharding.BATCH_AXES)
    product = jax.shard_map(lambda x, w: x @ w, mesh=mesh, in_specs=(spec, P()), out_specs=spec)
    assert cost.matmul_flops(product, jnp.ones((24, 4)), W) == 8 * PRODUCT


def test_traffic_inside_a_loop_counts_as_often_as_it_runs():
    mesh = sharding.make_mesh()
    rows = NamedSharding(mesh, P(sharding.BATCH_AXES))

    def step(x):
        def body(total, _):
            return total + jax.lax.with_sharding_constraint((x * total.sum()).sum(0), NamedSharding(mesh, P())), None

        return jax.lax.scan(body, jnp.zeros(100), None, length=7)[0]

    compiled = jax.jit(step, in_shardings=rows).lower(jax.ShapeDtypeStruct((16, 100), jnp.float32)).compile()
    assert cost.collective_bytes(compiled.as_text()) == {"all-reduce": {"calls": 7.0, "bytes": 7 * 400.0}}


def test_one_device_holds_its_share():
    mesh = sharding.make_mesh()
    tree = {
        "split": jax.ShapeDtypeStruct((16, 3), jnp.float32, sharding=NamedSharding(mesh, P("data"))),
        "whole": jax.ShapeDtypeStruct((5,), jnp.bfloat16, sharding=NamedSharding(mesh, P())),
    }
    assert cost.shard_bytes(tree) == 2 * 3 * 4 + 5 * 2


def test_remat_keeps_less_for_the_backward_pass():
    def chain(p, x):
        for _ in range(4):
            x = jnp.sin(x @ p)
        return x.sum()

    kept = cost.residual_bytes(chain, W, jnp.ones((1000, 4)))
    # Of each step its input and the cosine of its product; the first input is an argument, kept as well.
    assert kept == 8 * 1000 * 4 * 4
    again = cost.residual_bytes(lambda p, x: jax.checkpoint(chain)(p, x), W, jnp.ones((1000, 4)))
    assert again == 1000 * 4 * 4
