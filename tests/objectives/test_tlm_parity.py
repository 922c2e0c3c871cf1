"""TLM against transformers and PyTorch: XLM's forward pass, its loss on masked rows of pairs, and one step of Adam.

pip install -e '.[parity,test]' && pytest -m parity
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vmsst_jax import models, sharding
from vmsst_jax.interop import hf_config, hf_encoder
from vmsst_jax.objectives.masked_lm import masked_lm
from vmsst_jax.objectives.masking import mask_tokens
from vmsst_jax.training import optimizers, schedules, state
from vmsst_jax.training.step import train_step

EOS, PAD, MASK, VOCAB = 1, 2, 5, 60
OPTIONS = {"mask_id": MASK, "special_ids": (PAD,)}
pytestmark = pytest.mark.parity


def pairs(rows=16, width=24, seed=0):
    rng = np.random.default_rng(seed)
    tokens = np.full((rows, width), PAD, np.int32)
    positions, languages = np.tile(np.arange(width, dtype=np.int32), (rows, 1)), np.zeros((rows, width), np.int32)
    for r in range(rows):
        a, b = rng.integers(1, 11, 2)
        row = [EOS, *rng.integers(14, VOCAB, a), EOS, EOS, *rng.integers(14, VOCAB, b), EOS]
        tokens[r, : len(row)] = row
        positions[r, a + 2 :] -= a + 2
        languages[r, a + 2 :] = 1
    return {"tokens": tokens, "positions": positions, "languages": languages}


@pytest.fixture(scope="module", params=[False, True], ids=["xlm-100", "with languages"])
def both(request):
    """(torch, transformers' model, our module, its parameters, configuration) with the same weights."""
    reason = "needs PyTorch and transformers: pip install 'vmsst_jax[parity]'"
    torch = pytest.importorskip("torch", reason=reason)
    hf = pytest.importorskip("transformers", reason=reason)
    torch.manual_seed(0)
    sizes = dict(vocab_size=VOCAB, emb_dim=32, n_layers=3, n_heads=4, max_position_embeddings=24, n_langs=2)
    options = dict(use_lang_emb=request.param, dropout=0.0, attention_dropout=0.0, embed_init_std=0.3, init_std=0.1)
    model = hf.XLMWithLMHeadModel(hf.XLMConfig(**sizes, **options))
    model.set_attn_implementation("eager")
    weights = {k: v.detach().numpy().copy() for k, v in model.named_parameters()}
    _, config = hf_config.config_from_hf(model.config.to_dict())
    config = hf_encoder.fit_config(config, weights)
    for name in ("dropout", "attention_dropout"):
        assert config["bert"][name] == 0.0
    module, params = models.build("encoder", config), hf_encoder.to_params(weights, config).params
    return torch, model, module, {"backbone": params}, config


def theirs(torch, model, batch, inputs):
    """Logits of rows whose positions start anew."""
    given = {"position_ids": torch.tensor(batch["positions"]).long()}
    if model.config.use_lang_emb:
        given["langs"] = torch.tensor(batch["languages"]).long()
    mask = torch.tensor(batch["tokens"] != PAD).long()
    return model(input_ids=torch.tensor(np.array(inputs)).long(), attention_mask=mask, **given).logits


def their_loss(torch, logits, positions, ids, weights):
    rows, places = np.nonzero(weights)
    at = logits[torch.tensor(rows), torch.tensor(positions[rows, places]).long()]
    return torch.nn.functional.cross_entropy(at, torch.tensor(ids[rows, places]).long())


def masked(key, batch):
    return [np.array(x) for x in mask_tokens(key, jnp.asarray(batch["tokens"]), vocab_size=VOCAB, **OPTIONS)]


def test_forward_and_loss(both):
    torch, model, module, params, _ = both
    batch = pairs()
    inputs, positions, ids, weights = masked(jax.random.key(5), batch)
    logits = theirs(torch, model, batch, inputs)
    languages = batch["languages"] if module.has_languages else None

    def ours(m):
        return m.backbone.logits(m.backbone(inputs, positions=batch["positions"], languages=languages))

    real = batch["tokens"] != PAD
    found = jax.jit(lambda p: module.apply({"params": p}, method=ours))(params)
    np.testing.assert_allclose(found[real], logits.detach().numpy()[real], rtol=1e-4, atol=1e-4)

    hidden = weights > 0
    total, _ = module.apply(
        {"params": params}, inputs, positions, np.where(hidden, ids, 0), np.full(len(ids), 1 / hidden.sum()),
        token_positions=batch["positions"], languages=languages, chunk_bytes=4 * 16 * 20, method="masked_nll",
    )  # fmt: skip
    wanted = their_loss(torch, logits, positions, ids, weights)
    assert float(total) == pytest.approx(float(wanted.detach()), rel=1e-5)


def test_a_step_of_adam_is_pytorchs(both):
    """The recipe's optimizer: Adam after a bound on the global norm, at XLM's inverse square root rate."""
    torch, model, module, params, config = both
    rate = schedules.inverse_sqrt(peak=1e-2, warmup=10, start=1e-3)
    optimizer = optimizers.adam(rate, b1=0.9, b2=0.98, eps=1e-8, clip=0.5)
    mesh = sharding.make_mesh(devices=jax.devices()[:1])
    batch, run_key = pairs(seed=1), jax.random.key_data(jax.random.key(7))
    start = state.TrainState(
        jnp.zeros((), jnp.int32), jax.tree.map(jnp.array, params), optimizer.init(params), {}, run_key
    )
    step = train_step(module, functools.partial(masked_lm, **OPTIONS), optimizer, stream=0)
    with jax.set_mesh(mesh):
        after, metrics = jax.jit(step)(start, batch)

    key = jax.random.wrap_key_data(run_key)
    for number in (0, 0, 0):  # step, stream, micro-batch
        key = jax.random.fold_in(key, number)
    inputs, positions, ids, weights = masked(jax.random.split(key)[0], batch)
    before = {k: v.detach().numpy().copy() for k, v in model.named_parameters()}
    model.train()
    adam = torch.optim.Adam(model.parameters(), lr=float(rate(0)), betas=(0.9, 0.98), eps=1e-8)
    adam.zero_grad()
    loss = their_loss(torch, theirs(torch, model, batch, inputs), positions, ids, weights)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    adam.step()
    assert float(metrics["loss"]) == pytest.approx(float(loss.detach()), rel=1e-5)
    assert float(metrics["gradient_norm"]) == pytest.approx(float(norm), rel=1e-4) and float(norm) > 0.5

    written = hf_encoder.from_params(after.params["backbone"], config)
    moved = 0.0
    for name, value in model.named_parameters():
        np.testing.assert_allclose(written[name], value.detach().numpy(), rtol=0, atol=1e-4, err_msg=name)
        moved = max(moved, float(np.abs(value.detach().numpy() - before[name]).max()))
        value.data = torch.tensor(before[name])  # the module's other tests see the weights as they were
    assert moved == pytest.approx(float(rate(0)), rel=0.01)  # Adam's first step is as long as the rate
