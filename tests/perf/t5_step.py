"""A training step of an encoder-decoder T5 (mT5-small's width): our stacks, transformers on PyTorch, and T5X's way.

    python tests/perf/t5_step.py [--without_pytorch]

All three compute the same kind of step, gradients and Adam, on rows without padding. The last lines relate the
arithmetic of ours to the rate at which JAX multiplies matrices here. PyTorch needs the extra ``parity``.
"""

from __future__ import annotations

import argparse

import timing

GEOMETRY = dict(vocab_size=32_128, embed_dim=512, num_heads=6, head_dim=64, mlp_dim=1024)


def our_loss(config):
    """(params, source, target) -> mean loss per token, from ``models.t5`` and the chunked output layer."""
    from vmsst_jax.models import t5
    from vmsst_jax.models.output_layer import OutputOptions, weighted_nll

    def loss(params, source, target):
        import jax.numpy as jnp

        mask, shifted = source > 0, jnp.pad(target[:, :-1], ((0, 0), (1, 0)))
        embedded, inputs = params["table"][jnp.stack([source, shifted])]  # one look-up, as the models make it
        memory = t5.Encoder(config, config.encoder_layers).apply({"params": params["encoder"]}, embedded, mask)
        decoder = t5.Decoder(config, config.decoder_layers)
        h = decoder.apply({"params": params["decoder"]}, inputs, memory=memory, memory_mask=mask)
        weights = jnp.full(len(target), 1 / target.size)
        return weighted_nll((h,), (None,), params["logits"], None, (target,), (weights,), OutputOptions())[0]

    return loss


def our_params(config, key):
    import jax
    import jax.numpy as jnp

    from vmsst_jax.models import t5

    x, mask = jnp.ones((1, 4, config.embed_dim)), jnp.ones((1, 4), bool)
    keys = jax.random.split(key, 4)
    return {
        "table": jax.random.normal(keys[0], (config.vocab_size, config.embed_dim)),
        "encoder": t5.Encoder(config, config.encoder_layers).init(keys[1], x, mask)["params"],
        "decoder": t5.Decoder(config, config.decoder_layers).init(keys[2], x, memory=x, memory_mask=mask)["params"],
        "logits": 0.05 * jax.random.normal(keys[3], (config.embed_dim, config.vocab_size)),
    }


def jax_step(loss, params, source, target):
    """A function that makes one update at every call and keeps the state."""
    import jax
    import optax

    optimizer = optax.adam(1e-4)

    def step(params, state):
        gradients = jax.grad(loss)(params, source, target)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    run, kept = jax.jit(step, donate_argnums=(0, 1)), [params, jax.jit(optimizer.init)(params)]

    def call():
        kept[:] = run(*kept)
        return kept

    return call


def pytorch_step(source, target, layers: int):
    import torch
    from transformers import MT5Config, MT5ForConditionalGeneration

    config = MT5Config(
        vocab_size=GEOMETRY["vocab_size"], d_model=GEOMETRY["embed_dim"], d_kv=GEOMETRY["head_dim"],
        d_ff=GEOMETRY["mlp_dim"], num_heads=GEOMETRY["num_heads"], num_layers=layers, dropout_rate=0.0,
        tie_word_embeddings=False,
    )  # fmt: skip
    model = MT5ForConditionalGeneration(config).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    source, target = (torch.tensor(x, dtype=torch.long) for x in (source, target))

    def call():
        optimizer.zero_grad()
        model(input_ids=source, attention_mask=(source > 0).long(), labels=target).loss.backward()
        optimizer.step()

    return call


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--layers", type=int, default=4)
    flags.add_argument("--rows", type=int, default=32)
    flags.add_argument("--length", type=int, default=32)
    flags.add_argument("--repetitions", type=int, default=5)
    flags.add_argument("--without_pytorch", action="store_true")
    a = flags.parse_args()

    import jax
    import numpy as np
    import t5x_style

    from vmsst_jax.models.t5 import T5Config
    from vmsst_jax.training import cost

    config = T5Config(**GEOMETRY, encoder_layers=a.layers, decoder_layers=a.layers)
    rng = np.random.default_rng(0)
    source, target = rng.integers(3, config.vocab_size, (2, a.rows, a.length), np.int32)
    params = jax.jit(lambda: our_params(config, jax.random.key(0)))()
    flops = 3 * cost.matmul_flops(our_loss(config), params, source, target)
    theirs = t5x_style.EncoderDecoder(config)
    theirs_params = jax.jit(theirs.init)(jax.random.key(0), source, target)
    steps = {
        "ours": jax_step(our_loss(config), params, source, target),
        "t5x_style": jax_step(theirs.apply, theirs_params, source, target),
    }
    if not a.without_pytorch:
        steps["pytorch"] = pytorch_step(source, target, a.layers)
    print(timing.machine(*(() if a.without_pytorch else ("torch", "transformers"))))
    times = timing.take_turns(steps, a.repetitions)
    print(timing.seconds(times))
    for other in list(steps)[1:]:
        print(timing.ratios(times, "ours", other))
    rate, peak = flops / min(times["ours"]) / 1e9, timing.matmul_rate()
    print(
        f"ours: {flops / 1e9:,.0f} GFLOP a step, {rate:,.0f} GFLOP/s, {rate / peak:.2f} of this machine's {peak:,.0f}"
    )


if __name__ == "__main__":
    main()
