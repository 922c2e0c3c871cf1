"""A corpus of real messages in a module of its own, and a recipe that trains on it in seconds."""

import json
import pathlib
import sys

import pytest

MODULE = """
from vmsst_jax.tasks import parallel

parallel.register_tsv("my_messages", {file!r}, languages=("en", "fr"), held_out=0.2)
"""
RECIPE = """
TASK_MODULES = ["my_messages"]
LANGUAGES = ("en", "fr")
MODEL_DIR = "run"
TRAIN_STEPS = 12
train.model_dir = %MODEL_DIR
train.model = @model
train.languages = %LANGUAGES
train.tokenizer = @train_sentencepiece
train.streams = [@Stream()]
train.optimizer = @adafactor()
train.rhythm = @Rhythm()
train.saving = @Saving()
train.max_length = 16
train.evaluators = [@ValidationLoss(), @HeldOut()]
train.reports = [@LatentUse(), @HeldOutReport()]
model.t5 = @T5Config()
T5Config.vocab_size = 400
T5Config.embed_dim = 16
T5Config.num_heads = 2
T5Config.head_dim = 8
T5Config.mlp_dim = 16
T5Config.encoder_layers = 1
T5Config.decoder_layers = 1
train_sentencepiece.task = "my_messages"
train_sentencepiece.vocab_size = 400
Stream.data = @ParallelText()
Stream.objective = @vmsst()
vmsst.kl_warmup_steps = 120
ParallelText.task = "my_messages"
ParallelText.batch_size = 16
ParallelText.max_length = 16
ParallelText.groups = 2
ParallelText.cache = "cache"
validation/ParallelText.split = "validation"
validation/ParallelText.cache = "memory"
ValidationLoss.data = @validation/ParallelText()
ValidationLoss.objective = @vmsst()
ValidationLoss.batches = 2
HeldOut.data = @ParallelText()
HeldOutReport.held_out = @HeldOut()
LatentUse.data = @validation/ParallelText()
LatentUse.batches = 2
adafactor.schedule = @warmup_rsqrt()
warmup_rsqrt.base = 0.01
warmup_rsqrt.warmup = 5
Rhythm.steps = %TRAIN_STEPS
Rhythm.log_every = 1
Rhythm.save_every = 4
Saving.keep_last = 3
"""


@pytest.fixture(scope="session")
def workplace(tmp_path_factory):
    """A folder with ``my_messages.py``, its TSV file of real French messages, and ``tiny.gin``."""
    from vmsst_jax.data.catalogues import read_catalogues

    folder = tmp_path_factory.mktemp("workplace")
    pairs = [(e["source"], e["target"]) for e in read_catalogues(languages=["fr"])["train"]]
    rows = ["\t".join(" ".join(text.split()) for text in pair) for pair in pairs]
    (folder / "fr.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (folder / "my_messages.py").write_text(MODULE.format(file=str(folder / "fr.tsv")), encoding="utf-8")
    (folder / "tiny.gin").write_text(RECIPE, encoding="utf-8")
    return folder


@pytest.fixture
def run_recipe(workplace, monkeypatch):
    """Function (model_dir, *bindings): trains ``tiny.gin`` in this process, in the workplace."""
    from vmsst_jax import train

    monkeypatch.chdir(workplace)
    monkeypatch.setattr(sys, "path", [str(workplace), *sys.path])

    def run(model_dir, *bindings):
        flags = [f"--gin.{b}" for b in (f'MODEL_DIR="{model_dir}"', *bindings)]
        train.main(["--gin_file=tiny.gin", *flags])
        return pathlib.Path(model_dir)

    return run


@pytest.fixture(scope="session")
def records():
    """Function (model_dir) -> the records of its log, without what depends on the clock."""

    def read(model_dir):
        lines = (pathlib.Path(model_dir) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return [{k: v for k, v in json.loads(line).items() if k != "speed"} for line in lines]

    return read
