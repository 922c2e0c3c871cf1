"""Parallel text prepared whole: against a reference that holds everything in memory, the table, and itself."""

import collections
import json
import re
import unicodedata

import numpy as np
import pytest

from vmsst_jax import prepare
from vmsst_jax.data.cache import TokenCache
from vmsst_jax.data.languages import Languages
from vmsst_jax.data.tokenizer import Tokenizer
from vmsst_jax.preparation import running

FILTERS = ("not_utf8", "empty", "identical", "long", "ratio", "test")


def reference(archives, tests):
    """({corpus: counts}, {pair: corpus}) of one set, by the rules as docs/preparing_corpora.md has them."""

    def tidy(text):
        text = "".join(c for c in unicodedata.normalize("NFC", text) if c in "\t\n" or unicodedata.category(c) != "Cc")
        return re.sub(r"\s+", " ", text).strip()

    def key(text):
        folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
        return [c for c in folded if unicodedata.category(c)[0] in "LMN"]

    keys = [key(test) for test in tests]
    counts, first = {}, {}
    for corpus, pairs in archives:
        found = counts[corpus] = collections.Counter(read=len(pairs))
        for pair in pairs:
            try:
                source, target = (tidy(t.decode() if isinstance(t, bytes) else t) for t in pair)
            except UnicodeDecodeError:
                found["not_utf8"] += 1
                continue
            lengths = len(source), len(target)
            if not all(lengths):
                found["empty"] += 1
            elif source == target:
                found["identical"] += 1
            elif max(lengths) > 1000:
                found["long"] += 1
            elif (max(lengths) + 10) / (min(lengths) + 10) > 6:
                found["ratio"] += 1
            elif key(source) in keys or key(target) in keys:
                found["test"] += 1
            elif (source, target) in first:
                found["duplicate"] += 1
            else:
                first[source, target] = corpus
    return counts, first


def text(folder):
    """The pairs in a set's text files, in order."""
    return [
        tuple(line.split("\t"))
        for file in sorted(folder.glob("*.tsv"))
        for line in file.read_text("utf-8").removesuffix("\n").split("\n")
    ]


def prepare_all(opus, folder, vocabulary=None, **options):
    plan, tests, tokenizer = opus.plan(vocabulary, **options)
    return running.prepare(plan, str(folder), tests, tokenizer, progress=False)


@pytest.fixture(scope="module")
def whole(opus, vocabulary, tmp_path_factory):
    """(folder, report) of everything, prepared in this process."""
    folder = tmp_path_factory.mktemp("whole") / "out"
    return folder, prepare_all(opus, folder, vocabulary)


def test_counts_and_texts_are_those_of_a_reference_in_memory(opus, whole):
    folder, report = whole
    for name, archives in opus.pairs.items():
        counts, first = reference(archives, opus.test_sentences)
        entry = report["sets"][name]
        assert sorted(text(folder / "mini" / name)) == sorted(first)
        assert sum(1 for _ in (folder / "mini" / name).iterdir()) > 3  # several partitions
        for source, (corpus, pairs) in zip(entry["sources"], archives, strict=True):
            found = source["records"]
            assert (source["corpus"], found["read"]) == (corpus, len(pairs))
            assert {k: v for k, v in found.items() if v and k != "kept"} == dict(counts[corpus])
            assert found["kept"] == sum(1 for c in first.values() if c == corpus)
            assert found["read"] == sum(found.values()) - found["read"]
    assert all(report["sets"]["en-ru"]["records"][name] for name in (*FILTERS, "duplicate"))
    totals = collections.Counter()
    for entry in report["sets"].values():
        totals.update(entry["records"])
    assert report["records"] == dict(totals)
    assert json.loads((folder / "report.json").read_text("utf-8")) == report


def test_planted_test_sentences_are_gone_and_near_ones_stay(opus, whole):
    texts = [" ".join(pair) for pair in text(whole[0] / "mini/en-ru")]
    planted = sum("planted" in " ".join(map(str, pair)) for pair in opus.pairs["en-ru"][0][1])
    assert planted > 100 and not [t for t in texts if "planted" in t]
    assert sum("Near" in t for t in texts) == 20


def test_the_table_in_lines_agrees(whole):
    folder, report = whole
    header, *rows = [line.split("\t") for line in (folder / "report.tsv").read_text().splitlines()]
    assert header == ["set", "corpus", "read", *FILTERS, "duplicate", "not_sampled", "kept", "wanted"]
    last = {name: int(n) for name, n in zip(header[2:-1], rows[-1][2:-1], strict=True)}
    assert rows[-1][:2] == ["all", "all"] and last == report["records"]
    for row in rows:
        read, *rest = map(int, row[2:-1])
        assert read == sum(rest)
    assert [row[:2] for row in rows[:3]] == [["en-ru", "Europarl"], ["en-ru", "Tatoeba"], ["en-ru", "all"]]


def test_token_caches_hold_the_text_files(whole, vocabulary):
    folder = whole[0]
    tokenizer, languages = Tokenizer.load(vocabulary), Languages(["en", "fr", "ru", "zu"])
    assert json.loads((folder / "tokens/mini-train.json").read_text()) == {"mini_en_ru": 10.0, "mini_en_fr": 10.0}
    for name in ("en-ru", "en-fr"):
        cache = TokenCache.open(folder / f"tokens/mini_{name.replace('-', '_')}-train", tokenizer, languages)
        pairs = text(folder / "mini" / name)
        assert len(cache) == len(pairs)
        for p in (0, len(pairs) // 2, len(pairs) - 1):
            tokens, lengths, lang, *_ = cache.sentences(np.array([2 * p, 2 * p + 1]))
            wanted, _ = tokenizer.encode(pairs[p], 32)
            assert [row.tolist() for row in np.split(tokens, lengths.cumsum()[:-1])] == [w.tolist() for w in wanted]
            assert [languages.codes[i] for i in lang] == name.split("-")


def test_samples_follow_the_table(opus, whole, tmp_path):
    """Exact in number, drawn over all sources and partitions, a part of any larger sample, other with another seed."""
    everything = text(whole[0] / "mini/en-ru")
    samples = {}
    for name, amount, seed in (("small", 0.2, 0), ("large", 0.5, 0), ("other", 0.2, 1)):
        report = prepare_all(opus, tmp_path / name, ru=amount, languages=["en", "ru"], name="part", seed=seed)
        samples[name] = text(tmp_path / name / "mini/en-ru")
        counts = report["sets"]["en-ru"]["records"]
        assert len(samples[name]) == len(set(samples[name])) == counts["kept"] == amount * 1000
        assert counts["kept"] + counts["not_sampled"] == len(everything)
    assert samples["small"] == everything[:200] and samples["large"] == everything[:500]
    assert set(samples["other"]) < set(everything) and len(set(samples["other"]) & set(samples["small"])) < 60
    # The first 500 are no part of the corpus: their places in it have the mean of a random sample, within 5 sigma.
    _, first = reference(opus.pairs["en-ru"], opus.test_sentences)
    place = {pair: i for i, pair in enumerate(first)}
    n, places = len(first), np.array([place[pair] for pair in samples["large"]])
    assert abs(places.mean() - (n - 1) / 2) < 5 * n / 12**0.5 / 500**0.5
    # Nor are they in the corpus' order.
    assert abs(np.corrcoef(places, np.arange(500))[0, 1]) < 5 / 500**0.5


def test_the_number_of_partitions_changes_the_files_only(opus, whole, tmp_path):
    report = prepare_all(opus, tmp_path / "one", partition_bytes=2**20)
    assert report["records"] == whole[1]["records"]
    for name in ("en-ru", "en-fr"):
        assert len(list((tmp_path / "one/mini" / name).iterdir())) == 1
        assert text(tmp_path / "one/mini" / name) == text(whole[0] / "mini" / name)


def test_the_command_prepares_the_same(opus, vocabulary, tmp_path, capsys, tree):
    flags = [f"--opus={opus.root}", f"--table={opus.table()}", f"--vocabulary={vocabulary}", "--partition_mb=1"]
    flags += [f"--test={name}" for name in opus.tests()]
    prepare.main([*flags, f"--output={tmp_path}/out"])
    out, err = capsys.readouterr()
    assert "fewer than wanted: 2 of 2 sets" in out and f"--gin_file={tmp_path}/out/mini.gin" in out
    assert "split: 3 of 3 units" in err and "tokens: 2 of 2 units" in err
    before = tree(tmp_path)
    prepare_all(opus, tmp_path / "again", vocabulary, partition_bytes=2**20)
    assert tree(tmp_path / "again") == tree(tmp_path / "out")
    # Repeated, it does nothing and says the same.
    prepare.main([*flags, f"--output={tmp_path}/out"])
    assert capsys.readouterr().out == out
    assert {name: contents for name, contents in tree(tmp_path).items() if name in before} == before
    with pytest.raises(ValueError, match="out is prepared with other seed; name another folder"):
        prepare.main([*flags, f"--output={tmp_path}/out", "--seed=1"])


def test_archives_and_their_addresses_are_listed(opus, capsys):
    prepare.main([f"--opus={opus.root}", f"--table={opus.table()}", "--list"])
    assert capsys.readouterr().out.split() == [
        "https://object.pouta.csc.fi/OPUS-Europarl/v8/moses/en-ru.txt.zip",
        "https://object.pouta.csc.fi/OPUS-Tatoeba/v2021-07-22/moses/en-rus.txt.zip",
        "https://object.pouta.csc.fi/OPUS-Tatoeba/v2021-07-22/moses/en-fr.txt.zip",
    ]
    prepare.main(["--opus=nowhere", "--list"])
    listed = capsys.readouterr().out.split()
    assert len(listed) == len(set(listed)) > 450
    assert "https://object.pouta.csc.fi/OPUS-OpenSubtitles/v2018/moses/es-zh_tw.txt.zip" in listed
