"""Sentences per second of ``Embedder.encode`` beside transformers + PyTorch, on one Hugging Face encoder.

    python tests/perf/embedding_speed.py --model=HF_FOLDER --text=FILE [--text=FILE ...] [--prefix="query: "]

Both tokenise, run the encoder in float32 on the CPU and take the mean over tokens. PyTorch gets batches of 64 sentences
sorted by token length, each padded to its longest. The two take turns in one process; what counts is the ratio. The
last line relates the encoder's arithmetic to the rate at which this machine multiplies matrices in JAX. Needs the extra
``parity``.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics

import numpy as np
import timing


def pytorch_encoder(model_dir: str, prefix: str):
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(model_dir), AutoModel.from_pretrained(model_dir).eval()

    @torch.inference_mode()
    def encode(texts, max_length):
        ids = tokenizer([prefix + t for t in texts], truncation=True, max_length=max_length)["input_ids"]
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        out = np.empty((len(ids), model.config.hidden_size), np.float32)
        for start in range(0, len(order), 64):
            members = order[start : start + 64]
            batch = tokenizer.pad({"input_ids": [ids[i] for i in members]}, return_tensors="pt")
            hidden = model(**batch).last_hidden_state
            mask = batch["attention_mask"][..., None].float()
            out[members] = ((hidden * mask).sum(1) / mask.sum(1)).numpy()
        return out, sum(map(len, ids))

    return encode, model.config


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--model", required=True)
    flags.add_argument("--text", action="append", required=True)
    flags.add_argument("--prefix", default="")
    flags.add_argument("--max_length", type=int, default=128)
    flags.add_argument("--sentences", type=int, default=2000)
    flags.add_argument("--repetitions", type=int, default=5)
    a = flags.parse_args()
    texts = [t for f in a.text for t in pathlib.Path(f).read_text("utf-8").split("\n") if t][: a.sentences]

    import vmsst_jax

    print(timing.machine("torch", "transformers"))
    theirs, config = pytorch_encoder(a.model, a.prefix)
    ours = vmsst_jax.load(a.model, max_length=a.max_length, pooling="mean", prefix=a.prefix)
    reference, tokens = theirs(texts, a.max_length)
    print(f"largest difference: {np.abs(ours.encode(texts) - reference).max():.2e}")
    encoders = {"ours": lambda: ours.encode(texts), "pytorch": lambda: theirs(texts, a.max_length)}
    times = timing.take_turns(encoders, a.repetitions)
    for name, seconds in times.items():
        print(f"{name}: {len(texts) / statistics.median(seconds):,.0f} sentences/s (median of {a.repetitions})")
    print(timing.ratios(times, "ours", "pytorch"))
    d, f = config.hidden_size, config.intermediate_size
    work = tokens * config.num_hidden_layers * 2 * (4 * d * d + 2 * d * f) / 1e9
    rate, peak = work / min(times["ours"]), timing.matmul_rate()
    print(f"real tokens' matrix products: {rate:.0f} GFLOP/s, {rate / peak:.0%} of this machine's {peak:.0f} in JAX")


if __name__ == "__main__":
    main()
