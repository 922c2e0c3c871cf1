"""What a pipeline's recipe may say, and what its references become."""

import json

import pytest

from vmsst_jax import command
from vmsst_jax.pipelines import plan

TRAIN = {"command": "train", "recipe": "a.gin", "bindings": {"DATA_DIR": "{data}", "FIRST": "{first}"}}


def made(stages, **more):
    return plan.pipeline(stages, "out", {"data": "/somewhere"}, {"first": "en", "many": ["a", "b"]}, **more)


def test_references(tmp_path):
    found = made(
        {
            "model": TRAIN,
            "to_de": {
                "command": "translate",
                "flags": {"checkpoint": "{model}", "input": "{data}/{first}.txt", "output": "{here}/o", "x": "{many}"},
            },
            "best": {
                "command": "evaluate",
                "settings": {"models": {"{first}": {"layer": "{model:found/results.json:a.best}", "n": 3}}},
            },
        }
    )
    stages = found.stages
    assert [stage.needs for stage in stages.values()] == [(), ("model",), ("model",)]
    # Values are part of what a stage is, places aren't.
    assert stages["model"].bindings == {"DATA_DIR": "{data}", "FIRST": "en"}
    assert found.put_in(stages["model"], stages["model"].bindings) == {"DATA_DIR": "/somewhere", "FIRST": "en"}
    assert command.flag_arguments(found.put_in(stages["to_de"], stages["to_de"].flags)) == [
        "--checkpoint=out/model", "--input=/somewhere/en.txt", "--output=out/to_de/o", "--x=a,b",
    ]  # fmt: skip
    assert command.flag_arguments({"a": None, "b": False, "c": True, "d": 0}) == ["--c", "--d=0"]
    folder = tmp_path / "model" / "found"
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(json.dumps({"a": {"best": 4}}))
    there = plan.Pipeline(stages, tmp_path, {}, {}, "", "")
    assert there.put_in(stages["best"], stages["best"].settings) == {"models": {"en": {"layer": 4, "n": 3}}}
    (folder / "results.json").write_text("{}")
    with pytest.raises(ValueError, match="results.json has no a.best .KeyError: 'a'"):
        there.put_in(stages["best"], stages["best"].settings)


@pytest.mark.parametrize(
    "flags",
    [
        {"overwrite": "{model:report.json:flag}"},
        {"seed": "{model:report.json:n}", "step": "{model:report.json:x}0"},
        {"temperature": ["{model:report.json:a}"], "step": "x{model:report.json:a}"},
    ],
)
def test_flags_of_what_earlier_stages_will_leave(flags):
    """Nothing is read yet, whatever the flag wants and wherever in it the reference stands; their names are checked."""
    usual = {"checkpoint": "{model}", "input": "i", "output": "{here}/o", "source": "en", "target": "de"}
    found = made({"model": TRAIN, "t": {"command": "translate", "flags": usual | flags}})
    plan.check_flags(found, found.stages["t"])
    for wrong in ({"sed": 1}, {"seed": "x"}, {"{model:a:b}": 1}):
        found = made({"model": TRAIN, "t": {"command": "translate", "flags": usual | wrong}})
        with pytest.raises(ValueError, match="flags of stage 't': "):
            plan.check_flags(found, found.stages["t"])


def test_values_may_refer_to_stages():
    stages = {"model": TRAIN, "t": {"command": "translate", "flags": {"input": "{where}/o"}}}
    found = plan.pipeline(stages, "out", {"data": "/d"}, {"first": "en", "where": "{model}"})
    assert found.stages["t"].needs == ("model",)
    assert found.put_in(found.stages["t"], {"input": "{model}/o"}) == {"input": "out/model/o"}
    with pytest.raises(ValueError, match="stage 't' is .*; wanted text for names"):
        made({"t": {"command": "translate", "flags": {("a", "b"): 1}}})


def test_a_folder_that_is_none():
    stage = {"command": "text", "flags": {"folder": "{source}", "input": "{source}/x"}, "inputs": ["{source}"]}
    found = plan.pipeline({"a": stage}, "out", {"source": None})
    assert found.put_in(found.stages["a"], {"folder": "{source}"}) == {"folder": None}
    with pytest.raises(ValueError, match="{source}/x is wanted, and source is None"):
        found.put_in(found.stages["a"], stage["flags"])


def test_what_training_is(tmp_path):
    def resolve(recipes, bindings):
        return "\n".join(["train.model_dir = 'x'", "a.size = %SIZE", "SIZE = 3", *bindings])

    assert plan.definition(made({"model": TRAIN}).stages["model"], resolve) == {
        "command": "train",
        "a.size": "3",
    }


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ({}, "pipeline.stages are {}; wanted"),
        ({"a b": TRAIN}, "a stage is called 'a b'; wanted letters"),
        ({"a": {"command": "dance"}}, "stage 'a' is .*; wanted {'command': one of text, train, translate,"),
        ({"a": {**TRAIN, "flags": {}}}, "stage 'a': there is no 'flags'; known: bindings, command, inputs, recipe"),
        ({"a": {"command": "train", "bindings": {}}}, "stage 'a' has no recipe"),
        ({"a": {**TRAIN, "bindings": {"MODEL_DIR": "x"}}}, "stage 'a' sets MODEL_DIR, which the pipeline chooses"),
        ({"a": {**TRAIN, "bindings": {"x": object}}}, "can't be written into a recipe"),
        ({"a": {**TRAIN, "bindings": {"x": "{b}"}}, "b": TRAIN}, "'a' refers to {b}: there is no 'b'; known: first"),
        ({"a": {**TRAIN, "bindings": {"x": "{dat}"}}}, "there is no 'dat'; did you mean 'data'"),
        ({"a": {**TRAIN, "bindings": {"x": "{data:a.json:b}"}}}, "of 'data', which is no earlier stage"),
        ({"a": TRAIN, "b": {**TRAIN, "inputs": ["{a}/x"]}}, "the input {a}/x is no file from elsewhere"),
        ({"first": TRAIN}, "first is the name of more than one"),
        ({"a": {"command": "text", "flags": ["x"]}}, "stage 'a': flags are .'x'.; wanted"),
        ({"a": {"command": "train", "recipe": 3}}, "stage 'a': recipe is 3; wanted names in brackets"),
        ({"a": {**TRAIN, "inputs": "{data}"}}, "stage 'a': inputs is '{data}'; wanted names in brackets"),
        ({"a": None}, "every stage is None"),
    ],
)
def test_wrong_pipelines_are_refused_before_anything_runs(stages, message):
    with pytest.raises(ValueError, match=message):
        made(stages)


def test_changes_of_a_recipe_that_is_included():
    stages = {
        "a": {"command": "translate", "flags": {"input": "x", "beams": 4}},
        "b": {"command": "train", "recipe": "umt_small.gin", "bindings": {"TRAIN_STEPS": 3, "FIRST": "en"}},
        "c": {"command": "text", "flags": {"output": "{here}"}},
    }
    changes = {"a": {"flags": {"beams": 1}}, "b": {"recipe": "other.gin", "bindings": {"TRAIN_STEPS": 5}}, "c": None}
    made = plan.pipeline(stages, "out", changes=changes).stages
    assert list(made) == ["a", "b"]
    assert made["a"].flags == {"input": "x", "beams": 1}
    assert made["b"].recipes == ("other.gin",) and made["b"].bindings == {"TRAIN_STEPS": 5, "FIRST": "en"}
    assert stages["a"]["flags"]["beams"] == 4
    with pytest.raises(ValueError, match="pipeline.changes: there is no 'aa'; did you mean 'a'"):
        plan.pipeline(stages, "out", changes={"aa": None})
    with pytest.raises(ValueError, match="pipeline.changes of 'a' are 3; wanted"):
        plan.pipeline(stages, "out", changes={"a": 3})
    with pytest.raises(ValueError, match="every stage is None, .* pipeline.changes alters some"):
        plan.pipeline(stages, "out", changes=dict.fromkeys(stages))
