"""The memory bank's share of a CCP update: a whole bank against one of the fewest slots that a micro-batch can have.

    python tests/perf/bank_share.py [--bank=32768 --layers=6 --width=384 --length=32 --accumulate=4 --languages=2]

Both are the compiled update of the same encoder on the same batch, forwards, backwards and Adam; they take turns. The
share is 1 - small / whole. Memory is what XLA plans beside arguments and results, for the whole bank.
"""

from __future__ import annotations

import argparse
import functools
import statistics

import timing


def updates(a, bank_size: int):
    """(function that makes one update and keeps the state, bytes of temporaries)."""
    import jax
    import numpy as np
    import optax

    from vmsst_jax import models, sharding
    from vmsst_jax.models.bert import BertConfig
    from vmsst_jax.models.ccp import CcpConfig
    from vmsst_jax.models.text_encoder import TextEncoderConfig
    from vmsst_jax.objectives.ccp import ccp
    from vmsst_jax.training import state
    from vmsst_jax.training.step import train_step

    bert = BertConfig(
        vocab_size=a.vocabulary, embed_dim=a.width, num_heads=a.width // 32, mlp_dim=4 * a.width, num_layers=a.layers
    )
    encoder = TextEncoderConfig(bert, pooling="cls")
    module = models.build("ccp", CcpConfig(encoder, num_languages=a.languages, bank_size=bank_size))
    mesh, optimizer = sharding.make_mesh(devices=jax.devices()[:1]), optax.adam(1e-5)
    rng = np.random.default_rng(0)
    shape = (a.accumulate, a.groups, a.pairs)
    batch = {side: rng.integers(4, a.vocabulary, (*shape, a.length), np.int32) for side in ("centre", "context")}
    batch["lang"] = rng.integers(0, a.languages, shape[:2], np.int32)
    batch["document_id"] = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    if a.accumulate == 1:
        batch = {name: array[0] for name, array in batch.items()}
    objective = functools.partial(ccp, bank_mask="document")
    step = train_step(module, objective, optimizer, accumulate=a.accumulate)
    target = state.abstract_state(module, optimizer, mesh)
    with jax.set_mesh(mesh):
        shardings = sharding.state_shardings(target, mesh)
        compiled = jax.jit(step, donate_argnums=0, out_shardings=(shardings, None)).lower(target, batch).compile()
    kept = [state.make_state(module, optimizer, 0, mesh)]

    def update():
        kept[0], metrics = compiled(kept[0], batch)
        return metrics["loss"]

    return update, compiled.memory_analysis().temp_size_in_bytes


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {"bank": 32_768, "languages": 2, "groups": 1, "pairs": 32, "accumulate": 4, "length": 32}
    sizes |= {"layers": 6, "width": 384, "vocabulary": 32_000, "repetitions": 7}
    for name, value in sizes.items():
        flags.add_argument(f"--{name}", type=int, default=value)
    a = flags.parse_args()
    whole, temporaries = updates(a, a.bank)
    small, _ = updates(a, 2 * a.pairs)
    print(timing.machine())
    print(f"{temporaries / 1e6:,.0f} MB of temporaries")
    times = timing.take_turns({"whole": whole, "small": small}, a.repetitions)
    print(timing.seconds(times))
    shares = [1 - b / w for w, b in zip(times["whole"], times["small"], strict=True)]
    print(f"the bank's share: min {min(shares):.1%}, median {statistics.median(shares):.1%}, max {max(shares):.1%}")


if __name__ == "__main__":
    main()
