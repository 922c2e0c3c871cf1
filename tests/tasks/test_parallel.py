"""Parallel corpora as seqio tasks: exact examples, in memory and streamed alike; splits, shuffling, errors."""

import gzip
import re
import zipfile

import pytest

from vmsst_jax.data.text_pairs import hash62

LANGUAGES = ("en", "de")
BOTH = pytest.mark.parametrize("stream", [False, True], ids=["memory", "stream"])


@pytest.fixture
def parallel(registry):
    from vmsst_jax.tasks import parallel

    return parallel


def write_tsv(path, count=1000, first=0):
    path.write_text("".join(f"sentence number {i}\tSatz Nummer {i}\n" for i in range(first, first + count)), "utf-8")
    return path


def sources(examples):
    return [example["source"] for example in examples]


@BOTH
def test_tsv_gives_the_example_of_the_contract(tmp_path, parallel, read, stream):
    path = tmp_path / "corpus.tsv"
    path.write_bytes("\ufeff1\tHallo  Welt \thello world\r\n2\tzwei\ttwo".encode())
    task = parallel.register_tsv("own", path, languages=LANGUAGES, columns=(2, 1), stream=stream)
    base = {"source_lang": "en", "target_lang": "de"}
    assert read(task) == [
        {"source": "hello world", "target": "Hallo  Welt", "pair_id": hash62(b"own") + 1, **base},
        {"source": "two", "target": "zwei", "pair_id": hash62(b"own") + 2, **base},
    ]
    assert task.splits == ("train",)
    assert task.num_input_examples("train") == 2


def test_streamed_and_in_memory_agree_on_awkward_files(tmp_path, parallel, read):
    (tmp_path / "a.tsv").write_bytes(
        b"\xef\xbb\xbfone\teins\r\nbad line\n\t\n \xc2\xa0 tw\ro \t zwei\textra\n"
        b"x\xff\ty\nthree\xe2\x80\xa8\tdr\x00ei\n"
    )
    with gzip.open(tmp_path / "b.tsv.gz", "wt", encoding="utf-8", newline="") as out:
        # More than one block, and one that holds no line of the validation split.
        out.write("".join(f"line {i} of b\tZeile {i}\n" for i in range(700)) + "last\tletzte")
    files = [tmp_path / "a.tsv", tmp_path / "b.tsv.gz"]
    options = {"languages": LANGUAGES, "on_bad_line": "skip", "held_out": 0.02}
    tasks = {s: parallel.register_tsv(f"same_{s}", files, stream=s, **options) for s in (False, True)}
    shift = hash62(b"same_True") - hash62(b"same_False")
    for split in ("train", "validation"):
        memory, streamed = (read(tasks[stream], split) for stream in (False, True))
        assert memory == [{**example, "pair_id": example["pair_id"] - shift} for example in streamed]
        assert tasks[True].num_input_examples(split) == tasks[False].num_input_examples(split) == len(memory) > 0
    everything = sources(read(tasks[True]) + read(tasks[True], "validation"))
    assert len(everything) == 704
    assert {"one", "\u00a0 two", "three\u2028", "last"} <= set(everything)


@BOTH
def test_held_out_texts_are_never_on_both_sides(tmp_path, parallel, read, stream):
    for code in ("de", "fr"):
        lines = [f"{'Sentence' if code == 'fr' else 'sentence'} number {i % 400}\t{code} {i}\n" for i in range(1000)]
        (tmp_path / f"{code}.tsv").write_text("".join(lines))
    seen = {"train": set(), "validation": set()}
    for code, languages, columns in (("de", ("en", "de"), (0, 1)), ("fr", ("fr", "en"), (1, 0))):
        task = parallel.register_tsv(
            code, tmp_path / f"{code}.tsv", languages=languages, columns=columns, held_out=0.1, stream=stream
        )
        assert set(task.splits) == set(seen)
        for split, texts in seen.items():
            texts |= {example["source" if code == "de" else "target"].lower() for example in read(task, split)}
    assert not seen["train"] & seen["validation"]
    assert len(seen["train"] | seen["validation"]) == 400
    assert 20 < len(seen["validation"]) < 60


def test_splits_come_from_different_files_and_patterns(tmp_path, parallel, read):
    write_tsv(tmp_path / "train-2.tsv", 2, first=2)
    write_tsv(tmp_path / "train-1.tsv", 2, first=0)
    write_tsv(tmp_path / "dev.tsv", 1, first=9)
    task = parallel.register_tsv(
        "files", f"{tmp_path}/train-*.tsv", validation=tmp_path / "dev.tsv", languages=LANGUAGES
    )
    assert sources(read(task)) == [f"sentence number {i}" for i in range(4)]
    assert sources(read(task, "validation")) == ["sentence number 9"]
    ids = [example["pair_id"] for split in task.splits for example in read(task, split)]
    assert ids == [hash62(b"files") + number for number in range(1, 6)]


@BOTH
def test_aligned_files_plain_and_gz(tmp_path, parallel, read, stream):
    (tmp_path / "a.en").write_text("one\ntwo\n")
    with gzip.open(tmp_path / "a.de.gz", "wt") as out:
        out.write("eins\nzwei\n")
    task = parallel.register_aligned(
        "al", (tmp_path / "a.en", tmp_path / "a.de.gz"), languages=LANGUAGES, stream=stream
    )
    assert [(e["source"], e["target"]) for e in read(task)] == [("one", "eins"), ("two", "zwei")]


@BOTH
def test_opus_zip_is_read_in_place(tmp_path, parallel, read, stream):
    with zipfile.ZipFile(tmp_path / "en-zh_cn.txt.zip", "w") as archive:
        for name, text in {
            "README": "x",
            "S.en-zh_cn.en": "one two\nthree\n",
            "S.en-zh_cn.zh_cn": "一二\n三\n",
        }.items():
            archive.writestr(name, text)
    task = parallel.register_opus_zip(
        "zip",
        tmp_path / "en-zh_cn.txt.zip",
        languages=("zh", "en"),
        codes=("zh_cn", "en"),
        stream=stream,
        cache_dir=str(tmp_path / "cache"),
    )
    assert [(e["source"], e["target"], e["source_lang"]) for e in read(task)] == [
        ("一二", "one two", "zh"),
        ("三", "three", "zh"),
    ]
    assert (tmp_path / "cache").exists() == stream


def test_large_corpora_are_streamed_by_default(tmp_path, parallel, read, monkeypatch):
    with zipfile.ZipFile(tmp_path / "en-de.txt.zip", "w") as archive:
        archive.writestr("C.en-de.en", "one\ntwo\n")
        archive.writestr("C.en-de.de", "eins\nzwei\n")
    examples = []
    for name, limit in (("within", 18), ("beyond", 17)):
        monkeypatch.setattr(f"{parallel.sources.__name__}.IN_MEMORY_BYTES", limit)
        cache = tmp_path / name
        path = tmp_path / "en-de.txt.zip"
        task = parallel.register_opus_zip(name, path, languages=LANGUAGES, cache_dir=str(cache))
        examples.append([(e["source"], e["target"]) for e in read(task)])
        assert cache.exists() == (name == "beyond")
    assert examples[0] == examples[1] == [("one", "eins"), ("two", "zwei")]


def test_tfds_translation_set(tmp_path, registry, parallel, read):
    import tensorflow_datasets as tfds

    class TinyPairs(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            return self.dataset_info_from_configs(features=tfds.features.Translation(("de", "en")))

        def _split_generators(self, _):
            return {"train": self._generate_examples(0, 30), "test": self._generate_examples(30, 33)}

        def _generate_examples(self, first, last):
            for i in range(first, last):
                yield i, {"de": f"Satz {i} ", "en": f"sentence {i}"}

    TinyPairs(data_dir=tmp_path).download_and_prepare()
    options = {"data_dir": str(tmp_path), "splits": {"train": "train", "validation": "test"}}
    task = parallel.register_tfds("tiny", "tiny_pairs:1.0.0", languages=LANGUAGES, **options)
    train = read(task)
    assert {(e["source"], e["target"]) for e in train} == {(f"sentence {i}", f"Satz {i}") for i in range(30)}
    assert len({e["pair_id"] for e in train}) == 30 and min(e["pair_id"] for e in train) >= 0
    assert len(read(task, "validation")) == 3
    assert task.num_input_examples("train") == 30
    shuffled = [read(task, shuffle=True, seed=5) for _ in range(2)]
    assert shuffled[0] == shuffled[1] != train
    wrong = parallel.register_tfds("wrong", "tiny_pairs:1.0.0", languages=("en", "fr"), **options)
    with pytest.raises(
        ValueError, match=r"task wrong: .* has no feature fr; it has de, en\. Name the two texts by `keys`"
    ):
        read(wrong)


@BOTH
def test_every_epoch_is_another_permutation_and_shards_share_it(tmp_path, registry, parallel, read, stream):
    paths = [write_tsv(tmp_path / "a.tsv", 600), write_tsv(tmp_path / "b.tsv", 300, first=600)]
    task = parallel.register_tsv("perm", paths, languages=LANGUAGES, stream=stream)
    two = sources(read(task, shuffle=True, seed=1, num_epochs=2))
    first, second = two[:900], two[900:]
    assert sorted(first) == sorted(second) == sorted(sources(read(task)))
    assert first != second
    assert two == sources(read(task, shuffle=True, seed=1, num_epochs=2))
    assert two[:900] != sources(read(task, shuffle=True, seed=2))
    # Both files are spread over the epoch, not one after the other.
    from_b = [int(text.split()[-1]) >= 600 for text in first]
    assert 60 < sum(from_b[:300]) < 140
    shards = [
        sources(read(task, shuffle=True, seed=1, shard_info=registry.ShardInfo(index=i, num_shards=4)))
        for i in range(4)
    ]
    assert sorted(text for shard in shards for text in shard) == sorted(first)
    assert max(map(len, shards)) - min(map(len, shards)) <= (2 if stream else 1)


@BOTH
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "corpus.tsv: no such corpus file"),
        (b"", "corpus.tsv: the corpus file is empty"),
        (b"a\tb\nno tab\n", r"corpus.tsv, line 2: found 1 column\(s\), wanted at least 2, .*on_bad_line='skip'"),
        (b"a\tb\nc\td\n\xff\xfe\tx\n", "corpus.tsv, line 3: the source text is not valid UTF-8"),
        (b"a\tb\nc\t \n", "corpus.tsv, line 2: the target text is empty"),
    ],
)
def test_bad_tsv_is_an_error_before_the_first_example(tmp_path, parallel, stream, content, message):
    if content is not None:
        (tmp_path / "corpus.tsv").write_bytes(content)
    task = parallel.register_tsv("bad", tmp_path / "corpus.tsv", languages=LANGUAGES, stream=stream)
    with pytest.raises(ValueError, match=message):
        task.get_dataset(sequence_length=None, split="train", shuffle=True, seed=0)


@BOTH
def test_bad_lines_can_be_skipped_and_are_reported_once(tmp_path, parallel, read, caplog, stream):
    (tmp_path / "c.tsv").write_bytes(b"a\tb\nno tab\nc\td\n\xff\tx\n")
    task = parallel.register_tsv("skip", tmp_path / "c.tsv", languages=LANGUAGES, on_bad_line="skip", stream=stream)
    assert sources(read(task)) == sources(read(task)) == ["a", "c"]
    reports = [record.getMessage() for record in caplog.records if "skipped" in record.getMessage()]
    assert len(reports) == 1
    assert re.search(r"c\.tsv: skipped 2 of 4 lines \(first: line 2: found 1 column", reports[0])
    (tmp_path / "c.tsv").write_bytes(b"no tab\n")
    task = parallel.register_tsv("none", tmp_path / "c.tsv", languages=LANGUAGES, on_bad_line="skip", stream=stream)
    with pytest.raises(ValueError, match="task none: no usable pair for split train in .*c.tsv"):
        read(task)


@BOTH
def test_bad_pairs_of_files_are_errors(tmp_path, parallel, read, stream):
    (tmp_path / "a.en").write_text("one\ntwo\n")
    (tmp_path / "a.de").write_text("eins\n")
    (tmp_path / "a.zip").write_text("no zip")
    options = {"languages": LANGUAGES, "stream": stream}
    unequal = parallel.register_aligned("unequal", (tmp_path / "a.en", tmp_path / "a.de"), **options)
    with pytest.raises(ValueError, match=r"equal numbers of lines, found .*a\.en: 2 and .*a\.de: 1"):
        read(unequal)
    lonely = parallel.register_aligned("lonely", ([tmp_path / "a.en"] * 2, tmp_path / "a.de"), **options)
    with pytest.raises(ValueError, match=r"found 2 source file\(s\) .* and 1 target file\(s\)"):
        read(lonely)
    archive = parallel.register_opus_zip("archive", tmp_path / "a.zip", **options)
    with pytest.raises(ValueError, match=r"a\.zip: not a readable zip archive"):
        read(archive)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"languages": ("en", "en")}, "two different codes"),
        ({"languages": "en"}, "two different codes"),
        ({"held_out": 1.0}, "held_out is 1.0; wanted a number of 0 or more and below 1"),
        ({"held_out": 0.1, "validation": "v.tsv"}, "validation files or held_out=0.1, not both"),
        ({"on_bad_line": "ignore"}, "'error' or 'skip', found 'ignore'"),
        ({"pivot": "fr"}, r"one of the languages \('en', 'de'\), found 'fr'"),
        ({"columns": (1, 1)}, "two different positions from 0 on"),
    ],
)
def test_contradictory_options_are_refused_at_once(parallel, options, message):
    with pytest.raises(ValueError, match=f"task odd: .*{message}"):
        parallel.register_tsv("odd", "x.tsv", **{"languages": LANGUAGES, **options})


def test_registering_touches_no_file(parallel):
    import seqio

    parallel.register_tsv("later", "/nowhere/x.tsv", languages=LANGUAGES)
    parallel.register_opus_zip("later_zip", "/nowhere/x.zip", languages=LANGUAGES)
    parallel.register_tfds("later_tfds", "no_such_set:1.0.0", languages=LANGUAGES)
    assert {"later", "later_zip", "later_tfds"} <= set(seqio.TaskRegistry.names())


def test_kept_tokens_of_changed_files_are_refused(tmp_path, parallel):
    from vmsst_jax.data import registered

    for side, text in (("de", "eins\nzwei\n"), ("en", "one\ntwo\n")):
        (tmp_path / f"a.{side}").write_text(text)
    places = (str(tmp_path / "a.de"), str(tmp_path / "a.en"))
    parallel.register_aligned("kept", places, languages=("de", "en"))
    before = registered.made_from("kept")
    names = [file[1:3] for file in before["train"][0]["files"]]
    assert names == [["a.de", 10], ["a.en", 8]]
    registered.check_made_from("kept", before, "cache")
    (tmp_path / "a.en").write_text("one\nTWO\n")  # of the same size
    with pytest.raises(ValueError, match="cache holds the tokens of other text of kept: train was .*a.de.* now .*a.de"):
        registered.check_made_from("kept", before, "cache")
    (tmp_path / "a.de").unlink()
    registered.check_made_from("kept", before, "cache")  # nothing to compare with
