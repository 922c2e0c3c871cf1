"""The command with a stand-in model."""

from types import SimpleNamespace

import numpy as np
import pytest

from vmsst_jax import calibrate, command, embed, evaluate, mine, search
from vmsst_jax.retrieval import embedders
from vmsst_jax.retrieval.calibration import Calibration

WORDS = [f"{a}{b}{c}" for a in "abcdef" for b in "ghijkl" for c in "mnopqr"]


class Letters:
    """Embeds a sentence by the letters in it; capitals, the other language, lie elsewhere."""

    languages, counts = SimpleNamespace(codes=("en", "de")), {"sentences": 0, "empty": 0, "truncated": 0}
    embedding, dim, source = {"normalize": False}, 6, {"kind": "letters"}
    batch_size = max_length = None

    def encode(self, texts, batch_size=None, normalize=False, progress=False, *, language=None):
        places = np.array([[ord(c) % 6 for c in text.lower()[:3]] for text in texts])
        vectors = np.zeros((len(texts), 6), np.float32)
        for position, weight in enumerate((3.0, 2.0, 1.0)):
            vectors[np.arange(len(texts)), places[:, position]] += weight
        return vectors + 5 * np.array([text.isupper() for text in texts])[:, None]

    def describe(self):
        return {**self.source, "layer": None, "pooling": "mean", "dim": 6}

    def fingerprint(self):
        return "abc"


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(embedders, "load", lambda **options: Letters())
    (tmp_path / "en.txt").write_text("\n".join(WORDS), encoding="utf-8")
    (tmp_path / "de.txt").write_text("\n".join(w.upper() for w in WORDS[::-1]), encoding="utf-8")
    (tmp_path / "few.txt").write_text("eins\nzwei\n", encoding="utf-8")
    (tmp_path / "pairs.tsv").write_text("".join(f"{w.upper()}\t{w}\n" for w in WORDS), encoding="utf-8")

    def run(*flags, samples="de=de.txt,en=en.txt"):
        argv = ["--checkpoint=model", "--cache_dir=cache", f"--samples={samples}", "--output=cal.npz", *flags]
        try:
            command.run(calibrate.NAME, calibrate.main, argv)
        except SystemExit as stopped:
            return stopped.code
        return 0

    return run


def test_fits_prints_and_draws(run, tmp_path, capsys):
    assert run("--picture=cal.svg", "--pairs=pairs.tsv", "--rounds=2", "--mutual", "--scale=var") == 0
    out = capsys.readouterr().out
    assert "de: 216 different sentences in the 216 lines of de.txt" in out
    for stage in ("start", "round 1", "round 2"):
        assert f"de -> en, {stage}: mean cosine " in out
    assert "written to cal.npz: shift, scale, rotate of de, en" in out and "drawn in cal.svg" in out
    fitted = Calibration.load(tmp_path / "cal.npz")
    assert fitted.model["fingerprint"] == "abc" and fitted.pivot == "en"
    assert fitted.settings["scale"] == "var" and fitted.settings["rotation"]["mutual"]
    assert "de and en, as embedded" in (tmp_path / "cal.svg").read_text("utf-8")
    translated = [fitted.apply(Letters().encode(texts), c) for texts, c in ((["AGM"], "de"), (["agm"], "en"))]
    np.testing.assert_allclose(*translated, atol=1e-3)
    assert run() == 2
    assert "cal.npz exists; use --overwrite" in capsys.readouterr().err
    assert run("--overwrite", "--steps=shift") == 0
    assert Calibration.load(tmp_path / "cal.npz").steps == ("shift",)


def test_adversarial(run, tmp_path, capsys):
    assert run("--rotation=adversarial", "--epochs=1", "--epoch_size=64", "--rounds=1") == 0
    assert "epoch 1, step 2 of 2: discriminator's loss" in capsys.readouterr().out
    assert Calibration.load(tmp_path / "cal.npz").settings["rotation"]["adversarial"]["epoch_size"] == 64


@pytest.mark.parametrize(
    "samples, flags, message",
    [
        ("de=few.txt,en=en.txt", (), "few.txt has 2 different sentences of de; wanted at least 100"),
        ("de=de.txt", (), "the samples are of de and every language is rotated onto en, which has none"),
        ("de=de.txt,en=en.txt", ("--pivot=fr",), "rotated onto fr, which has none"),
        ("de.txt", (), "--samples has 'de.txt'; wanted CODE=FILE"),
        ("de=de.txt,de=en.txt", (), "--samples names de twice, de.txt and en.txt"),
        ("de=de.txt,en=nowhere.txt", (), "nowhere.txt does not exist"),
        ("de=de.txt,en=en.txt", ("--steps=rotate",), "steps are 'rotate'; wanted the first of shift,scale,rotate"),
        ("de=de.txt,en=en.txt", ("--picture=a.svg",), "--picture and --pairs go together"),
        ("de=de.txt,en=en.txt", ("--picture=a.gif", "--pairs=pairs.tsv"), "ends in .svg, .png, .pdf"),
        ("de=de.txt,fr=de.txt,en=en.txt", ("--picture=a.svg", "--pairs=pairs.tsv"), "one of de, fr"),
    ],
)
def test_bad_input(run, tmp_path, capsys, samples, flags, message):
    assert run(*flags, samples=samples) == 2
    err = capsys.readouterr().err
    assert err.startswith("vmsst_jax.calibrate: error: ") and message in err and err.count("\n") == 1
    assert not (tmp_path / "cal.npz").exists()


def test_too_few_sentences_for_a_rotation_are_told_before_anything_is_embedded(run, tmp_path, monkeypatch, capsys):
    def encode(self, *args, **options):
        raise AssertionError("something is embedded")

    monkeypatch.setattr(Letters, "dim", 174)
    with monkeypatch.context() as patch:
        patch.setattr(Letters, "encode", encode)
        assert run() == 2  # 216 sentences, 173 of them fitted to
        error = capsys.readouterr().err
        assert "de.txt has 216 different sentences, of which 173 are fitted to" in error
        assert "needs 174 or more, that is 218 sentences" in error and "--steps=shift,scale" in error
    assert run("--steps=shift,scale") == 0


def test_other_commands_ask_for_the_language_before_they_load_a_model(run, monkeypatch):
    assert run("--steps=shift") == 0

    def load(**options):
        raise AssertionError("a model is loaded")

    monkeypatch.setattr(embedders, "load", load)
    flags = {
        embed: ["--input=de.txt", "--output=de.npy"],
        search: ["--corpus=en.txt"],
        mine: ["--source=de.txt", "--target=en.txt", "--output=mined.tsv"],
        evaluate: ["--benchmark=tatoeba", "--data_dir=.", "--output=out"],
    }

    def fails(module, match, *more, calibration="cal.npz", error=ValueError):
        given = ["--checkpoint=m", f"--calibration={calibration}"] if calibration else ["--checkpoint=m"]
        with pytest.raises(error, match=match):
            module.main([*given, *flags[module], *more])

    fails(embed, "say with --language which it is: cal.npz has de, en")
    fails(search, "say with --query_language which it is: cal.npz has de, en", "--language=en")
    fails(mine, "say with --source_language and --target_language which it is: cal.npz has de, en")
    fails(mine, "say with --target_language", "--source_language=de")
    both = ("--source_language=deu", "--target_language=fr")
    fails(mine, "--target_language: the calibration cal.npz has no language 'fr', only de, en", *both)
    fails(mine, "no calibration that they are for", *both, calibration=None)
    fails(embed, "--language: the calibration cal.npz has no language 'fr', only de, en", "--language=fr")
    fails(search, "no calibration that they are for", "--language=de", calibration=None)
    for module in flags:
        fails(module, "there is no file other.npz", calibration="other.npz", error=FileNotFoundError)
        fails(module, "steps are 'shift,scale'; wanted the first of shift ", "--calibration_steps=shift,scale")
    fails(evaluate, "no calibration that they are for", "--calibration_steps=shift", calibration=None)


def test_mine_with_a_calibration(run, tmp_path):
    assert run("--steps=shift") == 0
    flags = ["--checkpoint=m", "--source=de.txt", "--target=en.txt", "--output=mined.tsv", "--cache_dir=cache"]
    mine.main([*flags, "--calibration=cal.npz", "--source_language=de", "--target_language=en", "--margin=absolute"])
    rows = [line.split("\t") for line in (tmp_path / "mined.tsv").read_text().splitlines()]
    # Other words of the same letters modulo 6 have the same vectors.
    assert len(rows) > 100 and all(float(row[0]) == pytest.approx(1, abs=1e-5) for row in rows[:20])
    assert all([ord(c) % 6 for c in a.lower()] == [ord(c) % 6 for c in b] for *_, a, b in rows[:20])


def test_search_with_a_calibration(run, capsys):
    assert run() == 0
    flags = ["--checkpoint=m", "--corpus=en.txt", "--query=AGM", "--top_k=1", "--cache_dir=cache"]
    calibrated = ["--calibration=cal.npz", "--language=eng", "--query_language=deu"]
    search.main([*flags, *calibrated, "--calibration_steps=shift,scale"])
    assert "1.0000  line 1: agm" in capsys.readouterr().out


def test_embed_with_a_calibration(run, tmp_path):
    assert run() == 0
    embed.main(["--checkpoint=m", "--input=de.txt", "--output=de.npy", "--calibration=cal.npz", "--language=de"])
    expected = Calibration.load(tmp_path / "cal.npz").apply(Letters().encode([w.upper() for w in WORDS[::-1]]), "de")
    np.testing.assert_allclose(np.load(tmp_path / "de.npy"), expected, atol=1e-6)
