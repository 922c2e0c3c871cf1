"""The comparison of configurations, on text that gin itself writes."""

import json
import types

import pytest

from vmsst_jax import company
from vmsst_jax.training.checkpoint_files import CheckpointError
from vmsst_jax.training.same_config import FREE_BINDINGS, bindings, check_processes, check_same_config

SAVED = """
import some.module

# Macros:
# ==============================================================================
TRAIN_STEPS = 1000

# Parameters for fit:
# ==============================================================================
fit.languages = \\
    ['en', 'de',
     'fr']
fit.rate = 1e-3
fit.name = "it's = here"  # a comment with = in it
fit.model = @models.build()
scope/fit.steps = %TRAIN_STEPS
# Parameters for empty:
# ==============================================================================
# None.
"""


def test_reads_bindings_with_their_values():
    assert bindings(SAVED) == {
        "TRAIN_STEPS": "1000",
        "fit.languages": "['en', 'de', 'fr']",
        "fit.rate": "0.001",
        "fit.name": '"it\'s = here"',
        "fit.model": "@models.build()",
        "scope/fit.steps": "%TRAIN_STEPS",
    }


def test_spelling_makes_no_difference():
    other = SAVED.replace("1e-3", "0.001").replace("\\\n    ['en', 'de',\n     'fr']", '["en", "d" "e", "fr"]')
    assert other != SAVED
    check_same_config(SAVED, "\n".join(reversed(other.split("\n\n"))))


def test_differing_bindings_are_shown():
    current = SAVED.replace("'fr'", "'cs'").replace("fit.rate = 1e-3\n", "fit.new = None\n")
    with pytest.raises(ValueError) as caught:
        check_same_config(SAVED, current)
    shown = [line for line in str(caught.value).splitlines() if line.startswith("  ")]
    assert shown == [
        "  fit.languages: ['en', 'de', 'fr'] in the checkpoint, ['en', 'de', 'cs'] in this run",
        "  fit.new: not set in the checkpoint, None in this run",
        "  fit.rate: 0.001 in the checkpoint, not set in this run",
    ]


def test_ignored_bindings_may_differ():
    current = SAVED.replace("= 1000", "= 5").replace("fit.rate = 1e-3\n", "")
    check_same_config(SAVED, current, ignore=("scope/fit.steps", "fit.rate"))
    with pytest.raises(ValueError, match="fit.rate"):
        check_same_config(SAVED, current, ignore=("scope/fit.steps",))


@pytest.mark.parametrize("text", ["fit.rate 3\n", "fit.rate = [1,\n"])
def test_text_that_gin_never_writes_is_an_error(text):
    with pytest.raises(ValueError, match="gin binding|cannot be read"):
        bindings(text)


def test_gin_at_any_line_length():
    import gin

    gin.clear_config()  # another test's recipe may have locked it

    @gin.configurable("same_config_test_function")
    def function(numbers=(), text="", table=None):
        return numbers, text, table

    gin.bind_parameter("same_config_test_function.numbers", [0.5, *range(40), -1, 1e-9])
    gin.bind_parameter("same_config_test_function.text", "long words = in 'quotes' " * 20)
    gin.bind_parameter("same_config_test_function.table", {"a": (1, None), "b": {"c": [True]}})
    function()
    narrow, wide = gin.operative_config_str(max_line_length=40), gin.operative_config_str(max_line_length=300)
    gin.clear_config()
    assert narrow != wide
    check_same_config(narrow, wide)
    with pytest.raises(ValueError, match="text"):
        check_same_config(narrow, wide.replace("words", "lords", 1))


def test_processes_that_were_not_started_alike(monkeypatch):
    """Where things lie may differ, what is computed may not."""
    check_processes(SAVED, {"jax": "1"})  # alone
    given = json.dumps([SAVED + '\ntrain.model_dir = "a"', {"jax": "1"}])
    monkeypatch.setattr(company, "here", lambda: types.SimpleNamespace(count=2, index=1, shared=lambda make: given))
    check_processes(SAVED + '\ntrain.model_dir = "b"', {"jax": "1"})
    message = (
        "process 1 and process 0 of 2 were not started alike: fit.rate is .*2.* here and .*0.001.* there; "
        "jax is 2 here and 1 there. Give all of them"
    )
    with pytest.raises(ValueError, match=message):
        check_processes(SAVED.replace("fit.rate = 1e-3", "fit.rate = 2.0"), {"jax": "2"})


def test_a_run_may_be_given_more_steps_with_its_schedule():
    text = (
        "Rhythm.steps = %TRAIN_STEPS\nTRAIN_STEPS = {0}\nwarmup_linear.total = %TRAIN_STEPS\nwarmup_linear.peak = {1}"
    )
    check_same_config(text.format(5, 0.1), text.format(9, 0.1), FREE_BINDINGS)
    with pytest.raises(CheckpointError, match="warmup_linear.peak: 0.1 in the checkpoint, 0.2 in this run"):
        check_same_config(text.format(5, 0.1), text.format(9, 0.2), FREE_BINDINGS)
