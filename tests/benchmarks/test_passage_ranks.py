"""Ranks of the right passage against sorting, on a run's own towers."""

import types

import jax
import numpy as np
import pytest

from vmsst_jax import models
from vmsst_jax.benchmarks.passage_ranks import PassageRanks, PassageRanksReport, ranks_of
from vmsst_jax.data.languages import Languages
from vmsst_jax.data.question_files import Passage, Question
from vmsst_jax.data.question_passages import QuestionPassages
from vmsst_jax.models.bert import BertConfig
from vmsst_jax.models.dual_encoder import DualEncoderConfig
from vmsst_jax.models.text_encoder import TextEncoder, TextEncoderConfig

WORDS = "alpha beta gamma delta epsilon zeta".split()


class Letters:
    """<s> 0, padding 1, </s> 2, then a token for each letter."""

    pad_id, vocab_size, sha256 = 1, 40, ""

    def encode(self, texts, max_length):
        return [np.array([0, *(3 + ord(c) % 30 for c in t[: max_length - 2]), 2], np.int32) for t in texts], 0


@pytest.fixture(scope="module")
def run():
    bert = BertConfig(vocab_size=40, embed_dim=16, num_heads=2, mlp_dim=24, num_layers=1, max_positions=20)
    module = models.build("dual_encoder", DualEncoderConfig(TextEncoderConfig(bert, pooling="mean")))
    params = jax.jit(lambda key: models.init_params(module, key))(jax.random.key(0))
    embedding = {"pooling": "mean", "layer": None, "normalize": False, "prefix": "", "max_length": 16}
    languages = Languages(["en"])
    return types.SimpleNamespace(
        module=module,
        tokenizer=Letters(),
        languages=languages,
        mesh=None,
        embedding=embedding,
        untrained=lambda: params,
    )


@pytest.fixture(scope="module")
def data():
    questions = [
        Question(f"{w}?", Passage("", f"the {w}"), tuple(Passage("", f"{x} no {w}") for x in "abc"[: i % 4]))
        for i, w in enumerate([*WORDS, *WORDS[:3]])
    ]
    source = types.SimpleNamespace(questions=lambda: iter(questions), check=lambda: None)
    return QuestionPassages(source, batch_size=2)


def embedded(run, tower, texts):
    """Straight through the tower's module, in one batch."""
    encoder, own = TextEncoder(run.module.config.encoder), run.untrained()[f"{tower}_encoder"]
    rows = np.full((40, 16), 1, np.int32)
    for row, tokens in zip(rows, run.tokenizer.encode(texts, 16)[0], strict=False):
        row[: len(tokens)] = tokens
    embed = jax.jit(lambda params, rows: encoder.apply({"params": params}, rows, method="embed"))
    return np.asarray(embed(own, rows))[: len(texts)]


@pytest.mark.parametrize(("negatives", "similarity"), [(1, "dot"), (None, "cosine"), (0, "dot")])
def test_against_sorting(run, data, negatives, similarity):
    texts = data.texts()
    wanted = [f"the {w}" for w in WORDS]
    for question in range(len(texts)):
        wanted += [texts.passages[i] for i in texts.negatives[question][:negatives]]
    wanted = list(dict.fromkeys(wanted))
    q, p = embedded(run, "query", texts.questions), embedded(run, "passage", wanted)
    if similarity == "cosine":
        q, p = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (q, p))
    ranks = [
        1 + np.argsort(-(p @ v)).tolist().index(wanted.index(f"the {w}"))
        for v, w in zip(q, WORDS + WORDS[:3], strict=True)
    ]
    evaluator = PassageRanks(data, negatives, similarity)
    found = evaluator(run, types.SimpleNamespace(params=run.untrained()), 1)
    assert found == pytest.approx(
        {
            "passage_accuracy": np.mean(np.array(ranks) == 1),
            "passage_mrr": np.mean(1 / np.array(ranks)),
            "passage_mean_rank": np.mean(ranks),
        }
    )
    assert len(evaluator.prepare(run)[1]) == len(wanted)


def test_report(run, data):
    swapped = {
        "query_encoder": run.untrained()["passage_encoder"],
        "passage_encoder": run.untrained()["passage_encoder"],
    }
    text, scores = PassageRanksReport(PassageRanks(data))(run, types.SimpleNamespace(params=swapped))
    assert "the right passage of 9 questions among 11, by dot" in text
    rows = dict(line.split(maxsplit=1) for line in text.splitlines()[2:])
    assert rows["trained"] != rows["untrained"]
    for name in ("trained", "untrained"):
        prefix = "" if name == "trained" else "untrained_"
        accuracy, mrr, rank = (scores[f"{prefix}passage_{which}"] for which in ("accuracy", "mrr", "mean_rank"))
        assert rows[name].split() == [f"{100 * accuracy:.1f}", f"{100 * mrr:.1f}", f"{rank:.1f}"]


def test_ranks_with_ties():
    passages = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    assert ranks_of(np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]]), passages, np.array([0, 2, 3])).tolist() == [2, 1, 4]


def test_settings(data):
    with pytest.raises(ValueError, match="PassageRanks.similarity is 'l2'; use one of dot, cosine"):
        PassageRanks(data, similarity="l2")
    with pytest.raises(ValueError, match="PassageRanks.negatives is -1"):
        PassageRanks(data, -1)
