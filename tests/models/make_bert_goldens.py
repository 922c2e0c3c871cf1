"""Writes tests/models/goldens/{bert,distilbert,xlm_roberta,xlm,xlm_languages}.npz: weights, inputs and outputs of tiny
Hugging Face encoders with random weights.

    pip install -e '.[parity]' && python tests/models/make_bert_goldens.py

Made on the CPU in float32. Weights and inputs come from numpy's generator, so the files depend on PyTorch's arithmetic
only. tests/models/test_bert_parity.py compares our encoder with the files; test_bert_parity_live.py, where PyTorch is
installed, checks that the files are what this script makes and repeats the comparison with other seeds and options.
"""

import json
import pathlib

import numpy as np
import torch
import transformers as hf

GOLDENS = pathlib.Path(__file__).parent / "goldens"
VOCAB, LENGTHS = 48, (11, 6, 9)
BERT = dict(
    vocab_size=VOCAB,
    hidden_size=16,
    intermediate_size=20,
    num_hidden_layers=3,
    num_attention_heads=2,
    max_position_embeddings=14,
)
XLM = dict(vocab_size=VOCAB, emb_dim=16, n_layers=3, n_heads=2, max_position_embeddings=12)
DISTILBERT = dict(vocab_size=VOCAB, dim=16, hidden_dim=20, n_layers=3, n_heads=2, max_position_embeddings=12)
# name: (class, configuration, seed). The rare options stand where they cost nothing more.
MODELS = {
    "bert": (hf.BertForPreTraining, hf.BertConfig(**BERT), 0),
    "xlm_roberta": (
        hf.XLMRobertaForMaskedLM,
        hf.XLMRobertaConfig(**BERT, type_vocab_size=1, layer_norm_eps=1e-5, pad_token_id=1),
        1,
    ),
    "xlm": (hf.XLMWithLMHeadModel, hf.XLMConfig(**XLM, n_langs=5, use_lang_emb=False), 2),
    "xlm_languages": (hf.XLMWithLMHeadModel, hf.XLMConfig(**XLM, n_langs=5), 3),
    "distilbert": (hf.DistilBertForMaskedLM, hf.DistilBertConfig(**DISTILBERT), 4),
}


def make_model(name: str, seed: int, **changes):
    """A model of ``MODELS`` with weights from numpy's generator; ``changes`` go into its configuration."""
    model_class, config, _ = MODELS[name]
    model = model_class(type(config)(**{**config.to_dict(), **changes}))
    rng = np.random.default_rng(seed)
    for key, weight in model.named_parameters():
        draw = rng.normal(size=tuple(weight.shape))
        if "norm" in key.lower() and key.endswith("weight"):
            draw = 1.0 + 0.2 * draw
        elif weight.ndim == 1:
            draw *= 0.3
        elif "embeddings" not in key:
            draw *= weight.shape[1] ** -0.5
        weight.data = torch.tensor(draw, dtype=torch.float32)
    model.set_attn_implementation("eager")
    return model.eval()


def make_inputs(name: str, seed: int) -> dict[str, np.ndarray]:
    """Padded token ids, with languages or token types for the models that know them."""
    config, rng = MODELS[name][1], np.random.default_rng(seed)
    tokens = np.full((len(LENGTHS), max(LENGTHS)), config.pad_token_id, np.int32)
    for row, n in zip(tokens, LENGTHS, strict=True):
        row[:n] = rng.integers(6, VOCAB, n)
    inputs = {"tokens": tokens}
    if name == "xlm_languages":
        inputs["languages"] = rng.integers(0, 5, tokens.shape).astype(np.int32)
    if name == "bert":
        inputs["token_types"] = rng.integers(0, 2, tokens.shape).astype(np.int32)
    return inputs


def forward(model, inputs: dict[str, np.ndarray]):
    """(tuple of every hidden state, MLM logits, pooler output or None)."""
    theirs = {"tokens": "input_ids", "languages": "langs", "token_types": "token_type_ids"}
    given = {theirs[k]: torch.tensor(v, dtype=torch.long) for k, v in inputs.items()}
    given["attention_mask"] = (given["input_ids"] != model.config.pad_token_id).long()
    out = model(**given, output_hidden_states=True)
    pooler = getattr(model.base_model, "pooler", None)
    logits = out["prediction_logits"] if "prediction_logits" in out else out["logits"]
    return out.hidden_states, logits, None if pooler is None else pooler(out.hidden_states[-1])


def weights_of(model) -> dict[str, np.ndarray]:
    """Every weight under one name, as Hugging Face's files have them."""
    return {k: v.detach().numpy() for k, v in model.state_dict().items() if k not in model._tied_weights_keys}


@torch.no_grad()
def make_arrays(name: str, seed: int) -> dict[str, np.ndarray]:
    """Everything that goes into one golden file."""
    model, inputs = make_model(name, seed), make_inputs(name, seed)
    states, logits, pooled = forward(model, inputs)
    weights = {f"weights/{k}": v for k, v in weights_of(model).items()}
    outputs = {"states": torch.stack(states).numpy(), "logits": logits.numpy()}
    if pooled is not None:
        outputs["pooled"] = pooled.numpy()
    config = np.array(json.dumps(model.config.to_dict()))
    return {f"inputs/{k}": v for k, v in inputs.items()} | weights | outputs | {"config": config}


def main():
    GOLDENS.mkdir(exist_ok=True)
    for name, (_, _, seed) in MODELS.items():
        path = GOLDENS / f"{name}.npz"
        np.savez_compressed(path, **make_arrays(name, seed))
        print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
