"""Schedules against values worked out by hand (METHODS 2.7, 4.3)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vmsst_jax.training import schedules


def check(schedule, expected, rtol=1e-6):
    for step, value in expected.items():
        np.testing.assert_allclose(schedule(step), value, rtol=rtol, atol=1e-12)
    steps = jnp.array(list(expected), jnp.int32)  # the same on traced integer steps
    traced = jax.jit(jax.vmap(schedule))(steps)
    assert traced.dtype == jnp.float32
    np.testing.assert_allclose(traced, list(expected.values()), rtol=rtol, atol=1e-12)


def test_warmup_rsqrt_has_the_papers_values():
    check(
        schedules.warmup_rsqrt(),
        {0: 1e-8, 1: 2.5e-7, 2000: 5e-4, 4000: 1e-3, 16_000: 5e-4, 100_000: 2e-4, 4_000_000: 1e-3 / 1000**0.5},
    )


def test_warmup_rsqrt_equals_t5x_terms():
    """constant * linear_warmup * rsqrt_normalized_decay, each written out as T5X multiplies them."""
    schedule = schedules.warmup_rsqrt(base=0.5, warmup=100, floor=0.0)
    for step in (0, 1, 50, 99, 100, 101, 5000):
        linear_warmup = min(1.0, step / 100)
        rsqrt_normalized_decay = np.sqrt(100) / np.sqrt(max(step, 100))
        np.testing.assert_allclose(schedule(step), 0.5 * linear_warmup * rsqrt_normalized_decay, rtol=1e-6)


def test_warmup_linear():
    check(
        schedules.warmup_linear(3e-5, warmup=10, total=110),
        {0: 0.0, 5: 1.5e-5, 10: 3e-5, 60: 1.5e-5, 110: 0.0, 500: 0.0},
    )
    check(schedules.warmup_linear(1.0, warmup=0, total=4), {0: 1.0, 1: 0.75, 4: 0.0})
    check(schedules.warmup_linear(1.0, warmup=10, total=0), {0: 0.0, 1: 0.0})  # a run of no steps


def test_inverse_sqrt_starts_at_1e_7():
    check(
        schedules.inverse_sqrt(),
        {0: 1e-7, 2000: 1e-7 + 0.5 * (1e-4 - 1e-7), 4000: 1e-4, 16_000: 5e-5, 400_000: 1e-5},
        rtol=1e-5,
    )


def test_piecewise_linear_is_lambda_ae():
    schedule = schedules.piecewise_linear([(0, 1.0), (100_000, 0.1), (300_000, 0.0)])
    check(schedule, {0: 1.0, 50_000: 0.55, 100_000: 0.1, 200_000: 0.05, 300_000: 0.0, 900_000: 0.0})


def test_constant():
    check(schedules.constant(0.02), {0: 0.02, 10**6: 0.02})


def test_linear_warmup_weight():
    """VMSST's KL weight is 0.1 after 100,000 of 1,000,000 updates."""
    check(lambda step: schedules.linear_warmup(step, 1_000_000), {0: 0.0, 100_000: 0.1, 10**6: 1.0, 2 * 10**6: 1.0})
    check(lambda step: schedules.linear_warmup(step, 0), {0: 1.0, 7: 1.0})


@pytest.mark.parametrize(
    "make",
    [
        lambda: schedules.warmup_linear(1.0, warmup=10, total=10),
        lambda: schedules.piecewise_linear([]),
        lambda: schedules.piecewise_linear([(5, 1.0), (5, 0.0)]),
    ],
)
def test_settings_that_define_no_schedule_are_errors(make):
    with pytest.raises(ValueError, match="needs|wanted a warm-up that ends before the last step"):
        make()


@pytest.mark.parametrize("make", [schedules.warmup_rsqrt, schedules.inverse_sqrt])
@pytest.mark.parametrize("value", [0, -1, 2.5, "x", None])
def test_a_warmup_is_a_positive_whole_number(make, value):
    with pytest.raises(ValueError, match=f"{make.__name__}.warmup is {value!r}; wanted a whole number of 1 or more"):
        make(warmup=value)


@pytest.mark.parametrize("value", ["fast", -0.1, float("nan"), None])
def test_a_rate_is_a_number(value):
    for make, name in (
        (schedules.warmup_rsqrt, "base"),
        (schedules.warmup_rsqrt, "floor"),
        (schedules.inverse_sqrt, "peak"),
        (schedules.constant, "value"),
    ):
        with pytest.raises(ValueError, match=f"{make.__name__}.{name} is .*; wanted a number of 0 or more"):
            make(**{name: value})
