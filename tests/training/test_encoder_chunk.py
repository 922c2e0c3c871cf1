"""Encoders in chunks: the loss of the whole batch, and its gradient, in a part of the memory."""

import functools

import jax
import numpy as np
import pytest

from vmsst_jax import sharding
from vmsst_jax.objectives.contrastive import contrastive
from vmsst_jax.objectives.vmsst import vmsst_contrastive
from vmsst_jax.training.step import loss_function

# These programs run once: compiling them without optimisation takes half the time.
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def gradient(module, objective):
    loss = loss_function(module, objective, True)

    def value(params, batch):
        return loss(params, {}, batch, 3, jax.random.key(1))[0]

    return jit(jax.value_and_grad(value))


def assert_close(actual, expected):
    jax.tree.map(lambda a, e: np.testing.assert_allclose(a, e, rtol=2e-5, atol=2e-6), actual, expected)


@pytest.mark.parametrize(
    ("kind", "objective", "options"),
    [
        ("contrastive", contrastive, {"scan_layers": True}),
        ("vmsst", vmsst_contrastive, {"encoder_of_language": (0, 1, 0)}),
    ],
)
def test_the_gradient_is_that_of_the_whole_batch(tiny_model, make_batch, kind, objective, options):
    batch = make_batch(8, groups=2)
    whole = tiny_model(kind, **options)
    params = whole.init(jax.random.key(0), batch)["params"]
    expected = gradient(whole, objective)(params, batch)
    assert_close(gradient(tiny_model(kind, encoder_chunk=3, **options), objective)(params, batch), expected)


def test_eight_devices_share_every_chunk(tiny_model, make_batch):
    batch = make_batch(32)
    module = tiny_model("contrastive", encoder_chunk=16)
    params = module.init(jax.random.key(0), batch)["params"]
    expected = gradient(module, contrastive)(params, batch)
    mesh = sharding.make_mesh()
    with jax.set_mesh(mesh):
        compiled = gradient(module, contrastive).lower(params, sharding.put_batch(batch, mesh)).compile()
        assert_close(compiled(params, sharding.put_batch(batch, mesh)), expected)
        # Tokens stay on their devices: only the chunks' rows of 6 tokens exist, 2 on each.
        assert "s32[16,6]" not in compiled.as_text()
        with pytest.raises(
            ValueError, match="encoder_chunk lets 4 rows .* parts of 4 of the 64 rows do not divide over 8"
        ):
            gradient(tiny_model("contrastive", encoder_chunk=4), contrastive)(params, sharding.put_batch(batch, mesh))


def test_memory_is_that_of_a_chunk(tiny_model, make_batch):
    batch = make_batch(256, length=16)

    def temporaries(chunk):
        module = tiny_model("contrastive", encoder_chunk=chunk)
        params = module.init(jax.random.key(0), batch)["params"]
        return gradient(module, contrastive).lower(params, batch).compile().memory_analysis().temp_size_in_bytes

    assert temporaries(64) < 0.3 * temporaries(None)


def test_a_chunk_is_a_whole_number(tiny_model):
    with pytest.raises(ValueError, match="model.encoder_chunk is 0; wanted"):
        tiny_model(encoder_chunk=0)
