"""The chunked output layer with its loss and gradients against the plain one: [h ; z] W whole, then cross-entropy.

    python tests/perf/output_layer.py [--vocab=50000 --chunk_mb=4]

Temporaries are what XLA plans beside arguments and results (so the gradients of W don't count). The second part grows
the vocabulary at the same memory for a chunk.
"""

from __future__ import annotations

import argparse

import timing


def plain(h, z, w, targets, weights):
    """The same loss with all logits at once: h [R, L, D], z [R, C], w [D + C, V]."""
    import jax
    import jax.numpy as jnp

    states = jnp.concatenate([h, jnp.broadcast_to(z[:, None], (*h.shape[:2], z.shape[-1]))], axis=-1)
    logits = states @ w
    nll = -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], axis=-1)[..., 0]
    return (nll * (targets > 0)).sum(axis=1) @ weights


def chunked(chunk_mb: float):
    from vmsst_jax.models.output_layer import OutputOptions, weighted_nll

    options = OutputOptions(chunk_bytes=int(chunk_mb * 1e6))

    def loss(h, z, w_h, w_z, targets, weights):
        return weighted_nll((h,), (z,), w_h, w_z, (targets,), (weights,), options)[0]

    return loss


def arguments(rows: int, length: int, width: int, vocab: int):
    import jax
    import jax.numpy as jnp

    keys = jax.random.split(jax.random.key(0), 5)
    h, z = jax.random.normal(keys[0], (rows, length, width)), jax.random.normal(keys[1], (rows, 2 * width))
    w_h, w_z = (0.02 * jax.random.normal(k, (n, vocab)) for k, n in zip(keys[2:], (width, 2 * width), strict=False))
    return h, z, w_h, w_z, jax.random.randint(keys[4], (rows, length), 1, vocab), jnp.full(rows, 1 / rows)


def for_plain(h, z, w_h, w_z, targets, weights):
    """The same arguments with W in one piece."""
    import jax.numpy as jnp

    return h, z, jnp.concatenate([w_h, w_z]), targets, weights


def compiled(loss, args):
    """(a function without arguments: value and gradients of all but targets and weights; MB of temporaries)."""
    import jax

    gradient = jax.value_and_grad(loss, argnums=tuple(range(len(args) - 2)))
    program = jax.jit(gradient).lower(*args).compile()
    return lambda: program(*args), program.memory_analysis().temp_size_in_bytes / 1e6


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--rows", type=int, default=32)
    flags.add_argument("--length", type=int, default=32)
    flags.add_argument("--width", type=int, default=512)
    flags.add_argument("--vocab", type=int, default=50_000)
    flags.add_argument("--large_vocab", type=int, default=250_112)
    flags.add_argument("--chunk_mb", type=float, default=4)
    flags.add_argument("--repetitions", type=int, default=5)
    a = flags.parse_args()

    import numpy as np

    print(timing.machine())
    args = arguments(a.rows, a.length, a.width, a.vocab)
    programs, sizes = {}, {}
    for name, loss, given in (("plain", plain, for_plain(*args)), ("chunked", chunked(a.chunk_mb), args)):
        programs[name], sizes[name] = compiled(loss, given)
        print(f"{name}: {sizes[name]:,.0f} MB of temporaries")
    print(f"chunked / plain, temporaries: {sizes['chunked'] / sizes['plain']:.2f}")
    (expected, (dh, dz, dw)), (found, ours) = (programs[name]() for name in ("plain", "chunked"))
    gradients = (dh, dz, dw[: a.width], dw[a.width :])
    apart = max(float(np.abs(x - y).max() / np.abs(x).max()) for x, y in zip(gradients, ours, strict=True))
    print(f"losses {expected:.6f} and {found:.6f}, gradients at most {apart:.1e} apart (of the largest)")
    times = timing.take_turns(programs, a.repetitions)
    print(timing.seconds(times))
    print(timing.ratios(times, "plain", "chunked"))
    large = compiled(chunked(a.chunk_mb), arguments(a.rows, a.length, a.width, a.large_vocab))[1]
    print(
        f"vocabulary of {a.large_vocab:,} at the same {a.chunk_mb:g} MB a chunk: {large:,.0f} MB of temporaries, "
        f"{large / sizes['chunked']:.2f} of those at {a.vocab:,}"
    )


if __name__ == "__main__":
    main()
