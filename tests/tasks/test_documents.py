"""Tasks of documents: their builders, their splits, and the two ways in which they are read."""

import gzip
import json

import pytest

from vmsst_jax.data import registered
from vmsst_jax.data.text_pairs import CorpusError, hash62, is_held_out


@pytest.fixture
def documents(registry):
    from vmsst_jax.tasks import documents

    return documents


@pytest.fixture
def texts(tmp_path):
    """Two languages of 40 documents of two sentences, one sentence a line."""
    for code in ("cy", "gd"):
        blocks = (f"{code} document {i}.\n{code} sentence {i}." for i in range(40))
        (tmp_path / f"{code}.txt").write_text("\n\n".join(blocks))
    return {code: tmp_path / f"{code}.txt" for code in ("cy", "gd")}


def both_ways(task, split, read):
    """The documents by tf.data, after a check that the plain way gives the same."""
    plain = list(registered.examples_of(task.name, split, fields=registered.DOCUMENT))
    assert read(task, split) == plain
    return plain


def test_text(documents, texts, read):
    task = documents.register_text("d_text", texts, layout="sentences")
    rows = both_ways(task, "train", read)
    assert rows[41] == {"text": "gd document 1.\ngd sentence 1.", "lang": "gd", "document_id": hash62(b"d_text") + 42}
    assert task.num_input_examples("train") == len(rows) == 80
    shuffled = read(task, shuffle=True, seed=1)
    assert shuffled != rows and sorted(shuffled, key=lambda r: r["document_id"]) == rows


def test_held_out_documents(documents, texts, read, tmp_path):
    task = documents.register_text("d_held", texts, layout="sentences", held_out=0.25)
    train, held = both_ways(task, "train", read), both_ways(task, "validation", read)
    assert len(train) + len(held) == 80 and 8 < len(held) < 32
    assert {r["document_id"] for r in train + held} == {hash62(b"d_held") + i for i in range(1, 81)}
    files = documents.register_text("d_files", {"cy": texts["cy"]}, layout="sentences", validation={"gd": texts["gd"]})
    assert {r["lang"] for r in both_ways(files, "validation", read)} == {"gd"}


def test_translations_are_held_out_together(documents, tmp_path, read):
    for code in ("en", "de"):
        lines = (f"MRK {c}:{v}\t{code} {c} {v}\n" for c in range(40) for v in range(3))
        (tmp_path / f"{code}.tsv").write_text("".join(lines))
    files = {code: tmp_path / f"{code}.tsv" for code in ("en", "de")}
    task = documents.register_keyed("d_keyed", files, pattern=r"(.+):\d+", held_out=0.2)
    chapters = {
        code: {int(r["text"].split()[1]) for r in both_ways(task, "validation", read) if r["lang"] == code}
        for code in files
    }
    assert chapters["en"] == chapters["de"] == {c for c in range(40) if is_held_out(f"MRK {c}", 0.2)}


def test_cc_net(documents, tmp_path, read):
    for shard, code in enumerate(("en", "de")):
        record = {"raw_content": f"{code} one. Two.\nThree.", "language": code, "digest": f"sha1:{code}"}
        (tmp_path / f"{shard}.json.gz").write_bytes(gzip.compress(json.dumps(record).encode() + b"\n"))
    task = documents.register_cc_net("d_cc", tmp_path / "*.json.gz")
    rows = both_ways(task, "train", read)
    assert [(r["lang"], r["text"]) for r in rows] == [("en", "en one.\nTwo.\nThree."), ("de", "de one.\nTwo.\nThree.")]
    named = documents.register_cc_net("d_cc_named", {"nl": tmp_path / "1.json.gz"})
    assert [r["lang"] for r in both_ways(named, "train", read)] == ["nl"]


def test_tfds(documents, tmp_path, read):
    import tensorflow_datasets as tfds

    class Made(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")
        name = "made_documents"

        def _info(self):
            return self.dataset_info_from_configs(features=tfds.features.FeaturesDict({"text": tfds.features.Text()}))

        def _split_generators(self, manager):
            return {"train": ((i, {"text": f"Number {i}. Two.\n\nThree."}) for i in range(20))}

        def _generate_examples(self):
            raise AssertionError

    Made(data_dir=tmp_path).download_and_prepare()
    task = documents.register_tfds("d_tfds", {"en": "made_documents:1.0.0"}, data_dir=str(tmp_path), held_out=0.3)
    rows = both_ways(task, "train", read) + both_ways(task, "validation", read)
    assert {r["text"] for r in rows} == {f"Number {i}.\nTwo.\nThree." for i in range(20)}
    wrong = documents.register_tfds("d_wrong", {"en": "made_documents:1.0.0"}, data_dir=str(tmp_path), text="body")
    with pytest.raises(CorpusError, match="d_wrong: made_documents:1.0.0 has no feature 'body'; it has text"):
        wrong.num_input_examples("train")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layout": "lines"}, "layout is 'sentences' or 'paragraphs', found 'lines'"),
        ({"held_out": 1.5}, "held_out is 1.5; wanted a number of 0 or more and below 1"),
        ({"held_out": 0.1, "validation": {"cy": "x"}}, "give validation files or held_out=0.1, not both"),
        ({"on_bad_line": "ignore"}, "on_bad_line is 'error' or 'skip'"),
        ({"held_out": "0.1"}, "held_out is '0.1'; wanted a number"),
        ({"files": {"cy": None}}, "files are .*found {'cy': None}"),
        ({"validation": {"cy": [3]}}, "files are .*found {'cy': .3.}"),
        ({"files": "x.txt"}, "files are {language code: paths}, such as .*, found 'x.txt'"),
    ],
)
def test_options(documents, options, message):
    with pytest.raises(ValueError, match=f"task d_options: .*{message}"):
        documents.register_text("d_options", **{"files": {"cy": "x.txt"}, "layout": "sentences", **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pattern": ".+"}, "pattern '.+' has no group"),
        ({"pattern": "(.+"}, "'..[+]' is no regular expression"),
        ({"pattern": None}, "pattern is None; wanted a regular expression"),
        ({"key": "0"}, "key is '0'; wanted a whole number of 0 or more"),
        ({"key": -1}, "key is -1; wanted a whole number of 0 or more"),
        ({"text": 1.0}, "text is 1.0; wanted a whole number"),
    ],
)
def test_options_of_tables(documents, options, message):
    with pytest.raises(ValueError, match=f"task d_options: .*{message}"):
        documents.register_keyed("d_options", {"cy": "x.tsv"}, **options)


def test_a_name_is_taken_once(documents, registry):
    documents.register_text("d_once", {"cy": "x.txt"}, layout="sentences")
    for name, message in (("d_once", "task d_once: .* registered already"), (3, "a task is called 3; wanted a name")):
        with pytest.raises(ValueError, match=message):
            documents.register_text(name, {"cy": "x.txt"}, layout="sentences")


def test_files_that_can_t_be_used(documents, texts, tmp_path):
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    broken = tmp_path / "broken.json"
    broken.write_text('{"raw_content": "Fine. Yes.", "language": "en"}\n{"raw_content": \n')
    documents.register_text("d_empty", {"cy": [texts["cy"], empty]}, layout="sentences")
    documents.register_text("d_absent", {"cy": tmp_path / "no.txt"}, layout="sentences")
    documents.register_text("d_one", {"cy": texts["cy"]}, layout="sentences", held_out=1e-9)
    documents.register_cc_net("d_broken", broken)
    for name, split, message in (
        ("d_empty", "train", "empty.txt: no document in this file"),
        ("d_absent", "train", "no.txt: no such corpus file"),
        ("d_one", "validation", "none of its 40 documents is in the split validation"),
        ("d_broken", "train", "broken.json, line 2: not JSON"),
    ):
        with pytest.raises(CorpusError, match=message):
            list(registered.examples_of(name, split, fields=registered.DOCUMENT))


def test_a_task_of_pairs_is_none_of_documents(registry, texts, documents):
    from vmsst_jax.tasks import parallel

    parallel.register_tsv("d_pairs", texts["cy"], languages=("cy", "en"))
    with pytest.raises((ValueError, CorpusError), match="wanted the scalar strings text, lang|found 1 column"):
        list(registered.examples_of("d_pairs", "train", fields=registered.DOCUMENT))


def test_a_file_that_two_patterns_match_is_read_once(tmp_path, caplog):
    from vmsst_jax.data.text_pairs import distinct, expand

    for name in ("b.txt", "a.txt"):
        (tmp_path / name).write_text("x\n")
    (tmp_path / "link.txt").symlink_to(tmp_path / "b.txt")
    paths = expand([tmp_path / "b.txt", tmp_path / "*.txt"])
    assert distinct(paths) == [str(tmp_path / "b.txt"), str(tmp_path / "a.txt")]
    assert f"read once: {tmp_path / 'b.txt'}" in caplog.text
