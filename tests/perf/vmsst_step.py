"""Pairs per second of a whole VMSST update against a plain implementation of the same loss, on the gettext corpus.

    python tests/perf/vmsst_step.py [--size=quickstart|base] [--length=L] [--groups=G]

The plain one pads every sentence to the longest length, encodes source and target in calls of their own, decodes in
four, and holds all logits of [h ; z_sem ; z_lang] W. Both use the same stacks, parameters and optimizer; the loss of
the two on the first batch is compared. Batches are drawn as in training, and each is run by both.
"""

from __future__ import annotations

import argparse
import logging

import timing

SIZES = {
    # embed_dim, num_heads, head_dim, mlp_dim, layers, vocabulary rows, pairs, longest sentence (the paper's is 32)
    "quickstart": (128, 4, 32, 256, 1, 8000, 128, 24),
    "base": (512, 8, 64, 1024, 6, 32_128, 32, 32),
}
LAM, KL_WEIGHT_STEPS, STEP = 0.1, 8000, 4000


def plain_loss(params, t5, batch, key):
    """METHODS 2.1 and 2.4 written down: batch {"tokens" [2, B, L], "lang" [2, B]}; latents are their means."""
    import jax
    import jax.numpy as jnp

    from vmsst_jax.models.t5 import Decoder, Encoder
    from vmsst_jax.objectives.latent import choose_source, kl_to_standard_normal

    tokens, lang = batch["tokens"], batch["lang"]
    table = params["token_embedder"]["embedding"]

    def pooled(encoder, x, mask):
        h = Encoder(t5, t5.encoder_layers).apply({"params": params[encoder]}, x, mask)
        return (h * mask[..., None]).sum(axis=1) / mask.sum(axis=1)[:, None]

    def heads(h, role):
        return h @ params[f"{role}_mean"]["kernel"], h @ params[f"{role}_logvar"]["kernel"]

    def nll(side, c):
        stack = {k: v for k, v in params["decoder"].items() if not k.startswith("logits")}
        first = params["decoder_tags"]["embedding"][lang[side]][:, None]
        inputs = jnp.concatenate([first, table[tokens[side, :, :-1]]], axis=1)
        h = Decoder(t5, t5.decoder_layers).apply({"params": stack}, inputs, condition=c)
        states = jnp.concatenate([h, jnp.broadcast_to(c[:, None], (*h.shape[:2], c.shape[-1]))], axis=-1)
        w = jnp.concatenate([params["decoder"]["logits_dense"]["kernel"], params["decoder"]["logits_latent"]["kernel"]])
        log_p = jnp.take_along_axis(jax.nn.log_softmax(states @ w), tokens[side][..., None], axis=-1)[..., 0]
        return -(log_p * (tokens[side] > 0)).sum(axis=1)

    tags = params["language_tags"]["embedding"]
    sem = [heads(pooled("semantic_encoder", table[x], x > 0), "semantic") for x in tokens]
    language = [
        heads(pooled("language_encoder", table[x] + tags[a][:, None], x > 0), "language")
        for x, a in zip(tokens, lang, strict=True)
    ]
    from_source = choose_source(tokens.shape[1], jax.random.split(key, 3)[0], STEP, "per_example")[:, None]
    mu, logvar = (jnp.where(from_source, x, y) for x, y in zip(*sem, strict=True))
    reconstruction = sum(nll(side, jnp.concatenate([mu, language[side][0]], -1)) for side in (0, 1)).mean()
    zero = jnp.zeros_like(mu)
    translation = sum(nll(side, jnp.concatenate([sem[1 - side][0], zero], -1)) for side in (0, 1)).mean() / 2
    kl = kl_to_standard_normal(mu, logvar) + sum(kl_to_standard_normal(*x) for x in language)
    return translation + LAM * (reconstruction + STEP / KL_WEIGHT_STEPS * kl.mean())


def sentence_order(batch, length: int) -> dict:
    """The bucketed batch as {"tokens" [2, B, length], "lang" [2, B]}."""
    import numpy as np

    rows = np.concatenate([np.pad(x, ((0, 0), (0, length - x.shape[1]))) for x in batch["tokens"]])
    return {"tokens": rows[batch["slot"]].reshape(2, -1, length), "lang": batch["lang"].reshape(2, -1)}


def batches(pairs: int, length: int, groups: int, number: int) -> list[dict]:
    """Training batches of the gettext corpus, in ``groups`` widths."""
    from vmsst_jax import config
    from vmsst_jax.data.languages import Languages
    from vmsst_jax.data.parallel import ParallelText, train_sentencepiece

    logging.disable(logging.WARNING)
    tasks = config.import_tasks("gettext")
    vocabulary = train_sentencepiece("gettext", 8000)
    data = ParallelText("gettext", pairs, length, groups=groups)
    stream = data.open(vocabulary, Languages(tasks.languages()), 0)
    return [stream.next()[0] for _ in range(number)]


def updates(loss, params, optimizer):
    """A function batch -> loss that makes one update at every call; like training, it reuses the state's memory."""
    import jax
    import jax.numpy as jnp
    import optax

    def step(params, state, batch):
        value, gradients = jax.value_and_grad(loss)(params, batch)
        changes, state = optimizer.update(gradients, state, params)
        return value, optax.apply_updates(params, changes), state

    run = jax.jit(step, donate_argnums=(0, 1))
    kept = [jax.tree.map(jnp.copy, params), jax.jit(optimizer.init)(params)]

    def call(batch):
        value, *kept[:] = jax.block_until_ready(run(*kept, batch))
        return value

    return call


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--size", choices=SIZES, default="quickstart")
    flags.add_argument("--length", type=int, help="longest sentence; default: the size's own")
    flags.add_argument("--groups", type=int, default=8)
    flags.add_argument("--repetitions", type=int, default=5)
    a = flags.parse_args()

    import flax.linen as nn
    import jax

    from vmsst_jax import models
    from vmsst_jax.models.t5 import T5Config
    from vmsst_jax.models.vmsst import ModelConfig
    from vmsst_jax.objectives.vmsst import vmsst
    from vmsst_jax.training import optimizers, schedules

    width, heads, head, mlp, layers, vocab, pairs, length = SIZES[a.size]
    length = a.length or length
    t5 = T5Config(vocab, width, heads, head, mlp, layers, layers)
    module = models.build("vmsst", ModelConfig(t5=t5, num_languages=21))
    params = jax.jit(lambda: models.init_params(module, jax.random.key(0)))()
    optimizer = optimizers.adafactor(schedules.constant(1e-3))
    key = jax.random.key(1)

    def our_loss(params, batch):
        options = {"lam": LAM, "kl_warmup_steps": KL_WEIGHT_STEPS, "latent": "mean"}
        return nn.apply(lambda bound: vmsst(bound, batch, STEP, key, True, **options)[0], module)({"params": params})

    ours = updates(our_loss, params, optimizer)
    plain = updates(lambda p, b: plain_loss(p, t5, b, key), params, optimizer)
    drawn = batches(pairs, length, a.groups, a.repetitions + 1)
    print(timing.machine())
    real = sum((x > 0).sum() for batch in drawn for x in batch["tokens"]) / len(drawn)
    widths = [x.shape[1] for x in drawn[0]["tokens"]]
    print(f"{real:,.0f} tokens a batch; rows of {widths} in equal groups, padded in all by the plain one to {length}")
    flat = [sentence_order(batch, length) for batch in drawn]
    print(f"losses {float(ours(drawn[0])):.5f} and {float(plain(flat[0])):.5f}")
    ours_next, plain_next = iter(drawn), iter(flat)
    times = timing.take_turns(
        {
            "ours": lambda: ours(next(ours_next)),
            "plain": lambda: plain(next(plain_next)),
        },
        a.repetitions,
    )
    print(timing.seconds(times))
    print(f"ours: {pairs / min(times['ours']):,.1f} pairs/s; plain: {pairs / min(times['plain']):,.1f}")
    print(timing.ratios(times, "ours", "plain"))


if __name__ == "__main__":
    main()
