"""Input that was made to harm, or is damaged: errors that name the file, and nothing outside the output folder."""

import dataclasses
import gzip
import os
import zipfile

import pytest

from vmsst_jax import prepare
from vmsst_jax.data.text_pairs import CorpusError
from vmsst_jax.preparation import plan as plans
from vmsst_jax.preparation import running, stages

HEADER = "language\tpivot\tthousand_pairs\tcorpora\tfiles\n"


@pytest.fixture
def prepared(tmp_path, make_zip):
    """Function ({archive member: contents} or bytes of en-fr.txt.zip) that prepares it beside a good archive."""

    def run(archive, name="X/en-fr.txt.zip"):
        make_zip(tmp_path / "in/X/de-en.txt.zip", {"X.de-en.de": "eins zwei\n", "X.de-en.en": "one two\n"})
        if isinstance(archive, dict):
            make_zip(tmp_path / "in" / name, archive)
        else:
            (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "in" / name).write_bytes(archive)
        (tmp_path / "table.tsv").write_text(f"{HEADER}de\ten\t1\tX\tt/en-de/*.tsv\nfr\ten\t1\tX\tt/en-fr/*.tsv\n")
        flags = {"opus": "in", "table": "table.tsv", "output": "out"}
        prepare.main([*(f"--{k}={tmp_path}/{v}" for k, v in flags.items()), "--test=none"])

    return run


def outside(tmp_path):
    return sorted(p.name for p in tmp_path.iterdir())


GOOD = {"X.en-fr.en": "one two\nthree four\n", "X.en-fr.fr": "un deux\ntrois quatre\n"}


def test_members_with_paths_are_not_even_looked_at(prepared, tmp_path):
    prepared({"../../evil.en": "x", "/tmp/X.en-fr.fr": "x", "..\\X.en-fr.en": "x", "a/X.en-fr.en": "x", **GOOD})
    assert outside(tmp_path) == ["in", "out", "table.tsv"]
    text = (tmp_path / "out/t/en-fr/00000.tsv").read_text()
    assert sorted(text.splitlines()) == ["one two\tun deux", "three four\ttrois quatre"]
    with pytest.raises(ValueError, match=r"en-fr\.txt\.zip: wanted one member named <Corpus>\.en-fr\.fr, found 0"):
        prepared({"X.en-fr.en": "x", "../X.en-fr.fr": "x"})


@pytest.mark.parametrize(
    ("archive", "message"),
    [
        (b"PK\x03\x04 no archive", r"en-fr\.txt\.zip: not a readable zip archive"),
        ({"X.en-fr.en": "one\n" * 9, "X.en-fr.fr": "un\n" * 8}, r"en-fr\.en: 9 and .*en-fr\.fr: 8; the files don't"),
        ({"X.en-fr.en": "", "X.en-fr.fr": ""}, r"en-fr\.txt\.zip:X\.en-fr\.en .* the corpus file is empty"),
        ({"X.en-fr.en": "a\n" * 2**25, "X.en-fr.fr": "b\n" * 2**25}, r"X\.en-fr\.en: more than 200 times its packed"),
        ({"X.en-fr.en": "same\n" * 3, "X.en-fr.fr": "same\n" * 3}, r"en-fr: of 1 source\(s\) nothing is left"),
    ],
    ids=["no_zip", "unequal", "empty", "bomb", "nothing_left"],
)
def test_archives_that_cannot_be_used(prepared, tmp_path, archive, message):
    with pytest.raises(ValueError, match=message):
        prepared(archive)
    assert not (tmp_path / "out/report.json").exists()


def test_damage_inside_an_archive_leaves_the_others_done(prepared, tmp_path, make_zip):
    make_zip(tmp_path / "bad.zip", {"X.en-fr.en": "one\n" * 999, "X.en-fr.fr": "un\n" * 999})
    data = bytearray((tmp_path / "bad.zip").read_bytes())
    data[data.index(b"X.en-fr.fr") + 14] ^= 0xFF
    with pytest.raises(
        ValueError, match=r"en-fr\.txt\.zip:X\.en-fr\.fr: damaged .*\nthe rest is done; the same command"
    ):
        prepared(bytes(data))
    assert (tmp_path / "out/work/split/en-de/00000.json").exists()
    assert not list((tmp_path / "out").rglob(".*.partial-*"))


def test_a_source_that_was_fetched_again_is_all_that_is_done_again(prepared, tmp_path, capsys):
    with pytest.raises(ValueError, match="the files don't belong together"):
        prepared(GOOD | {"X.en-fr.en": "one\n"})
    mark = tmp_path / "out/work/split/en-de/00000.json"
    written = mark.stat().st_mtime_ns
    with pytest.raises(ValueError, match=r"en-fr: of 1 source\(s\) nothing is left"):
        prepared({"X.en-fr.en": "same\n", "X.en-fr.fr": "same\n"})
    assert mark.stat().st_mtime_ns == written and (tmp_path / "out/t/en-de").is_dir()
    prepared(GOOD)
    out, err = capsys.readouterr()
    assert err.count("en-fr: its sources have changed, it is begun anew") == 2 and "3 kept" in out
    assert len((tmp_path / "out/t/en-fr/00000.tsv").read_text().splitlines()) == 2


def test_a_gzip_bomb_among_documents(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/en_head_0000.json.gz").write_bytes(gzip.compress((b" " * 2**18 + b"\n") * 2**8))
    (tmp_path / "table.tsv").write_text("language\tmegabytes\tfiles\nen\t1\tw/en/*.txt\n")
    with pytest.raises(ValueError, match=r"en_head_0000\.json\.gz: more than 200 times its packed size .by line 64"):
        prepare.main(
            [f"--cc_net={tmp_path}/in", f"--table={tmp_path}/table.tsv", f"--output={tmp_path}/out", "--test=none"]
        )


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("fr\ten\t1\tX\t../../etc/*.tsv", "the files '../../etc/.*' can't be prepared"),
        ("fr\ten\t1\tX\t/etc/fr/*.tsv", "the files '/etc/fr/.*' can't be prepared"),
        ("fr\ten\t1\tX\t*/fr/*.tsv", r"the files '\*/fr/.*' can't be prepared"),
        ("../fr\ten\t1\tX\tt/fr/*.tsv", "'../fr' is no language code"),
        ("fr\ten/../..\t1\tX\tt/fr/*.tsv", "'en/../..' is no language code"),
        ("fr\ten\t1\tX:../fr\tt/fr/*.tsv", "'X:../fr' is no corpus"),
        ("fr\ten\t1\t../X\tt/fr/*.tsv", "'../X' is no corpus"),
        ("fr\ten\t1\tX\twork/*.tsv", "the files 'work/.*' would lie in work, a name that the output folder needs"),
        ("fr\ten\t1\tX\treport.json/*.tsv", "would lie in report.json, a name"),
        ("fr\ten\t1\tX\tt.gin/*.tsv", r"would lie in t\.gin, a name"),
        ("fr\ten\tinf\tX\tt/fr/*.tsv", "line 2: thousand_pairs is a number above 0, found .*'inf'"),
        ("fr\ten\t0.0001\tX\tt/fr/*.tsv", "en-fr: thousand_pairs is 0.0001, not even one pair"),
        ("fr\ten\t1\tX\tt/a/*.tsv\nfr\ten\t1\tY\tt/b/*.tsv", "two rows of .* are en-fr; put their corpora into one"),
        ("fr\ten\t1\tX\tt/fr/*.tsv\nde\ten\t1\tX\tt/*.tsv", "t/fr lies inside another row's, t; put it beside it"),
        ("fr\ten\t1\tX\tt/fr/*.tsv\nde\ten\t1\tX\tt/fr/*.tsv", "two rows have the folder t/fr"),
    ],
)
def test_tables_that_lead_elsewhere(tmp_path, row, message):
    (tmp_path / "in").mkdir()
    (tmp_path / "table.tsv").write_text(f"{HEADER}{row}\n")
    with pytest.raises(ValueError, match=message):
        prepare.main(
            [f"--opus={tmp_path}/in", f"--table={tmp_path}/table.tsv", f"--output={tmp_path}/out", "--test=none"]
        )
    assert outside(tmp_path) == ["in", "table.tsv"]


def test_a_table_that_is_not_utf8(tmp_path):
    (tmp_path / "table.tsv").write_bytes(f"{HEADER}d\u00e9\ten\t1\tX\tt/fr/*.tsv\n".encode("latin-1"))
    with pytest.raises(CorpusError, match=r"table\.tsv, line 2: not valid UTF-8 .*; save the table as UTF-8"):
        prepare.main(["--opus=in", f"--table={tmp_path}/table.tsv", "--list"])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--name=../x"], "--name='../x' is no name"),
        (["--languages=en,fr"], "the mixture is not mini: give it another name by --name"),
        (["--languages=fr,zz"], "has no row of zz; it has en, fr, ru"),
        (["--languages=fr,ru"], "no row has both its languages among fr, ru; name the pivot"),
        (["--max_ratio=0.5"], "max_ratio is 0.5"),
        (["--vocabulary=nowhere.model"], "there is no nowhere.model; wanted a SentencePiece model"),
        (["--test=nowhere.txt"], "--test=nowhere.txt: there is no such file .looked from .*; correct the path"),
        (["--test=none", "--test=nowhere.txt"], "--test=none stands beside other test files"),
        (["--languages="], "no languages are named; wanted codes"),
        ([f"--seed={2**128}"], r"seed is 34\d*; wanted a whole number below 2\*\*128"),
        (["--runner=X", '--beam_options=--x="'], "--beam_options=--x=\" can't be taken apart .No closing quotation"),
        (["--max_length=1"], "max_length is 1; wanted a whole number of 2 or more"),
        (["--vocabulary=."], "No checkpoint in "),
    ],
)
def test_flags_that_do_not_work(opus, tmp_path, flags, message):
    common = [f"--opus={opus.root}", f"--table={opus.table()}", f"--output={tmp_path}/out"]
    with pytest.raises((ValueError, OSError), match=message):
        prepare.main([*common, *([] if "--test" in flags[0] else ["--test=none"]), *flags])
    assert not (tmp_path / "out").exists()


def test_what_is_missing_is_listed_and_can_be_skipped(opus, tmp_path, make_zip, capsys):
    common = [f"--table={opus.table()}", f"--output={tmp_path}/out", "--test=none"]
    make_zip(tmp_path / "in/Tatoeba/en-fr.txt.zip", {"Tatoeba.en-fr.en": "one two\n", "Tatoeba.en-fr.fr": "un deux\n"})
    with pytest.raises(
        ValueError, match=r"2 archives are not below .*: Europarl/en-ru.txt.zip, Tatoeba/en-rus.txt.zip"
    ):
        prepare.main([f"--opus={tmp_path}/in", *common])
    with pytest.raises(ValueError, match=r"2 of the table's sources are missing \(Europarl/.*: give it another name"):
        prepare.main([f"--opus={tmp_path}/in", *common, "--missing=skip"])
    prepare.main([f"--opus={tmp_path}/in", *common, "--missing=skip", "--name=less"])
    out = capsys.readouterr().out
    assert "1 kept" in out and "2 of the table's sources, Europarl/en-ru.txt.zip, Tatoeba/en-rus.txt.zip" in out
    missing = [line.split("\t") for line in (tmp_path / "out/report.tsv").read_text().splitlines()[-3:-1]]
    names = ["Europarl/en-ru.txt.zip", "Tatoeba/en-rus.txt.zip"]
    assert [row[:3] for row in missing] == [["missing", name, "0"] for name in names]
    make_zip(tmp_path / "in/OPUS-Tatoeba/v2/en-fr.txt.zip", {"x": "y"})
    with pytest.raises(ValueError, match="has the archive twice"):
        prepare.main([f"--opus={tmp_path}/in", *common, "--missing=skip", "--name=less"])


def test_an_archive_missing_from_a_set_of_several_wants_another_name_too(opus, tmp_path, make_zip):
    make_zip(tmp_path / "in/Tatoeba/en-fr.txt.zip", {"Tatoeba.en-fr.en": "one two\n", "Tatoeba.en-fr.fr": "un deux\n"})
    make_zip(tmp_path / "in/Europarl/en-ru.txt.zip", {"Europarl.en-ru.en": "one\n", "Europarl.en-ru.ru": "odin\n"})
    flags = [f"--opus={tmp_path}/in", f"--table={opus.table()}", "--test=none", "--missing=skip"]
    with pytest.raises(ValueError, match=r"1 of the table's sources are missing .*, so the mixture is not mini"):
        prepare.main([*flags, f"--output={tmp_path}/out"])


def test_the_output_is_no_part_of_the_input(opus):
    flags = [f"--opus={opus.root}", f"--table={opus.table()}", "--test=none"]
    with pytest.raises(ValueError, match="lies inside the input, .*archives; name a folder outside of it"):
        prepare.main([*flags, f"--output={opus.root}/Tatoeba/out"])
    assert not (opus.root / "Tatoeba/out").exists()


def test_options_of_a_runner_want_a_runner(capsys):
    with pytest.raises(SystemExit):
        prepare.main(["--opus=in", "--list", "--beam_options=--nonsense=1"])
    assert "--beam_options is for --runner" in capsys.readouterr().err


def test_links_are_replaced_and_never_written_through(opus, tmp_path):
    """A link planted where output goes, between two calls of a killed preparation."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/keep").write_text("mine")
    plan, tests, _ = opus.plan(languages=["en", "fr"], name="part")
    work = stages.Work(str(tmp_path / "out"))
    running._make_folder(work)
    running._begin(work, plan, tests, None)
    (tmp_path / "out/mini").mkdir()
    os.symlink(tmp_path / "elsewhere", tmp_path / "out/mini/en-fr")
    os.symlink(tmp_path / "elsewhere/keep", tmp_path / "out/report.tsv")
    running.prepare(plan, str(tmp_path / "out"), tests, progress=False)
    assert [p.read_text() for p in (tmp_path / "elsewhere").iterdir()] == ["mine"]
    assert (tmp_path / "out/mini/en-fr").is_dir() and not (tmp_path / "out/mini/en-fr").is_symlink()
    assert not (tmp_path / "out/report.tsv").is_symlink()


def test_plans_come_back_from_json_as_they_were(opus):
    plan, *_ = opus.plan()
    assert plans.Plan.from_json(plan.to_json()) == plan
    moved = dataclasses.replace(plan.sets[0].sources[0], path="/elsewhere")
    sets = (dataclasses.replace(plan.sets[0], sources=(moved, *plan.sets[0].sources[1:])), *plan.sets[1:])
    assert dataclasses.replace(plan, sets=sets).identity() == plan.identity()
    assert zipfile.is_zipfile(plan.sets[0].sources[0].path)
