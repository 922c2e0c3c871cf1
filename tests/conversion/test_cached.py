"""A foreign model where one of our own is wanted: converted once, and again when it changes."""

import itertools
import os

import numpy as np
import pytest

import vmsst_jax
from vmsst_jax import embed
from vmsst_jax.conversion import cached, read
from vmsst_jax.retrieval import cache

TEXTS = ["one two three", "ten"]


def test_converted_once(bert_folder, tmp_path, monkeypatch):
    first = vmsst_jax.load(bert_folder).encode(TEXTS)
    copy = tmp_path / "bert.vmsst_jax"
    assert (copy / "checkpoints" / "0").is_dir()
    reading = read.read
    monkeypatch.setattr(read, "read", lambda *_: pytest.fail("converted again"))
    np.testing.assert_array_equal(vmsst_jax.load(bert_folder).encode(TEXTS), first)
    assert vmsst_jax.load(bert_folder, pooling="cls", prefix="ten ").embedding["prefix"] == "ten "

    monkeypatch.setattr(read, "read", reading)
    os.utime(bert_folder / "config.json", ns=(1, 1))
    before = cached.fingerprint(bert_folder)
    vmsst_jax.load(bert_folder)
    assert vmsst_jax.load(bert_folder).source["origin"]["fingerprint"] == before


def test_an_unfinished_copy_is_made_anew(bert_folder, tmp_path):
    (tmp_path / "bert.vmsst_jax" / "checkpoints").mkdir(parents=True)
    assert vmsst_jax.load(bert_folder).encode(TEXTS).shape == (2, 16)


def test_in_a_folder_of_ones_choice(bert_folder, tmp_path):
    (tmp_path / "text").write_text("one two\nten\n")
    flags = [f"--input={tmp_path / 'text'}", f"--output={tmp_path / 'out.npy'}", f"--cache_dir={tmp_path / 'cache'}"]
    embed.main([f"--checkpoint={bert_folder}", *flags, "--layer=1", "--skip_special_tokens"])
    assert len(list((tmp_path / "cache").iterdir())) == 1 and not (tmp_path / "bert.vmsst_jax").exists()
    other = vmsst_jax.load(bert_folder, cache_dir=tmp_path / "cache", layer=1, pool_special=False)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), other.encode(["one two", "ten"]), atol=1e-6)
    assert other.describe()["layer"] == 1


def test_every_option_has_vectors_of_its_own(bert_folder, tmp_path):
    options = ({}, {"layer": 1}, {"pooling": "max"}, {"pool_special": False}, {"prefix": "query: "}, {"max_length": 3})
    fresh, cached_vectors, prints = [], [], set()
    for chosen in options:
        model = vmsst_jax.load(bert_folder, **chosen)
        prints.add(model.fingerprint())
        fresh.append(model.encode(TEXTS))
        cached_vectors.append(cache.Cached(model, tmp_path / "vectors").encode(TEXTS))
    assert len(prints) == len(options)
    np.testing.assert_array_equal(cached_vectors, fresh)
    assert all(np.abs(a - b).max() > 1e-3 for a, b in itertools.combinations(fresh, 2))
    assert [vmsst_jax.load(bert_folder, **o).describe()["pool_special"] for o in options[2:4]] == [True, False]


def test_options_that_a_trained_model_does_not_have(bert_folder, tmp_path):
    with pytest.raises(ValueError, match="layer is 7; this backbone has 0"):
        vmsst_jax.load(bert_folder, layer=7)
