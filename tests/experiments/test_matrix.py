"""What is refused before an experiment begins."""

import pytest


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rows": {}}, "experiment.rows are {}"),
        ({"rows": {"a": {"recipe": "a.gin", "steps": 3}}}, "row 'a' is .*'steps': 3.*; wanted {'recipe'"),
        ({"rows": {"a": {"of": "b"}, "b": {"recipe": "b.gin"}, "c": {"of": "a"}}}, "row 'c': there is no 'a'"),
        ({"rows": {"a": {"recipe": "a.gin", "bindings": {"train.seed": 1}}}}, "row 'a' binds train.seed, which"),
        ({"rows": {"a": {"recipe": "a.gin", "bindings": {"x": object}}}}, "row 'a', binding x: .*can't be written"),
        ({"rows": {"a": {"recipe": "a.gin", "seeds": 3}}}, "seeds of row 'a' is 3; wanted a list"),
        ({"rows": {"a": {"recipe": "a.gin", "start": "b"}, "b": {"recipe": "a.gin"}}},
          "row 'a' starts from an earlier one that trains: there is no 'b'"),
        ({"rows": {"a": {"recipe": "a.gin"}, "b": {"recipe": "a.gin", "start": "a", "seeds": [7]}}},
          "row 'b' starts from 'a', which has no seed 7"),
        ({"rows": {"a": {"recipe": "a.gin"}, "b": {"recipe": "a.gin", "start": "a",
          "bindings": {"INIT_CHECKPOINT": "x"}}}}, "row 'b' binds INIT_CHECKPOINT, which its start 'a' gives"),
        ({"seeds": [1, 1]}, "none twice"),
        ({"scores": {"x": "Tatoeba"}}, "score 'x' is 'Tatoeba'; wanted a list"),
        ({"scores": {"x": ["training", "loss"]}}, "of training it has to name one"),
        ({"scores": {"x": ["Tatoeba"]}, "plain": [], "data_dir": "data"}, "scores are of Tatoeba; benchmarks are "),
        ({"differences": {"d": ("row a", "row c")}}, "differences, 'd': there is no 'row c'"),
        ({"differences": {"d": ("row a",)}}, "wanted two, the first minus the second"),
        ({"plain": ["lost"]}, "experiment.plain: there is no 'lost'; did you mean 'loss'"),
        ({"rows": {"a": {"recipe": "a.gin"}, "b": {"of": "a", "model": {"calibration_steps": ["shift"]}}},
          "differences": {}, "benchmarks": {"T": {"benchmark": "tatoeba"}}, "data_dir": "data",
          "calibration": {"samples": None}}, "rows 'b' are calibrated; wanted experiment.calibration"),
        ({"score_differences": {"use": ("found", "use")}}, "score_differences has use, as experiment.scores has"),
        ({"rows": {"a": {"recipe": "a.gin", "bindings": 3}}}, "row 'a': bindings are 3; wanted {NAME: VALUE}"),
        ({"rows": {"a": {"recipe": "a.gin", "bindings": ["x"]}}}, "row 'a': bindings are .*; wanted {NAME: VALUE}"),
        ({"rows": {"a": {"recipe": None}}}, "row 'a': recipe is None; wanted the name"),
        ({"rows": {"a": {"recipe": "a.gin", "model": "x"}}}, "row 'a': model is 'x'; wanted {OPTION: VALUE}"),
        ({"rows": {"a": {"recipe": "a.gin", "model": {"word_mapping": "x"}}}}, "wanted .*, without the checkpoint"),
        ({"rows": {"a": {"model": {"layer": 3}}}}, "model is {'layer': 3}; wanted .*, exactly one of checkpoint"),
        ({"rows": {"a": {"model": {"checkpoint": "x", "vectors": "y"}}}}, "wanted .*, exactly one of checkpoint, "),
        ({"rows": {"a": {"model": {"checkpoint": 3}}}}, "row 'a': checkpoint of its model is 3; say which .*, as text"),
        ({"rows": {"a": {"model": {"vectors": ["a", None]}}}}, "row 'a': vectors of its model is .'a', None.; say"),
        ({"rows": {"a": {"model": {"word_mapping": None}}}}, "row 'a': word_mapping of its model is None; say which"),
        ({"rows": {"a": {"model": {"checkpoint": "x"}}, "b": {"recipe": "b.gin", "start": "a"}}},
          "row 'b' starts from an earlier one that trains: there is no 'a'"),
        ({"rows": {"a": {"recipe": "a.gin", "benchmarks": "T"}}}, "row 'a': benchmarks are 'T'; wanted a list"),
        ({"rows": {"a": {"recipe": "a.gin", "benchmarks": ["T"]}}, "benchmarks": {"U": {"benchmark": "tatoeba"}}},
          "benchmarks of row 'a': there is no 'T'"),
        ({"rows": {1: {"recipe": "a.gin"}}}, "experiment.rows are {1: "),
        ({"bindings": [{"x": 1}]}, "experiment.bindings is .*; wanted {NAME: ...}"),
        ({"differences": [("row a", "row b")]}, "experiment.differences is .*; wanted {NAME: ...}"),
        ({"differences": {"d": 3}}, "'d' is 3; wanted two, the first minus the second"),
        ({"scores": {"x": 3}}, "score 'x' is 3; wanted a list"),
        ({"scores": {"x": ["training", "evaluatoin", "found"]}}, "KIND one of train, evaluation, report"),
    ],
)  # fmt: skip
def test_wrong_experiments_are_refused_before_anything_runs(run, tmp_path, wrong, message):
    with pytest.raises(ValueError, match=message):
        run(**wrong)
    assert not (tmp_path / "out").exists()
