"""Hugging Face's ``config.json`` <-> the configuration of the model kind "encoder" as ``models.build`` takes it."""

from __future__ import annotations

from collections.abc import Mapping

BERT_TYPES = ("bert", "roberta", "xlm-roberta", "camembert")
SUPPORTED = (*BERT_TYPES, "distilbert", "xlm", "t5", "mt5")
# Hugging Face's names of activations -> those of ``models.bert``.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
# (class without a head, class with one)
ARCHITECTURES = {
    "bert": ("BertModel", "BertForMaskedLM"),
    "distilbert": ("DistilBertModel", "DistilBertForMaskedLM"),
    "roberta": ("RobertaModel", "RobertaForMaskedLM"),
    "xlm-roberta": ("XLMRobertaModel", "XLMRobertaForMaskedLM"),
    "camembert": ("CamembertModel", "CamembertForMaskedLM"),
    "xlm": ("XLMModel", "XLMWithLMHeadModel"),
}
ENCODER = {
    "layer": None,
    "pooling": "mean",
    "pool_special": True,
    "special_ids": [],
    "dense": [],
    "normalize": False,
}
COMPUTE = {"dtype": "float32", "scan_layers": False, "remat": "none"}


def config_from_hf(config: Mapping) -> tuple[str, dict]:
    """("encoder", configuration) of a model whose ``config.json`` holds ``config``; pooling is the mean of all tokens.

    The ``params`` of an XLM ``.pth`` file are understood too: pass {"model_type": "xlm", **params}. Which heads and
    tables the weights have is found out by ``hf_encoder.fit_config``; ``pad_id`` is what the file says, and the
    tokenizer knows better (multilingual-e5 pads with 1 while its file says 0).

    Raises:
      ValueError: another family, an option that our modules don't have, or a size that isn't there.
    """
    family = config.get("model_type")
    readers = {"distilbert": _distilbert, "xlm": _xlm, "t5": _t5, "mt5": _t5} | dict.fromkeys(BERT_TYPES, _bert)
    if family not in readers:
        raise ValueError(
            f"config.json has the model_type {family!r}; supported families are {', '.join(SUPPORTED)} "
            "(a T5's encoder is taken)"
        )
    try:
        fields = readers[family](config, family)
    except KeyError as error:
        raise ValueError(
            f"config.json of a {family} model has no {error}; found {', '.join(sorted(map(str, config)))}"
        ) from None
    kind = "t5" if family in ("t5", "mt5") else "bert"
    return "encoder", {"backbone": kind, kind: {**fields, **COMPUTE}, **ENCODER}


def config_to_hf(config: Mapping) -> dict:
    """The ``config.json`` of the backbone, for Hugging Face's class named in its "architectures".

    Raises ValueError for a combination of options that no Hugging Face family has.
    """
    if config["backbone"] == "t5":
        return _t5_to_hf(config["t5"])
    c = config["bert"]
    writers = {"distilbert": _distilbert_to_hf, "xlm": _xlm_to_hf}
    _check_family(c)
    plain, with_head = ARCHITECTURES[c["family"]]
    return {
        "architectures": [plain if c["mlm_head"] == "none" else with_head],
        "model_type": c["family"],
        "vocab_size": c["vocab_size"],
        "max_position_embeddings": c["max_positions"],
        "pad_token_id": c["pad_id"],
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        **writers.get(c["family"], _bert_to_hf)(c),
    }


def _refuse(config: Mapping, family: str, plain: Mapping) -> None:
    """Options whose presence with another value than ``plain``'s would change what is computed."""
    for name, value in plain.items():
        if config.get(name, value) != value:
            raise ValueError(f"{name} = {config[name]!r} of this {family} model is not supported, only {value!r} is")


def _activation(name: str, allowed=ACTIVATIONS) -> str:
    if name not in allowed:
        raise ValueError(f"the activation {name!r} is not supported; known are {', '.join(allowed)}")
    return ACTIVATIONS[name]


def _fields(family: str, **fields) -> dict:
    defaults = {"position_offset": 0, "token_types": 0, "num_languages": 0, "mask_after_layer": False}
    return {"family": family, **defaults, "mlm_head": "none", "pooler": False, **fields}


def _bert(config: Mapping, family: str) -> dict:
    _refuse(config, family, {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False})
    bert = family == "bert"
    pad = config.get("pad_token_id")
    pad = (0 if bert else 1) if pad is None else pad
    return _fields(
        family,
        vocab_size=config["vocab_size"],
        embed_dim=config["hidden_size"],
        num_heads=config["num_attention_heads"],
        mlp_dim=config["intermediate_size"],
        num_layers=config["num_hidden_layers"],
        max_positions=config["max_position_embeddings"],
        position_offset=0 if bert else pad + 1,
        pad_id=pad,
        token_types=config.get("type_vocab_size", 2),
        layer_norm_eps=config.get("layer_norm_eps", 1e-12),
        # RoBERTa's MLM head always has the exact GELU; BERT's has the layers' activation, and so has ours.
        activation=_activation(config.get("hidden_act", "gelu"), ACTIVATIONS if bert else ("gelu",)),
        dropout=config.get("hidden_dropout_prob", 0.1),
        attention_dropout=config.get("attention_probs_dropout_prob", 0.1),
    )


def _bert_to_hf(c: Mapping) -> dict:
    special = {} if c["family"] == "bert" else {"bos_token_id": 0, "eos_token_id": 2}
    return special | {
        "hidden_size": c["embed_dim"],
        "num_hidden_layers": c["num_layers"],
        "num_attention_heads": c["num_heads"],
        "intermediate_size": c["mlp_dim"],
        "hidden_act": {"gelu_tanh": "gelu_new"}.get(c["activation"], c["activation"]),
        "type_vocab_size": c["token_types"],
        "layer_norm_eps": c["layer_norm_eps"],
        "hidden_dropout_prob": c["dropout"],
        "attention_probs_dropout_prob": c["attention_dropout"],
        "position_embedding_type": "absolute",
    }


def _distilbert(config: Mapping, family: str) -> dict:
    return _fields(
        family,
        vocab_size=config["vocab_size"],
        embed_dim=config["dim"],
        num_heads=config["n_heads"],
        mlp_dim=config["hidden_dim"],
        num_layers=config["n_layers"],
        max_positions=config["max_position_embeddings"],
        pad_id=config.get("pad_token_id", 0),
        layer_norm_eps=1e-12,
        activation=_activation(config.get("activation", "gelu")),
        dropout=config.get("dropout", 0.1),
        attention_dropout=config.get("attention_dropout", 0.1),
    )


def _distilbert_to_hf(c: Mapping) -> dict:
    return {
        "dim": c["embed_dim"],
        "n_layers": c["num_layers"],
        "n_heads": c["num_heads"],
        "hidden_dim": c["mlp_dim"],
        "activation": {"gelu_tanh": "gelu_new"}.get(c["activation"], c["activation"]),
        "dropout": c["dropout"],
        "attention_dropout": c["attention_dropout"],
    }


def _xlm(config: Mapping, family: str) -> dict:
    _refuse(config, family, {"causal": False, "is_encoder": True, "asm": False})
    width = config["emb_dim"]
    languages = config.get("n_langs", 1)
    return _fields(
        family,
        # Hugging Face calls "vocab_size" and "pad_token_id" what XLM's own files call "n_words" and "pad_index".
        vocab_size=config["vocab_size"] if "vocab_size" in config else config["n_words"],
        embed_dim=width,
        num_heads=config["n_heads"],
        mlp_dim=4 * width,
        num_layers=config["n_layers"],
        max_positions=config.get("max_position_embeddings", 512),
        pad_id=config.get("pad_token_id", config.get("pad_index", 2)),
        num_languages=languages if languages > 1 and config.get("use_lang_emb", True) else 0,
        layer_norm_eps=config.get("layer_norm_eps", 1e-12),
        activation="gelu" if config.get("gelu_activation", True) else "relu",
        mask_after_layer=True,
        dropout=config.get("dropout", 0.1),
        attention_dropout=config.get("attention_dropout", 0.1),
    )


def _xlm_to_hf(c: Mapping) -> dict:
    return {
        "emb_dim": c["embed_dim"],
        "n_layers": c["num_layers"],
        "n_heads": c["num_heads"],
        "n_langs": max(1, c["num_languages"]),
        "use_lang_emb": c["num_languages"] > 0,
        "gelu_activation": c["activation"] == "gelu",
        "layer_norm_eps": c["layer_norm_eps"],
        "dropout": c["dropout"],
        "attention_dropout": c["attention_dropout"],
        "bos_token_id": 0,
        "eos_token_id": 1,
        "unk_index": 3,
        "mask_index": 5,
    }


def _t5(config: Mapping, family: str) -> dict:
    _refuse(config, family, {"layer_norm_epsilon": 1e-6})
    feed_forward = config.get("feed_forward_proj", "gated-gelu" if family == "mt5" else "relu")
    activations = {"gated-gelu": ["gelu", "linear"], "relu": ["relu"]}
    if feed_forward not in activations:
        raise ValueError(f"feed_forward_proj is {feed_forward!r}; supported are {', '.join(activations)}")
    layers = config["num_layers"]
    return {
        "vocab_size": config["vocab_size"],
        "embed_dim": config["d_model"],
        "num_heads": config["num_heads"],
        "head_dim": config["d_kv"],
        "mlp_dim": config["d_ff"],
        "encoder_layers": layers,
        "decoder_layers": config.get("num_decoder_layers") or layers,
        "mlp_activations": activations[feed_forward],
        "relative_buckets": config.get("relative_attention_num_buckets", 32),
        "relative_max_distance": config.get("relative_attention_max_distance", 128),
        "dropout": config.get("dropout_rate", 0.1),
    }


def _t5_to_hf(c: Mapping) -> dict:
    kinds = {("gelu", "linear"): ("mt5", "MT5EncoderModel", "gated-gelu"), ("relu",): ("t5", "T5EncoderModel", "relu")}
    activations = tuple(c["mlp_activations"])
    if activations not in kinds:
        raise ValueError(f"Hugging Face has no T5 with the MLP {activations}; it has {', '.join(map(str, kinds))}")
    family, architecture, feed_forward = kinds[activations]
    return {
        "architectures": [architecture],
        "model_type": family,
        "vocab_size": c["vocab_size"],
        "d_model": c["embed_dim"],
        "num_heads": c["num_heads"],
        "d_kv": c["head_dim"],
        "d_ff": c["mlp_dim"],
        "num_layers": c["encoder_layers"],
        "num_decoder_layers": c["decoder_layers"],
        "feed_forward_proj": feed_forward,
        "relative_attention_num_buckets": c["relative_buckets"],
        "relative_attention_max_distance": c["relative_max_distance"],
        "dropout_rate": c["dropout"],
        "layer_norm_epsilon": 1e-6,
        "is_encoder_decoder": False,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "torch_dtype": "float32",
    }


def _check_family(c: Mapping) -> None:
    """Refuses options that the family's class would not take from the file, so that the two can't differ in silence."""
    family = c["family"]
    xlm, offset = family == "xlm", 0 if family in ("bert", "distilbert", "xlm") else c["pad_id"] + 1
    wanted = {"position_offset": offset, "mask_after_layer": xlm}
    if family in ("distilbert", "xlm"):
        wanted |= {"token_types": 0, "layer_norm_eps": c["layer_norm_eps"] if xlm else 1e-12}
    if xlm:
        wanted |= {"mlp_dim": 4 * c["embed_dim"], "pooler": False}
    else:
        wanted |= {"num_languages": 0}
    if c["mlm_head"] != "none":
        wanted |= {"mlm_head": "bias" if xlm else "dense"}
    wrong = [f"{name} = {c[name]!r} (there {value!r})" for name, value in wanted.items() if c[name] != value]
    if wrong:
        raise ValueError(f"Hugging Face's {family} cannot be told {', '.join(wrong)}")
