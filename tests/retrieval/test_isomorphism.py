import xml.etree.ElementTree as ET
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.linalg

from vmsst_jax.retrieval import calibration_fit, isomorphism
from vmsst_jax.retrieval.calibration import Calibrated

ENGLISH = np.random.default_rng(0).normal(size=(150, 5)) * [3, 2, 1, 0.5, 0.5]
VECTORS = {"en": ENGLISH, "de": ENGLISH + [9, 0, 0, 4, 0]}
PAIRS = [(f"de {i}", f"en {i}") for i in range(150)]


class Lookup:
    """A model that knows the vectors of the sentences "CODE NUMBER"."""

    embedding, languages, dim = {"normalize": False}, SimpleNamespace(codes=()), 5

    def encode(self, texts, batch_size=None, normalize=False, progress=False, *, language=None):
        assert all(text.startswith(language) for text in texts)
        return np.array([VECTORS[code][int(row)] for code, row in map(str.split, texts)], np.float32)

    def describe(self):
        return {}

    def fingerprint(self):
        return "abc"


@pytest.fixture(scope="module")
def pictures():
    fitted = calibration_fit.fit(VECTORS, model={"fingerprint": "abc"})
    return isomorphism.figures(Calibrated(Lookup(), fitted), PAIRS, ("de", "en"))


def test_the_plane_of_largest_variance():
    points = np.concatenate(list(VECTORS.values()))
    _, _, directions = scipy.linalg.svd(points - points.mean(axis=0))
    expected, found = (points - points.mean(axis=0)) @ directions[:2].T, isomorphism.main_directions(points)
    signs = np.sign((expected * found).sum(axis=0))
    np.testing.assert_allclose(found * signs, expected, atol=1e-8)
    assert (found[np.abs(found).argmax(axis=0), [0, 1]] > 0).all()


def test_translations_meet_after_calibration(pictures):
    before, after = pictures
    assert [p["kind"] for p in pictures] == ["scatter", "scatter"]
    assert after["title"] == "de and en, calibrated (shift, scale, rotate)"
    lengths = []
    for picture in pictures:
        assert {name: np.shape(points) for name, points in picture["groups"].items()} == {
            "de": (150, 2), "en": (150, 2)
        }  # fmt: skip
        links, rows = np.array(picture["links"]), np.linspace(0, 149, 5).astype(int)
        np.testing.assert_array_equal(links[:, :2], np.array(picture["groups"]["de"])[rows])
        np.testing.assert_array_equal(links[:, 2:], np.array(picture["groups"]["en"])[rows])
        spread = np.std(picture["groups"]["en"], axis=0).max()
        lengths.append(np.linalg.norm(links[:, :2] - links[:, 2:], axis=1).max() / spread)
    assert lengths[0] > 2 and lengths[1] < 0.05


def test_at_most_a_thousand_points():
    many = isomorphism._evenly(2500, isomorphism.MOST_POINTS)
    assert len(many) == 1000 and many[0] == 0 and many[-1] == 2499


def test_drawing(pictures, tmp_path):
    for ending in ("svg", "png"):
        isomorphism.draw(pictures, tmp_path / f"picture.{ending}")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    text = (tmp_path / "picture.svg").read_text("utf-8")
    words = {"".join(node.itertext()) for node in ET.fromstring(text).iter("{http://www.w3.org/2000/svg}text")}
    assert {"de", "en", "de and en, as embedded", pictures[1]["title"]} <= words
    isomorphism.draw(pictures, tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_text("utf-8") == text


def test_errors(tmp_path):
    with pytest.raises(ValueError, match="picture.gif; wanted a name that ends in .svg, .png, .pdf"):
        isomorphism.check_picture(tmp_path / "picture.gif")
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        isomorphism.check_picture(tmp_path / "nowhere" / "picture.svg")
    with pytest.raises(ValueError, match="got 4 pairs of sentences; wanted at least 5"):
        isomorphism.figures(None, PAIRS[:4], ("de", "en"))
    path = tmp_path / "pairs.tsv"
    path.write_text("eins\tone\nzwei two\n", encoding="utf-8")
    with pytest.raises(ValueError, match="pairs.tsv, line 2: found 1 columns"):
        isomorphism.read_pairs(path)
    path.write_text("eins\tone\nzwei\ttwo\n", encoding="utf-8")
    assert isomorphism.read_pairs(path) == [("eins", "one"), ("zwei", "two")]
