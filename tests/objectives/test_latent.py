"""The latents' divergence, draws and choice of source, against Monte Carlo and counting."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from vmsst_jax.objectives import latent


def test_kl_equals_monte_carlo():
    """E_q[log q(z) - log p(z)] over scipy's draws and densities."""
    rng = np.random.default_rng(0)
    mu, logvar = rng.normal(size=(3, 4)), rng.normal(size=(3, 4))
    z = mu + np.exp(logvar / 2) * rng.standard_normal((200_000, 3, 4))
    log_ratio = (stats.norm.logpdf(z, mu, np.exp(logvar / 2)) - stats.norm.logpdf(z)).sum(axis=-1)
    standard_error = log_ratio.std(axis=0) / np.sqrt(len(z))
    assert np.all(np.abs(latent.kl_to_standard_normal(mu, logvar) - log_ratio.mean(axis=0)) < 4 * standard_error)


def test_kl_of_the_prior_is_zero():
    zeros = jnp.zeros((2, 5))
    np.testing.assert_array_equal(latent.kl_to_standard_normal(zeros, zeros), np.zeros(2))


def test_draws_have_the_posterior_s_moments_and_gradients():
    mu, logvar = jnp.array([1.0, -2.0]), jnp.array([0.5, -3.0])
    shape = (100_000, 2)
    z = latent.sample(jnp.broadcast_to(mu, shape), jnp.broadcast_to(logvar, shape), jax.random.key(0))
    np.testing.assert_allclose(z.mean(axis=0), mu, atol=0.02)
    np.testing.assert_allclose(z.var(axis=0), jnp.exp(logvar), rtol=0.02)
    assert np.abs(np.corrcoef(z.T)[0, 1]) < 0.02
    d_mu, d_logvar = jax.grad(lambda m, v: latent.sample(m, v, jax.random.key(1)).sum(), argnums=(0, 1))(mu, logvar)
    np.testing.assert_allclose(d_mu, 1.0)
    np.testing.assert_allclose(d_logvar, 0.5 * (latent.sample(mu, logvar, jax.random.key(1)) - mu), rtol=1e-5)


def test_sources_are_drawn_per_pair_or_take_turns():
    drawn = np.array(latent.choose_source(10_000, jax.random.key(0), 0, "per_example"))
    assert abs(drawn.mean() - 0.5) < 0.02
    assert np.any(drawn != latent.choose_source(10_000, jax.random.key(1), 0, "per_example"))
    for step in range(4):
        turn = latent.choose_source(3, jax.random.key(0), step, "alternate_batch")
        np.testing.assert_array_equal(turn, [step % 2 == 0] * 3)
    with pytest.raises(ValueError, match="sem_source is 'both'; use 'per_example' or 'alternate_batch'"):
        latent.choose_source(3, jax.random.key(0), 0, "both")
