"""A run from a recipe's parts, fresh, resumed or warm-started: ``train`` is what the command of that name calls."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Callable, Sequence

import numpy as np

from vmsst_jax import checks, company, models, runtime, sharding
from vmsst_jax.data import tokenizers
from vmsst_jax.data.batching import Share
from vmsst_jax.data.languages import Languages
from vmsst_jax.data.prefetch import Prefetcher
from vmsst_jax.data.tokenizer import Tokenizer
from vmsst_jax.disk import write_atomically
from vmsst_jax.models.bert import BertConfig
from vmsst_jax.models.ccp import CcpConfig
from vmsst_jax.models.dual_encoder import DualEncoderConfig
from vmsst_jax.models.seq2seq import Seq2SeqConfig
from vmsst_jax.models.t5 import T5Config
from vmsst_jax.models.text_encoder import TextEncoderConfig
from vmsst_jax.models.vmsst import ModelConfig
from vmsst_jax.training import checkpoint, loop, overview, state, warm_start
from vmsst_jax.training.context import RunContext
from vmsst_jax.training.leaving import how_to_try, write_reports
from vmsst_jax.training.logging import Log, SilentLog
from vmsst_jax.training.same_config import FREE_BINDINGS, check_processes
from vmsst_jax.training.step import check_objectives, compiled_step, train_step
from vmsst_jax.training.watchdog import Watch, Watchdog


@dataclasses.dataclass(frozen=True)
class Stream:
    """One source of updates: ``data`` (opens a stream of batches), an ``objective`` (function on a bound module),
    ``accumulate`` micro-batches per update, and its ``weight`` where streams are drawn at random."""

    data: object
    objective: Callable
    name: str = "parallel"
    accumulate: int = 1
    weight: float = 1.0

    def __post_init__(self):
        checks.whole("Stream.accumulate", self.accumulate)
        checks.number("Stream.weight", self.weight)
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f"Stream.name is {self.name!r}; wanted a name in quotes")


@dataclasses.dataclass(frozen=True)
class Saving:
    """Which checkpoints stay: the last ``keep_last``, every ``keep_every``-th step, the best by ``best_metric``."""

    keep_last: int = 3
    keep_every: int | None = None
    best_metric: str | None = None
    best_mode: str = "max"


def model(
    num_languages: int,
    *,
    kind: str = "vmsst",
    t5: T5Config = T5Config(),
    language_encoders: int = 1,
    routing_seed: int = 0,
    per_language_stacks: bool = False,
    **options,
):
    """The module of a recipe.

    Args:
      num_languages: length of the run's language table.
      kind: "vmsst", "bitranslation" or "contrastive".
      language_encoders: more than one is the ablation "4 enc.": languages are allotted at random by ``routing_seed``,
        as evenly as possible; the allotment is kept in the checkpoint.
      per_language_stacks: the ablation "full enc., full dec.": one language encoder and one decoder per language.
      options: the other fields of ``ModelConfig``.
    """
    if per_language_stacks:
        options["decoder_of_language"] = tuple(range(num_languages))
        options["encoder_of_language"] = tuple(range(num_languages)) if kind == "vmsst" else ()
    elif language_encoders > 1:
        order = np.random.default_rng(routing_seed).permutation(num_languages)
        options["encoder_of_language"] = tuple(int(i) % language_encoders for i in np.argsort(order))
    return models.build(kind, ModelConfig(t5=t5, num_languages=num_languages, **options))


def encoder_model(
    num_languages: int, *, encoder: TextEncoderConfig = TextEncoderConfig(), language_embeddings: bool = False
):
    """A sentence encoder alone, for ``masked_lm``; with ``language_embeddings`` every token gets its language's vector,
    as XLM's bilingual models have it, otherwise it has no use for the language table."""
    if language_embeddings:
        backbone = dataclasses.replace(encoder.backbone, num_languages=num_languages)
        encoder = dataclasses.replace(encoder, backbone=backbone)
    return models.build("encoder", encoder)


def translation_model(num_languages: int, *, backbone: BertConfig, eos_id: int = 1):
    """An encoder and a decoder of the geometry ``backbone``; see ``Seq2SeqConfig``."""
    backbone = dataclasses.replace(backbone, num_languages=num_languages)
    return models.build("seq2seq", Seq2SeqConfig(backbone, eos_id))


def ccp_model(num_languages: int, **options):
    """An encoder in its pre-training by CCP. ``options``: the other fields of ``CcpConfig``, ``encoder`` among them."""
    return models.build("ccp", CcpConfig(num_languages=num_languages, **options))


def dual_encoder_model(num_languages: int, **options):
    """An encoder for questions and one for passages, without use for the language table.

    ``options``: the fields of ``DualEncoderConfig``.
    """
    return models.build("dual_encoder", DualEncoderConfig(**options))


def train(
    model_dir: str,
    model: Callable,
    languages: Sequence[str],
    tokenizer: Callable[[], Tokenizer],
    streams: Sequence[Stream],
    optimizer,
    rhythm: loop.Rhythm,
    saving: Saving = Saving(),
    schedule: str = "in_turn",
    seed: int = 0,
    mesh: Callable = sharding.make_mesh,
    max_length: int = 32,
    evaluators: Sequence[Callable] = (),
    reports: Sequence[Callable] = (),
    init_checkpoint: str | None = None,
    init_required: str | None = None,
    init_allow_missing: Sequence[str] = (),
    watch: Watch = Watch(),
    config_text: str = "",
):
    """Trains, or goes on training, in ``model_dir``.

    Args:
      model: function (num_languages) -> Flax module.
      languages: codes in the order of their ids.
      tokenizer: function () -> Tokenizer, called for a fresh run; a resumed one takes the checkpoint's.
      optimizer: an optax transformation.
      schedule: "in_turn" or "random", which stream each update takes.
      mesh: function () -> device mesh.
      max_length: most tokens of a sentence when the trained model embeds text.
      evaluators: functions (RunContext, state, step) -> metrics, called every ``rhythm.evaluate_every`` steps; their
        ``prepare`` (RunContext) is called before the first one, to read data and fail early.
      reports: functions (RunContext, state) -> ``context.Report``, called after the last step; the texts are printed
        and kept in ``report.txt``, the scores in ``report.json``, which a finished run always has.
      init_checkpoint: a run whose parameters to start from; ``init_allow_missing``: regular expressions for names that
        may differ. ``init_required`` makes it an error to leave it out, with this text as advice.
      watch: when the run counts as hanging.
      config_text: the configuration, kept in every checkpoint and compared on resuming.
    """
    check_settings(model_dir, streams, schedule, seed, max_length, saving, rhythm, evaluators)
    if init_required and not init_checkpoint:
        raise ValueError(f"this recipe starts from a checkpoint and INIT_CHECKPOINT is not set: {init_required}")
    check_processes(config_text, checkpoint.versions())
    mesh, folder = mesh(), pathlib.Path(model_dir)
    checkpoints, saved = open_checkpoints(folder, saving, config_text)
    table = Languages(saved["languages"] if saved else languages)
    module = model(len(table))
    check_streams(streams, module, table, mesh)
    vocabulary = tokenizers.from_record(saved["tokenizer"]) if saved else shared_vocabulary(tokenizer)
    module = fitted(module, vocabulary)
    embedding = {**models.pooled_by(module), "normalize": False, "prefix": "", "max_length": max_length}

    def fresh():
        init = None
        if init_checkpoint:
            init = warm_start.from_checkpoint(init_checkpoint, vocabulary, table, init_allow_missing)
        return warm_start.initial_state(module, optimizer, seed, mesh, init)

    context = RunContext(module, vocabulary, table, mesh, seed, folder, embedding, lambda: fresh().params)
    opened = open_streams(streams, vocabulary, table, seed, mesh)
    target = state.abstract_state(module, optimizer, mesh)
    current, start = resume(checkpoints, target, streams, opened) if saved else (fresh(), 0)
    keep_files(folder, vocabulary, config_text)
    log = Log(folder, rhythm.steps, start) if runtime.is_main_process() else SilentLog()
    log.say(overview.text(context, target, streams, opened, rhythm, start))
    if start >= rhythm.steps > 0:
        log.say(f"step {start:,} is trained already and TRAIN_STEPS is {rhythm.steps:,}: nothing to train")
    for evaluator in evaluators:
        evaluator.prepare(context)
    text = {stream.name: data.checksums() for stream, data in zip(streams, opened, strict=True)}
    context.data |= {source: sha256 for found in text.values() for source, sha256 in found.items()}
    dog, rate = Watchdog(watch, "vmsst_jax.train"), getattr(optimizer, "schedule", None)
    settings = {"rhythm": rhythm, "schedule": schedule, "seed": seed, "start": start, "dog": dog, "rate": rate}
    fixed = host_record(context, text, config_text)
    # Last, as their threads have to be closed whatever fails from here on.
    feeds = [make_feed(i, s, opened[i], module, optimizer, target, mesh) for i, s in enumerate(streams)]
    drive(context, current, feeds, checkpoints, log, saving, evaluators, reports, fixed, settings)


def drive(context, current, feeds, checkpoints, log: Log, saving, evaluators, reports, fixed: dict, settings):
    """Runs the loop with its ``settings``, then the reports, and closes everything however that ends.

    ``fixed``: what every checkpoint keeps beside the arrays and the data positions.
    """

    def host():
        return {**fixed, "data": {feed.name: feed.batches.state() for feed in feeds}}

    def evaluate(now, step):
        scores = {name: score for evaluator in evaluators for name, score in evaluator(context, now, step).items()}
        if saving.best_metric and saving.best_metric not in scores:
            checkpoints.save(step, now, host())
            raise ValueError(
                f"Saving.best_metric is {saving.best_metric!r}, and the evaluators give {', '.join(sorted(scores))}. "
                f"Step {step} is saved: name one of these, and the same command goes on"
            )
        return scores

    log.say("compiling; the first steps take longer")
    try:
        current, stopped = loop.fit(
            current, feeds, checkpoints=checkpoints, host=host, evaluate=evaluate, log=log, **settings
        )
        if not stopped:
            log.say(how_to_try(context))
            write_reports(reports, context, current, log, settings["rhythm"].steps)
    finally:
        for feed in feeds:
            feed.batches.close()
        checkpoints.close()
        log.close()


def check_settings(model_dir, streams, schedule, seed, max_length, saving: Saving, rhythm, evaluators) -> None:
    """What can be wrong with a recipe before anything is read or made; ValueError says what."""
    if not isinstance(model_dir, str | pathlib.Path) or not str(model_dir):
        raise ValueError(f"MODEL_DIR is {model_dir!r}; wanted the name of a folder, as in 'runs/mine'")
    if not streams:
        raise ValueError("train.streams is empty; wanted at least one @Stream()")
    names = [stream.name for stream in streams]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"several streams are called {', '.join(twice)}: give each its own Stream.name")
    loop.check_schedule(schedule, [stream.weight for stream in streams])
    if not isinstance(seed, int) or seed < 0:
        raise ValueError(f"train.seed is {seed!r}; wanted a whole number of at least 0")
    if not isinstance(max_length, int) or max_length < 2:
        raise ValueError(f"train.max_length is {max_length!r}; wanted at least 2: a token and the end of the sentence")
    if saving.best_metric and rhythm.evaluate_every and not evaluators:
        raise ValueError(f"Saving.best_metric is {saving.best_metric!r}, but train.evaluators is empty")


def check_streams(streams: Sequence[Stream], module, table: Languages, mesh) -> None:
    """ValueError where a stream's objective, data and accumulation don't go together, or with the model."""
    shards = sharding.batch_shards(mesh)
    check_objectives(streams, module, mesh)
    for stream in streams:  # what looks into the corpora comes last
        stream.data.check(table, shards, stream.accumulate)


def open_checkpoints(folder: pathlib.Path, saving: Saving, config_text: str):
    """(Checkpoints, host record of the newest whole one or None). ValueError if it has another configuration."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"MODEL_DIR is {str(folder)!r}, and no folder can be made there ({error.strerror}): name a folder that is "
            "there already, or a new one"
        ) from None
    checkpoints = checkpoint.Checkpoints(folder, **dataclasses.asdict(saving))
    if not checkpoints.steps:
        return checkpoints, None
    saved = checkpoint.read_host(folder)
    if "origin" in saved:
        raise ValueError(
            f"{folder} holds a converted model, not a run that could go on: name it as train.init_checkpoint, "
            "and give another MODEL_DIR"
        )
    checkpoint.check_same_config(saved["gin"], config_text, ignore=FREE_BINDINGS)
    copy = folder / "tokenizer.model"
    if copy.is_file() and hashlib.sha256(copy.read_bytes()).hexdigest() != saved["tokenizer"]["sha256"]:
        raise ValueError(
            f"{copy} is not the vocabulary that the checkpoints in {folder} were trained with (its sha256 does not "
            f"begin with {saved['tokenizer']['sha256'][:12]}): remove it, or train in another model directory"
        )
    return checkpoints, saved


def resume(checkpoints, target, streams: Sequence[Stream], opened):
    """Puts the newest whole checkpoint's positions into the ``opened`` streams; returns (its state, its step)."""
    current, saved, start = checkpoints.restore(target)
    names = [stream.name for stream in streams]
    if sorted(names) != sorted(saved["data"]):
        raise ValueError(f"the checkpoint holds positions of streams {sorted(saved['data'])}, the recipe has {names}")
    for name, data in zip(names, opened, strict=True):
        data.restore(saved["data"][name])
        check_text(name, saved.get("text", {}).get(name), data)
    return current, start


def check_text(name: str, saved: dict[str, str] | None, data) -> None:
    """ValueError unless ``data``, of the stream ``name``, holds the text with the checksums that were ``saved``.

    None is a checkpoint that kept none.
    """
    if saved is None or saved == (found := data.checksums()):
        return
    changed = [source for source in {**saved, **found} if saved.get(source) != found.get(source)]
    raise ValueError(
        f"the text of the stream {name!r} is not what the checkpoint was trained on: {', '.join(changed)} (SHA-256 "
        f"{saved.get(changed[0], 'none'):.12} then, {found.get(changed[0], 'none'):.12} now). Give the same text "
        "(a kept cache of it will do), or train on this one in a new model directory; train.init_checkpoint may name "
        "this run"
    )


def open_streams(streams: Sequence[Stream], vocabulary: Tokenizer, table: Languages, seed: int, mesh) -> list:
    """The streams' data before the first batch; of a batch's rows they read what this process's devices hold."""
    shards = sharding.batch_shards(mesh)
    # Process 0 first, so that caches in a shared folder are made once.
    opened = company.here().first(lambda: [s.data.open(vocabulary, table, seed, shards, s.accumulate) for s in streams])
    for data in opened:
        if hasattr(data, "share"):
            data.share = Share(shards, sharding.held_shards(mesh))
    return opened


def shared_vocabulary(tokenizer: Callable[[], Tokenizer]) -> Tokenizer:
    """``tokenizer()`` of process 0 on all of them, as training one need not give the same everywhere."""
    if company.here().count == 1:
        return tokenizer()
    return tokenizers.from_record(
        json.loads(company.here().shared(lambda: json.dumps(tokenizers.to_record(tokenizer()))))
    )


def keep_files(folder: pathlib.Path, vocabulary: Tokenizer, config_text: str) -> None:
    """Copies for people to look at; a run itself reads its checkpoints only."""
    if runtime.is_main_process():
        write_atomically(folder / "tokenizer.model", vocabulary.serialized)
        write_atomically(folder / "config.gin", config_text.encode())


def fitted(module, vocabulary: Tokenizer):
    """``module`` for a vocabulary; ValueError where it lacks rows for pieces, or reads padding as something else."""
    if vocabulary.vocab_size > module.vocab_size:
        raise ValueError(
            f"the vocabulary has {vocabulary.vocab_size} pieces and the model rows for {module.vocab_size}: set "
            f"T5Config.vocab_size (BertConfig.vocab_size) to at least {vocabulary.vocab_size}, or give the vocabulary "
            "that fits"
        )
    if vocabulary.pad_id != (pad_id := getattr(module, "pad_id", 0)):
        raise ValueError(
            f"the vocabulary pads with {vocabulary.pad_id}, the model with {pad_id}: set BertConfig.pad_id to "
            f"{vocabulary.pad_id}, or give the vocabulary that fits"
        )
    if (eos_id := getattr(module, "eos_id", None)) not in (None, *vocabulary.suffix_ids[-1:]):
        raise ValueError(
            f"the vocabulary ends sentences with {vocabulary.suffix_ids[-1]}, the model with {eos_id}: set "
            f"translation_model.eos_id to {vocabulary.suffix_ids[-1]}, or give the vocabulary that fits"
        )
    return models.of_vocabulary(module, vocabulary.vocab_size)


def make_feed(index: int, stream: Stream, data, module, optimizer, target, mesh) -> loop.Feed:
    """A stream with its prefetching thread and its compiled step."""
    step = train_step(module, stream.objective, optimizer, stream=index, accumulate=stream.accumulate)
    axis = 1 if stream.accumulate > 1 else 0
    batches = Prefetcher(data, lambda batch: sharding.put_batch(batch, mesh, axis))
    return loop.Feed(stream.name, batches, compiled_step(step, target, mesh), stream.weight)


def host_record(context: RunContext, text: dict[str, dict[str, str]], config_text: str) -> dict:
    """What a checkpoint keeps beside the arrays, but for the data positions; ``text``: the streams' checksums."""
    vocabulary = context.tokenizer
    return {
        "model": models.describe(context.module),
        "languages": list(context.languages.codes),
        "tokenizer": tokenizers.to_record(vocabulary),
        "embedding": context.embedding,
        "text": text,
        "gin": config_text,
    }
