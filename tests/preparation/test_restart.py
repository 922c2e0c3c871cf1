"""Killed at any moment and begun again, by one process or by several: the same bytes."""

import dataclasses
import shutil
import subprocess
import sys
import textwrap

import pytest

from vmsst_jax.data.text_pairs import CorpusError
from vmsst_jax.preparation import running, stages

# Ends itself by SIGKILL at its COUNTth step on files below the output folder, as Python's audit hooks tell of them.
KILLED = textwrap.dedent("""
    import os, pathlib, signal, sys
    from vmsst_jax.preparation import running, stages
    from vmsst_jax.preparation.plan import Plan

    begun, output, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    work = stages.Work(begun)
    plan, tests, tokenizer = work.plan, work.tests, work.tokenizer
    import apache_beam
    from apache_beam.runners.portability import fn_api_runner

    def attempt(left):
        def hook(event, arguments):
            nonlocal left
            if event.split(".")[0] in ("open", "os", "shutil") and any(str(a).startswith(output) for a in arguments):
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(hook)
        running.prepare(plan, output, tests, tokenizer, progress=False)

    kills = 0
    while True:
        child = os.fork()
        if not child:
            attempt(count)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        if status == 0:
            break
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status
        kills += 1
        count += 20
        assert kills < 60
    print(kills)
""")


def begin(folder, plan, tests, tokenizer=None):
    """A preparation as it is left by a kill before its first unit."""
    work = stages.Work(str(folder))
    running._make_folder(work)
    running._begin(work, plan, tests, tokenizer)


@pytest.fixture(scope="module")
def small(opus, vocabulary, tmp_path_factory, tree):
    """(plan and what goes with it, a folder in which it is begun, the bytes of its output)."""
    folder = tmp_path_factory.mktemp("small")
    what = opus.plan(vocabulary, partition_bytes=40_000)
    begin(folder / "begun", *what)
    running.prepare(what[0], str(folder / "out"), *what[1:], progress=False)
    return what, folder / "begun", tree(folder / "out")


def test_killed_again_and_again(small, tmp_path, tree):
    _, begun, wanted = small
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(begun), str(tmp_path / "out"), "60"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 5, done.stdout
    assert tree(tmp_path / "out") == wanted


def test_several_processes_make_the_same(small, tmp_path, tree):
    what, begun, wanted = small
    shutil.copytree(begun, tmp_path / "out")
    work = stages.Work(str(tmp_path / "out"))
    running._run_stage(work, "split", running._Beam(2, None, ()), progress=False)
    assert all(work.mark("split", of, n).exists() for of, n in work.units("split"))
    running.prepare(what[0], str(tmp_path / "out"), *what[1:], progress=False)
    assert tree(tmp_path / "out") == wanted


def test_another_runner_of_beam(small, tmp_path, tree):
    what, _, wanted = small
    with pytest.raises(ValueError, match="--runner=NoSuchRunner with .*: Unexpected pipeline runner"):
        running.prepare(what[0], str(tmp_path / "out"), *what[1:], runner="NoSuchRunner", progress=False)
    name = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
    running.prepare(what[0], str(tmp_path / "out"), *what[1:], runner=name, progress=False)
    assert tree(tmp_path / "out") == wanted


def test_a_unit_that_is_started_again_though_it_is_done_changes_nothing(small, tmp_path, tree):
    """Its parts are gone by then."""
    what, begun, _ = small
    shutil.copytree(begun, tmp_path / "out")
    work = stages.Work(str(tmp_path / "out"))
    for stage in ("split", "merge"):
        for of, n in work.units(stage):
            stages.run(work, stage, of, n, lambda _: None)
    of, before = what[0].sets[0], tree(tmp_path)
    assert not list(work.place("split", of, 0).iterdir())
    assert stages.merge(work, of, 0, lambda _: None) == work.counts("merge", of, 0)
    assert stages.split(work, of, 0, lambda _: None)["records"] == work.counts("split", of, 0)["records"]
    assert tree(tmp_path) == before


def test_a_folder_goes_on_with_what_it_was_begun_with(small, opus, tmp_path):
    (plan, tests, tokenizer), begun, _ = small
    shutil.copytree(begun, tmp_path / "out")
    for change in ({"seed": 1}, {"rules": {"max_characters": 5, "max_ratio": 2.0}}):
        with pytest.raises(ValueError, match=f"out was begun with other {next(iter(change))}; repeat the call"):
            running.prepare(dataclasses.replace(plan, **change), str(tmp_path / "out"), tests, tokenizer)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").touch()
    with pytest.raises(ValueError, match="mine holds thesis.txt and no unfinished preparation"):
        running.prepare(plan, str(tmp_path / "mine"), tests, tokenizer)
    with stages.disk.open_alone(tmp_path / "out/work/lock"), pytest.raises(BlockingIOError, match="another process"):
        running.prepare(plan, str(tmp_path / "out"), tests, tokenizer)


def test_tokens_with_other_settings_leave_the_text(small, tmp_path, tree, capsys):
    (plan, tests, tokenizer), _, wanted = small
    begin(tmp_path / "out", dataclasses.replace(plan, tokens=plan.tokens | {"max_length": 5}), tests, tokenizer)
    work = stages.Work(str(tmp_path / "out"))
    for stage in stages.STAGES:
        for of, n in work.units(stage):
            stages.run(work, stage, of, n, lambda _: None)
    written = {file: file.stat().st_mtime_ns for file in (tmp_path / "out/mini").rglob("*.tsv")}
    running.prepare(plan, str(tmp_path / "out"), tests, tokenizer, progress=False)
    assert "the tokens' settings have changed" in capsys.readouterr().err
    assert tree(tmp_path / "out") == wanted
    assert {file: file.stat().st_mtime_ns for file in written} == written


@pytest.mark.parametrize("change", ["gone", "shorter"])
def test_a_finished_folder_of_which_a_file_was_lost_is_not_whole(small, tmp_path, change):
    what, begun, _ = small
    shutil.copytree(begun, tmp_path / "out")
    report = running.prepare(what[0], str(tmp_path / "out"), *what[1:], progress=False)
    assert running.prepare(what[0], str(tmp_path / "out"), *what[1:], progress=False) == report
    name = next(name for name in report["files"] if name.endswith(".tsv") and "/" in name)
    if change == "gone":
        (tmp_path / "out" / name).unlink()
    else:
        (tmp_path / "out" / name).write_text("x")
    found = {"gone": "no such file", "shorter": "1 bytes"}[change]
    with pytest.raises(ValueError, match=f"{name}: found {found}, [0-9,]+ bytes were written; put the file back"):
        running.prepare(what[0], str(tmp_path / "out"), *what[1:], progress=False)


@pytest.mark.parametrize("name", ["plan.json", *(f"{stage}/en-fr/00000.json" for stage in ("split", "merge", "take"))])
@pytest.mark.parametrize("contents", ["", "{"])
def test_damaged_files_of_the_work_are_named_before_any_work(small, tmp_path, name, contents):
    what, begun, _ = small
    shutil.copytree(begun, tmp_path / "out")
    (tmp_path / "out/work" / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "out/work" / name).write_text(contents)
    with pytest.raises(CorpusError, match=f"out/work/{name} is damaged; remove the folder .*out to prepare it anew"):
        running.prepare(what[0], str(tmp_path / "out"), *what[1:], progress=False)
    assert not (tmp_path / "out/work/told").exists()


@pytest.mark.parametrize("name", ["00000", "00000.npy"])
def test_damaged_records_are_not_taken(small, tmp_path, name):
    what, begun, _ = small
    shutil.copytree(begun, tmp_path / "out")
    work = stages.Work(str(tmp_path / "out"))
    of = what[0].sets[0]
    for stage in ("split", "merge"):
        for number in [number for other, number in work.units(stage) if other == of]:
            stages.run(work, stage, of, number, lambda _: None)
    path = work.folder / "merge" / of.name / "records" / name
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CorpusError, match=f"{name} is damaged; remove the folder"):
        stages.run(work, "take", of, 0, lambda _: None)


def test_a_disk_too_small_is_an_error_before_anything_is_read(small, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("", (), {"free": 1000}))
    with pytest.raises(OSError, match="out has 1,000 bytes free; .* bytes of text take about"):
        running.prepare(small[0][0], str(tmp_path / "out"), *small[0][1:])
