"""Translation models started from a masked language model: it becomes their encoder and their decoder (METHODS 4.3)."""

from __future__ import annotations

from collections.abc import Mapping

from vmsst_jax.interop import trees

# What no language model has: the decoder's attention to the encoder.
CROSS_ATTENTION = "decoder/layers_\\d+/cross_attention(_norm)?/.*"


def takes_language_models(target: Mapping) -> bool:
    """Whether a model with parameters of these flat names is a translation model."""
    return "encoder/language_embedder/embedding" in target and "decoder/language_embedder/embedding" in target


def parameters(params: Mapping) -> dict:
    """{flat name: array} of a translation model from the parameters of an encoder with a masked language model head."""
    encoder = params.get("encoder", params)  # CCP has it one level down
    backbone = dict(encoder["backbone"])
    if "layers" in backbone["encoder"]:
        backbone["encoder"] = trees.unstack_layers(backbone["encoder"])
    head = backbone.pop("mlm_head", {})
    tables = {name: part for name, part in backbone.items() if name != "encoder"}
    decoder = {**tables, **backbone["encoder"], **({"mlm_head": head} if head else {})}
    return trees.flatten({"encoder": backbone, "decoder": decoder})


def check_languages(languages, source) -> None:
    """ValueError where the model ``source`` (``LoadedModel``) does not know one of a run's ``languages``."""
    if absent := [code for code in languages.codes if code not in source.languages.codes]:
        raise ValueError(
            f"{source.directory} knows the languages {', '.join(source.languages.codes)}, this run also has "
            f"{', '.join(absent)}: train the language model on all languages that are to be translated"
        )
