"""CC-Net's files prepared: counts, what is left of documents, and the caches that Documents and MaskedText open."""

import collections
import dataclasses
import gzip
import json
import random

import numpy as np
import pytest

from vmsst_jax import prepare
from vmsst_jax.data.document_cache import DocumentCache
from vmsst_jax.data.documents import Documents, MaskedText
from vmsst_jax.data.languages import Languages
from vmsst_jax.data.tokenizer import Tokenizer
from vmsst_jax.preparation import documents, planning, running

TEST = "This one is a test sentence."
TABLE = "language\tmegabytes\tfiles\nen\t300\tweb/en/*.txt*\nde\t100\tweb/de/*.txt*\n"


def record(text, language="en", **more):
    return json.dumps({"url": "x", "raw_content": text, "language": language, **more}, ensure_ascii=False)


@pytest.fixture(scope="module")
def web():
    """{(language, bucket): lines}; in the first file one line of every kind."""
    draw = random.Random(1)

    def document(word):
        return "\n".join(f"{word.capitalize()} {' '.join(draw.choices(list('abcdefgh'), k=8))}." for _ in range(5))

    files = {("en", "head"): [record(document("house")) for _ in range(60)]}
    files["en", "tail"] = [record(document("tree")) for _ in range(40)] + files["en", "head"][:10]
    files["de", "head"] = [record(document("haus"), "de") for _ in range(30)]
    files["en", "head"] += [
        "not JSON",
        "[" * 100_000,
        json.dumps({"text": "no raw_content"}),
        record("Ein Satz hier. Noch einer da.", "de"),
        record(" \n\t\n"),
        record(f"{TEST.upper()} Only one stays."),
        record(f"First a sentence. {TEST}\nThen\x07 another\u00a0one."),
    ]
    return files


@pytest.fixture(scope="module")
def prepared(web, tmp_path_factory):
    """(folder, report, vocabulary) of all of it, in partitions of 2,000 bytes."""
    root = tmp_path_factory.mktemp("web")
    (root / "mined/2019-09").mkdir(parents=True)
    for (language, bucket), lines in web.items():
        path = root / f"mined/2019-09/{language}_{bucket}_0000.json.gz"
        path.write_bytes(gzip.compress("".join(line + "\n" for line in lines).encode(), mtime=0))
    (root / "table.tsv").write_text(TABLE)
    (root / "tests.txt").write_text(TEST + "\n")
    texts = ["".join(c for c in line if c.isalpha() or c == " ") for lines in web.values() for line in lines[:60]]
    (root / "v.model").write_bytes(Tokenizer.train(texts, 40).serialized)
    table, options = str(root / "table.tsv"), {"test": [str(root / "tests.txt")], "vocabulary": str(root / "v.model")}
    rows = planning.rows(table, False, None)
    plan, tests, tokenizer = planning.plan(str(root / "mined"), rows, is_opus=False, table=table, **options)
    plan = dataclasses.replace(plan, partition_bytes=2000)
    return root / "out", running.prepare(plan, str(root / "out"), tests, tokenizer, progress=False), tokenizer


def texts(folder):
    return [line.split("\t") for f in sorted(folder.glob("*.txt")) for line in f.read_text("utf-8").splitlines()]


def test_every_line_is_accounted_for(web, prepared):
    folder, report, _ = prepared
    entry = report["sets"]["en"]
    assert [(s["corpus"], s["name"]) for s in entry["sources"]] == [
        ("head", "2019-09/en_head_0000.json.gz"),
        ("tail", "2019-09/en_tail_0000.json.gz"),
    ]
    head, tail = (source["records"] for source in entry["sources"])
    zeros = {"bad_line": 0, "language": 0, "empty": 0, "few_sentences": 0, "duplicate": 0, "not_sampled": 0}
    expected = zeros | {"read": 67, "bad_line": 3, "language": 1, "empty": 1, "few_sentences": 1, "kept": 61}
    assert head == expected
    assert tail == zeros | {"read": 50, "duplicate": 10, "kept": 40}
    assert report["sets"]["de"]["records"] == zeros | {"read": 30, "kept": 30}
    # 60 documents of 5 sentences; 2 of German; 2, a test sentence, and 3, a test sentence.
    assert entry["sources"][0]["sentences"] == {"read": 307, "test": 2, "dropped": 3, "kept": 302}
    assert entry["sources"][1]["sentences"] == {"read": 250, "test": 0, "dropped": 50, "kept": 200}
    assert report["sentences"] == {"read": 707, "test": 2, "dropped": 53, "kept": 652}
    assert sum(map(len, texts(folder / "web/en"))) == 502


def test_documents_keep_their_sentences_in_order(web, prepared):
    written = texts(prepared[0] / "web/en")
    wanted = [json.loads(line)["raw_content"].split("\n") for line in web["en", "head"][:60] + web["en", "tail"][:40]]
    assert sorted(written) == sorted([*wanted, ["First a sentence.", "Then another one."]])
    assert written != sorted(written) and len(list((prepared[0] / "web/en").iterdir())) > 3


def test_caches_hold_what_is_written_for_both_readers(prepared):
    folder, _, tokenizer = prepared
    languages = Languages(["de", "en"])
    for cleaning in ("5-128-2", "1-any-1"):
        assert json.loads((folder / f"tokens/web-train-{cleaning}.json").read_text()) == ["web_en", "web_de"]
        cache = DocumentCache.open(folder / f"tokens/web_en-train-{cleaning}", tokenizer, languages)
        assert len(cache) == 101 and set(cache.lang.tolist()) == {1}
        first = texts(folder / "web/en")[0]
        pieces, *_ = tokenizer.encode_flat(first, 1000)
        assert cache.text(0).tolist() == [piece for piece in pieces.tolist() if piece != tokenizer.eos_id]
        assert len(np.unique(cache.document_ids(np.arange(101)))) == 101


def test_training_streams_open_the_caches(prepared):
    """As ccp_xlmr.gin names them, without a task that is registered."""
    folder, _, tokenizer = prepared
    languages, cache = Languages(["de", "en", "fr"]), str(folder / "tokens")
    for data in (
        Documents("web", groups=2, pairs=4, cache=cache),
        MaskedText("web", batch_size=3, length=20, cache=cache),
    ):
        data.check(languages)
        batch, _ = data.open(tokenizer, languages, seed=0).next()
        assert set(batch["lang"].ravel().tolist()) <= {0, 1}


def test_limits_and_wrong_flags(tmp_path):
    for name in ("en_head_0000.json.gz", "de_middle_0001.json.gz", "en.json.gz", "notes.txt"):
        (tmp_path / name).write_bytes(gzip.compress(b""))
    rows = [{"language": code, "megabytes": 1.0, "folder": f"web/{code}"} for code in ("en", "de", "fr")]
    sets, missing = documents.find(str(tmp_path), rows, 7, skip_missing=True)
    assert missing == ["fr"]
    assert [(of.name, of.amount, len(of.sources)) for of in sets] == [("en", 7, 1), ("de", 7, 1)]
    with pytest.raises(ValueError, match="has no file of fr; wanted CC-Net's"):
        documents.find(str(tmp_path), rows, None, skip_missing=False)
    with pytest.raises(ValueError, match="nowhere is no folder"):
        documents.find(str(tmp_path / "nowhere"), rows, None, skip_missing=False)
    with pytest.raises(ValueError, match="'5-x-2' is no cleaning"):
        documents.cleaning_of("5-x-2")
    common = [f"--cc_net={tmp_path}", f"--output={tmp_path.parent}/out", "--test=none"]
    for cleanings, message in (("", "no cleaning is named; wanted one or more"), ("0-any-1", "min_pieces is 0")):
        with pytest.raises(ValueError, match=message):
            prepare.main([*common, f"--cleanings={cleanings}"])
    counts = collections.Counter(str(documents.cleaning_of(c)) == c for c in ("5-128-2", "1-any-1"))
    assert counts == {True: 2}
