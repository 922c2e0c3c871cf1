import numpy as np
import pytest

from vmsst_jax.benchmarks.held_out import HeldOutRetrieval

# Directions in degrees.
ANGLES = {
    "Save": 0, "Open": 40, "Store": 90, "Close": 130,
    "Speichern": 2, "Sichern": 85, "Öffnen": 45, "Schließen": 160, "Fermer": 60, "Ouvrir": 45,
}  # fmt: skip
PAIRS = [
    ("Save", "Speichern", "en", "de"),
    ("Sichern", "Save", "de", "en"),  # the same message, translated differently
    ("Store", "Speichern", "en", "de"),  # two messages of one translation
    ("Open", "Öffnen", "en", "de"),
    ("Open", "Öffnen", "en", "de"),  # a repetition
    ("Open", "Ouvrir", "en", "fr"),
    ("Close", "Fermer", "en", "fr"),
]


def encode(texts, scale=1.0):
    assert len(set(texts)) == len(texts)  # each once
    angles = np.deg2rad([ANGLES[text] * scale for text in texts])
    return 3 * np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def test_scores_by_hand():
    benchmark = HeldOutRetrieval(PAIRS)
    assert benchmark.pool_sizes == {"de": 4, "fr": 2}
    scores = benchmark(encode)
    # de: Speichern 2 -> Save 0: right for the first pair, wrong for the third (wanted Store).
    #     Sichern 85 -> Store 90: wrong. Öffnen 45 -> Open 40: right.
    # en: Save 0 -> Speichern 2, right for both pairs of Save: it is another translation of the same message.
    #     Store 90 -> Sichern 85, wrong. Open 40 -> Öffnen 45, right.
    assert scores.per_language["de"] == {"pool": 4, "xx->en": 0.5, "en->xx": 0.75}
    # fr: Ouvrir 45 -> Open 40 right; Fermer 60 -> Open 40 wrong. Open 40 -> Ouvrir 45 right; Close 130 -> Fermer right.
    assert scores.per_language["fr"] == {"pool": 2, "xx->en": 0.5, "en->xx": 1.0}
    assert scores.means == {"pool": 3.0, "xx->en": 0.5, "en->xx": 0.875}
    assert scores.metrics() == {"retrieval_xx_en": 0.5, "retrieval_en_xx": 0.875, "retrieval": 0.6875}


def test_finding_the_wanted_text_itself_is_right():
    pairs = [("A", "x", "en", "de"), ("B", "x", "en", "de")]  # one German text for two messages
    vectors = {"A": [1, 0], "B": [0, 1], "x": [1, 1]}
    scores = HeldOutRetrieval(pairs)(lambda texts: np.array([vectors[t] for t in texts], np.float32))
    assert scores.per_language["de"]["en->xx"] == 1.0  # B finds x at A's place: the very text it wants
    assert scores.per_language["de"]["xx->en"] == 0.5  # but x can only find one of the messages


def test_table_has_both_models_and_means():
    benchmark = HeldOutRetrieval(PAIRS)
    lines = benchmark(encode).table(benchmark(lambda texts: encode(texts, scale=17.0))).splitlines()
    header = "language pool xx->en untrained xx->en trained en->xx untrained en->xx trained"
    assert " ".join(lines[0].split()) == header
    assert [line.split()[:2] for line in lines[1:]] == [["de", "4"], ["fr", "2"], ["mean", "3"]]
    assert lines[3].split()[3::2] == ["50.0", "87.5"]
    assert len({len(line) for line in lines}) == 1


def test_another_pivot():
    benchmark = HeldOutRetrieval([("Open", "Öffnen", "en", "de"), ("Ouvrir", "Öffnen", "fr", "de")], pivot="de")
    assert benchmark.directions == ("xx->de", "de->xx") and benchmark.pool_sizes == {"en": 1, "fr": 1}
    assert benchmark(encode).metrics() == {"retrieval_xx_de": 1.0, "retrieval_de_xx": 1.0, "retrieval": 1.0}


def test_bad_pairs():
    with pytest.raises(ValueError, match="is fr-de; wanted 'en' on exactly one side"):
        HeldOutRetrieval([("Ouvrir", "Öffnen", "fr", "de")])
    with pytest.raises(ValueError, match="is en-en"):
        HeldOutRetrieval([("Open", "Open", "en", "en")])
    with pytest.raises(ValueError, match="no held-out pairs"):
        HeldOutRetrieval([])
