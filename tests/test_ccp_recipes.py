"""The recipes of CCP: they parse, their numbers are the paper's, an ablation changes what it says and nothing else."""

import dataclasses
import functools
import math
import pathlib
import re
import types

import gin
import jax
import pytest

from vmsst_jax import config, models, objectives
from vmsst_jax.training import schedules

FOLDER = pathlib.Path(__file__).parents[1] / "gin"
BASE = "ccp_xlmr.gin"
# Everything of XLM-R large's size; smaller recipes, which read a folder of documents, have tests of their own.
RECIPES = [BASE, *sorted(f"ablations/{f.name}" for f in (FOLDER / "ablations").glob("ccp_*.gin"))]
GIVEN = ['INIT_CHECKPOINT = "not/read"', 'CACHE = "not/read"']


@pytest.fixture(scope="module")
def recipe():
    """Function (name) -> what the recipe means, evaluated; nothing is read but tables of languages."""

    @functools.cache
    def evaluated(name):
        arguments = config.configure([name], GIVEN).keywords
        ccp, mlm = arguments["streams"]
        rate = gin.get_configurable(schedules.warmup_linear)()
        return types.SimpleNamespace(
            **arguments,
            ccp=ccp,
            mlm=mlm,
            options=objectives.options(ccp.objective),
            module=arguments["model"](len(arguments["languages"])),
            rates=[float(rate(step)) for step in (0, 5000, 10_000, 55_000, 100_000)],
            adam={name: value for name, value in gin.get_bindings("adam").items() if name != "schedule"},
        )

    yield evaluated
    gin.clear_config()


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_whole_and_says_how_to_run_it(recipe, name):
    r = recipe(name)
    assert r.model_dir == "runs/" + name.removesuffix(".gin")
    header = "\n".join(re.findall(r"^#.*", (FOLDER / name).read_text(), re.MULTILINE))
    assert f"--gin_file={name}" in header
    for word in ("Devices:", "Time:", "Expect:", "--gin.INIT_CHECKPOINT=", "--gin.CACHE=", "common_crawl.data_root="):
        assert word in header
    for stream in (r.ccp, r.mlm):
        objectives.check_model(stream.objective, r.module)
    # Of one update, whatever an ablation does to a micro-batch; and what the banks and 16 devices allow.
    assert r.ccp.data.groups * r.ccp.data.pairs * r.ccp.accumulate == 2048
    assert r.module.config.bank_size % 16 == 0 and r.module.config.bank_size >= 2 * r.ccp.data.pairs


def test_the_papers_numbers(recipe):
    r = recipe(BASE)
    c, bert = r.module.config, r.module.config.encoder.backbone
    assert (bert.num_layers, bert.embed_dim, bert.num_heads, bert.mlp_dim) == (24, 1024, 16, 4096)
    assert (bert.vocab_size, bert.family, bert.mlm_head, c.encoder.pooling) == (250_002, "xlm-roberta", "dense", "cls")
    assert (bert.scan_layers, bert.remat, bert.dtype) == (True, "full", "bfloat16")
    assert (c.bn, c.bank, c.bank_size) == ("asymmetric", "per_language", 32_768)
    assert len(r.languages) == c.num_languages == 108
    assert (r.ccp.data.groups, r.ccp.data.pairs, r.ccp.accumulate, r.ccp.data.exponent) == (16, 32, 4, 0.3)
    assert (r.options["l2_norm"], r.options["temperature"], r.options["bank_mask"]) == (True, 0.1, "none")
    assert r.rates == pytest.approx([0, 1.5e-5, 3e-5, 1.5e-5, 0], abs=1e-9)
    assert r.adam == {"b1": 0.9, "b2": 0.98, "eps": 1e-6, "clip": 1.0}
    assert (r.schedule, r.ccp.weight, r.mlm.weight) == ("random", 1.0, 1.0)
    assert (r.mlm.data.length, objectives.options(r.mlm.objective)["mask_id"]) == (512, 250_001)


def test_the_size_of_the_model(recipe):
    d, f, v = 1024, 4096, 250_002
    layer = 4 * (d * d + d) + 2 * d * f + f + d + 4 * d
    encoder = v * d + 514 * d + d + 2 * d + 24 * layer
    mlm = d * d + d + 2 * d + v
    head = d * d + 2 * d + d * 128 + 128
    params = models.abstract_params(recipe(BASE).module)
    assert sum(math.prod(x.shape) for x in jax.tree.leaves(params)) == encoder + mlm + head


# Ablation -> the settings that differ from its base, of the model, the objective and the pairs.
CHANGES = {
    "no_l2_norm": ({}, {"l2_norm": False}, {}),
    "no_bn": ({"bn": "none"}, {}, {}),
    "vanilla_bn": ({"bn": "vanilla"}, {}, {}),
    "no_l2_norm_no_bn": ({"bn": "none"}, {"l2_norm": False}, {}),
    "no_l2_norm_vanilla_bn": ({"bn": "vanilla"}, {"l2_norm": False}, {}),
    **{f"temperature_{t}": ({}, {"temperature": t}, {}) for t in (0.05, 0.07, 0.2, 0.5)},
    "plain_bank": ({"bank": "plain"}, {}, {}),
    "tagged_bank": ({"bank": "tagged"}, {}, {}),
    "one_group": ({}, {}, {"groups": 1}),
    "en_fr": ({"num_languages": 2}, {}, {"task": "cc_en_fr"}),
    **{f"en_fr_window_{w}": ({"num_languages": 2}, {}, {"task": "cc_en_fr", "window": w}) for w in (1, 2, 3, 10)},
    **{f"en_fr_pairs_{n}": ({"num_languages": 2}, {}, {"task": "cc_en_fr", "pairs": n}) for n in (8, 16)},
}


def test_every_ablation_is_checked():
    assert {f"ablations/ccp_{name}.gin" for name in CHANGES} == {*RECIPES} - {BASE}


@pytest.mark.parametrize("name", CHANGES)
def test_an_ablation_changes_what_it_says_alone(recipe, name):
    base, r = recipe(BASE), recipe(f"ablations/ccp_{name}.gin")
    model, objective, data = CHANGES[name]
    assert r.module.config == dataclasses.replace(base.module.config, **model)
    assert r.options == {**base.options, **objective}
    assert r.ccp.data == dataclasses.replace(base.ccp.data, **data)
    assert (r.rates, r.adam, r.mlm.accumulate) == (base.rates, base.adam, base.mlm.accumulate)
    assert r.languages == (("en", "fr") if "num_languages" in model else base.languages)


@pytest.mark.parametrize("name", ["ccp_small.gin", "ccp_small_alone.gin", "ccp_small_mlm.gin"])
def test_small_recipes(name):
    arguments = config.configure([name], []).keywords
    header = "\n".join(re.findall(r"^#.*", (FOLDER / name).read_text(), re.MULTILINE))
    for word in (f"--gin_file={name}", "--gin.gnome_help.folder=", "Devices:", "Time", "xpect"):
        assert word in header
    assert arguments["model_dir"] == "runs/" + name.removesuffix(".gin")
    module = arguments["model"](len(arguments["languages"]))
    streams = {stream.name: stream for stream in arguments["streams"]}
    assert set(streams) == {"ccp_small.gin": {"ccp", "mlm"}, "ccp_small_alone.gin": {"ccp"}}.get(name, {"mlm"})
    for stream in streams.values():
        objectives.check_model(stream.objective, module)
    if mlm := streams.get("mlm"):
        # The vocabulary is trained by the run: its mask is the last of its ids.
        assert objectives.options(mlm.objective)["mask_id"] in (-1, module.vocab_size - 1)
    if ccp := streams.get("ccp"):
        assert module.config.bank_size >= 2 * ccp.data.pairs
    gin.clear_config()
