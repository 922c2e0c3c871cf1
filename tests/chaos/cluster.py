"""Runs of several processes on this machine, for the scripts beside this file: corpora, recipes, starting, waiting."""

from __future__ import annotations

import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODULE = """
import pathlib
from vmsst_jax.tasks import documents, parallel

here = pathlib.Path(__file__).parent
parallel.register_tsv("made_up", str(here / "pairs.tsv"), languages=("en", "fr"))
documents.register_text("made_up_documents", {"de": str(here / "de.txt"), "en": str(here / "en.txt")},
                        layout="sentences")
"""
COMMON = """
TASK_MODULES = ["made_up"]
MODEL_DIR = "run"
TRAIN_STEPS = 50
Rhythm.log_every = 1
Rhythm.save_every = 10
Saving.keep_last = 2
train.evaluators = []
train.reports = []
"""
VMSST = """
LANGUAGES = ("en", "fr")
train.model_dir = %MODEL_DIR
train.model = @model
train.languages = %LANGUAGES
train.tokenizer = @train_sentencepiece
train.streams = [@Stream()]
train.optimizer = @adafactor()
train.rhythm = @Rhythm()
train.saving = @Saving()
train.max_length = 16
model.t5 = @T5Config()
T5Config.vocab_size = 90
T5Config.embed_dim = 16
T5Config.num_heads = 2
T5Config.head_dim = 8
T5Config.mlp_dim = 16
T5Config.encoder_layers = 1
T5Config.decoder_layers = 1
train_sentencepiece.task = "made_up"
train_sentencepiece.vocab_size = 90
Stream.data = @ParallelText()
Stream.objective = @vmsst()
vmsst.kl_warmup_steps = 100
ParallelText.task = "made_up"
ParallelText.batch_size = 16
ParallelText.max_length = 16
ParallelText.groups = 2
ParallelText.cache = "cache"
adafactor.schedule = @warmup_rsqrt()
warmup_rsqrt.base = 0.01
warmup_rsqrt.warmup = 5
Rhythm.steps = %TRAIN_STEPS
"""
CCP = """
include "include/ccp.gin"
TASK = "made_up_documents"
LANGUAGES = ("de", "en")
ACCUMULATE = 2
train.tokenizer = @train_xlmr_sentencepiece
train_xlmr_sentencepiece.task = %TASK
train_xlmr_sentencepiece.vocab_size = 80
train.max_length = 12
BertConfig.vocab_size = 80
BertConfig.embed_dim = 16
BertConfig.num_heads = 2
BertConfig.mlp_dim = 24
BertConfig.num_layers = 2
BertConfig.max_positions = 34
TextEncoderConfig.pooling = "mean"
ccp_model.bank_size = 64
Documents.groups = 4
Documents.pairs = 4
Documents.max_length = 12
Documents.min_pieces = 1
MaskedText.batch_size = 8
MaskedText.length = 32
masked_lm.mask_id = 79
warmup_linear.peak = 1e-3
warmup_linear.warmup = 2
warmup_linear.total = 1000
"""


def make_workplace(folder: pathlib.Path) -> pathlib.Path:
    """Writes made-up corpora, the module that registers them, and the recipes vmsst.gin and ccp.gin."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(0)

    def words(count):
        return ["".join(rng.choice("abdefgiklmnoprstu") for _ in range(rng.randint(2, 7))) for _ in range(count)]

    tongues = {code: words(60) for code in ("en", "fr", "de")}
    lines = []
    for _ in range(2000):
        meant = rng.choices(range(60), k=rng.randint(2, 9))
        lines.append("\t".join(" ".join(tongues[code][i] for i in meant) for code in ("en", "fr")))
    (folder / "pairs.tsv").write_text("\n".join(lines) + "\n")
    for code in ("de", "en"):
        documents = ["\n".join(" ".join(rng.choices(tongues[code], k=5)) for _ in range(8)) for _ in range(60)]
        (folder / f"{code}.txt").write_text("\n\n".join(documents) + "\n")
    (folder / "made_up.py").write_text(MODULE)
    (folder / "vmsst.gin").write_text(VMSST + COMMON)
    # The included recipe comes first: what follows it wins.
    (folder / "ccp.gin").write_text(CCP + COMMON)
    return folder


def free_port() -> int:
    """A port that is free together with the next one."""
    while True:
        with socket.socket() as a, socket.socket() as b:
            a.bind(("", 0))
            try:
                b.bind(("", a.getsockname()[1] + 1))
            except OSError:
                continue
            return a.getsockname()[1]


class Run:
    """``count`` processes of one run, which share ``devices`` fake CPU devices. Their output goes to files."""

    def __init__(self, workplace, recipe: str, model_dir, *bindings: str, count=1, devices=4):
        self.model_dir, self.count = pathlib.Path(model_dir), count
        self.logs = [workplace / f"{self.model_dir.name}.{i}.log" for i in range(count)]
        each = devices // count
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(workplace), str(ROOT)]),
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={each} --xla_backend_optimization_level=0",
            "JAX_COMPILATION_CACHE_DIR": str(workplace / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "PYTHONUNBUFFERED": "1",
            "PYTHONFAULTHANDLER": "1",
        }
        flags = [f"--gin.{b}" for b in (f'MODEL_DIR="{self.model_dir}"', *bindings)]
        if count > 1:
            flags += [
                f"--coordinator=localhost:{free_port()}",
                f"--processes={count}",
                "--lost_after=30",
                "--join_timeout=40",
            ]
        self.processes = []
        for i, log in enumerate(self.logs):
            own = [f"--process_id={i}"] if count > 1 else []
            command = [sys.executable, "-m", "vmsst_jax.train", f"--gin_file={recipe}", *flags, *own]
            with log.open("w") as out:
                self.processes.append(
                    subprocess.Popen(command, cwd=workplace, env=environment, stdout=out, stderr=subprocess.STDOUT)
                )

    def output(self, i: int) -> str:
        return self.logs[i].read_text(errors="replace")

    def alive(self) -> bool:
        return all(process.poll() is None for process in self.processes)

    def wait(self, seconds: float = 600, without=()) -> list[int | None]:
        """The exit codes; TimeoutError, after killing all, if some process (but ``without``) hasn't ended by then."""
        deadline = time.monotonic() + seconds
        for i, process in enumerate(self.processes):
            if i in without:
                continue
            try:
                process.wait(max(deadline - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                self.kill()
                raise TimeoutError(f"process {i} hasn't ended after {seconds} s") from None
        return [process.poll() for process in self.processes]

    def kill(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def finish(self) -> None:
        """Waits for success."""
        codes = self.wait()
        if any(codes):
            raise SystemExit(f"exit codes {codes}:\n" + "\n".join(self.output(i)[-3000:] for i in range(self.count)))

    def resumed_at(self) -> int | None:
        """After which step process 0 says that it goes on; None while it has said nothing."""
        found = re.search(r"(?:resuming after|starting at) step ([\d,]+) of", self.output(0))
        return int(found[1].replace(",", "")) if found else None


def records(model_dir) -> list[dict]:
    """The records of a run's log, without what depends on the clock."""
    log = pathlib.Path(model_dir) / "metrics.jsonl"
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    return [{k: v for k, v in json.loads(line).items() if k != "speed"} for line in lines if line.endswith("\n")]


def last_step(model_dir) -> int:
    found = records(model_dir)
    return found[-1]["step"] if found else 0


def saved_steps(model_dir) -> list[int]:
    """Steps whose checksums are written."""
    folder = pathlib.Path(model_dir) / "checkpoints"
    places = folder.glob("*/sha256sums.txt") if folder.is_dir() else []
    return sorted(int(file.parent.name) for file in places if file.parent.name.isdigit())


if __name__ == "__main__":
    make_workplace(pathlib.Path(sys.argv[1]))
