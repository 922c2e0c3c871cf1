"""Parameters of another run: what does not fit is listed by name."""

import types

import jax
import pytest

from vmsst_jax import models
from vmsst_jax.data.languages import Languages
from vmsst_jax.training import checkpoint, warm_start


def test_another_width_lists_the_names(tiny_model, monkeypatch):
    source, target = (models.init_params(tiny_model("vmsst", embed_dim=d), jax.random.key(0)) for d in (8, 16))
    table, tokenizer = Languages(["en", "de", "fr"]), types.SimpleNamespace(sha256="0" * 64)
    host = {"model": {"kind": "vmsst", "config": {}}}
    loaded = types.SimpleNamespace(tokenizer=tokenizer, params=source, languages=table, host=host, directory="a run")
    monkeypatch.setattr(checkpoint, "load_model", lambda path: loaded)
    with pytest.raises(
        ValueError,
        match=r"(?s)do not fit.*decoder_tags/embedding: \(3, 16\) in this model, \(3, 8\).*init_allow_missing",
    ):
        warm_start.from_checkpoint("a run", tokenizer, table)(target)
