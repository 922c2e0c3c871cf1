"""Batches of questions and passages: which row is whose, the draws, and exact positions."""

import collections
import json
import types

import numpy as np
import pytest

from vmsst_jax.data.languages import Languages
from vmsst_jax.data.question_files import Passage, Question
from vmsst_jax.data.question_passages import QuestionPassages, QuestionTexts, train_question_sentencepiece
from vmsst_jax.data.tokenizer import Tokenizer

ENGLISH = Languages(["en"])


class Letters:
    """A tokenizer of letters: <s> 0, padding 1, </s> 2, then a token for each letter; "#" is special."""

    pad_id, vocab_size, sha256, special_ids = 1, 60, "letters", (0, 2)

    def encode(self, texts, max_length):
        rows = [[0, *(2 if c == "#" else 3 + ord(c) % 50 for c in text), 2] for text in texts]
        cut = sum(len(row) > max_length for row in rows)
        return [np.array([*row[: max_length - 1], 2] if len(row) > max_length else row, np.int32) for row in rows], cut


def tokens_of(text, width):
    row = Letters().encode([text], width)[0][0].tolist()
    return row + [1] * (width - len(row))


def passage(name):
    return Passage(f"t{name}", f"x{name}")


# Question i asks for passage i % 5, and has i % 4 negatives, named by letters.
QUESTIONS = [Question(f"q{i}?", passage(i % 5), tuple(passage("abc"[j]) for j in range(i % 4))) for i in range(23)]


def source(questions=QUESTIONS):
    return types.SimpleNamespace(questions=lambda: iter(questions), check=lambda: None)


def settings(**options):
    return QuestionPassages(source(), **{"batch_size": 4, "query_length": 6, "passage_length": 9, **options})


def stream(seed=0, **options):
    return settings(**options).open(Letters(), ENGLISH, seed)


def test_rows_of_a_batch():
    data = settings(hard_negatives=2)
    opened = data.open(Letters(), ENGLISH, 0)
    for _ in range(11):
        batch, info = opened.next()
        assert {name: array.shape for name, array in batch.items()} == data.shapes()
        assert all(array.dtype == np.int32 for array in batch.values())
        drawn = batch["passage_id"][4:].reshape(4, 2)
        for row, number in enumerate(info["pair_id"].tolist()):
            assert batch["question"][row].tolist() == tokens_of(f"q{number}", 6)
            assert batch["passage"][row].tolist() == tokens_of(f"t{number % 5} x{number % 5}", 9)
            own = ["abc"[j] for j in range(number % 4)]
            found = []
            for h, negative in enumerate(drawn[row].tolist()):
                text = "" if negative < 0 else opened.texts.passages[negative]
                assert batch["passage"][4 + 2 * row + h].tolist() == tokens_of(text, 9)
                found += [text[1]] if text else []
            assert len(set(found)) == len(found) == min(2, len(own)) and set(found) <= set(own)
            assert (drawn[row] < 0).sum() == 2 - len(found)
        ids = batch["passage_id"][:4].tolist()  # equal for equal passages
        assert [ids.index(i) for i in ids] == [(info["pair_id"] % 5).tolist().index(n % 5) for n in info["pair_id"]]
        real = sum((batch[name] != 1).sum() for name in ("question", "passage"))
        assert (info["real_tokens"], info["padded_tokens"]) == (real, 4 * 6 + 12 * 9)


def test_an_epoch_has_every_question_at_most_once_and_a_new_order():
    opened = stream()
    epochs = [np.concatenate([opened.next()[1]["pair_id"] for _ in range(5)]).tolist() for _ in range(40)]
    assert all(len(set(epoch)) == 20 for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 40
    assert set(sum(epochs, [])) == set(range(23))  # other questions are left over each time


def test_hard_negatives_are_drawn_evenly():
    opened, count = stream(), collections.Counter()
    for _ in range(300):
        batch, info = opened.next()
        for number, negative in zip(info["pair_id"], batch["passage_id"][4:], strict=True):
            if number % 4 == 3:
                count[opened.texts.passages[negative][1]] += 1
    assert set(count) == set("abc") and min(count.values()) > 0.75 * sum(count.values()) / 3


def test_resuming_is_exact():
    straight, first = stream(seed=3), stream(seed=3)
    for _ in range(7):
        straight.next(), first.next()
    second = stream(seed=3)
    second.restore(json.loads(json.dumps(first.state())))
    for _ in range(12):
        (a, about_a), (b, about_b) = straight.next(), second.next()
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])
        np.testing.assert_array_equal(about_a.pop("pair_id"), about_b.pop("pair_id"))
        assert about_a == about_b
    assert straight.state() == second.state()
    other = QuestionPassages(source(QUESTIONS[:9]), batch_size=4).open(Letters(), ENGLISH, 3)
    with pytest.raises(ValueError, match="belongs to 23 questions on 8 passages, this run has 9 on 8"):
        other.restore(straight.state())


def test_seeds_differ_and_long_texts_are_cut_and_counted():
    a, b = stream(seed=0, passage_length=5), stream(seed=1, passage_length=5)
    pairs = [s.next() for s in (a, b)]
    assert pairs[0][1]["pair_id"].tolist() != pairs[1][1]["pair_id"].tolist()
    batch, info = pairs[0]
    cut = int((batch["passage_id"] >= 0).sum())
    assert info["truncated"] == cut and a.next()[1]["truncated"] > cut
    assert batch["passage"][0].tolist() == tokens_of("t0 ", 5)[:1] + batch["passage"][0].tolist()[1:4] + [2]


def test_texts():
    texts = QuestionTexts(iter([*QUESTIONS[:2], Question("why??", Passage("", "x"), (Passage("", "x"),))]), "#", True)
    assert texts.questions == ["q0", "q1", "why?"]
    assert texts.passages == ["t0#x0", "t1#x1", "ta#xa", "x"]  # "x" is not a negative of itself
    assert texts.positive.tolist() == [0, 1, 3] and [n.tolist() for n in texts.negatives] == [[], [2], []]
    plain = QuestionTexts(iter(QUESTIONS[:1]), None, False)
    assert (plain.questions, plain.passages) == (["q0?"], ["x0"])


def test_facts_say_what_the_run_learns_from():
    opened = stream()
    facts = "; ".join(opened.facts())
    assert "4 questions an update, each with its passage and 1 hard negative(s)" in facts
    assert "23 questions, 8 passages, 5 steps an epoch" in facts and "6 questions have fewer hard negatives" in facts
    assert opened.negatives == 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "QuestionPassages.batch_size is 0; wanted a whole number of 1 or more"),
        ({"hard_negatives": -1}, "QuestionPassages.hard_negatives is -1; wanted a whole number of 0 or more"),
        ({"source": "nq.json"}, "QuestionPassages.source is 'nq.json'; wanted @DprFiles"),
    ],
)
def test_settings(options, message):
    with pytest.raises(ValueError, match=message):
        QuestionPassages(**{"source": source(), "batch_size": 4, **options})


def test_what_is_found_before_training():
    with pytest.raises(ValueError, match="batch_size is 4, which does not divide over 8 batch shards.*work: 8"):
        settings().check(ENGLISH, shards=8)
    with pytest.raises(ValueError, match="batch_size is 12, .* 8 batch shards.*work: 8 or 16"):
        settings(batch_size=12).check(ENGLISH, shards=8)
    with pytest.raises(ValueError, match="accumulate is 2 .*encoder_chunk"):
        settings().check(ENGLISH, accumulate=2)
    with pytest.raises(ValueError, match="batch_size is 40, and the source has 23 questions: lower"):
        stream(batch_size=40)


def test_a_separator_of_special_tokens():
    tokenizer = Tokenizer.train(["the dog barks at the house"] * 9, 16)
    texts = [f"{word} {word}s" for word in "one two three four five six seven".split()]
    xlmr = train_question_sentencepiece(source([Question(t, Passage("", t), ()) for t in texts]), 24)
    for separator in ("</s></s>", " </s> "):
        data = settings(title_separator=separator)
        data.open(xlmr, ENGLISH, 0)
        with pytest.raises(ValueError, match=f"title_separator is '{separator}', which .* tokenizer reads as text"):
            data.open(tokenizer, ENGLISH, 0)
    settings(title_separator=" <3 ").open(tokenizer, ENGLISH, 0)
    pair, one, two = (xlmr.encode([t], 99)[0][0].tolist() for t in ("one</s></s>two", "one", "two"))
    assert pair == [*one, 2, *two[1:]]


def test_a_vocabulary_from_questions_and_passages():
    questions = [Question(f"who {w}", Passage("not taken", f"{w} ran"), ()) for w in ("zola", "queneau", "vian")]
    tokenizer = train_question_sentencepiece(source(questions), 23, character_coverage=1.0)
    assert (
        tokenizer.vocab_size == 23 and tokenizer.decode(tokenizer.encode(["who vian ran"], 99)[0][0]) == "who vian ran"
    )
    with pytest.raises(ValueError, match="train_question_sentencepiece.vocab_size is 5; wanted"):
        train_question_sentencepiece(source(questions), 5)
