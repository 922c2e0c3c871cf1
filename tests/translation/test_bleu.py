"""BLEU as an evaluator and as a report: sacrebleu's number, both directions, the same on any call."""

import types

import pytest
import sacrebleu

from vmsst_jax.translation.bleu import Bleu, BleuReport, bleu_score

PAIRS = [("the red and the town", "das rote und der ort"), ("the big ship", "das grosse schiff"), ("hill", "der berg")]


class Data:
    def examples(self, split):
        assert split == "validation"
        for n, (source, target) in enumerate(PAIRS):
            yield {"source": source, "target": target, "source_lang": "en", "target_lang": "de", "pair_id": n}


@pytest.fixture
def run(tiny):
    module, params, tokenizer, languages = tiny
    embedding = {"max_length": 16}
    fields = dict(module=module, tokenizer=tokenizer, languages=languages, mesh=None, seed=0, embedding=embedding)
    return types.SimpleNamespace(**fields), types.SimpleNamespace(params=params)


def test_scores_and_report(run, make):
    context, state = run
    bleu = Bleu(Data())
    scores = bleu(context, state, 7)
    translator = make()
    wanted = {
        "bleu_en_de": sacrebleu.BLEU().corpus_score(
            translator.translate([s for s, _ in PAIRS], "en", "de"), [[t for _, t in PAIRS]]
        ).score,
        "bleu_de_en": sacrebleu.BLEU().corpus_score(
            translator.translate([t for _, t in PAIRS], "de", "en"), [[s for s, _ in PAIRS]]
        ).score,
    }  # fmt: skip
    assert scores == pytest.approx({**wanted, "bleu": sum(wanted.values()) / 2})
    report = BleuReport(bleu)(context, state)
    assert report.scores == pytest.approx({**scores, "copied_en_de": 0, "copied_de_en": 0}, abs=20)
    assert (
        "on 3 pairs" in report.text and "en -> de" in report.text and "(reference) das rote und der ort" in report.text
    )


def test_the_scale_and_a_limit(run):
    assert bleu_score(["a b c d e"], ["a b c d e"]) == pytest.approx(100)
    assert [len(rows) for rows in Bleu(Data(), limit=2).prepare(run[0])[1].values()] == [2, 2]
    with pytest.raises(ValueError, match="Bleu.limit is 0"):
        Bleu(Data(), limit=0)


def test_nothing_to_score(run):
    class Nothing:
        def examples(self, split):
            return iter(())

    with pytest.raises(ValueError, match="no pairs in the split 'validation'"):
        Bleu(Nothing()).prepare(run[0])
