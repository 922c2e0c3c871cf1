"""Mr. TyDi in the folders in which it is published, against a loop over all passages and trec_eval."""

import json

import numpy as np
import pytest
import pytrec_eval

from vmsst_jax.benchmarks import mrtydi, suite

PASSAGES = 130


def words(rng, number):
    return " ".join("".join(rng.choice(list("abcdefghij"), 5)) for _ in range(number))


@pytest.fixture
def data(tmp_path):
    """Korean as it is published, Swahili renamed, both with 130 passages and 12 topics, one of them not judged."""
    for seed, folder in enumerate(("mrtydi-v1.1-korean", "sw")):
        rng, home = np.random.default_rng(seed), tmp_path / folder
        (home / "collection").mkdir(parents=True)
        passages = [
            {"id": f"{7 * i}#{i % 3}", "contents": f"{words(rng, 1)}\n\n{words(rng, 6)}"} for i in range(PASSAGES)
        ]
        (home / "collection" / "docs.jsonl").write_text("".join(json.dumps(p) + "\n" for p in passages))
        rows = rng.integers(PASSAGES, size=12)
        topics = [f"{3 * i}\t{passages[row]['contents'][10:30]}\n" for i, row in enumerate(rows)]
        (home / "topic.test.tsv").write_text("".join(topics))
        pairs = [*zip(range(0, 33, 3), rows, strict=False), (3, 2), (6, 4), (6, 5)]
        lines = {f"{query} Q0 {passages[row]['id']} 1\n" for query, row in pairs}
        (home / "qrels.test.txt").write_text("".join(sorted(lines)))
    return tmp_path


def by_hand(home, model):
    """trec_eval's (recall, MRR) of the run that comparing every question with every passage gives."""
    passages = [json.loads(line) for line in open(home / "collection" / "docs.jsonl")]
    texts = [" ".join(p["contents"].split("\n\n")) for p in passages]
    topics = dict(line.rstrip("\n").split("\t") for line in open(home / "topic.test.tsv"))
    a, b = (model.encode(list(t)) for t in (topics.values(), texts))
    with open(home / "qrels.test.txt") as file:
        judged = pytrec_eval.parse_qrel(file)
    run = {}
    for query, scores in zip(topics, a @ b.T, strict=True):
        best = np.argsort(-scores, kind="stable")[:100]
        run[query] = {passages[row]["id"]: 1.0 / (rank + 1) for rank, row in enumerate(best)}
    found = pytrec_eval.RelevanceEvaluator(judged, {"recip_rank", "recall_100"}).evaluate(run).values()
    return [np.mean([s[name] for s in found]) for name in ("recall_100", "recip_rank")]


def test_against_a_loop_and_trec_eval(data, letters, tmp_path):
    # Inner products of whole numbers are exact, so that equal ones are equal here and there.
    options = {"embeddings_dir": tmp_path / "vectors", "shard_rows": 40, "similarity": "dot"}
    result, table = suite.run("mrtydi", model := letters(), data, options)
    assert list(result["per_language"]) == ["ko", "sw"] and result["scores"] == ["Recall@100", "MRR@100"]
    for code, folder in (("ko", "mrtydi-v1.1-korean"), ("sw", "sw")):
        scores = result["per_language"][code]
        wanted = by_hand(data / folder, letters())
        assert [scores[name] for name in result["scores"]] == pytest.approx(wanted)
        assert 0 < scores["MRR@100"] < 1 and scores["passages"] == PASSAGES and scores["queries"] == 11
        asked = [text for language, text in model.asked if language == code]
        assert len(asked) == PASSAGES + 11  # passages and judged topics, each with its language
    both = [result["per_language"][code]["MRR@100"] for code in ("ko", "sw")]
    assert result["means"]["all"]["MRR@100"] == pytest.approx(np.mean(both))
    assert "mean of 2" in table and len(list((tmp_path / "vectors").glob("*/*.npy"))) == 2 * 4
    again = suite.run("mrtydi", model := letters(), data, options)[0]
    assert again == result and len(model.asked) == 22  # the passages' vectors were there
    one = mrtydi.evaluate(letters(), data, languages=["sw"], title_separator=None, embeddings_dir=tmp_path / "vectors")
    assert list(one["per_language"]) == ["sw"] and "text without title" in one["scoring"]


def test_ready_runs(data, tmp_path):
    home = data / "sw"
    (tmp_path / "test_swahili.txt").write_text("0 Q0 0#0 1 0.9 x\n3 Q0 14#2 1 0.9 x\n")
    (home / "qrels.test.txt").write_text("0 Q0 7#1 1\n3 Q0 14#2 1\n6 Q0 7#1 1\n")
    runs = f"{tmp_path}/{{split}}_{{name}}.txt"
    result, table = suite.run("mrtydi", None, data, {"runs": runs, "languages": ["sw"]})
    third = pytest.approx(1 / 3)
    assert result["per_language"] == {"sw": {"queries": 3, "unanswered": 1, "Recall@100": third, "MRR@100": third}}
    assert result["index"]["kind"] == "ready run" and "33.3" in table
    with pytest.raises(FileNotFoundError, match="test_korean.txt does not exist"):
        mrtydi.evaluate(None, data, runs=runs)


def test_topics_as_anserini_has_them(data, tmp_path):
    home = data / "sw"
    for kind, name in (("topic", "topic.test.tsv"), ("qrels", "qrels.test.txt")):
        (home / name).rename(data / f"{'topics' if kind == 'topic' else kind}.sw.dev.txt")
    found = mrtydi.find_languages(data, "dev")
    assert list(found) == ["sw"] and found["sw"].corpus == home / "collection" / "docs.jsonl"
    assert list(mrtydi.find_languages(data, "test")) == ["ko"]


def test_texts_without_a_vector_are_named(data, broken, tmp_path):
    topics, docs = data / "sw" / "topic.test.tsv", data / "sw" / "collection" / "docs.jsonl"
    texts = topics.read_text().splitlines()
    topics.write_text("".join(f"{line} zz\n" if line.startswith("6\t") else f"{line}\n" for line in texts))
    with pytest.raises(ValueError, match="topic.test.tsv, query 6: no vector"):
        mrtydi.evaluate(broken(), data, languages=["sw"], embeddings_dir=tmp_path / "vectors")
    docs.write_text(docs.read_text().replace('"contents": "', '"contents": "zz', 1))
    with pytest.raises(ValueError, match="docs.jsonl, line 1: no vector"):
        mrtydi.evaluate(broken(), data, languages=["sw"], embeddings_dir=tmp_path / "vectors")


def test_bad_data(data, letters, tmp_path):
    def fails(match, error=ValueError, **options):
        with pytest.raises(error, match=match):
            mrtydi.evaluate(letters(), data, languages=["sw"], embeddings_dir=tmp_path / "vectors", **options)

    docs, qrels = data / "sw" / "collection" / "docs.jsonl", data / "sw" / "qrels.test.txt"
    lines, judged = docs.read_text(), qrels.read_text()
    docs.write_text(lines + lines.splitlines()[4] + "\n")
    fails(r"docs.jsonl, line 131: the passage id '28#1' is that of .*docs.jsonl, line 5 already")
    docs.write_text(lines.replace('{"id": "35#2"', '{"id": 35#2"'))
    fails("docs.jsonl, line 6: malformed JSON")
    docs.write_text("".join(lines.splitlines(keepends=True)[:99]))
    qrels.write_text("0 Q0 0#0 1\n")
    fails("docs.jsonl holds 99 passages, but each question is to find 100")
    docs.write_text(lines)
    qrels.write_text("0 Q0 0#0 1\n3 Q0 1#1 1\n")
    fails(r"qrels.test.txt, line 2: the passage 1#1 and 0 others are not in .*docs.jsonl; qrels and passages")
    qrels.write_text(judged + "1 Q0 0#0 1\n")
    fails("qrels.test.txt, line .*: the query 1 is not among the topics")
    qrels.unlink()
    fails("only one is there; both are wanted", FileNotFoundError)
    fails("holds neither mrtydi-v1.1-arabic/topic.train.tsv", FileNotFoundError, split="train")
    docs.unlink()
    qrels.write_text(judged)
    fails("docs.jsonl does not exist", FileNotFoundError)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        mrtydi.evaluate(letters(), data / "nowhere")
    with pytest.raises(ValueError, match="no language 'de'"):
        mrtydi.evaluate(letters(), data, languages=["de"])
