"""The names of BERT, DistilBERT, RoBERTa, XLM-R and XLM weights in Hugging Face's files, and ours (``models.bert``).

XLM's own ``.pth`` files have the same names without the prefix ``transformer.``. Linear weights are [out, in] there and
[in, out] here. Nothing in this file reads an array: it says what is called how, and which shape it has.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

LEAVES = {"norm": {"scale": "weight", "bias": "bias"}, "dense": {"kernel": "weight", "bias": "bias"}}


@dataclasses.dataclass(frozen=True)
class Names:
    """One family's modules: ours -> theirs ({i} is the layer's number).

    Attributes:
      anchor: a name that only the backbone has and no file leaves out or spells otherwise; what stands before it in a
        file is that file's prefix.
      prefix: the backbone's, in the files of models with a head.
      tables, layer, pooler, head: modules.
      head_bias: the MLM head's bias; ``bias_copy`` is its second name and ``weight_copy`` the token table's.
      ignored: what published files hold beside the model.
    """

    anchor: str
    prefix: str
    tables: dict[str, str]
    layer: dict[str, str]
    head: dict[str, str]
    head_bias: str
    weight_copy: str
    bias_copy: str = ""
    pooler: str = ""
    ignored: tuple[str, ...] = ()


BERT = Names(
    anchor="embeddings.position_embeddings.weight",
    prefix="bert.",
    tables={
        "token_embedder": "embeddings.word_embeddings",
        "position_embedder": "embeddings.position_embeddings",
        "token_type_embedder": "embeddings.token_type_embeddings",
        "embedding_norm": "embeddings.LayerNorm",
    },
    layer={
        "attention/query": "encoder.layer.{i}.attention.self.query",
        "attention/key": "encoder.layer.{i}.attention.self.key",
        "attention/value": "encoder.layer.{i}.attention.self.value",
        "attention/out": "encoder.layer.{i}.attention.output.dense",
        "attention_norm": "encoder.layer.{i}.attention.output.LayerNorm",
        "mlp/wi": "encoder.layer.{i}.intermediate.dense",
        "mlp/wo": "encoder.layer.{i}.output.dense",
        "mlp_norm": "encoder.layer.{i}.output.LayerNorm",
    },
    head={
        "mlm_head/dense": "cls.predictions.transform.dense",
        "mlm_head/norm": "cls.predictions.transform.LayerNorm",
    },
    head_bias="cls.predictions.bias",
    weight_copy="cls.predictions.decoder.weight",
    bias_copy="cls.predictions.decoder.bias",
    pooler="pooler.dense",
    ignored=("embeddings.position_ids", "cls.seq_relationship.weight", "cls.seq_relationship.bias"),
)
ROBERTA = dataclasses.replace(
    BERT,
    prefix="roberta.",
    head={"mlm_head/dense": "lm_head.dense", "mlm_head/norm": "lm_head.layer_norm"},
    head_bias="lm_head.bias",
    weight_copy="lm_head.decoder.weight",
    bias_copy="lm_head.decoder.bias",
    ignored=("embeddings.position_ids",),
)
DISTILBERT = Names(
    anchor="embeddings.position_embeddings.weight",
    prefix="distilbert.",
    tables={k: v for k, v in BERT.tables.items() if k != "token_type_embedder"},
    layer={
        "attention/query": "transformer.layer.{i}.attention.q_lin",
        "attention/key": "transformer.layer.{i}.attention.k_lin",
        "attention/value": "transformer.layer.{i}.attention.v_lin",
        "attention/out": "transformer.layer.{i}.attention.out_lin",
        "attention_norm": "transformer.layer.{i}.sa_layer_norm",
        "mlp/wi": "transformer.layer.{i}.ffn.lin1",
        "mlp/wo": "transformer.layer.{i}.ffn.lin2",
        "mlp_norm": "transformer.layer.{i}.output_layer_norm",
    },
    head={"mlm_head/dense": "vocab_transform", "mlm_head/norm": "vocab_layer_norm"},
    head_bias="vocab_projector.bias",
    weight_copy="vocab_projector.weight",
    ignored=("embeddings.position_ids",),
)
XLM = Names(
    anchor="layer_norm_emb.weight",
    prefix="transformer.",
    tables={
        "token_embedder": "embeddings",
        "position_embedder": "position_embeddings",
        "language_embedder": "lang_embeddings",
        "embedding_norm": "layer_norm_emb",
    },
    layer={
        "attention/query": "attentions.{i}.q_lin",
        "attention/key": "attentions.{i}.k_lin",
        "attention/value": "attentions.{i}.v_lin",
        "attention/out": "attentions.{i}.out_lin",
        "attention_norm": "layer_norm1.{i}",
        "mlp/wi": "ffns.{i}.lin1",
        "mlp/wo": "ffns.{i}.lin2",
        "mlp_norm": "layer_norm2.{i}",
    },
    head={},
    head_bias="pred_layer.proj.bias",
    weight_copy="pred_layer.proj.weight",
    ignored=("position_ids",),
)
FAMILIES = {
    "bert": BERT,
    "distilbert": DISTILBERT,
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
    "camembert": ROBERTA,
    "xlm": XLM,
}


def layout(config: Mapping) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Every array of the model: our flat name -> (their name without prefix, our shape).

    ``config`` holds the fields of ``models.bert.BertConfig``. Layers are apart (``layers_0``, ...), not stacked.
    """
    names = FAMILIES[config["family"]]
    d, f = config["embed_dim"], config["mlp_dim"]
    rows = {
        "token_embedder": config["vocab_size"],
        "position_embedder": config["max_positions"],
        "token_type_embedder": config["token_types"],
        "language_embedder": config["num_languages"],
    }
    modules = {ours: theirs for ours, theirs in names.tables.items() if rows.get(ours, 1)}
    for i in range(config["num_layers"]):
        modules |= {f"encoder/layers_{i}/{ours}": theirs.format(i=i) for ours, theirs in names.layer.items()}
    if config["pooler"]:
        modules["pooler"] = names.pooler
    if config["mlm_head"] == "dense":
        modules |= names.head
    out = {}
    for ours, theirs in modules.items():
        if ours in rows:
            out[f"{ours}/embedding"] = (f"{theirs}.weight", (rows[ours], d))
            continue
        into, features = {"wi": (d, f), "wo": (f, d)}.get(ours.split("/")[-1], (d, d))
        for leaf, name in LEAVES["norm" if ours.endswith("norm") else "dense"].items():
            out[f"{ours}/{leaf}"] = (f"{theirs}.{name}", (into, features) if leaf == "kernel" else (features,))
    if config["mlm_head"] != "none":
        out["mlm_head/bias"] = (names.head_bias, (config["vocab_size"],))
    return out
