"""One accelerator's figures in about six minutes: utilisation, memory, contrastive batches, embedding, exact search.

    python tests/perf/gpu_check.py --output=OUT.json [--tiny]

Needs JAX, Flax and Optax, but neither TensorFlow nor seqio nor gin: models and batches are made here, at the paper's
size (24 layers, 250,112 pieces, 2,048 pairs of 32 tokens, bfloat16). Parts run one after another; one that fails (by
memory, say) is recorded and the next one goes on. ``--tiny`` tries the script out on any machine.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import time
import types

import timing


class Pairs:
    """A recipe's data, as far as its shapes go."""

    def __init__(self, pairs: int, length: int):
        self.pairs, self.length = pairs, length

    def shapes(self, shards: int = 1, accumulate: int = 1) -> dict:
        from vmsst_jax.data.batching import BatchPlan

        return BatchPlan(self.pairs, (self.length,), self.length, shards, accumulate).shapes()


class Check:
    """The parts, each a method that returns figures."""

    def __init__(self, tiny: bool):
        from vmsst_jax.models.t5 import T5Config

        sizes = {"dtype": "bfloat16", "scan_layers": True, "remat": "full"}
        if tiny:
            sizes |= dict(vocab_size=500, embed_dim=32, num_heads=2, head_dim=16, mlp_dim=64)
            sizes |= dict(encoder_layers=2, decoder_layers=2)
        self.tiny, self.t5 = tiny, T5Config(**sizes)

    def module(self, kind: str, **options):
        from vmsst_jax import models
        from vmsst_jax.models.vmsst import ModelConfig

        return models.build(kind, ModelConfig(t5=self.t5, num_languages=93, **options))

    def step(self, kind: str, objective, pairs: int, accumulate: int = 1, steps: int = 3, **options) -> dict:
        """``profiling.profile`` of one recipe."""
        import jax

        from vmsst_jax import sharding
        from vmsst_jax.training import optimizers, profiling, schedules

        data = Pairs(max(pairs // 128, 4) if self.tiny else pairs, 32)
        stream = types.SimpleNamespace(name="parallel", data=data, objective=objective, accumulate=accumulate)
        recipe = {
            "mesh": sharding.make_mesh,
            "model": lambda languages: self.module(kind, **options),
            "languages": [f"l{i}" for i in range(93)],
            "optimizer": optimizers.adafactor(schedules.constant(1e-3)),
            "streams": [stream],
        }
        return profiling.profile(recipe, jax.devices()[:1], steps=steps)["streams"]["parallel"]

    def matmul(self) -> dict:
        import jax

        from vmsst_jax.training.profiling import matmul_rate

        return {dtype: matmul_rate(jax.devices()[0], dtype) for dtype in ("float32", "bfloat16")}

    def vmsst(self) -> dict:
        """2,048 pairs in micro-batches of 256, as the recipe has it: utilisation is of the bfloat16 products' rate."""
        from vmsst_jax.objectives.vmsst import vmsst

        return self.step("vmsst", vmsst, 256, accumulate=8, steps=2)

    def largest_batch(self) -> dict:
        """Micro-batches of VMSST, doubled until one doesn't fit."""
        from vmsst_jax.objectives.vmsst import vmsst

        found = {}
        for pairs in (512, 1024, 2048):
            try:
                found[pairs] = self.step("vmsst", vmsst, pairs, steps=1)["measured"]
            except Exception as error:  # out of memory, in whatever words the device has
                found[pairs] = f"{type(error).__name__}: {str(error)[:200]}"
                break
        return found

    def contrastive(self) -> dict:
        """8,192 pairs, the encoder in chunks of 1,024 sentences."""
        from vmsst_jax.objectives.contrastive import contrastive

        return self.step("contrastive", contrastive, 8192, steps=2, encoder_chunk=1024)

    def output_layer(self) -> dict:
        """The chunked output layer against the plain one, 64 sentences of 32 tokens and the whole vocabulary."""
        import output_layer

        args = output_layer.arguments(64, 32, self.t5.embed_dim, self.t5.vocab_size)
        programs = {
            "plain": output_layer.compiled(output_layer.plain, output_layer.for_plain(*args)),
            "chunked": output_layer.compiled(output_layer.chunked(256), args),
        }
        times = timing.take_turns({name: call for name, (call, _) in programs.items()}, 5)
        return {name: {"seconds": min(times[name]), "temporaries_mb": programs[name][1]} for name in programs}

    def embedding(self) -> dict:
        """Sentences of 32 tokens a second through the 24-layer semantic encoder, 512 at a time."""
        import jax
        import numpy as np

        from vmsst_jax import models

        module = self.module("contrastive")
        params = jax.jit(lambda: models.init_params(module, jax.random.key(0)))()
        embed = jax.jit(lambda p, tokens: module.apply({"params": p}, tokens, method="embed"))
        tokens = np.random.default_rng(0).integers(3, self.t5.vocab_size, (512, 32), np.int32)
        seconds = min(timing.take_turns({"embed": lambda: embed(params, tokens)}, 5)["embed"])
        return {"sentences_per_second": 512 / seconds}

    def search(self) -> dict:
        """Exact top 10 of 1,000 queries among 5 million vectors of 1,024."""
        import numpy as np

        from vmsst_jax.retrieval import exact

        rows = 20_000 if self.tiny else 5_000_000
        rng = np.random.default_rng(0)
        block = exact.normalize(rng.standard_normal((min(rows, 100_000), 1024), np.float32))
        corpus = np.concatenate([np.roll(block, i, axis=1) for i in range(rows // len(block))])
        queries = corpus[rng.integers(0, len(corpus), 1000)]
        exact.top_k(queries, corpus[:200_000], 10)
        begin = time.perf_counter()
        scores, _ = exact.top_k(queries, corpus, 10)
        seconds = time.perf_counter() - begin
        found = {"rows": rows, "seconds": seconds, "gflops": 2e-9 * 1000 * rows * 1024 / seconds}
        return found | {"lowest_best_score": float(scores[:, 0].min())}  # each query is a row: 1


PARTS = ("matmul", "output_layer", "embedding", "contrastive", "vmsst", "search", "largest_batch")


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--output", required=True)
    flags.add_argument("--parts", default=",".join(PARTS), help="which, in this order")
    flags.add_argument("--seconds", type=float, default=420, help="no part begins after so many")
    flags.add_argument("--tiny", action="store_true")
    a = flags.parse_args()

    import jax

    check, found, begin = (
        Check(a.tiny),
        {"device": jax.devices()[0].device_kind, "machine": timing.machine()},
        time.time(),
    )
    for name in a.parts.split(","):
        if time.time() - begin > a.seconds:
            found[name] = "not begun: the time was over"
            continue
        started = time.time()
        try:
            found[name] = getattr(check, name)()
        except Exception as error:  # the next part may still work
            found[name] = {"error": f"{type(error).__name__}: {str(error)[:500]}"}
        print(f"{name} ({time.time() - started:.0f} s): {json.dumps(found[name])}", flush=True)
        pathlib.Path(a.output).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
