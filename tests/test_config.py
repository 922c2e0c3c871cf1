"""Recipes found, parsed and refused: what a user sees when a name is wrong."""

import pathlib
import sys

import gin
import pytest

from vmsst_jax import config

QUICKSTART = "quickstart.gin"


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    """Runs in an empty folder and leaves no configuration behind."""
    monkeypatch.chdir(tmp_path)
    yield
    gin.clear_config()


def refusal(*bindings, recipe=QUICKSTART, **options):
    with pytest.raises(ValueError) as caught:
        config.configure([recipe], list(bindings), **options)
    return str(caught.value)


def test_a_recipe_becomes_the_arguments_of_train():
    train = config.configure([QUICKSTART], ["TRAIN_STEPS = 7", "vmsst.lam = 0.5"])
    assert train.keywords["rhythm"].steps == 7
    assert train.keywords["streams"][0].objective.keywords["lam"] == 0.5
    assert "TRAIN_STEPS = 7" in train.keywords["config_text"]
    module = train.keywords["model"](3)
    assert (type(module).__name__, module.config.num_languages, module.config.t5.embed_dim) == ("Vmsst", 3, 128)


def test_the_next_recipe_starts_afresh():
    config.configure([QUICKSTART], ["train.seed = 5"])
    assert "seed" not in config.configure([QUICKSTART], []).keywords


@pytest.mark.parametrize(
    ("binding", "message"),
    [
        ("Rythm.steps = 5", "binding 'Rythm.steps = 5': No configurable matching 'Rythm'; did you mean Rhythm?"),
        ("train.optimizer = @adafacto()", "No configurable matching reference '@adafacto()'; did you mean adafactor?"),
        ("Rhythm.step = 5", "Configurable 'Rhythm' doesn't have a parameter named 'step'; did you mean steps?"),
        ("vmsst.lambda = 0.2", "doesn't have a parameter named 'lambda'; did you mean lam?"),
        # These two functions take **options.
        ("model.fatored_output = True", "named 'fatored_output'; did you mean factored_output"),
        ("train_sentencepiece.char_coverage = 1.0", "did you mean character_coverage?"),
        # Settings of a task module.
        (
            "gettext.folder = ['x']",
            "Configurable 'gettext' doesn't have a parameter named 'folder'; did you mean folders?",
        ),
        ("unheard_of.data_root = 'x'", "settings of tasks are known once TASK_MODULES names their module"),
        ("TRAIN_STEP = 4", "no recipe given here uses TRAIN_STEP; did you mean TRAIN_STEPS?"),
        ("train_steps = 4", "no recipe given here uses train_steps; did you mean TRAIN_STEPS?"),
        ("LANGUAGES = %CODES", "the recipe needs CODES: give it by --gin.CODES=VALUE"),
        ("contrastive.scale = 5.0", "contrastive.scale changes nothing: no recipe given here uses contrastive"),
        ("validaton/ParallelText.split = 'x'", "no recipe given here uses validaton/ParallelText"),
        (
            "MODEL_DIR = runs/mine",
            "binding 'MODEL_DIR = runs/mine': can't be read; wanted NAME = VALUE, text in quotes",
        ),
        ("MODEL_DIR", "binding 'MODEL_DIR': can't be read"),
        ("LANGUAGES = ['en'", "a bracket or quotation mark is never closed"),
        ("adafactor.schedule = @constant()", "Ambiguous selector 'constant'"),
        ("Rhythm.steps = -1", "Rhythm.steps is -1; wanted a whole number of at least 0"),
        ("train.optimizer = @adamw()", "nothing binds adamw.schedule"),
        ("TASK_MODULES = 'gettext'", "TASK_MODULES is 'gettext'; wanted a list of module names"),
        (
            "TASK_MODULES = ['getext']",
            "TASK_MODULES names 'getext', and no such module can be imported; did you mean gettext?",
        ),
    ],
)
def test_wrong_bindings(binding, message):
    assert message in refusal(binding)


def test_a_wrong_line_in_a_file_is_named_with_its_place():
    pathlib.Path("mine.gin").write_text('include "quickstart.gin"\n\nRythm.steps = 3\n')
    assert refusal(recipe="mine.gin").endswith(
        "mine.gin, line 3: No configurable matching 'Rythm'; did you mean Rhythm?"
    )
    pathlib.Path("mine.gin").write_text('include "quickstart.gin"\nTRIAN_STEPS = 3\n')
    assert refusal(recipe="mine.gin") == "no recipe given here uses TRIAN_STEPS; did you mean TRAIN_STEPS?"
    pathlib.Path("mine.gin").write_text('include "quickstrat.gin"\n')
    assert "mine.gin, line 1: no recipe 'quickstrat.gin' in" in refusal(recipe="mine.gin")


def test_what_a_later_recipe_replaces_is_no_error():
    pathlib.Path("mine.gin").write_text(
        'include "quickstart.gin"\ntrain_sentencepiece.vocab_size = 99\nT5Config.vocab_size = 99\n'
    )
    assert config.configure(["mine.gin"], []).keywords["model"](2).config.t5.vocab_size == 99
    assert "uses VOCAB_SIZE" in refusal("VOCAB_SIZE = 5", recipe="mine.gin")


def test_misspelt_and_incomplete_recipes():
    assert "no recipe 'quickstrat.gin' in " in refusal(recipe="quickstrat.gin")
    assert "; did you mean quickstart.gin" in refusal(recipe="quickstrat.gin")
    assert "include/" not in refusal(recipe="quickstrat.gin")
    assert "did you mean ablations/fact.gin" in refusal(recipe="ablation/fact.gin")
    pathlib.Path("part.gin").write_text("train.seed = 1\n")
    assert "part.gin: nothing binds train.languages, train.model" in refusal(recipe="part.gin")
    with pytest.raises(ValueError, match="no recipe given"):
        config.configure([], [])


def test_search_order(tmp_path):
    """The current folder comes before the given ones, and those before what ships; for includes, too."""

    def put(folder, steps):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "numbers.gin").write_text(f"TRAIN_STEPS = {steps}\n")

    def steps():
        return config.configure([QUICKSTART, "both.gin"], [], ["a", "b"]).keywords["rhythm"].steps

    pathlib.Path("both.gin").write_text('include "numbers.gin"\n')
    put("b", 2)
    assert steps() == 2
    put("a", 1)
    assert steps() == 1
    put(".", 3)
    assert steps() == 3
    (tmp_path / "a" / QUICKSTART).write_text("broken\n")
    assert f"a/{QUICKSTART}, line 1: can't be read" in refusal(search_paths=["a"])


def test_short_form():
    assert config.short_bindings(["--gin.A=1", "--gin.f.x='a=b'", "--gin.s/f.x=[1,\n2]"]) == [
        "A = 1",
        "f.x = 'a=b'",
        "s/f.x = [1,\n2]",
    ]
    for argument in ("--gin_A=1", "--gin.A", "steps"):
        with pytest.raises(ValueError, match="unknown argument .*--gin.NAME=VALUE"):
            config.short_bindings([argument])


MODULE = """
import gin

@gin.configurable("corpus_of_config_test", module="tasks")
def settings(folder=None):
    return folder

@gin.register("languages", module="tasks.corpus_of_config_test")
def languages(extra=()):
    return ("en", *extra)
"""


def test_a_task_module_outside_the_package(tmp_path, monkeypatch):
    (tmp_path / "corpus_of_config_test.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    bindings = [
        "TASK_MODULES = ['corpus_of_config_test']",
        "corpus_of_config_test.folder = 'x'",
        "LANGUAGES = @corpus_of_config_test.languages()",
        "corpus_of_config_test.languages.extra = ('cy',)",
    ]
    assert config.configure([QUICKSTART], bindings).keywords["languages"] == ("en", "cy")
    assert sys.modules["corpus_of_config_test"].settings() == "x"


def test_a_task_module_that_fails_keeps_its_own_error(tmp_path, monkeypatch):
    (tmp_path / "failing_corpus_of_config_test.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        config.configure([QUICKSTART], ["TASK_MODULES = ['failing_corpus_of_config_test']"])


@pytest.mark.parametrize(
    ("binding", "message"),
    [
        ("ccp_model.bn_sync = 'False'", "ccp_model.bn_sync is 'False'; wanted True or False"),
        ("ccp_model.head_relu = 0", "ccp_model.head_relu is 0; wanted True or False"),
        ("ccp.l2_norm = 'False'", "ccp.l2_norm is 'False'; wanted True or False"),
        ("TextEncoderConfig.pool_special = 'no'", "TextEncoderConfig.pool_special is 'no'; wanted True or False"),
        ("ccp/Stream.weight = '1'", "ccp/Stream.weight is '1'; wanted a number"),
        ("ccp/Stream.weight = -1.0", "ccp/Stream.weight is -1.0; wanted a number of 0 or more"),
        ("ccp/Stream.accumulate = 0", "ccp/Stream.accumulate is 0; wanted a whole number of 1 or more"),
        ("ccp/Stream.name = None", "ccp/Stream.name is None; wanted text in quotes"),
        ("LANGUAGES = 'en'", "train.languages is 'en'; wanted a list of texts"),
        ("LANGUAGES = None", "train.languages is None; wanted a list of texts"),
        ("gnome_help.languages = 'en'", "gnome_help.languages is 'en'; wanted a list of texts"),
        ("gnome_help.manuals = 'gnome-help'", "gnome_help.manuals is 'gnome-help'; wanted a list of texts"),
        ("gnome_help.languages = None", "gnome_help.languages is None; wanted a list of texts"),
        ("gnome_help.held_out = '0.1'", "gnome_help.held_out is '0.1'; wanted a number"),
        ("gnome_help.folder = 3", "gnome_help.folder is 3; wanted text in quotes"),
    ],
)
def test_values_of_another_type(binding, message):
    assert refusal(binding, recipe="ccp_small_alone.gin").startswith(message)


def test_types_are_looked_at_behind_macros():
    given = ["local_documents.languages = %WANTED", "WANTED = 'en cs'", "TASK_MODULES = ['local_documents']"]
    message = "local_documents.languages is 'en cs'; wanted a list of texts, as in ['en', 'fr'] or None"
    assert message in refusal(*given, recipe="ccp_small_alone.gin")
