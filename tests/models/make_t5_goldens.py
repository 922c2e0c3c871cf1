"""Writes tests/models/goldens/*.npz: weights, inputs and outputs of tiny Hugging Face (m)T5 models with random weights.

    pip install -e '.[parity]' && python tests/models/make_t5_goldens.py

Made on the CPU in float32. Weights and inputs come from numpy's generator, so the files depend on PyTorch's arithmetic
only. tests/models/test_t5_parity.py compares our stacks with the files; test_t5_parity_live.py, where PyTorch is
installed, checks that the files are what this script makes and repeats the comparison with other seeds.
"""

import pathlib

import numpy as np
import torch
from transformers import MT5Config, MT5ForConditionalGeneration, T5Config, T5ForConditionalGeneration
from transformers.models.t5.modeling_t5 import T5Attention

GOLDENS = pathlib.Path(__file__).parent / "goldens"
# heads x head width differs from the model's width, so that a transposed kernel can't pass.
SIZES = dict(vocab_size=48, d_model=16, d_ff=20, num_layers=3, num_decoder_layers=2, num_heads=2, d_kv=12)
SEEDS = {"mt5": 0, "t5_1_0": 1}


def make_model(name: str, seed: int):
    """ "mt5": gated GELU, output layer of its own. "t5_1_0": ReLU, output tied to the token table and scaled."""
    if name == "mt5":
        model = MT5ForConditionalGeneration(MT5Config(**SIZES, feed_forward_proj="gated-gelu"))
        # transformers 5 ties every new model; files of mT5 have separate weights, which loading them keeps apart.
        model.lm_head.weight = torch.nn.Parameter(torch.empty(SIZES["vocab_size"], SIZES["d_model"]))
    else:
        model = T5ForConditionalGeneration(T5Config(**SIZES, feed_forward_proj="relu", decoder_start_token_id=0))
    rng = np.random.default_rng(seed)
    for key, weight in model.named_parameters():
        draw = rng.normal(size=tuple(weight.shape))
        if key.endswith("norm.weight"):
            draw = 1.0 + 0.2 * draw
        elif key.endswith((".q.weight", ".k.weight")):
            draw *= (weight.shape[1] ** 2 * SIZES["d_kv"]) ** -0.25  # logits of about unit size
        elif not key.startswith("shared") and "relative_attention_bias" not in key:
            draw *= weight.shape[1] ** -0.5
        weight.data = torch.tensor(draw, dtype=torch.float32)
    model.set_attn_implementation("eager")
    return model.eval()


def make_inputs(seed: int) -> dict[str, np.ndarray]:
    """Token ids: a padded batch of 40 tokens (logarithmic buckets) and a row of 150 (beyond the greatest distance)."""
    rng = np.random.default_rng(seed)

    def rows(*lengths):
        tokens = np.zeros((len(lengths), max(lengths)), np.int32)
        for row, n in zip(tokens, lengths, strict=True):
            row[:n] = [*rng.integers(2, SIZES["vocab_size"], n - 1), 1]
        return tokens

    return {"tokens": rows(40, 23), "targets": rows(31, 40), "long_tokens": rows(150), "long_targets": rows(150)}


def shift_right(targets: np.ndarray) -> np.ndarray:
    """Decoder inputs: the pad id, then all targets but the last."""
    return np.pad(targets[:, :-1], ((0, 0), (1, 0)))


def forward(model, tokens: np.ndarray, targets: np.ndarray):
    """(every encoder state, last decoder state, logits), with padding masked in the encoder and cross-attention."""
    ids, inputs = (torch.tensor(x, dtype=torch.long) for x in (tokens, shift_right(targets)))
    return model(input_ids=ids, attention_mask=(ids > 0).long(), decoder_input_ids=inputs, output_hidden_states=True)


@torch.no_grad()
def make_arrays(name: str, seed: int) -> dict[str, np.ndarray]:
    """Everything that goes into one golden file."""
    model, inputs = make_model(name, seed), make_inputs(seed)
    short = forward(model, inputs["tokens"], inputs["targets"])
    long = forward(model, inputs["long_tokens"], inputs["long_targets"])
    # Unlike state_dict, this names a tied table once, as Hugging Face's files do.
    weights = {f"weights/{k}": v.numpy() for k, v in model.named_parameters()}
    return (
        inputs
        | weights
        | {
            "encoder_states": torch.stack(short.encoder_hidden_states).numpy(),
            "decoder_state": short.decoder_hidden_states[-1].numpy(),
            "logits": short.logits.numpy(),
            "long_encoder_state": long.encoder_last_hidden_state.numpy(),
            "long_decoder_state": long.decoder_hidden_states[-1].numpy(),
        }
    )


def buckets(bidirectional: bool) -> np.ndarray:
    """The bucket of every distance query - key from -200 to 200, for 32 buckets up to distance 128."""
    key_minus_query = -torch.arange(-200, 201)
    return T5Attention._relative_position_bucket(key_minus_query, bidirectional=bidirectional).numpy().astype(np.int8)


def main():
    GOLDENS.mkdir(exist_ok=True)
    for name, seed in SEEDS.items():
        np.savez_compressed(GOLDENS / f"{name}.npz", **make_arrays(name, seed))
    np.savez_compressed(GOLDENS / "relative_buckets.npz", encoder=buckets(True), decoder=buckets(False))
    for path in sorted(GOLDENS.iterdir()):
        print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
