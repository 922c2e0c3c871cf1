"""Translations do not depend on what is translated beside them, on batches or on devices; wrong input is named."""

import dataclasses

import jax
import numpy as np
import pytest

from vmsst_jax import sharding
from vmsst_jax.models.generation import Decoding
from vmsst_jax.translation.translator import Translator

TEXTS = [
    "the red and the town",
    "",
    "the big ship",
    "a",
    "the old and the new and the bird",
    "  ",
    "hill",
]


def by_model(tiny, options):
    """Every sentence through the model itself, one by one in rows of one width."""
    module, params, tokenizer, _ = tiny
    run = jax.jit(lambda p, *args: module.apply({"params": p}, *args, options, method="translate")[0])
    out = []
    for text in TEXTS:
        pieces = tokenizer.pieces([text])[0]
        row = np.array([[2, *pieces, 2] + [1] * (16 - len(pieces) - 2)], np.int32)
        found = run(params, row, np.array([0], np.int32), np.array([2], np.int32))[0].tolist()
        out.append(" ".join(tokenizer.decode([t for t in found if t not in (1, 2)]).split()) if pieces else "")
    return out


@pytest.mark.parametrize("options", [{}, {"beams": 3, "length_penalty": 0.5}], ids=["greedy", "beams"])
def test_one_by_one_and_together(tiny, make, options):
    translator = make(decoding=Decoding(**options))
    found = translator.translate(TEXTS, "en", "fr")
    assert found[1] == found[5] == "" and len(set(found)) > 3
    assert found == by_model(tiny, Decoding(**options))
    assert translator.translate(TEXTS[::-1], "en", "fr") == found[::-1]
    assert translator.translate(TEXTS[2:3], "en", "fr") == found[2:3]
    assert translator.counts["sentences"] == 15 and translator.counts["empty"] == 4
    if not options:
        assert make(batch_tokens=64).translate(TEXTS, "en", "fr") == found


def test_directions_differ_and_languages_must_be_known(make):
    translator = make()
    assert translator.translate(TEXTS, "en", "fr") != translator.translate(TEXTS, "en", "de")
    with pytest.raises(ValueError, match="unknown language 'xx'"):
        translator.translate(TEXTS, "en", "xx")
    with pytest.raises(ValueError, match="source and target are both 'en'"):
        translator.translate(TEXTS, "en", "en")
    with pytest.raises(ValueError, match="found a single string"):
        translator.translate("the red", "en", "de")
    with pytest.raises(ValueError, match="sentence 1 is 5"):
        translator.translate(["a", 5], "en", "de")


def test_samples_depend_on_the_sentences_number_alone(make):
    texts = ["the red and the town", "the big ship"] * 6
    translator = make(decoding=Decoding(sample=True, temperature=1.5), seed=3)
    found = translator.translate(texts, "en", "de")
    assert len(set(found[::2])) > 2
    assert translator.translate(texts[4:9], "en", "de", first=4) == found[4:9]
    assert make(decoding=Decoding(sample=True, temperature=1.5), seed=4).translate(texts, "en", "de") != found


@pytest.mark.parametrize("options", [{}, {"beams": 3}, {"sample": True, "temperature": 2.0}], ids=str)
def test_a_table_with_more_rows_than_pieces(tiny, make, options):
    """Recipes round it up; what no piece stands for is never written, however likely it is."""
    module, params, *rest = tiny
    backbone = dataclasses.replace(module.config.backbone, vocab_size=44 + 6)
    wide = module.clone(config=dataclasses.replace(module.config, backbone=backbone))

    def wider(path, x):
        if "token_embedder" in str(path):
            return np.pad(x, ((0, 6), (0, 0)), constant_values=9.0)
        return np.pad(x, (0, 6), constant_values=50.0) if "mlm_head" in str(path) and x.shape == (44,) else x

    options = {"decoding": Decoding(**options), "max_length": 14}
    found = Translator(wide, jax.tree_util.tree_map_with_path(wider, params), *rest, **options)
    translations = found.translate(TEXTS, "en", "fr")
    assert len(set(translations)) > 3
    if not options["decoding"].sample:
        assert translations == make(**options).translate(TEXTS, "en", "fr")


def test_on_eight_devices(tiny, make):
    module, params, *rest = tiny
    mesh = sharding.make_mesh()
    shared = jax.device_put(params, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()))
    found = Translator(module, shared, *rest, max_length=14, mesh=mesh).translate(TEXTS, "en", "de")
    assert found == make().translate(TEXTS, "en", "de")


def test_what_is_too_long_is_cut_and_counted(make):
    translator = make(max_length=3)
    found = translator.translate([TEXTS[4], "hill"], "en", "de")
    assert translator.counts["truncated"] == 1 and len(found) == 2
    with pytest.raises(ValueError, match="max_length is 50; this model has positions for 1 to 38"):
        make(max_length=50)


def test_fingerprints_tell_models_and_settings_apart(make, tiny):
    prints = {
        make(**options).fingerprint()
        for options in ({}, {"decoding": Decoding(beams=2)}, {"max_length": 12}, {"seed": 1}, {"source": {"step": 3}})
    }
    other = make().with_params(jax.tree.map(lambda x: x + 1, tiny[1]))
    assert len({*prints, other.fingerprint()}) == 5  # where it lies does not count
