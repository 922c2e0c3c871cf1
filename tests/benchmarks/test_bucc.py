"""BUCC's form and protocol, made sets, and NTREX, with a model whose vectors of translations are near."""

import json
import zlib

import numpy as np
import pytest

from vmsst_jax.benchmarks import bucc, mining_data, ntrex_mining, suite


@pytest.fixture
def model(text_vectors):
    """Texts "de NAME" and "en NAME" are translations; their vectors agree but for noise."""

    class Names(text_vectors):
        dim = 16

        def vector(self, text):
            meaning = np.random.default_rng(zlib.crc32(text.split(maxsplit=1)[1].encode())).normal(size=16)
            return meaning + 0.4 * np.random.default_rng(zlib.crc32(text.encode())).normal(size=16)

    return Names()


def write(folder, split, german, english, gold):
    sides = {"de": [(f"de-{i}", text) for i, text in german], "en": [(f"en-{i}", text) for i, text in english]}
    for ending, rows in {**sides, "gold": [(f"de-{i}", f"en-{j}") for i, j in gold]}.items():
        (folder / f"de-en.{split}.{ending}").write_text("".join("\t".join(row) + "\n" for row in rows))


def numbered(prefix, names):
    return [(i, f"{prefix} {name}") for i, name in enumerate(names, 1)]


@pytest.fixture
def data(tmp_path):
    """Training and test, 12 and 10 pairs hidden among 30 sentences a side, in BUCC's own folder."""
    folder = tmp_path / "de-en"
    folder.mkdir()
    for split, pairs in (("training", 12), ("test", 10)):
        shared = [f"{split}{i}" for i in range(pairs)]
        german = numbered("de", shared + [f"{split}g{i}" for i in range(30 - pairs)])
        english = numbered("en", shared[::-1] + [f"{split}e{i}" for i in range(30 - pairs)])
        write(folder, split, german, english, [(i, pairs + 1 - i) for i in range(1, pairs + 1)])
    return tmp_path


def brute_force(model, contents, margin):
    """Scores and rightness of the pairs that LASER's two scripts would find, by loops over all products."""
    sides = [list(dict.fromkeys(side.values())) for side in (contents.source, contents.target)]
    x, y = (model.encode(side, normalize=True).astype(float) for side in sides)
    cosines = [[float(a @ b) for b in y] for a in x]
    near_x = [sorted(range(len(y)), key=lambda j: -cosines[i][j])[:4] for i in range(len(x))]
    near_y = [sorted(range(len(x)), key=lambda i: -cosines[i][j])[:4] for j in range(len(y))]
    around_x = [sum(cosines[i][j] for j in near_x[i]) / 4 for i in range(len(x))]
    around_y = [sum(cosines[i][j] for i in near_y[j]) / 4 for j in range(len(y))]

    def value(i, j):
        return cosines[i][j] / ((around_x[i] + around_y[j]) / 2) if margin == "ratio" else cosines[i][j]

    pairs = [max((value(i, j), i, j) for j in near_x[i]) for i in range(len(x))]
    pairs += [max((value(i, j), i, j) for i in near_y[j]) for j in range(len(y))]
    used, kept, gold = set(), [], {(contents.source[a], contents.target[b]) for a, b in contents.gold}
    for found, i, j in sorted(pairs, reverse=True):
        if not {("x", i), ("y", j)} & used:
            used |= {("x", i), ("y", j)}
            kept.append((found, (sides[0][i], sides[1][j]) in gold))
    return kept


def best(kept, gold):
    """(F1, threshold) of the best prefix."""
    found, outcomes = 0, []
    for i, (value, right) in enumerate(kept):
        found += right
        after = kept[i + 1][0] if i + 1 < len(kept) else value
        outcomes.append((2 * found / (i + 1 + gold), (value + after) / 2))
    return max(outcomes)


def f1_from(kept, threshold, gold):
    taken = [right for value, right in kept if value >= threshold]
    return 2 * sum(taken) / (len(taken) + gold)


@pytest.mark.parametrize("margin", ["ratio", "absolute"])
def test_equals_a_loop_with_the_threshold_of_either_split(model, data, margin):
    training, test = (mining_data.read(data, "de-en", split) for split in ("training", "test"))
    kept, other = brute_force(model, test, margin), brute_force(model, training, margin)
    result, table = suite.run("bucc", model, data, {"split": "test", "threshold_split": "training", "margin": margin})
    scores = result["per_language"]["de"]
    assert scores["threshold"] == pytest.approx(best(other, 12)[1], rel=1e-5)
    assert scores["F1"] == pytest.approx(f1_from(kept, scores["threshold"], 10))
    assert scores["oracle"] == pytest.approx(best(kept, 10)[0]) and 0 < scores["F1"] <= scores["oracle"]
    assert scores["cosine F1"] == scores["F1"] or margin == "ratio"
    assert (scores["source"], scores["target"], scores["gold"]) == (30, 30, 10)
    assert result["means"]["all"]["F1"] == scores["F1"] and result["scores"][-1] == "F1"
    assert "chosen on training" in result["scoring"] and f"{100 * scores['F1']:.1f}" in table
    own = bucc.evaluate(model, data, margin=margin)
    assert own["split"] == "training" and "best on training itself" in own["scoring"]
    assert own["per_language"]["de"]["F1"] == own["per_language"]["de"]["oracle"]
    assert own["per_language"]["de"]["oracle"] == pytest.approx(best(other, 12)[0])
    assert {language for language, _ in model.asked} == {"de", "en", None}  # None: by the loop


def test_figures(model, data):
    result = bucc.evaluate(model, data)
    curve, histogram = result["figures"]
    scores = result["per_language"]["de"]
    assert curve["marks"] == [[scores["recall"], scores["precision"], f"de: {scores['threshold']:.3f}"]]
    assert [pytest.approx(scores["recall"], abs=1e-3), pytest.approx(scores["precision"], abs=1e-3)] in curve["series"][
        "de"
    ]
    assert {name: sum(counts) for name, counts in histogram["series"].items()} == {"gold pairs": 12, "random pairs": 12}
    json.dumps(result, allow_nan=False)


def test_sentences_with_several_ids(model, tmp_path):
    """The pair of "a" is found but dropped, as its German sentence has two ids; it stays among the gold."""
    names = ["a", *(f"n{i}" for i in range(9))]
    german, english, gold = numbered("de", names), numbered("en", names), [(i, i) for i in range(1, 11)]
    write(tmp_path, "training", german, english, gold)
    scores = bucc.evaluate(model, tmp_path)["per_language"]["de"]
    assert scores["recall"] == scores["precision"] == 1
    write(tmp_path, "training", [*german, (11, "de a")], english, gold)
    scores = bucc.evaluate(model, tmp_path)["per_language"]["de"]
    assert (scores["recall"], scores["precision"]) == (pytest.approx(0.9), 1)
    write(tmp_path, "training", [*german, (11, "de a")], english, [(1, 1), (11, 1)])
    with pytest.raises(ValueError, match=r"de-en.training.gold: the sentences of every pair are there several times"):
        bucc.evaluate(model, tmp_path)


def test_bad_data(model, data, tmp_path):
    folder = data / "de-en"

    def fails(error, match, **options):
        with pytest.raises(error, match=match):
            bucc.evaluate(model, data, **options)

    def changed(name, line, text, match):
        before = (folder / name).read_text()
        lines = before.splitlines()
        lines[line - 1] = text
        (folder / name).write_text("\n".join(lines) + "\n")
        fails(ValueError, f"{name}, line {line}: {match}")
        (folder / name).write_text(before)

    changed("de-en.training.gold", 3, "de-3\ten-99", r"no sentence of .*de-en.training.en has the id 'en-99'")
    changed(
        "de-en.training.gold", 2, "de-1\ten-12", r"de-1 and en-12 are the pair of line 1 already|the pair of line 1"
    )
    changed("de-en.training.gold", 2, "de-1", r"1 columns; wanted 2")
    changed("de-en.training.de", 4, "de-2\tde x", r"the id de-2 is that of line 2 already")
    changed("de-en.training.en", 5, "en-5\t ", r"the sentence en-5 is empty")
    changed("de-en.training.en", 5, "en-5", r"1 columns; wanted 2 .*id, sentence")
    fails(FileNotFoundError, r"holds no files xx-en.dev.xx", split="dev")
    fails(ValueError, "no language 'fr'; it has de", languages=["fr"])
    fails(ValueError, "margin is 'x'", margin="x")
    fails(ValueError, r"de-en.training.de has 30 distinct sentences, fewer than k = 31", k=31)
    (folder / "de-en.test.gold").rename(tmp_path / "de-en.test.gold")
    fails(FileNotFoundError, r"de-en.test.gold does not exist; .*option gold_dir", split="test")
    assert bucc.evaluate(model, data, split="test", gold_dir=tmp_path)["per_language"]["de"]["gold"] == 10
    (folder / "de-en.training.de").write_text("")
    fails(ValueError, "de-en.training.de is empty")


def test_made_sets(model, tmp_path):
    def file(name, lines):
        (tmp_path / name).write_text("".join(line + "\n" for line in lines))
        return tmp_path / name

    names = [f"p{i}" for i in range(30)]
    source = file("a", [f"de {name}" for name in [*names, "p0", "p1"]])  # p0 and p1 are there twice
    target = file("b", [f"en {name}" for name in [*names, "p0", "p1"]])
    more = file("c", [f"de g{i}" for i in range(41)] + ["de p2", "", "de g0"])  # p2's translation is there too
    others = file("d", [f"en e{i}" for i in range(40)])
    options = dict(languages=("de", "en"), hidden=10)
    made = mining_data.make_from_files(source, target, more, others, tmp_path / "made", **options)
    again = mining_data.make_from_files(source, target, more, others, tmp_path / "again", **options)
    other = mining_data.make_from_files(source, target, more, others, tmp_path / "other", seed=1, **options)
    assert made == {split: contents._replace(files=made[split].files) for split, contents in again.items()}
    assert made["test"].gold != other["test"].gold
    for split, contents in made.items():
        read = mining_data.read(tmp_path / "made", "de-en", split)
        assert (read.source, read.target) == contents[:2] and set(read.gold) == set(contents.gold)
        assert len(contents.gold) == 10
        for a, b in contents.gold:
            assert contents.source[a].split()[1] == contents.target[b].split()[1] not in ("p0", "p1", "p2")
        assert len(contents.target) == 30 and len(contents.source) in (31, 32)  # g0 once
        assert len(set(contents.source.values())) == len(contents.source)
    for side in (0, 1):
        assert not set(made["training"][side].values()) & set(made["test"][side].values())
    scores = bucc.evaluate(model, tmp_path / "made", split="test", threshold_split="training")["per_language"]["de"]
    assert scores["gold"] == 10 and scores["F1"] > 0.5
    with pytest.raises(FileExistsError):
        mining_data.make_from_files(source, target, more, others, tmp_path / "made", **options)
    with pytest.raises(
        ValueError, match=r"27 of 32 pairs of .*a and .*b are usable, .*to hide 14 in each of two sets, 28"
    ):
        mining_data.make_from_files(source, target, more, others, tmp_path / "x", languages=("de", "en"), hidden=14)
    with pytest.raises(ValueError, match=r"a has 32 lines and .*d 40"):
        mining_data.make_from_files(source, others, more, others, tmp_path / "x", **options)


def test_ntrex(model, tmp_path):
    def lines(code, count=100):
        kind = "src" if code == "eng" else "ref"
        texts = [f"{code} s{i}" for i in range(count)]
        texts[7] = texts[8]  # said twice: can't be hidden
        (tmp_path / f"newstest2019-{kind}.{code}.txt").write_text("".join(text + "\n" for text in texts))

    for code in ("eng", "deu", "fra"):
        lines(code)
    result, table = suite.run("ntrex_mining", model, tmp_path, {"pairs": 20})
    assert list(result["per_language"]) == ["deu", "fra"] and "mean of 2" in table
    for scores in result["per_language"].values():
        assert (scores["source"], scores["target"], scores["gold"]) == (35, 35, 20)
        assert 0.5 < scores["F1"] <= scores["oracle"]
    assert "chosen on the other half" in result["scoring"] and result["data"]["hidden_pairs"] == 20
    # What one run embedded, whatever the model did before.
    again, _ = suite.run("ntrex_mining", model, tmp_path, {"pairs": 20})
    assert again == result and result["options"] == {"pairs": 20}
    own = {name: value for name, value in result.items() if name not in ("options", "sentences")}
    assert ntrex_mining.evaluate(model, tmp_path, pairs=20) == own
    other = ntrex_mining.evaluate(model, tmp_path, pairs=20, seed=1)
    assert other["figures"] != result["figures"]
    chosen = ntrex_mining.evaluate(model, tmp_path, pairs=20, languages=["de"])
    assert chosen["per_language"] == {"deu": result["per_language"]["deu"]}

    def fails(error, match, **options):
        with pytest.raises(error, match=match):
            ntrex_mining.evaluate(model, tmp_path, **options)

    fails(ValueError, r"to hide 60 in each of two sets, 120 are wanted", pairs=60)
    fails(ValueError, "pairs is 0; wanted a whole number of 1", pairs=0)
    lines("fra", 99)
    fails(ValueError, r"newstest2019-ref.fra.txt has 99 lines and .*newstest2019-src.eng.txt 100", pairs=20)
    (tmp_path / "newstest2019-src.eng.txt").unlink()
    fails(FileNotFoundError, "newstest2019-src.eng.txt does not exist", pairs=20)
