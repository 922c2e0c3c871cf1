"""VMSST from an mT5: which parameter comes from where, and rows that one side lacks."""

import jax
import numpy as np
import pytest

from vmsst_jax import models
from vmsst_jax.interop import trees
from vmsst_jax.training import t5_start

NOT_TAKEN = ("encoder_decoder_attention", "pre_cross_attention_layer_norm")


@pytest.fixture(scope="module")
def backbone():
    """An mT5 of the sizes of ``tiny_model``, every array filled with numbers of its own."""
    rng = np.random.default_rng(0)
    d, inner, f, v = 16, 16, 32, 50

    def layer(names, norms):
        attention = {"query": (d, inner), "key": (d, inner), "value": (d, inner), "out": (inner, d)}
        shapes = {f"{name}/{p}/kernel": shape for name in names for p, shape in attention.items()}
        shapes |= {"mlp/wi_0/kernel": (d, f), "mlp/wi_1/kernel": (d, f), "mlp/wo/kernel": (f, d)}
        return shapes | {f"{norm}/scale": (d,) for norm in norms}

    flat = {"token_embedder/embedding": (v, d), "decoder/logits_dense/kernel": (d, v)}
    layers = {
        "encoder": layer(["attention"], ["pre_attention_layer_norm", "pre_mlp_layer_norm"]),
        "decoder": layer(
            ["self_attention", "encoder_decoder_attention"],
            ["pre_self_attention_layer_norm", "pre_cross_attention_layer_norm", "pre_mlp_layer_norm"],
        ),
    }
    for stack, shapes in layers.items():
        flat |= {f"{stack}/{stack}_norm/scale": (d,), f"{stack}/relpos_bias/rel_embedding": (2, 32)}
        flat |= {f"{stack}/layers_{i}/{name}": shape for i in range(2) for name, shape in shapes.items()}
    return trees.nest({name: rng.normal(size=shape).astype(np.float32) for name, shape in flat.items()})


def fresh(module):
    return trees.flatten(jax.tree.map(np.asarray, models.init_params(module, jax.random.key(0))))


@pytest.mark.parametrize("scan", [False, True])
def test_both_encoders_and_the_decoder(tiny_model, backbone, scan):
    target = fresh(tiny_model("vmsst", scan_layers=scan))
    given = t5_start.parameters(backbone, target, pieces=50)
    encoder = trees.flatten(trees.stack_layers(backbone["encoder"]) if scan else backbone["encoder"])
    for name, array in encoder.items():
        np.testing.assert_array_equal(given[f"semantic_encoder/{name}"], array)
        np.testing.assert_array_equal(given[f"language_encoder/{name}"], array)
    np.testing.assert_array_equal(given["decoder/logits_dense/kernel"], backbone["decoder"]["logits_dense"]["kernel"])
    layer = "layers" if scan else "layers_1"
    query = given[f"decoder/{layer}/self_attention/query/kernel"]
    expected = backbone["decoder"]["layers_1"]["self_attention"]["query"]["kernel"]
    np.testing.assert_array_equal(query[1] if scan else query, expected)
    left_over = [name for name in given if name not in target]
    assert left_over and all(any(part in name for part in NOT_TAKEN) for name in left_over)
    random = {name.split("/")[0] for name in target if name not in given}
    assert random == {
        *("semantic_mean", "semantic_logvar", "language_mean", "language_logvar"),
        *("language_tags", "decoder_tags", "decoder"),  # the decoder's part for the latent vectors
    }
    for name in set(given) & set(target):
        assert given[name].shape == target[name].shape, name


def test_several_language_encoders(tiny_model, backbone):
    target = fresh(tiny_model("vmsst", encoder_of_language=(0, 1, 0)))
    given = t5_start.parameters(backbone, target, pieces=50)
    name = "layers_0/mlp/wo/kernel"
    stacked = given[f"language_encoder/stack/{name}"]
    assert stacked.shape == target[f"language_encoder/stack/{name}"].shape
    np.testing.assert_array_equal(stacked[1], backbone["encoder"]["layers_0"]["mlp"]["wo"]["kernel"])


def test_contrastive_takes_the_encoder_alone(tiny_model, backbone):
    target = fresh(tiny_model("contrastive"))
    given = t5_start.parameters(backbone, target, pieces=50)
    assert set(target) - set(given) == {"semantic_mean/kernel"} and not set(given) - set(target)


@pytest.mark.parametrize("rows", [44, 60])
def test_vocabulary_rows_that_differ(tiny_model, backbone, rows, caplog):
    target = fresh(tiny_model("vmsst", vocab_size=rows))
    given = t5_start.parameters(backbone, target, pieces=44)
    table, head = given["token_embedder/embedding"], given["decoder/logits_dense/kernel"]
    assert table.shape == (rows, 16) and head.shape == (16, rows)
    kept = min(rows, 50)
    np.testing.assert_array_equal(table[:kept], backbone["token_embedder"]["embedding"][:kept])
    np.testing.assert_array_equal(head[:, :kept], backbone["decoder"]["logits_dense"]["kernel"][:, :kept])
    np.testing.assert_array_equal(table[kept:], target["token_embedder/embedding"][kept:])
    assert f"{kept} of the T5's 50 rows are taken" in caplog.text


def test_a_vocabulary_that_does_not_fit(tiny_model, backbone):
    target = fresh(tiny_model("vmsst", vocab_size=44))
    with pytest.raises(ValueError, match="the vocabulary has 45 pieces, the model rows for 44"):
        t5_start.parameters(backbone, target, pieces=45)
