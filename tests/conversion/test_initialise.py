"""A converted mT5 is what the 24-layer recipes start from, with their own patterns for what may differ."""

import ast
import pathlib
import re

import jax
import numpy as np
import pytest

from vmsst_jax import convert, sharding
from vmsst_jax.data.languages import Languages
from vmsst_jax.training import optimizers, schedules, warm_start

ROOT = pathlib.Path(__file__).parents[2]
SIZES = {"vocab_size": 32, "mlp_dim": 24, "scan_layers": True}


def macro(name, *files):
    """The last value of a gin macro that is a Python literal."""
    text = "\n".join((ROOT / "gin" / file).read_text() for file in files)
    values = re.findall(rf"^{name} = (\(.*?^\)|.*?$)", text, flags=re.MULTILINE | re.DOTALL)
    return ast.literal_eval(values[-1])


@pytest.mark.parametrize("kind", ["vmsst", "bitranslation", "contrastive"])
def test_recipes_start_from_it(t5_folder, t5_state, t5_tokenizer, tiny_model, tmp_path, kind, caplog):
    convert.main([f"--input={t5_folder}", f"--output={tmp_path / 'mt5_large'}"])
    files = ("include/mt5_large.gin", f"{kind}_24l.gin")
    allowed = [macro("NOT_IN_MT5", *files), macro("NOT_TAKEN", *files)]
    init = warm_start.from_checkpoint(tmp_path / "mt5_large", t5_tokenizer, Languages(["en", "de", "fr"]), allowed)
    module, mesh = tiny_model(kind, **SIZES), sharding.make_mesh(data=8)
    state = warm_start.initial_state(module, optimizers.adafactor(schedules.constant()), 0, mesh, init)
    wo = state.params["semantic_encoder"]["layers"]["mlp"]["wo"]["kernel"]
    np.testing.assert_array_equal(wo[1], t5_state["encoder.block.1.layer.1.DenseReluDense.wo.weight"].T)
    table = np.asarray(state.params["token_embedder"]["embedding"])
    np.testing.assert_array_equal(table[:28], t5_state["shared.weight"])
    assert table.shape == (32, 16) and "28 of the T5's 28 rows are taken, 4 are new and random" in caplog.text
    if kind != "contrastive":
        head = np.asarray(state.params["decoder"]["logits_dense"]["kernel"])
        np.testing.assert_array_equal(head[:, :28], t5_state["lm_head.weight"].T)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(state.params))


def test_what_can_not_start_it(bert_folder, bert_tokenizer, t5_tokenizer, t5_folder, tmp_path, tiny_model):
    convert.main([f"--input={bert_folder}", f"--output={tmp_path / 'own'}"])
    init = warm_start.from_checkpoint(tmp_path / "own", bert_tokenizer, Languages(["en"]))
    mesh = sharding.make_mesh(data=8)
    with pytest.raises(ValueError, match="is a bert encoder: only a T5's parameters fit"):
        warm_start.initial_state(tiny_model("contrastive"), optimizers.adam(schedules.constant()), 0, mesh, init)
    convert.main([f"--input={t5_folder}", f"--output={tmp_path / 'start'}"])
    with pytest.raises(ValueError, match="was trained with another vocabulary"):
        warm_start.from_checkpoint(tmp_path / "start", bert_tokenizer, Languages(["en"]))
