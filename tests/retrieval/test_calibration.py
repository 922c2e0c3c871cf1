import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.linalg

from vmsst_jax.retrieval import calibration, calibration_fit, embedders, store
from vmsst_jax.retrieval.calibration import Calibrated, Calibration
from vmsst_jax.retrieval.embedder import Embedder
from vmsst_jax.retrieval.exact import normalize
from vmsst_jax.retrieval.rotation import RotationSettings

D = 6


def space(rows=400, seed=0):
    """Topics of unequal size, as one language's sentences."""
    rng = np.random.default_rng(seed)
    topics = 2 * rng.normal(size=(12, D))
    return topics[rng.choice(12, rows, p=rng.dirichlet(np.ones(12)))] + 0.5 * rng.normal(size=(rows, D))


def turn(angle, seed=0):
    skew = np.random.default_rng(seed).normal(size=(D, D))
    skew -= skew.T
    return scipy.linalg.expm(skew * angle / np.abs(np.linalg.eigvals(skew)).max())


@pytest.fixture(scope="module")
def samples():
    """English; German, the same space turned and moved off; French, stretched and moved."""
    english = space()
    return {
        "de": english @ turn(0.4).T + 3,
        "fr": (english * np.linspace(1, 2, D) - 1)[::-1],
        "en": english,
    }


class Lookup:
    """A model that knows the vectors of the sentences "CODE NUMBER"."""

    counts = {"sentences": 0, "empty": 0, "truncated": 0}
    embedding = {"pooling": "mean", "layer": None, "normalize": False, "prefix": ""}
    languages, source, dim, batch_size, max_length = SimpleNamespace(codes=()), {"kind": "lookup"}, D, 8, 20
    layer = 4

    def __init__(self, samples):
        self.samples, self.asked = samples, []

    def encode(self, texts, batch_size=None, normalize=False, progress=False, *, language=None):
        self.asked.append((language, len(texts), normalize))
        rows = [self.samples[code][int(row)] for code, row in map(str.split, texts)]
        return np.array(rows, np.float32).reshape(-1, D)

    def describe(self):
        return {"kind": "lookup", "layer": self.layer, "pooling": "mean"}

    def fingerprint(self):
        return f"layer {self.layer}"


@pytest.fixture(scope="module")
def fitted(samples):
    model = Lookup(samples)
    return calibration_fit.fit(samples, model={**model.describe(), "fingerprint": model.fingerprint()})


def by_hand(x, sample, w=None, scale=np.std):
    x = (x - sample.mean(axis=0)) / scale(sample, axis=0)
    return x if w is None else np.array([w @ row for row in x])


def test_calibrated_equals_a_hand_calculation(samples, fitted):
    model = Lookup(samples)
    texts = ["de 3", "de 77", "de 200"]
    x = samples["de"][[3, 77, 200]]
    w = fitted.languages["de"].rotation
    expected = {
        (): x,
        ("shift",): x - samples["de"].mean(axis=0),
        ("shift", "scale"): by_hand(x, samples["de"]),
        ("shift", "scale", "rotate"): by_hand(x, samples["de"], w),
    }
    for steps, vectors in expected.items():
        found = Calibrated(model, fitted, steps).encode(texts, language="de")
        assert found.dtype == np.float32 and found.shape == (3, D)
        np.testing.assert_allclose(found, vectors, atol=1e-5)
    embedder = Calibrated(model, fitted)
    np.testing.assert_allclose(embedder.encode(texts, language="de"), expected[calibration.STEPS], atol=1e-5)
    unit = embedder.encode(texts, language="de", normalize=True)
    np.testing.assert_allclose(unit, normalize(expected[calibration.STEPS]), atol=1e-5)
    assert {call[0] for call in model.asked} == {"de"} and not any(call[2] for call in model.asked)
    # The pivot is shifted and scaled, and stays where it is.
    np.testing.assert_allclose(
        embedder.encode(["en 5"], language="en"), by_hand(samples["en"][[5]], samples["en"]), atol=1e-5
    )
    assert embedder.encode([], language="en").shape == (0, D)


def test_languages_come_together(samples, fitted):
    """Translations lie apart before calibration and nearly on each other after it."""

    def distance(steps):
        mapped = {c: fitted.apply(samples[c], c, steps) for c in ("de", "en")}
        return np.linalg.norm(mapped["de"] - mapped["en"], axis=1).mean()

    raw, shifted, scaled, rotated = (distance(calibration.STEPS[:n]) for n in range(4))
    assert raw > 2 * shifted > 2 * rotated and rotated < 0.5 * scaled
    assert np.abs(fitted.languages["de"].rotation @ fitted.languages["de"].rotation.T - np.eye(D)).max() < 1e-5
    assert fitted.languages["fr"].rotation.shape == (D, D) and fitted.languages["en"].rotation is None


def test_scales_and_prefixes(samples):
    x = samples["fr"][:3]
    for scale, expected in (("std", by_hand(x, samples["fr"])), ("var", by_hand(x, samples["fr"], scale=np.var))):
        found = calibration_fit.fit(samples, steps=("shift", "scale"), scale=scale)
        np.testing.assert_allclose(found.apply(x, "fr"), expected, rtol=1e-4, atol=1e-5)
        assert found.languages["fr"].rotation is None
    none = calibration_fit.fit(samples, scale="none", rotation=RotationSettings(rounds=1))
    np.testing.assert_allclose(none.apply(x, "fr", ("shift", "scale")), x - samples["fr"].mean(axis=0), atol=1e-5)
    flat = dict(samples, fr=samples["fr"] * [1, 1, 1, 1, 1, 0])  # a dimension that says nothing
    assert np.isfinite(calibration_fit.fit(flat, steps=("shift", "scale")).apply(flat["fr"], "fr")).all()
    with pytest.raises(ValueError, match="steps are 'shift,rotate'; wanted the first of shift,scale,rotate"):
        calibration_fit.fit(samples, steps=("shift", "rotate"))
    with pytest.raises(ValueError, match="steps are 'shift,scale,rotate'; wanted the first of shift,scale in"):
        found.apply(x, "fr", calibration.STEPS)


def test_pairwise_with_another_pivot(samples):
    fitted = calibration_fit.fit({c: samples[c] for c in ("de", "fr")}, pivot="fr", rotation=RotationSettings(rounds=1))
    assert fitted.languages["fr"].rotation is None and fitted.languages["de"].rotation is not None
    assert list(fitted.languages) == ["de", "fr"]


def test_language_codes(samples, fitted):
    embedder = Calibrated(Lookup(samples), fitted)
    np.testing.assert_array_equal(embedder.encode(["de 3"], language="deu"), embedder.encode(["de 3"], language="de"))
    with pytest.raises(ValueError, match="say encode\\(texts, language=CODE\\)"):
        embedder.encode(["de 3"])
    with pytest.raises(ValueError, match="no language 'nl', only de, fr, en; fit it with a sample of nl"):
        embedder.encode(["de 3"], language="nl")
    chinese = Calibration((), "en", {c: fitted.languages["de"] for c in ("zh-Hans", "zh-Hant")}, {}, {})
    assert chinese.language("zh-Hant") == "zh-Hant"
    with pytest.raises(ValueError, match="no language 'cmn', several that it may mean, zh-Hans, zh-Hant"):
        chinese.language("cmn")
    default = Calibrated(Lookup(samples), fitted, language="deu")
    np.testing.assert_array_equal(default.encode(["de 3"]), embedder.encode(["de 3"], language="de"))


def test_round_trip(samples, fitted, tmp_path):
    path = calibration.check_output(tmp_path / "cal.npz")
    fitted.save(path)
    loaded = Calibration.load(path)
    assert loaded.describe() == fitted.describe() and loaded.model == fitted.model
    assert loaded.fingerprint() == fitted.fingerprint()
    assert loaded.describe()["languages"]["de"]["sentences"] == 400
    assert loaded.settings["rotation"]["method"] == "refine" and loaded.settings["scale"] == "std"
    for code in samples:
        np.testing.assert_array_equal(loaded.apply(samples[code], code), fitted.apply(samples[code], code))
    with np.load(path, allow_pickle=False) as file:  # nothing in it needs pickle
        assert {"about", "de/mean", "de/scale", "de/rotation", "en/mean"} <= set(file.files)
    with pytest.raises(FileExistsError, match="cal.npz exists; use --overwrite"):
        calibration.check_output(path)
    assert calibration.check_output(path, overwrite=True) == path
    with pytest.raises(ValueError, match="ends in .npz"):
        calibration.check_output(tmp_path / "cal.json")
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        calibration.check_output(tmp_path / "nowhere" / "cal.npz")


def test_damaged_files(fitted, tmp_path):
    path = tmp_path / "cal.npz"
    with pytest.raises(FileNotFoundError, match="make one with python -m vmsst_jax.calibrate"):
        Calibration.load(path)
    fitted.save(path)
    good = path.read_bytes()
    with np.load(path) as file:
        arrays = dict(file)
    damaged = {
        "cut": good[: len(good) // 2],
        "text": b"no calibration at all",
        "empty": b"",
    }
    for contents in damaged.values():
        path.write_bytes(contents)
        with pytest.raises(ValueError, match="cal.npz is no calibration or is damaged"):
            Calibration.load(path)
    for change, message in (
        ({"about": None}, "about"),
        ({"about": np.array("[1]")}, "TypeError"),
        ({"about": np.array(str(arrays["about"]).replace("calibration 1", "calibration 9"))}, "format"),
        ({"de/mean": np.zeros((D, 2), np.float32)}, "de/"),
        ({"de/rotation": None}, "de lacks an array"),
        ({"fr/scale": np.full(D, np.nan, np.float32)}, "fr/scale holds NaN"),
        ({"fr/mean": np.array([None] * D)}, "allow_pickle"),
    ):
        np.savez(path, **{k: v for k, v in (arrays | change).items() if v is not None})
        with pytest.raises(ValueError, match=f"is no calibration or is damaged.*{message}"):
            Calibration.load(path)


def test_another_model_is_refused(samples, fitted):
    other = Lookup(samples)
    other.layer = 3
    with pytest.raises(ValueError, match="belongs to another model: layer 4 there, 3 here; embed as it was fitted"):
        Calibrated(other, fitted)
    unknown = dataclasses.replace(fitted, model={})
    with pytest.raises(ValueError, match="another model: its parameters differ"):
        Calibrated(Lookup(samples), unknown)


def test_what_identifies_it(samples, fitted):
    model = Lookup(samples)
    other = calibration_fit.fit(dict(samples, de=samples["de"] + 1e-3), model=fitted.model)
    prints = [
        model.fingerprint(),
        Calibrated(model, fitted).fingerprint(),
        Calibrated(model, fitted, ("shift",)).fingerprint(),
        Calibrated(model, fitted, language="de").fingerprint(),
        Calibrated(model, other).fingerprint(),
    ]
    assert len(set(prints)) == len(prints)
    assert Calibrated(model, fitted).fingerprint() == prints[1]
    about = Calibrated(model, fitted, ("shift",)).describe()
    assert about["layer"] == 4 and about["calibration"]["used_steps"] == ["shift"]
    assert about["calibration"]["languages"] == {"de": 400, "fr": 400, "en": 400}
    with pytest.raises(ValueError, match="one layer it was fitted on"):
        Calibrated(model, fitted).encode_layers(["de 1"], language="de")


def test_bad_samples(samples):
    fit = calibration_fit.fit
    for bad, message in (
        ({"de": samples["de"]}, "the samples are of de and every language is rotated onto en, which has none"),
        ({"en": samples["en"]}, "the only sample is of the pivot en"),
        (dict(samples, de=samples["de"][:99]), r"sample of de has shape \(99, 6\); wanted \[n, D\] of at least 100"),
        (dict(samples, de=samples["de"][:, :5]), "sample of de has 5 dimensions, that of en 6"),
        (dict(samples, de=np.where(np.arange(400)[:, None] == 7, np.nan, samples["de"])), "row 7 of the sample of de"),
        ({}, "no samples are given"),
    ):
        with pytest.raises(ValueError, match=message):
            fit(bad)
    with pytest.raises(ValueError, match="scale is 'variance'; use one of std, var, none"):
        fit(samples, scale="variance")
    with pytest.raises(ValueError, match="no step is chosen"):
        fit(samples, steps=())
    assert list(fit({"de": samples["de"]}, steps=("shift",)).languages) == ["de"]  # shifting needs no pivot


def test_text_samples(samples, tmp_path):
    path = tmp_path / "de.txt"
    path.write_text("\n".join(f"de {i % 150}" for i in range(300)) + "\n\n  \n", encoding="utf-8")
    lines = []
    found = calibration_fit.TextSamples(Lookup(samples), {"de": path}, lines.append)
    np.testing.assert_allclose(found["de"], samples["de"][:150], atol=1e-6)
    assert lines == [f"de: 150 different sentences in the 302 lines of {path}"]

    def embed(texts):
        return np.array([[np.nan if text == "de 7" else 1.0] for text in texts])

    found = calibration_fit.TextSamples(embedders.load(embedder=embed), {"de": path})
    with pytest.raises(ValueError, match="de.txt, line 8: the function .* returned NaN or infinity for 'de 7'"):
        found["de"]
    path.write_text("de 1\n" * 200, encoding="utf-8")
    with pytest.raises(ValueError, match="de.txt has 1 different sentences of de; wanted at least 100"):
        calibration_fit.TextSamples(Lookup(samples), {"de": path})


def test_a_real_embedder_behind_it(tiny, tmp_path):
    """Also through ``embed_file``, which knows nothing of languages."""
    model = Embedder(tiny.module, tiny.params, tiny.tokenizer, tiny.languages, tiny.embedding, batch_size=8)
    texts = [f"the dog {'barks ' * (i % 5)}{chr(97 + i % 7)} {'loudly ' * (i // 35)}" for i in range(140)]
    vectors = model.encode(texts)
    fitted = calibration_fit.fit(
        {"en": vectors, "de": vectors},
        steps=("shift", "scale"),
        model={**model.describe(), "fingerprint": model.fingerprint()},
    )
    fitted.save(tmp_path / "cal.npz")
    embedder = calibration.applied(model, tmp_path / "cal.npz", ("shift",), "en")
    expected = vectors - vectors.mean(axis=0)
    np.testing.assert_allclose(embedder.encode(texts), expected, atol=1e-5)
    (tmp_path / "in.txt").write_text("".join(f"{t}\n" for t in texts), encoding="utf-8")
    about = store.embed_file(embedder, tmp_path / "in.txt", tmp_path / "out.npy", progress=False)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, atol=1e-5)
    assert about["model"]["calibration"]["default_language"] == "en"
    assert (embedder.dim, embedder.languages) == (model.dim, model.languages)
    assert calibration.applied(model, None) is model
    with pytest.raises(ValueError, match="no calibration that they are for"):
        calibration.applied(model, None, language="de")
