import numpy as np
import pytest

from vmsst_jax.benchmarks import sts, sts_files, stsb, suite

DEGREES = {"a": 0, "b": 10, "c": 30, "d": 60, "e": 90, "f": 120}
VECTORS = {text: (np.cos(np.deg2rad(x)), np.sin(np.deg2rad(x))) for text, x in DEGREES.items()}
# Gold of a pair, its sentences; the cosines are cos 10, cos 30, cos 60 and cos 30 again.
PAIRS = (("5", "a", "b"), ("3.5", "a", "c"), ("0", "c", "e"), ("3.5", "d", "e"))


def lines(pairs=PAIRS):
    return "".join("\t".join(pair) + "\n" for pair in pairs)


def pearson(x, y):
    x, y = np.array(x) - np.mean(x), np.array(y) - np.mean(y)
    return (x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum())


def ranks(values):
    """Mean ranks, counted pair by pair."""
    return [sum(v < w for v in values) + (sum(v == w for v in values) + 1) / 2 for w in values]


@pytest.fixture
def folder(tmp_path):
    for name in ("sts12.MSRvid", "sts12.surprise.OnWN", "sts15.belief", "sts17.track2.ar-en", "sts17.track4b.es-en"):
        (tmp_path / f"{name}.tsv").write_text(lines())
    (tmp_path / "sts15.belief.tsv").write_text(lines((("", "a", "f"), *reversed(PAIRS[:3]), ("", "b", "b"))))
    return tmp_path


def test_correlations_by_hand(folder, text_vectors):
    result, table = suite.run("sts", text_vectors(VECTORS), folder, {})
    cosines = np.cos(np.deg2rad([10, 30, 60, 30]))
    gold = [5, 3.5, 0, 3.5]
    found = result["per_language"]["2012 MSRvid"]
    assert found["pearson"] == pytest.approx(pearson(cosines, gold), abs=1e-6)
    assert found["pairs"] == 4 and found["unscored"] == 0 and found["languages"] == "en-en"
    belief = result["per_language"]["2015 belief"]
    assert belief["pairs"] == 3 and belief["unscored"] == 2 and belief["spearman"] == pytest.approx(1)
    assert belief["pearson"] == pytest.approx(pearson(cosines[:3], gold[:3]), abs=1e-6)
    means = result["means"]
    assert means["2012"] == {"languages": 2, "spearman": found["spearman"], "pearson": found["pearson"]}
    assert means["English"]["languages"] == 2
    assert means["English"]["pearson"] == pytest.approx((found["pearson"] + belief["pearson"]) / 2)  # of the years
    assert means["2017"]["languages"] == 2 and means["XL"]["languages"] == 1  # 4b is no track of VMSST's
    missing = set(result["missing"])
    assert {"2012 MSRpar", "2013 SMT", "2016 plagiarism", "2017 track1.ar-ar"} <= missing
    assert len(missing) == 25 - 3 + 7 - 2 and "missing, so in no mean: 2012 MSRpar, " in table
    assert result["scores"] == ["spearman", "pearson"]


def test_ties_share_their_mean_rank(tmp_path, text_vectors):
    rng = np.random.default_rng(0)
    pairs = [(f"{rng.integers(0, 11) / 2}", f"s{rng.integers(6)}", f"t{i % 20}") for i in range(40)]
    (tmp_path / "sts13.FNWN.tsv").write_text(lines(pairs))
    model = text_vectors()
    found = sts.evaluate(model, tmp_path)["per_language"]["2013 FNWN"]
    unit = {text: model.encode([text], normalize=True)[0].astype(float) for pair in pairs for text in pair[1:]}
    # A repeated pair is the same number only if it is computed the same way: rounded, equal cosines are ties.
    cosines = [round(unit[a] @ unit[b], 6) for _, a, b in pairs]
    gold = [float(g) for g, _, _ in pairs]
    assert len(set(cosines)) < 40 > len(set(gold))
    assert found["spearman"] == pytest.approx(pearson(ranks(cosines), ranks(gold)), abs=1e-6)
    assert found["pearson"] == pytest.approx(pearson(cosines, gold), abs=1e-5)


def test_each_language_is_embedded_by_itself(folder, text_vectors):
    model = text_vectors(VECTORS)
    sts.evaluate(model, folder, years=[2017])
    # The first sentences of tracks 2 and 4b are English.
    assert sorted(model.asked) == sorted(
        [("en", t) for t in "acd"] + [("ar", t) for t in "bce"] + [("es", t) for t in "bce"]
    )


def test_choices(folder, text_vectors):
    def chosen(**options):
        result = sts.evaluate(text_vectors(VECTORS), folder, **options)
        return list(result["per_language"]), result["missing"]

    assert chosen(years=["2015"])[0] == ["2015 belief"]
    assert chosen(languages=["ar", "eng"])[0][-2:] == ["2015 belief", "2017 track2.ar-en"]
    assert chosen(years=[2017], languages=["ar", "en"]) == (
        ["2017 track2.ar-en"], ["2017 track1.ar-ar", "2017 track5.en-en"]
    )  # fmt: skip
    for options, match in (
        ({"years": [2011]}, "no STS of 2011"),
        ({"languages": ["de"]}, "no language 'de'"),
        ({"years": [2016]}, "has no set of the years"),
    ):
        with pytest.raises(ValueError, match=match):
            chosen(**options)


def test_files_as_semeval_publishes_them(tmp_path, text_vectors):
    test, other = tmp_path / "STS2012-gold", tmp_path / "sts2016-english-with-gs-v1.0"
    train, tracks, gold = tmp_path / "STS2012-train", tmp_path / "STS2017.eval.v1.1", tmp_path / "STS2017.gs"
    for directory in (test, other, train, tracks, gold):
        directory.mkdir()
    sentences = "".join(f"{a}\t{b}\n" for _, a, b in PAIRS)
    scores = "".join(f"{g}\n" for g, _, _ in PAIRS)
    for directory, start, name in (
        (train, "STS", "MSRpar"), (test, "STS", "MSRpar"), (test, "STS", "surprise.OnWN"),
        (other, "STS2016", "plagiarism"),
    ):  # fmt: skip
        (directory / f"{start}.input.{name}.txt").write_text(sentences)
        (directory / f"{start}.gs.{name}.txt").write_text(scores)
    (other / "STS2016.input.plagiarism.txt").write_text(sentences.replace("\n", "\tsource 1\tsource 2\n"))
    (other / "STS2016.gs.plagiarism.txt").write_text("\n" + scores[2:])
    (tracks / "STS.input.track1.ar-ar.txt").write_text(sentences)
    (gold / "STS.gs.track1.ar-ar.txt").write_text(scores)
    result = sts.evaluate(text_vectors(VECTORS), tmp_path)
    found = {name: (s["pairs"], s["unscored"]) for name, s in result["per_language"].items()}
    assert found == {
        "2012 MSRpar": (4, 0), "2012 surprise.OnWN": (4, 0), "2016 plagiarism": (3, 1), "2017 track1.ar-ar": (4, 0)
    }  # fmt: skip
    by_row = sts_files.find_semeval(tmp_path)[2012, "MSRpar"].read()
    assert (by_row.first, by_row.second, by_row.gold.tolist()) == (list("aacd"), list("bcee"), [5, 3.5, 0, 3.5])

    def fails(error, match):
        with pytest.raises(error, match=match):
            sts.evaluate(text_vectors(VECTORS), tmp_path)

    (tmp_path / "sts12.MSRpar.tsv").write_text(lines())
    fails(ValueError, "STS.input.MSRpar.txt and .*sts12.MSRpar.tsv are the same set of STS 2012")
    (tmp_path / "sts12.MSRpar.tsv").unlink()
    (test / "STS.gs.MSRpar.txt").write_text(scores + "1\n")
    fails(ValueError, "STS.input.MSRpar.txt has 4 lines and .*STS.gs.MSRpar.txt 5")
    (test / "STS.gs.MSRpar.txt").write_text(scores)
    (test / "STS.input.MSRpar.txt").write_text("no tab\n" * 4)
    fails(ValueError, "STS.input.MSRpar.txt, line 1: no tab")
    (test / "STS.gs.MSRpar.txt").unlink()
    fails(FileNotFoundError, "no gold file STS.gs.MSRpar.txt for ")
    test.rename(tmp_path / "test-gold")
    fails(ValueError, "test-gold/STS.gs.surprise.OnWN.txt: of which year")


def test_stsb_in_its_three_forms(tmp_path, text_vectors):
    (tmp_path / "stsb.en.dev.tsv").write_text(lines())
    (tmp_path / "stsb-de-dev.csv").write_text('a,b,5.0\n"a",c,3.5\n"c","e",0\nd,e,3.5\n')
    original, german = tmp_path / "original", tmp_path / "quoted"
    original.mkdir()
    german.mkdir()
    rows = ["\t".join(("news", "file", "2014", "3", *pair, "link")) + "\n" for pair in PAIRS]
    (original / "sts-test.csv").write_text("".join(rows))
    result, table = suite.run("stsb", text_vectors(VECTORS), tmp_path, {})
    assert list(result["per_language"]) == ["de", "en"] and result["split"] == "dev"
    assert result["per_language"]["de"] == {**result["per_language"]["en"], "languages": "de-de"}
    assert result["means"]["all"]["pearson"] == result["per_language"]["de"]["pearson"]
    other = stsb.evaluate(text_vectors(VECTORS), original)
    assert other["split"] == "test" and other["means"]["all"]["pearson"] == result["means"]["all"]["pearson"]
    # A quoted sentence with a comma, quotes and a line's end.
    (german / "stsb-de-dev.csv").write_text('"a, ""a""\nb",b,5\nc,d,1\ne,f,x\n')
    with pytest.raises(ValueError, match="stsb-de-dev.csv, line 4: the gold score is 'x'"):
        stsb.evaluate(text_vectors(), german)
    (german / "stsb-de-dev.csv").write_text('"a, ""a""\nb",b,5\nc,d,1\n')
    assert sts_files.find_stsb(german)["dev", "de"].read().first == ['a, "a"\nb', "c"]


def test_splits_of_stsb(tmp_path, text_vectors):
    for name in ("stsb.en.dev.tsv", "stsb.en.test.tsv", "stsb.fr.dev.tsv"):
        (tmp_path / name).write_text(lines())
    with pytest.raises(ValueError, match="several splits; say which by split: dev, test"):
        stsb.evaluate(text_vectors(VECTORS), tmp_path)
    found = stsb.evaluate(text_vectors(VECTORS), tmp_path, split="dev", languages=["fra"])
    assert list(found["per_language"]) == ["fr"] and found["split"] == "dev"
    with pytest.raises(FileNotFoundError, match="no files stsb.xx.train.tsv; it has dev, test"):
        stsb.evaluate(text_vectors(VECTORS), tmp_path, split="train")
    (tmp_path / "stsb-en-dev.csv").write_text("a,b,1\n")
    with pytest.raises(ValueError, match="are the same set"):
        stsb.evaluate(text_vectors(VECTORS), tmp_path, split="dev")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("5\ta\tb\n3\ta\n", "line 2: 2 columns; wanted 3"),
        ("5\ta\tb\nx\ta\tc\n", "line 2: the gold score is 'x'; wanted a number from 0 to 5"),
        ("5\ta\tb\nnan\ta\tc\n", "line 2: the gold score is 'nan'"),
        ("5\ta\tb\n5.5\ta\tc\n", "line 2: the gold score is '5.5'"),
        ("5\ta\tb\n5\ta\tc\n", "has 2 gold scores, 1 of them different"),
        ("\ta\tb\n\ta\tc\n", "has 0 gold scores"),
        ("5\ta\tb\n1\ta\tb\n", "the cosines of all 2 pairs are the same"),
        ("", "is empty"),
    ],
)
def test_bad_lines(tmp_path, text_vectors, text, match):
    (tmp_path / "sts12.MSRpar.tsv").write_text(text)
    with pytest.raises(ValueError, match=f"sts12.MSRpar.tsv.*{match}"):
        sts.evaluate(text_vectors(VECTORS), tmp_path)


def test_bad_folders_and_vectors(folder, text_vectors):
    model = text_vectors({**VECTORS, "c": (0.0, 0.0)})
    with pytest.raises(ValueError, match="sts12.MSRvid.tsv, line 3: the vector of 'c'"):
        sts.evaluate(model, folder)
    (folder / "sts12.Foo.tsv").write_text(lines())
    with pytest.raises(ValueError, match="sts12.Foo.tsv: STS 2012 has no set 'Foo'; it has MSRpar, MSRvid"):
        sts.evaluate(text_vectors(VECTORS), folder)
    (folder / "none").mkdir()
    with pytest.raises(FileNotFoundError, match="none holds no STS sets"):
        sts.evaluate(text_vectors(VECTORS), folder / "none")
