"""TLM's rows against rows made by hand, for XLM's frame and XLM-R's (METHODS 4.1 and 8, test 8)."""

import numpy as np
import pytest

from vmsst_jax.data.cache import TokenCache
from vmsst_jax.data.languages import Languages
from vmsst_jax.data.length_batches import RowStream, Sizes
from vmsst_jax.data.tlm import TlmRows, TlmText

LANGUAGES = Languages(["cs", "de", "en"])
FRAMES = {"xlm": ((1,), (1,), 2), "xlm-r": ((0,), (2,), 1)}  # before, after, padding
# Pieces of each side.
PAIRS = [([11, 12, 13], [21, 22]), ([14], [23, 24, 25, 26]), ([15, 16], [27]), ([17, 18, 19, 31, 32, 33, 34], [28])]


class Pieces:
    """Numbers are pieces."""

    vocab_size, sha256 = 50, "pieces"

    def __init__(self, family):
        self.prefix_ids, self.suffix_ids, self.pad_id = FRAMES[family]

    def encode_flat(self, texts, max_length):
        rows = [[int(t) for t in text.split()] for text in texts]
        cut = np.array([len(r) + 2 > max_length for r in rows])
        rows = [[*self.prefix_ids, *r[: max_length - 2], *self.suffix_ids] for r in rows]
        return np.concatenate(rows).astype(np.int32), np.array([len(r) for r in rows]), cut


def caches(tokenizer, limit=8):
    """Two caches, en-de and en-cs."""
    made = []
    for part, code in ((PAIRS[:2], "de"), (PAIRS[2:], "cs")):
        examples = [
            {
                "source": " ".join(map(str, a)),
                "target": " ".join(map(str, b)),
                "source_lang": "en",
                "target_lang": code,
                "pair_id": 100 + a[0],
            }
            for a, b in part
        ]
        made.append(TokenCache.build(examples, tokenizer, LANGUAGES, limit))
    return made


def by_hand(first, second, languages, family, width, restart=True):
    before, after, pad = FRAMES[family]
    a = [before[0], *first, after[0]]
    b = [after[0], *second, after[0]]
    tokens = a + b + [pad] * (width - len(a) - len(b))
    places = [i if i < len(a) or not restart else i - len(a) for i in range(width)]
    ids = [LANGUAGES.id(languages[i >= len(a)]) for i in range(width)]
    return {"tokens": tokens, "positions": places, "languages": ids}


@pytest.mark.parametrize("restart", [True, False])
@pytest.mark.parametrize("family", FRAMES)
def test_rows_are_those_made_by_hand(family, restart):
    tokenizer = Pieces(family)
    rows = TlmRows(caches(tokenizer), tokenizer, seed=0, both_orders=False, restart=restart)
    assert rows.lengths.tolist() == [9, 9, 7] and rows.dropped == 1
    batch = rows.batch(np.array([2, 0, 1]), 12, 0)
    for i, pair in enumerate((2, 0, 1)):
        languages = ("en", "cs" if pair == 2 else "de")
        wanted = by_hand(*PAIRS[pair], languages, family, 12, restart)
        assert {name: array[i].tolist() for name, array in batch.items()} == wanted
    assert rows.ids(np.array([2, 0, 1])).tolist() == [115, 111, 114]
    eos = FRAMES[family][1][0]
    assert (batch["tokens"] == eos).sum(axis=1).tolist() == [4 if family == "xlm" else 3] * 3
    assert all(array.dtype == np.int32 for array in batch.values())


def test_both_orders_are_drawn_alike():
    tokenizer = Pieces("xlm")
    rows = TlmRows(caches(tokenizer), tokenizer, seed=0, both_orders=True, restart=True)
    index, flipped = np.tile([0, 1], 500), 0
    batch = rows.batch(index, 12, 3)
    for i, pair in enumerate(index):
        a, b = PAIRS[pair]
        straight, reverse = by_hand(a, b, ("en", "de"), "xlm", 12), by_hand(b, a, ("de", "en"), "xlm", 12)
        found = {name: array[i].tolist() for name, array in batch.items()}
        assert found in (straight, reverse)
        flipped += found == reverse
    assert 430 < flipped < 570
    again = rows.batch(index, 12, 3), rows.batch(index, 12, 4)
    np.testing.assert_array_equal(batch["tokens"], again[0]["tokens"])
    assert (batch["tokens"] != again[1]["tokens"]).any()


def test_a_stream_of_them_fills_up_with_padding():
    tokenizer = Pieces("xlm")
    rows = TlmRows(caches(tokenizer), tokenizer, seed=0, both_orders=True, restart=True)
    stream = RowStream(rows, (12,), Sizes(rows=2), 2, seed=0, label=1)
    batches = [stream.next()[0] for _ in range(stream.steps)]
    assert stream.steps == 2 and sum((b["tokens"] == 2).all(axis=1).sum() for b in batches) == 1
    assert "1 left out as too long" in "; ".join(stream.facts())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "batch_size is None and batch_tokens None"),
        ({"batch_size": 8, "order": "random"}, "TlmText.order is 'random'"),
        ({"batch_size": 8, "groups": 0}, "TlmText.groups is 0"),
        ({"batch_size": 8, "max_length": 0}, "TlmText.max_length is 0"),
        ({"batch_size": 8, "widths": (2,)}, "TlmText.widths is 2"),
    ],
)
def test_settings_that_mean_nothing(options, message):
    with pytest.raises(ValueError, match=message):
        TlmText("some_task", **options)


def test_shapes_are_the_longest_batch():
    assert TlmText("t", 8).shapes(4, 2)["positions"] == (2, 8, 204)
    assert TlmText("t", batch_tokens=2000, widths=(40, 100)).shapes(8)["tokens"] == (24, 100)  # 20 of them filled
