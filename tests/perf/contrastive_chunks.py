"""Contrastive training with the encoder in chunks against the whole batch at once: time, memory, gradients.

    python tests/perf/contrastive_chunks.py [--pairs=2048 --chunk=256 --layers=6]

Both are one compiled gradient of the same loss. Temporaries are what XLA plans beside arguments and results.
"""

from __future__ import annotations

import argparse

import timing


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--pairs", type=int, default=2048)
    flags.add_argument("--chunk", type=int, default=256, help="pairs at a time")
    flags.add_argument("--layers", type=int, default=6)
    flags.add_argument("--width", type=int, default=256)
    flags.add_argument("--length", type=int, default=16)
    flags.add_argument("--repetitions", type=int, default=5)
    a = flags.parse_args()

    import jax
    import numpy as np

    from vmsst_jax import models
    from vmsst_jax.models.t5 import T5Config
    from vmsst_jax.models.vmsst import ModelConfig
    from vmsst_jax.objectives.contrastive import contrastive
    from vmsst_jax.training.step import loss_function

    t5 = T5Config(
        vocab_size=8000, embed_dim=a.width, num_heads=4, head_dim=a.width // 4, mlp_dim=2 * a.width,
        encoder_layers=a.layers,
    )  # fmt: skip
    batch = models.example_batch(a.pairs, a.length)
    batch["tokens"] = (np.random.default_rng(0).integers(3, 8000, batch["tokens"][0].shape, np.int32),)
    compiled, params, grads = {}, None, {}
    for name, chunk in (("whole", None), ("chunks", 2 * a.chunk)):
        module = models.build("contrastive", ModelConfig(t5=t5, num_languages=2, encoder_chunk=chunk))
        params = models.init_params(module, jax.random.key(0)) if params is None else params
        loss = loss_function(module, contrastive, True)
        gradient = jax.jit(lambda p, loss=loss: jax.grad(lambda p: loss(p, {}, batch, 0, jax.random.key(1))[0])(p))
        compiled[name] = gradient.lower(params).compile()
        grads[name] = compiled[name](params)
    print(timing.machine())
    largest = max(float(abs(x).max()) for x in jax.tree.leaves(grads["whole"]))
    apart = jax.tree.map(lambda x, y: float(abs(x - y).max()), grads["whole"], grads["chunks"])
    print(f"largest difference of the gradients: {max(jax.tree.leaves(apart)) / largest:.1e} of the largest gradient")
    sizes = {name: c.memory_analysis().temp_size_in_bytes for name, c in compiled.items()}
    for name, size in sizes.items():
        print(f"{name}: {size / 1e6:,.0f} MB of temporaries")
    print(f"chunks / whole, temporaries: {sizes['chunks'] / sizes['whole']:.2f}")
    times = timing.take_turns({n: (lambda c=c: c(params)) for n, c in compiled.items()}, a.repetitions)
    print(timing.seconds(times))
    print(timing.ratios(times, "whole", "chunks"))


if __name__ == "__main__":
    main()
