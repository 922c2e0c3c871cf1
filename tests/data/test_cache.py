import hashlib
import json
import resource
import subprocess
import sys

import numpy as np
import pytest

from vmsst_jax.data import cache as cache_module
from vmsst_jax.data.cache import TokenCache
from vmsst_jax.data.languages import Languages
from vmsst_jax.data.tokenizer import Tokenizer

LENGTH = 12


def assert_holds(cache, examples, tokenizer, languages):
    """Compares a cache with the examples, tokenised one by one."""
    assert len(cache) == len(examples)
    assert cache.pair_ids(np.arange(len(cache))).tolist() == [e["pair_id"] for e in examples]
    truncated = 0
    for p, example in enumerate(examples):
        for s, side in enumerate(("source", "target")):
            (row,), cut = tokenizer.encode([example[side]], LENGTH)
            tokens, lengths, lang, _, was_cut = cache.sentences(np.array([2 * p + s]))
            assert tokens.tolist() == row.tolist() and lengths.tolist() == [len(row)] == [cache.lengths[p, s]]
            assert lang.tolist() == [languages.id(example[f"{side}_lang"])] and was_cut.tolist() == [bool(cut)]
            truncated += cut
    assert cache.meta["truncated"] == truncated > 0


@pytest.mark.parametrize("kept", ["in memory", "in a folder"])
def test_a_cache_holds_the_corpus(kept, tmp_path, monkeypatch, examples, tokenizer, languages):
    monkeypatch.setattr(cache_module, "BLOCK", 64)  # several blocks, the last one incomplete
    folder = tmp_path / "some" / "cache" if kept == "in a folder" else None
    cache = TokenCache.build(iter(examples), tokenizer, languages, LENGTH, folder, source="made up")
    assert_holds(cache, examples, tokenizer, languages)
    sides = [(e[f"{side}_lang"], e[side]) for e in examples for side in ("source", "target")]
    text = "".join(f"{code}\n{text}\n" for code, text in sides)
    assert cache.meta["sha256"] == hashlib.sha256(text.encode()).hexdigest()
    if folder:
        assert_holds(TokenCache.open(folder, tokenizer, languages), examples, tokenizer, languages)
        assert [p.name for p in folder.parent.iterdir()] == ["cache"]
        meta = json.loads((folder / "meta.json").read_text())
        assert meta["source"] == "made up" and meta["tokenizer_sha256"] == tokenizer.sha256
        assert meta["sentences"] == {"cs": 167, "de": 167, "el": 166, "en": 500} and meta["max_length"] == LENGTH


def test_many_sentences_at_once_in_any_order(examples, tokenizer, languages):
    cache = TokenCache.build(examples, tokenizer, languages, LENGTH)
    index = np.array([999, 0, 3, 3, 500])
    tokens, lengths, lang, text_id, _ = cache.sentences(index)
    rows = np.split(tokens, np.cumsum(lengths)[:-1])
    for i, row in zip(index, rows, strict=True):
        assert row.tolist() == cache.sentences(np.array([i]))[0].tolist()
    assert text_id[2] == text_id[3] != text_id[1] and lang.tolist() == [3, 0, 3, 3, 1]


@pytest.mark.parametrize(("vocabulary", "dtype"), [(65536, np.uint16), (65537, np.int32)])
def test_tokens_are_as_narrow_as_the_vocabulary_allows(vocabulary, dtype, tmp_path, tokenizer, languages, examples):
    class Wide(Tokenizer):
        def encode_flat(self, texts, max_length):
            tokens, lengths, cut = super().encode_flat(texts, max_length)
            return np.where(tokens == tokens.max(), vocabulary - 1, tokens).astype(np.int32), lengths, cut

    wide = Wide(tokenizer.serialized)
    wide.vocab_size = vocabulary
    cache = TokenCache.build(examples[:5], wide, languages, LENGTH, tmp_path / "cache")
    tokens = cache.sentences(np.arange(10))[0]
    assert np.load(tmp_path / "cache" / "tokens.npy").dtype == dtype
    assert tokens.dtype == np.int32 and tokens.max() == vocabulary - 1


def test_another_runs_language_table(tmp_path, examples, tokenizer, languages):
    TokenCache.build(examples[:6], tokenizer, languages, LENGTH, tmp_path / "cache")
    wider = Languages(("ar", "en", "el", "de", "cs"))
    assert TokenCache.open(tmp_path / "cache", tokenizer, wider).sentences(np.arange(6))[2].tolist() == [
        4,
        1,
        3,
        1,
        2,
        1,
    ]
    TokenCache.build(examples[:1], tokenizer, languages, LENGTH, tmp_path / "small")
    TokenCache.open(tmp_path / "small", tokenizer, Languages(("cs", "en")))  # de and el do not occur in it
    with pytest.raises(ValueError, match="el"):
        TokenCache.open(tmp_path / "cache", tokenizer, Languages(("cs", "de", "en")))


def test_refusals(tmp_path, examples, tokenizer, languages):
    with pytest.raises(ValueError, match="no examples in nothing"):
        TokenCache.build([], tokenizer, languages, LENGTH, tmp_path / "empty", source="nothing")
    with pytest.raises(ValueError, match="xx"):
        TokenCache.build(
            [examples[0], {**examples[1], "source_lang": "xx"}], tokenizer, languages, LENGTH, tmp_path / "bad"
        )
    assert not list(tmp_path.iterdir())  # nothing half-written stays
    with pytest.raises(FileNotFoundError, match="no cache in .*: build it first"):
        TokenCache.open(tmp_path, tokenizer, languages)

    TokenCache.build(examples, tokenizer, languages, LENGTH, tmp_path / "cache")
    with pytest.raises(FileExistsError, match="cache exists"):
        TokenCache.build(examples, tokenizer, languages, LENGTH, tmp_path / "cache")
    other = Tokenizer.train([e["source"] for e in examples], 300)
    with pytest.raises(ValueError, match=f"{tokenizer.sha256[:12]}.*{other.sha256[:12]}"):
        TokenCache.open(tmp_path / "cache", other, languages)
    with open(tmp_path / "cache" / "tokens.npy", "r+b") as file:
        file.truncate(1000)
    with pytest.raises(ValueError, match=r"tokens\.npy is missing or damaged"):
        TokenCache.open(tmp_path / "cache", tokenizer, languages)


@pytest.mark.parametrize("damage", ["", '{"format": 1, "pai', "[]", '{"format": 1}', '{"format": 0}'])
def test_damaged_meta(tmp_path, examples, tokenizer, languages, damage):
    TokenCache.build(examples[:5], tokenizer, languages, LENGTH, tmp_path / "cache")
    (tmp_path / "cache" / "meta.json").write_text(damage)
    with pytest.raises(ValueError, match=r"meta\.json is damaged or of another version .*: remove the folder .*cache"):
        TokenCache.open(tmp_path / "cache", tokenizer, languages)


def test_a_full_disk_leaves_nothing(tmp_path, examples, tokenizer, languages):
    """A limit on the size of files stands in for it; what is buffered fails once more when it is closed."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
    try:
        with pytest.raises(OSError, match="File too large; make room there.*cache'"):
            TokenCache.build(examples, tokenizer, languages, LENGTH, tmp_path / "cache")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())


def test_training_from_a_cache_needs_no_tensorflow():
    code = (
        "import sys, vmsst_jax.data.streams, vmsst_jax.data.prefetch;"
        "print(sorted({'tensorflow', 'seqio', 'jax', 'gin'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
