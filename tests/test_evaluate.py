"""The command alone, with stand-in models; tests/retrieval runs it on a real checkpoint."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from vmsst_jax import command, evaluate
from vmsst_jax.benchmarks import html_report
from vmsst_jax.retrieval import calibration_fit, embedder


class Letters:
    """Embeds a sentence by its first letter, whatever its case."""

    languages = SimpleNamespace(codes=("en", "de"))
    dim, batch_size, max_length = 26, 1, None
    embedding = {"normalize": False}

    def __init__(self, directory):
        self.source = {"directory": str(directory / "checkpoints" / "9"), "step": 9}
        self.counts = {"sentences": 6, "empty": 0, "truncated": 0}

    def encode(self, texts, batch_size=None, normalize=False, progress=False, *, language=None):
        return np.eye(26, dtype=np.float32)[[ord(text[0].lower()) - ord("a") for text in texts]]

    def describe(self):
        return {**self.source, "layer": None, "pooling": "mean"}

    def fingerprint(self):
        return "abc"


def first_letters(texts):
    """The same, as somebody's function."""
    return np.eye(26)[[ord(text[0].lower()) - ord("a") for text in texts]]


@pytest.fixture
def pages(monkeypatch):
    """What reports were written of, instead of drawing them."""
    written = []
    monkeypatch.setattr(html_report, "write_page", lambda path, results, **more: written.append((path, results)))
    return written


@pytest.fixture
def data(tmp_path):
    (tmp_path / "tatoeba").mkdir()
    for ending, text in (("deu", "Hund\nMaus\nKatze\n"), ("eng", "hound\nmouse\ncat\n")):
        (tmp_path / "tatoeba" / f"tatoeba.deu-eng.{ending}").write_text(text)
    (tmp_path / "tatoeba_non_english").mkdir()
    (tmp_path / "tatoeba_non_english" / "deu-fra.tsv").write_text("Hund\thomme\nMaus\tchat\n")
    return tmp_path


@pytest.fixture
def run(data, tmp_path, monkeypatch, pages):
    monkeypatch.setattr(embedder, "load", lambda path, *args, **options: Letters(tmp_path / path))

    def run(*flags, benchmark="tatoeba", source="--checkpoint=model"):
        folder = data if "," in benchmark else data / benchmark.split(",")[0]
        argv = [source, f"--benchmark={benchmark}", f"--data_dir={folder}", f"--cache_dir={tmp_path / 'cache'}", *flags]
        return ended(evaluate.main, [flag for flag in argv if flag])

    return run


def ended(main, argv):
    """The exit code."""
    try:
        command.run(evaluate.NAME, main, argv)
    except SystemExit as stopped:
        return stopped.code
    return 0


def test_prints_a_table_and_writes_results(run, tmp_path, capsys, pages):
    assert run("--languages=de") == 0
    path = tmp_path / "model" / "evaluations" / "tatoeba" / "step_9" / "results.json"
    out = capsys.readouterr().out
    assert "66.7" in out and str(path) in out and "0 vectors found, 6 computed; the cache" in out
    saved = json.loads(path.read_text())
    assert saved["per_language"]["deu"]["xx->en"] == pytest.approx(2 / 3)
    assert saved["model"]["step"] == 9 and saved["model"]["fingerprint"] == "abc"
    ((page, (shown,)),) = pages
    assert page == path.with_name("report.html") and shown["per_language"] == saved["per_language"]
    assert run("--languages=de", "--overwrite") == 0
    assert "6 vectors found, 0 computed" in capsys.readouterr().out
    assert run("--overwrite", "--no_cache") == 0
    assert "vectors found" not in capsys.readouterr().out


def test_results_of_other_settings_lie_elsewhere(run, tmp_path):
    rows = np.concatenate([np.eye(26, dtype=np.float32)] * 5)
    fitted = calibration_fit.fit({"deu": rows, "eng": rows}, steps=("shift", "scale"), model={"fingerprint": "abc"})
    fitted.save(tmp_path / "cal.npz")
    calibrated = (f"--calibration={tmp_path / 'cal.npz'}",)
    for flags, folder in (
        ((), "step_9"),
        (("--layer=3", "--prefix=query: ", "--batch_size=2"), "step_9,layer=3,prefix=query"),
        (("--layer=0", "--pooling=cls", "--max_length=8"), "step_9,max_length=8,pooling=cls,layer=0"),
        (calibrated, "step_9,calibrated=shift_scale"),
        ((*calibrated, "--calibration_steps=shift", "--layer=0"), "step_9,layer=0,calibrated=shift"),
    ):
        assert run(*flags) == 0
        assert (tmp_path / "model" / "evaluations" / "tatoeba" / folder / "results.json").exists(), folder
        assert run(*flags) == 2  # and are not replaced


def test_an_existing_result_is_kept(run, tmp_path, capsys):
    out = tmp_path / "results"
    assert run(f"--output={out}") == 0
    before = (out / "results.json").read_bytes()
    assert run(f"--output={out}") == 2
    assert "results.json exists; use --overwrite" in capsys.readouterr().err
    assert (out / "results.json").read_bytes() == before
    assert run(f"--output={out}", "--overwrite") == 0


def test_options_of_a_benchmark(run, tmp_path):
    out = tmp_path / "results"
    assert run("--option", "direction=xx->en", "--option", "seen=['de']", f"--output={out}") == 0
    saved = json.loads((out / "results.json").read_text())
    assert saved["direction"] == ["xx->en"] and saved["per_language"]["deu"]["seen"] is True


def test_comparing_runs(run, tmp_path, pages, capsys):
    first, second = tmp_path / "first", tmp_path / "second"
    assert run(f"--output={first}") == 0
    assert run(f"--output={second}", f"--compare={first}") == 0
    assert [len(results) for _, results in pages] == [1, 2]
    both = f"--compare={first}/results.json,{second}/results.json"
    assert ended(evaluate.main, [both, f"--output={tmp_path / 'both'}"]) == 0
    assert pages[-1][0] == tmp_path / "both" / "report.html" and len(pages[-1][1]) == 2
    assert run(f"--output={tmp_path / 'third'}", "--compare=nowhere.json") == 2
    assert run("--option=direction=xx->en", f"--output={tmp_path / 'third'}", f"--compare={first}") == 2
    assert "of another protocol than" in capsys.readouterr().err


def test_comparing_folders_benchmark_by_benchmark(run, tmp_path, pages, capsys):
    both, out = "tatoeba,tatoeba_non_english", tmp_path / "out"
    first, second, other = (f"--output={out / name}" for name in ("first", "second", "other"))
    assert run(first, benchmark=both) == 0
    assert run(second, f"--compare={out / 'first'}", benchmark=both) == 0
    assert run(other, "--option=tatoeba.direction=xx->en", benchmark=both) == 0
    # Finished runs, as folders of all or of one model.
    done = [f"--compare={out / 'first'},{out / 'second' / 'model'}", f"--output={out / 'page'}"]
    assert ended(evaluate.main, done) == 0
    assert [result["benchmark"] for result in pages[-1][1]] == ["tatoeba", "tatoeba_non_english"] * 2
    assert [len(results) for _, results in pages] == [2, 4, 2, 4]
    # One benchmark's protocol differs, whether it is evaluated now or before.
    capsys.readouterr()
    for again in ([f"--compare={out / 'first'},{out / 'other'}", f"--output={out / 'page'}"], None):
        code = ended(evaluate.main, again) if again else run(second, f"--compare={out / 'other'}", benchmark=both)
        assert code == 2
        assert "tatoeba/results.json is of another protocol than" in capsys.readouterr().err


def test_a_data_folder_one_level_off(run, tmp_path, capsys):
    assert run(f"--data_dir={tmp_path}", f"--output={tmp_path / 'out'}") == 2
    assert f"did you mean the folder {tmp_path / 'tatoeba'}?" in capsys.readouterr().err


FUNCTION = """
import numpy as np


def embed(texts):
    return np.eye(26)[[(ord(text[0].lower()) - ord("a")) % 26 for text in texts]]
"""


def test_several_benchmarks_of_a_function(run, tmp_path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "letters_of_test.py").write_text(FUNCTION)
    out = tmp_path / "out"
    flags = ("--option=tatoeba.direction=xx->en", f"--output={out}")
    both = {"benchmark": "tatoeba,tatoeba_non_english", "source": "--embedder=letters_of_test:embed"}
    assert run(*flags, **both) == 0
    printed = capsys.readouterr().out
    assert "[2 of 2] letters_of_test:embed x tatoeba_non_english" in printed and "66.7" in printed
    results = {
        name: json.loads((out / "letters_of_test_embed" / name / "results.json").read_text())
        for name in both["benchmark"].split(",")
    }
    assert results["tatoeba"]["scores"][-1] == "xx->en" and results["tatoeba"]["options"] == {"direction": "xx->en"}
    assert results["tatoeba"]["device"]["count"] == 8 and results["tatoeba"]["device"]["platform"] == "cpu"
    assert results["tatoeba"]["device"]["matrix_products"] == {"model": None, "search": "highest"}
    # What the flags said is a recipe, which finds everything done.
    assert ended(evaluate.main, [f"--gin_file={out / 'recipe.gin'}"]) == 0
    printed = capsys.readouterr().out
    assert "[2 of 2] letters_of_test:embed x tatoeba_non_english" in printed and printed.count("before") == 2
    # Each counts what it embedded itself.
    alone = tmp_path / "alone"
    data = f"--data_dir={tmp_path / 'tatoeba_non_english'}"
    one = ["--embedder=letters_of_test:embed", "--benchmark=tatoeba_non_english", data, f"--output={alone}"]
    assert ended(evaluate.main, one) == 0
    counted = json.loads((alone / "results.json").read_text())["sentences"]
    assert counted["sentences"] > 0 and results["tatoeba_non_english"]["sentences"] == counted
    # The whole folder stands for what is in it.
    assert ended(evaluate.main, [*one, "--overwrite", f"--compare={out}"]) == 0
    assert ended(evaluate.main, [f"--compare={out},{alone}", f"--output={tmp_path / 'both'}"]) == 0
    assert ended(evaluate.main, [*one, "--overwrite", f"--compare={out / 'letters_of_test_embed' / 'tatoeba'}"]) == 2
    assert "holds results of tatoeba_non_english" in capsys.readouterr().err
    # What can't be scored makes the exit code 1, and is named.
    (tmp_path / "tatoeba_non_english" / "deu-fra.tsv").write_text("no tab\n")
    assert run(*flags, **both) == 1
    error = capsys.readouterr().err
    assert (
        "missing: letters_of_test:embed x tatoeba_non_english: ValueError: " in error and "1 cell is missing" in error
    )


def test_texts_for_another_tool_and_its_vectors(run, tmp_path, capsys):
    texts = tmp_path / "texts.txt"
    assert run(f"--write_texts={texts}", benchmark="tatoeba,tatoeba_non_english", source="") == 0
    assert "8 texts, one a line" in capsys.readouterr().out
    lines = texts.read_text().splitlines()
    np.save(tmp_path / "texts.npy", first_letters(lines))
    assert run(f"--output={tmp_path / 'out'}", source=f"--vectors={tmp_path / 'texts.npy'}") == 0
    assert "66.7" in capsys.readouterr().out


RECIPE = """
evaluate.models = {"mine": {"checkpoint": %CHECKPOINT}}
evaluate.benchmarks = {"Tatoeba": {"benchmark": "tatoeba"}}
evaluate.data_dir = %DATA_DIR
evaluate.output = "out"
evaluate.cache = False
CHECKPOINT = "model"
"""


def test_a_recipe(run, data, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.gin").write_text(RECIPE)
    assert ended(evaluate.main, ["--gin_file=mine.gin", f'--gin.DATA_DIR="{data}"']) == 0
    assert "mine" in capsys.readouterr().out
    assert json.loads((tmp_path / "out" / "mine" / "Tatoeba" / "results.json").read_text())["model"]["step"] == 9
    assert f'DATA_DIR = "{data}"' in (tmp_path / "out" / "recipe.gin").read_text().replace("'", '"')
    for flags, message in (
        (["--gin.DATA_DIR='x'", "--gin.CHEKPOINT='y'"], "uses CHEKPOINT; did you mean CHECKPOINT?"),
        ([], "the recipe needs DATA_DIR"),
        (["--gin.DATA_DIR='x'", "--gin.evaluate.colums='y'"], "did you mean columns?"),
        (["--gin.DATA_DIR='x'", "--languages=de"], "--languages: with --gin_file, all is in the recipe"),
    ):
        assert ended(evaluate.main, ["--gin_file=mine.gin", *flags]) == 2
        assert message in capsys.readouterr().err


def test_bad_flags(run, capsys, tmp_path):
    for flag, message in (
        ("--benchmark=tatoba", "there is no benchmark 'tatoba'; did you mean tatoeba"),
        ("--languages=xyz", "the data has no language 'xyz'"),
        ("--data_dir=/nowhere", "there is no folder /nowhere"),
        ("--option=k=4", "the benchmark tatoeba has no option k; it has languages"),
        ("--option=sts.years=4", "the option sts.years is of a benchmark that isn't among tatoeba"),
    ):
        assert run(flag) == 2
        err = capsys.readouterr().err
        assert err.startswith("vmsst_jax.evaluate: error: ") and message in err and err.count("\n") == 1
    for flags, message in (
        (
            ["--benchmark=tatoeba", "--data_dir=x"],
            "one of --checkpoint, --sentence_transformers, --word_mapping",
        ),
        (["--checkpoint=a", "--benchmark=tatoeba"], "required: --data_dir"),
        (["--checkpoint=a", "--benchmark=tatoeba,sts", "--data_dir=x"], "with several benchmarks: --output"),
        (["--checkpoint=a"], "required: --benchmark"),
        (["--checkpoint=a", "--embedder=b:c"], "not allowed with argument"),
        (["--checkpoint=a", "--gin.X=1"], "unrecognized arguments: --gin.X=1"),
        (["--chekpoint=a", "--gin_file=x"], "unrecognized arguments: --chekpoint=a; did you mean --checkpoint?"),
        (["--zzz=a"], "unrecognized arguments: --zzz=a\n"),
        (["--option=k"], "'k' is no NAME=VALUE"),
    ):
        assert ended(evaluate.main, flags) == 2
        assert message in capsys.readouterr().err
    assert run(source="--embedder=nobody_of_test:embed") == 2
    assert "there is no module nobody_of_test" in capsys.readouterr().err
