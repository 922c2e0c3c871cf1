"""MRR and recall against trec_eval itself, on qrels of Mr. TyDi's shape and made runs with ties and gaps."""

import numpy as np
import pytest
import pytrec_eval

from vmsst_jax.benchmarks import trec

MADE = 60


@pytest.fixture
def files(tmp_path):
    """qrels as Mr. TyDi's, most queries with one passage; a run with equal scores, gaps and foreign passages."""
    rng = np.random.default_rng(0)
    topics = {str(2 * i): f"question {i}" for i in range(MADE)}
    qrels, run = [], []
    for query in topics:
        articles = rng.choice(10**6, 120, replace=False)
        passages = [f"{article}#{rng.integers(12)}" for article in articles]
        for passage in passages[: rng.choice([1, 1, 1, 2, 4])]:
            qrels.append(f"{query}\tQ0\t{passage}\t1\n")
        qrels.append(f"{query}\tQ0\t{passages[119]}\t0\n")
        if rng.random() < 0.85:
            found = rng.permutation(passages[rng.integers(3) :])[:100]
            # One decimal makes ties; 1e-8 is nothing in 32 bits, which trec_eval sorts in.
            scores = np.round(rng.random(len(found)), 1) + 1e-8 * rng.random(len(found))
            run += [
                f"{query} Q0 {p} {rank} {s:.12f} made\n" for rank, (p, s) in enumerate(zip(found, scores, strict=True))
            ]
    (tmp_path / "topics.tsv").write_text("".join(f"{query}\t{text}\n" for query, text in topics.items()))
    (tmp_path / "qrels.txt").write_text("".join(qrels))
    (tmp_path / "run.txt").write_text("".join(run))
    return tmp_path


def by_trec_eval(folder):
    """Means over all judged queries, as with -c."""
    with open(folder / "qrels.txt") as qrels, open(folder / "run.txt") as run:
        judged, answers = pytrec_eval.parse_qrel(qrels), pytrec_eval.parse_run(run)
    scores = pytrec_eval.RelevanceEvaluator(judged, {"recip_rank", "recall_100"}).evaluate(answers)
    assert len(scores) < len(judged) == MADE
    return [sum(s[name] for s in scores.values()) / len(judged) for name in ("recip_rank", "recall_100")]


def test_against_trec_eval(files):
    topics, _ = trec.read_topics(files / "topics.tsv")
    relevant, _ = trec.read_qrels(files / "qrels.txt", topics)
    ranked, _ = trec.read_run(files / "run.txt", topics)
    found = trec.mrr_and_recall(ranked, relevant, 100)
    assert found == pytest.approx(by_trec_eval(files), abs=1e-9)
    assert 0 < found[0] < found[1] < 0.9  # and the comparison could have failed


def test_depth_and_several_relevant_passages():
    relevant = {"a": {1, 2, 3}, "b": {9}, "c": {4}}
    ranked = {"a": [7, 3, 5, 1, 2], "b": [8, 9]}
    # At depth 4: a has 2 of 3, the first at rank 2; b has its one at rank 2; c has no answer.
    assert trec.mrr_and_recall(ranked, relevant, 4) == pytest.approx(((1 / 2 + 1 / 2 + 0) / 3, (2 / 3 + 1 + 0) / 3))
    assert trec.mrr_and_recall(ranked, relevant, 1) == (0, 0)
    for nothing in ({}, {"d": [1]}):
        with pytest.raises(ValueError, match="none of the 3 judged queries has an answer"):
            trec.mrr_and_recall(nothing, relevant, 100)
    with pytest.raises(ValueError, match="none of the 0 judged"):
        trec.mrr_and_recall(ranked, {}, 100)


def test_ties_go_to_the_greater_id(tmp_path):
    (tmp_path / "run").write_text("1 Q0 10#2 1 3.0 x\n1 Q0 9#1 9 3.0 x\n1 Q0 a 3 4 x\n1\tQ0\tb\t4\t3.5\tx\n")
    assert trec.read_run(tmp_path / "run", ["1"])[0] == {"1": ["a", "b", "9#1", "10#2"]}


@pytest.mark.parametrize(
    ("reader", "text", "match"),
    [
        ("topics", "1 no tab\n", r"line 1: found 1 columns"),
        ("topics", "1\tx\n1\ty\n", r"line 2: the query id 1 is there twice"),
        ("topics", "1\tx\n2\t \n", r"line 2: the query 2 is blank"),
        ("topics", "", "is empty"),
        ("qrels", "1 Q0 a 1\n3 Q0 b 1\n", r"line 2: the query 3 is not among the topics"),
        ("qrels", "1 Q0 a 1\n1 Q0 a 1\n", r"line 2: query 1 and passage a are there already, .*line 1"),
        ("qrels", "1 Q0 a\n", r"line 1: found '1 Q0 a'; wanted query id"),
        ("qrels", "1 Q0 a high\n", r"line 1: found"),
        ("qrels", "1 Q0 a 1\n2 Q0 a 0\n", "the query 2 has no relevant passage"),
        ("run", "1 Q0 a 1 0.5\n", r"line 1: found .*wanted query id, Q0"),
        ("run", "1 Q0 a 1 best x\n", r"line 1: found"),
        ("run", "1 Q0 a 1 nan x\n", r"line 1: the score of passage a is nan"),
        ("run", "3 Q0 a 1 0.5 x\n", r"line 1: the query 3 is not among the topics"),
        ("run", "1 Q0 a 1 0.5 x\n1 Q0 a 2 0.4 x\n", r"line 2: passage a is there twice for query 1"),
    ],
)
def test_bad_input(tmp_path, reader, text, match):
    path = tmp_path / "file"
    path.write_text(text)
    arguments = () if reader == "topics" else ({"1": "x", "2": "y"},)
    with pytest.raises(ValueError, match=match) as caught:
        getattr(trec, f"read_{reader}")(path, *arguments)
    assert str(path) in str(caught.value)
