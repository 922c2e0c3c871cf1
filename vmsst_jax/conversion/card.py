"""The model card: README.md of a folder that goes out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from vmsst_jax.conversion.model import UNDETERMINED, Model

USE = {
    "sentence_transformers": """```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("FOLDER")
vectors = model.encode(["A sentence.", "Ein Satz."])
```
""",
    "hf": """```python
from transformers import AutoModel, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained("FOLDER"), AutoModel.from_pretrained("FOLDER")
```
""",
}
LICENCE = "LICENCE: to be filled in by whoever publishes this model"


def text(model: Model, form: str) -> str:
    """The card's Markdown for ``form`` "hf" or "sentence_transformers"."""
    languages = [code for code in model.languages if code != UNDETERMINED]
    encoder, _ = model.as_encoder()
    head = ["---", f"license: other  # {LICENCE}", "pipeline_tag: sentence-similarity"]
    head += (
        ["library_name: sentence-transformers"] if form == "sentence_transformers" else ["library_name: transformers"]
    )
    head += ["language:", *(f"- {json.dumps(code)}" for code in languages)] if languages else []
    parts = [
        "\n".join([*head, "---", ""]),
        "# Multilingual sentence embeddings\n",
        f"A model of kind `{model.kind}`, exported by vmsst_jax. {LICENCE}.\n",
        "## Use\n\n" + USE[form],
        "## How a sentence becomes a vector\n\n" + _embedding(model, encoder),
        "## Languages\n\n" + (", ".join(languages) if languages else "Not recorded in the model.") + "\n",
        "## Training\n\n" + _recipe(model),
    ]
    if results := "\n".join(_results(model)):
        parts.append("## Results\n\n| benchmark | languages | score | value |\n|---|---|---|---|\n" + results + "\n")
    return "\n".join(parts)


def _embedding(model: Model, encoder: dict) -> str:
    e = model.embedding
    dense = "".join(f", then a dense layer to {d['features']} ({d['activation']})" for d in encoder["dense"])
    layer = "the last layer" if e["layer"] is None else f"layer {e['layer']}"
    lines = [
        f"- pooling: {encoder['pooling']} over the tokens of {layer}{dense}",
        f"- unit length: {'yes' if e['normalize'] else 'no; compare by cosine'}",
        f"- text before every sentence: {json.dumps(e['prefix'])}",
        f"- longer sentences are cut to {e['max_length']} tokens",
    ]
    return "\n".join(lines) + "\n"


def _recipe(model: Model) -> str:
    if model.gin:
        return f"{model.step:,} updates with this configuration:\n\n```\n{model.gin.strip()}\n```\n"
    origin = {name: value for name, value in model.origin.items() if name in ("form", "model_type") and value}
    return f"Converted, not trained here. Origin: {json.dumps(origin)}\n"


def _results(model: Model) -> Iterator[str]:
    """A row for every mean in the results.json files that ``evaluate`` has left in the model's directory."""
    place = Path(model.origin["path"])
    folder = place.parent.parent / "evaluations"
    for file in sorted(folder.glob("*/step_*/results.json")):
        if model.origin["form"] != "vmsst_jax" or file.parent.name != f"step_{model.step}":
            continue
        result = json.loads(file.read_bytes())
        benchmark = result.get("benchmark", file.parent.parent.name)
        for group, means in result.get("means", {}).items():
            figures = {score: value for score, value in means.items() if isinstance(value, float)}
            for score, value in figures.items():
                yield f"| {benchmark} | {group} ({means.get('languages', '-')}) | {score} | {value:.4f} |"
