"""SeqioStream and examples_of on small in-memory tasks. TensorFlow is imported by the first test that needs it."""

import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest

from vmsst_jax.data.registered import examples_of, task_rates
from vmsst_jax.data.streams import SeqioStream

LENGTH = 16
# A user's module that registers tasks; it lives outside the package, as any user's does.
MODULE = """
import json, pathlib
import seqio
import tensorflow as tf

FIELDS = ("source", "target", "source_lang", "target_lang", "pair_id")
TEXT = seqio.Feature(seqio.PassThroughVocabulary(1), add_eos=False, dtype=tf.string, rank=0)
FEATURES = {"source": TEXT, "target": TEXT}
EXAMPLES = json.loads(pathlib.Path(__file__).with_suffix(".json").read_text("utf-8"))

def register(name, examples, fields=FIELDS):
    def dataset(split, shuffle_files, seed=None):
        columns = {k: [e[k].encode("utf-8", "surrogateescape") if k != "pair_id" else e[k] for e in examples]
                   for k in fields}
        return tf.data.Dataset.from_tensor_slices(
            {k: tf.constant(v, tf.int64 if k == "pair_id" else tf.string, [len(examples)]) for k, v in columns.items()})
    source = seqio.FunctionDataSource(dataset, splits=["train"], num_input_examples={"train": len(examples)})
    seqio.TaskRegistry.add(name, source, preprocessors=[], output_features=FEATURES)

register("made_up_small", EXAMPLES[:100])
register("made_up_large", EXAMPLES[100:])
register("made_up_empty", [])
register("made_up_without_languages", EXAMPLES[:5], ("source", "target", "pair_id"))
register("made_up_latin1", EXAMPLES[:3] + [{**EXAMPLES[3], "target": "caf\\udce9"}])
register("made_up_unknown", [{**EXAMPLES[0], "source_lang": "xx"}])
seqio.MixtureRegistry.add("made_up_mixture", [("made_up_small", 1.0), ("made_up_large", 3.0)])
seqio.MixtureRegistry.add("made_up_idle", [("made_up_small", 0.0), ("made_up_large", 3.0)])
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, examples, tokenizer, languages):
    """A folder with the module and, for another process, the tokenizer."""
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "made_up_corpus.py").write_text(MODULE, "utf-8")
    (folder / "made_up_corpus.json").write_text(json.dumps(examples), "utf-8")
    (folder / "vocabulary.model").write_bytes(tokenizer.serialized)
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))


@pytest.fixture
def make_stream(corpus, tokenizer, languages):
    def make(name="made_up_mixture", **options):
        defaults = {"batch_size": 8, "widths": (10, 16), "max_length": LENGTH, "seed": 3, "snapshot_every": 4}
        modules = ("made_up_corpus",)
        return SeqioStream(name, "train", tokenizer, languages, **{**defaults, **options}, modules=modules)

    return make


def sentences_of(batch):
    """The 2B token rows in sentence order, padding removed."""
    lines = [line for group in batch["tokens"] for line in group]
    return [lines[s][lines[s] != 0].tolist() for s in batch["slot"]]


def digest(batch, info):
    """A batch and its info as plain lists, to be compared exactly."""
    arrays = {k: [g.tolist() for g in v] if k == "tokens" else v.tolist() for k, v in batch.items()}
    return json.loads(json.dumps([arrays, {**info, "pair_id": info["pair_id"].tolist()}]))


def test_examples_come_once_and_in_order(corpus, examples):
    assert list(examples_of("made_up_small", "train", ["made_up_corpus"])) == examples[:100]
    both = list(examples_of("made_up_mixture", "train"))
    assert sorted(e["pair_id"] for e in both) == [e["pair_id"] for e in examples]
    assert task_rates("made_up_mixture", "train") == [("made_up_large", 3.0), ("made_up_small", 1.0)]
    assert task_rates("made_up_small", "train") == [("made_up_small", 1.0)]


def test_batches_hold_the_pairs_they_name(make_stream, examples, tokenizer, languages):
    by_id, stream, truncated, swapped, small = {e["pair_id"]: e for e in examples}, make_stream(), 0, 0, 0
    for _ in range(40):
        batch, info = stream.next()
        rows = sentences_of(batch)
        for i, pair_id in enumerate(info["pair_id"].tolist()):
            example = by_id[pair_id]
            sides, cut = tokenizer.encode([example["source"], example["target"]], LENGTH)
            langs = languages.id(example["source_lang"]), languages.id(example["target_lang"])
            want = [(side.tolist(), lang) for side, lang in zip(sides, langs, strict=True)]
            found = [(rows[i], batch["lang"][i]), (rows[8 + i], batch["lang"][8 + i])]
            assert found in (want, want[::-1])
            truncated, swapped = truncated + cut, swapped + (found != want)
            small += pair_id < examples[100]["pair_id"]
        assert info["real_tokens"] == sum(map(len, rows)) and info["truncated"] == truncated
    assert truncated > 0 and 120 < swapped < 200 and 49 < small < 111  # of 320: four sigma


def test_without_shuffling_the_task_repeats_in_its_order(make_stream, examples):
    stream = make_stream("made_up_small", batch_size=10, shuffle=False)
    drawn = np.concatenate([stream.next()[1]["pair_id"] for _ in range(20)])
    assert drawn.tolist() == [e["pair_id"] for e in examples[:100]] * 2


def test_the_seed_decides_everything(make_stream):
    first, second, other = (make_stream(seed=s) for s in (3, 3, 4))
    batches = [digest(*first.next()) for _ in range(3)]
    assert batches == [digest(*second.next()) for _ in range(3)]
    assert batches != [digest(*other.next()) for _ in range(3)]


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_resumed_stream_goes_on_as_the_straight_one(make_stream, accumulate):
    straight = make_stream(accumulate=accumulate)
    batches = [digest(*straight.next()) for _ in range(12)]
    for cut in (0, 3, 4, 6):  # before, at and after the first snapshot
        stream = make_stream(accumulate=accumulate)
        for _ in range(cut):
            stream.next()
        state = json.loads(json.dumps(stream.state()))
        stream.next()
        resumed = make_stream(accumulate=accumulate)
        resumed.restore(state)
        assert batches[cut:] == [digest(*resumed.next()) for _ in range(12 - cut)], cut


def test_a_new_process_goes_on_as_the_old_one(make_stream, corpus, languages):
    straight = make_stream()
    for _ in range(70):  # 560 pairs: the second epoch of either task has begun
        straight.next()
    state = straight.state()
    code = f"""
import json, sys
sys.path.insert(0, {str(corpus)!r})
from vmsst_jax.data.languages import Languages
from vmsst_jax.data.streams import SeqioStream
from vmsst_jax.data.tokenizer import Tokenizer
stream = SeqioStream("made_up_mixture", "train", Tokenizer.load({str(corpus / "vocabulary.model")!r}),
    Languages({languages.codes!r}), 8, (10, 16), {LENGTH}, 3, modules=["made_up_corpus"], snapshot_every=4)
stream.restore(json.load(sys.stdin))
for _ in range(6):
    batch, info = stream.next()
    arrays = {{k: [g.tolist() for g in v] if k == "tokens" else v.tolist() for k, v in batch.items()}}
    print(json.dumps([arrays, {{**info, "pair_id": info["pair_id"].tolist()}}]))
"""
    done = subprocess.run([sys.executable, "-c", code], input=json.dumps(state), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [digest(*straight.next()) for _ in range(6)]


def test_checksums_tell_streamed_text_apart(make_stream, examples):
    streams = [make_stream("made_up_small", seed=seed).checksums() for seed in (1, 2)]
    text = "".join(f"{e[k]}\n" for e in examples[:100] for k in ("source", "target", "source_lang", "target_lang"))
    wanted = hashlib.sha256(text.encode()).hexdigest()
    assert streams == [{"made_up_small, split 'train', first 1,000 pairs": wanted}] * 2
    assert wanted not in make_stream("made_up_mixture").checksums().values()


def test_refusals(make_stream, corpus):
    with pytest.raises(ValueError, match="'made_up_smal'.*made_up_small.*TASK_MODULES"):
        make_stream("made_up_smal")
    with pytest.raises(ValueError, match=r"made_up_idle draws nothing from made_up_small \(0"):
        task_rates("made_up_idle", "train")
    with pytest.raises(ValueError, match="no split 'test'; it has train"):
        list(examples_of("made_up_small", "test"))
    with pytest.raises(ValueError, match=r"not so: source_lang, target_lang"):
        make_stream("made_up_without_languages")
    with pytest.raises(ValueError, match=f"target of pair {10**12 + 21} is not valid UTF-8"):
        list(examples_of("made_up_latin1", "train"))
    with pytest.raises(ValueError, match=f"target of pair {10**12 + 21} is not valid UTF-8"):
        make_stream("made_up_latin1").next()
    with pytest.raises(ValueError, match="unknown language 'xx'"):
        make_stream("made_up_unknown").next()
    with pytest.raises(ValueError, match="has no examples"):
        make_stream("made_up_empty").next()


def test_positions_of_something_else_are_refused(make_stream):
    stream = make_stream()
    for _ in range(5):
        stream.next()
    state = stream.state()
    with pytest.raises(ValueError, match="batches of 8 pairs, this run has 16"):
        make_stream(batch_size=16).restore(state)
    with pytest.raises(ValueError, match="does not fit made_up_small"):
        make_stream("made_up_small").restore(state)
