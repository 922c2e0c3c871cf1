"""The chunked output layer against logits written out whole."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vmsst_jax import sharding
from vmsst_jax.models.output_layer import OutputOptions, slice_width, weighted_nll

D, C, V = 16, 8, 50
SHAPES = ((8, 4), (16, 6))


@pytest.fixture(scope="module")
def arrays():
    keys = iter(jax.random.split(jax.random.key(0), 8))
    h = tuple(jax.random.normal(next(keys), (r, n, D)) for r, n in SHAPES)
    z = tuple(jax.random.normal(next(keys), (r, C)) for r, _ in SHAPES)
    targets = tuple(jax.random.randint(next(keys), s, 0, V) for s in SHAPES)
    w_h, w_z = (0.3 * jax.random.normal(next(keys), (n, V)) for n in (D, C))
    return h, z, w_h, w_z, targets, (jnp.arange(8.0) / 8, jnp.ones(16))


def naive(h, z, w_h, w_z, targets, weights, z_loss, smoothing):
    total, nlls, vocab = 0.0, [], w_h.shape[1]
    for h_g, z_g, t_g, w_g in zip(h, z, targets, weights, strict=True):
        full = jnp.concatenate([h_g, jnp.repeat(z_g[:, None], h_g.shape[1], 1)], -1)
        logits = full @ jnp.concatenate([w_h, w_z])
        log_p = jax.nn.log_softmax(logits)
        onehot = jax.nn.one_hot(t_g, vocab)
        soft = onehot * (1 - smoothing) + (1 - onehot) * smoothing / (vocab - 1)
        loss = -(soft * log_p).sum(-1) + z_loss * jax.nn.logsumexp(logits, -1) ** 2
        real = t_g > 0
        total += (loss * real * w_g[:, None]).sum()
        nlls.append((-(onehot * log_p).sum(-1) * real).sum(1))
    return total, tuple(nlls)


@pytest.mark.parametrize("z_loss, smoothing", [(0.0, 0.0), (0.01, 0.1)])
@pytest.mark.parametrize("mesh_shape", [None, (8, 1, 1), (4, 2, 1), (2, 2, 2)])
def test_value_and_gradients_equal_the_whole_logits(arrays, z_loss, smoothing, mesh_shape):
    *parameters, targets, weights = arrays
    options = OutputOptions(z_loss=z_loss, label_smoothing=smoothing)

    def ours(*p):
        total, nll = weighted_nll(*p, targets, weights, options)
        return 2.0 * total, nll

    def reference(*p):
        total, nll = naive(*p, targets, weights, z_loss, smoothing)
        return 2.0 * total, nll

    (want, want_nll), want_grads = jax.value_and_grad(reference, argnums=(0, 1, 2, 3), has_aux=True)(*parameters)
    mesh = sharding.make_mesh(*mesh_shape) if mesh_shape else sharding.make_mesh(devices=jax.devices()[:1])
    with jax.set_mesh(mesh):
        (got, nll), grads = jax.jit(jax.value_and_grad(ours, argnums=(0, 1, 2, 3), has_aux=True))(*parameters)
        value_only = jax.jit(ours)(*parameters)[0]
    np.testing.assert_allclose(got, want, rtol=1e-6)
    np.testing.assert_allclose(value_only, want, rtol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), nll, want_nll)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), grads, want_grads)


def test_without_latents(arrays):
    h, _, w_h, _, targets, weights = arrays
    total, _ = weighted_nll(h, (None, None), w_h, None, targets, weights, OutputOptions())
    zeros = tuple(jnp.zeros((r, C)) for r, _ in SHAPES)
    want, _ = naive(h, zeros, w_h, jnp.zeros((C, V)), targets, weights, 0.0, 0.0)
    np.testing.assert_allclose(total, want, rtol=1e-6)


def test_bfloat16_products_stay_close(arrays):
    *parameters, targets, weights = arrays
    exact, _ = weighted_nll(*parameters, targets, weights, OutputOptions())
    rounded, _ = weighted_nll(*parameters, targets, weights, OutputOptions(dtype="bfloat16"))
    assert rounded.dtype == jnp.float32
    np.testing.assert_allclose(rounded, exact, rtol=1e-2)


def test_slices_fit_in_whole_lanes():
    assert slice_width(8192, 8000, 16 * 2**20) == 512  # 8192 * 512 * 4 bytes are 16 MB
    assert slice_width(8192, 8000, 2**30) == 8000
    assert slice_width(8192, 250_112, 1) == 128 and slice_width(8192, 50, 1) == 50
    assert slice_width(1000, 8000, 1_000_000) == 128  # 250 would fit


def test_many_slices_and_a_rest():
    """A vocabulary of 2 x 128 + 44 in slices of 128."""
    vocab, rows, length = 300, 5, 7
    keys = jax.random.split(jax.random.key(1), 5)
    h, z = jax.random.normal(keys[0], (rows, length, D)), jax.random.normal(keys[1], (rows, C))
    w_h, w_z = jax.random.normal(keys[2], (D, vocab)), jax.random.normal(keys[3], (C, vocab))
    targets, weights = jax.random.randint(keys[4], (rows, length), 0, vocab), jnp.linspace(0.5, 2, rows)

    def ours(h, z, w_h, w_z):
        options = OutputOptions(chunk_bytes=1, z_loss=0.01, label_smoothing=0.1)
        return weighted_nll((h,), (z,), w_h, w_z, (targets,), (weights,), options)[0]

    def reference(h, z, w_h, w_z):
        return naive((h,), (z,), w_h, w_z, (targets,), (weights,), 0.01, 0.1)[0]

    want, want_grads = jax.value_and_grad(reference, argnums=(0, 1, 2, 3))(h, z, w_h, w_z)
    got, grads = jax.jit(jax.value_and_grad(ours, argnums=(0, 1, 2, 3)))(h, z, w_h, w_z)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), grads, want_grads)


def test_logits_are_never_held():
    """Neither [tokens, V] nor [sentences, V] exists; temporaries are those of a slice."""
    rows, length, vocab = 64, 16, 4096
    shapes = (
        (jax.ShapeDtypeStruct((rows, length, D), jnp.float32),),
        (jax.ShapeDtypeStruct((rows, C), jnp.float32),),
        jax.ShapeDtypeStruct((D, vocab), jnp.float32),
        jax.ShapeDtypeStruct((C, vocab), jnp.float32),
        (jax.ShapeDtypeStruct((rows, length), jnp.int32),),
        (jax.ShapeDtypeStruct((rows,), jnp.float32),),
    )
    options = OutputOptions(chunk_bytes=4 * rows * length * 128)

    def loss(*args):
        return weighted_nll(*args, options)[0]

    compiled = jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3))).lower(*shapes).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 0.15 * 4 * rows * length * vocab
    text = compiled.as_text()
    assert f"f32[{rows * length},128]" in text
    assert f"f32[{rows * length},{vocab}]" not in text and f"f32[{rows},{vocab}]" not in text
