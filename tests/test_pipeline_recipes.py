"""The pipelines that ship: every stage holds, and a small one runs from text to its first model by the command."""

import pathlib
import re

import gin
import pytest

from vmsst_jax import command, config, pipeline
from vmsst_jax.benchmarks import grid
from vmsst_jax.pipelines import plan

FOLDER = pathlib.Path(__file__).parents[1] / "gin"
RECIPES = sorted(f.stem for f in FOLDER.glob("umse_*.gin"))
PLACES = ("NEWS", "XLM", "CODES", "BPE_VOCABULARY", "DATA_DIR")


@pytest.fixture(autouse=True)
def clean():
    yield
    gin.clear_config()


def read(name, *bindings):
    if name == "umse_xlm100":
        bindings += tuple(f"{place} = '{place.lower()}'" for place in PLACES)
    return config.configure([f"{name}.gin"], bindings, target=config.PIPELINE)()


@pytest.mark.parametrize("name", RECIPES)
def test_every_stage_holds(name):
    made = read(name)
    assert str(made.output) == f"runs/{name}"
    head = "\n".join(re.findall(r"^#.*", (FOLDER / f"{name}.gin").read_text(), re.MULTILINE))
    for words in (f"vmsst_jax.pipeline --gin_file={name}.gin", "Devices:", "Time:", "Expect:"):
        assert words in head
    for stage in made.stages.values():
        assert plan.definition(stage, config.resolved)["command"] == stage.command
        if stage.command == plan.EVALUATE:
            settings = stage.settings
            assert grid.plan(settings["models"], settings["benchmarks"], settings["data_dir"], "out")
        elif stage.command != plan.TRAIN:
            plan.check_flags(made, stage)
    started = {"first_words_to_second", "second_words_to_first", "translation_start"}
    assert [stage for stage in made.stages if stage not in {"untrained", *started}] == [
        "text", "first_words", "second_words", "word_mapping", "language_model", "translation", "first_to_second",
        "second_to_first", "multilingual", "tlm", "layers", "scores", "words",
    ]  # fmt: skip
    assert started & set(made.stages) == (started if name == "umse_small" else set())
    assert set(made.stages["tlm"].needs) == {"first_to_second", "second_to_first", "multilingual"}
    assert set(made.stages["scores"].needs) >= {"multilingual", "tlm"}


def test_the_papers_numbers():
    stages = read("umse_xlm100").stages
    named = gin.query_parameter("vmsst_jax.pipelines.plan.pipeline.checksums")
    filled = {name.replace("{first}", "en").replace("{second}", "de") for name in named}
    assert {name for stage in stages.values() for name in stage.inputs} == filled
    assert stages["scores"].settings["models"]["after"]["layer"] == 12
    tlm = plan.definition(stages["tlm"], config.resolved)
    assert tlm["Rhythm.steps"] == "2500" and tlm["TlmText.batch_size"] == "8"


def test_another_pair_of_languages():
    """Nothing of the first pair is left."""
    made = read("umse_small", "FIRST = 'de'", "SECOND = 'cs'", "LANGUAGES = ['de', 'cs', 'hu']", "MINING = ['de-cs']")
    for stage in made.stages.values():
        shown = repr(plan.definition(stage, config.resolved) | {"languages": stage.flags})
        assert not re.search(r"""['"](en|fr|ru)['"]""", shown), stage.name


def test_the_command(tmp_path, capsys):
    """What is wrong is said in one line: a file that isn't there, a language that the text lacks."""
    flags = [f"--gin.OUTPUT='{tmp_path}/out'"]

    def main(*more):
        with pytest.raises(SystemExit) as ended:
            command.run(pipeline.NAME, pipeline.main, [*flags, *more])
        return ended.value.code, capsys.readouterr()

    code, shown = main("--gin_file=umse_small.gin", "--gin.LANGUAGES=['en', 'fr', 'xx']", "--gin.MINING=[]")
    assert code == 2 and "[1 of 17] text" in shown.out
    assert re.search(r"vmsst_jax.pipeline: error: stage text: text: no messages .* for xx in .*; its log is", shown.err)
    code, shown = main("--gin_file=umse_small.gin", "--gin.LANGUAGES=['en', 'fr']", "--gin.MINING=[]")
    assert code == 2 and "stage text was begun otherwise" in shown.err and "--redo=text" in shown.err
    places = [f"--gin.{place}='{tmp_path}/{place}'" for place in PLACES]
    code, shown = main("--gin_file=umse_xlm100.gin", *places)
    assert code == 2 and "stage text reads" in shown.err and "NEWS/train.en, and there is no such file" in shown.err
    code, shown = main("--gin_file=umse_small.gin", "--gin.FISRT='en'")
    assert code == 2 and "FISRT; did you mean FIRST" in shown.err
