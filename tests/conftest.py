"""Every test sees 8 fake CPU devices; compiled programs are kept between runs in .cache/jax."""

import gc
import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Tests compile far more than they compute: unoptimised machine code halves the time.
FLAGS = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
# Eight devices of one core wait long for each other beside other programs, and after 40 seconds XLA would abort.
FLAGS += " --xla_cpu_collective_call_terminate_timeout_seconds=600"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import pytest  # noqa: E402


def parallel_batch(pairs=8, *, length=6, vocab=50, languages=3, groups=1, seed=0):
    """A random bucketed batch made by a plain loop, independent of the package's collation; rows sorted by length."""
    rng = np.random.default_rng(seed)
    sentences = [
        np.append(rng.integers(3, vocab, rng.integers(1, length)), 1).astype(np.int32) for _ in range(2 * pairs)
    ]
    order = sorted(range(2 * pairs), key=lambda i: len(sentences[i]))
    rows_per_group = 2 * pairs // groups
    tokens = []
    for g in range(groups):
        members = order[g * rows_per_group : (g + 1) * rows_per_group]
        block = np.zeros((rows_per_group, max(len(sentences[i]) for i in members)), np.int32)
        for r, i in enumerate(members):
            block[r, : len(sentences[i])] = sentences[i]
        tokens.append(block)
    row = np.array(order, np.int32)
    slot = np.empty_like(row)
    slot[row] = np.arange(2 * pairs)
    return {
        "tokens": tuple(tokens),
        "slot": slot,
        "row": row,
        "lang": rng.integers(0, languages, 2 * pairs).astype(np.int32),
        "text_id": np.arange(2 * pairs, dtype=np.int32),
    }


def document_batch(groups=2, pairs=3, *, lang=None, length=6, vocab=40, languages=3, documents=20, seed=0):
    """A random document batch: neighbours share most of their tokens; no document twice in a group."""
    rng = np.random.default_rng(seed)
    centre = rng.integers(4, vocab, (groups, pairs, length)).astype(np.int32)
    context = np.where(rng.random(centre.shape) < 0.7, centre, rng.integers(4, vocab, centre.shape)).astype(np.int32)
    for side in (centre, context):
        side[..., 0] = 0  # <s>
        side[np.arange(length) > rng.integers(2, length, (groups, pairs, 1))] = 1  # padding
    chosen = np.stack([rng.permutation(documents)[:pairs] for _ in range(groups)])
    return {
        "centre": centre,
        "context": context,
        "lang": np.asarray(rng.integers(0, languages, groups) if lang is None else lang, np.int32),
        "document_id": chosen.astype(np.int32),
    }


@pytest.fixture(scope="module", autouse=True)
def _leave_nothing_behind():
    """Drop each file's recipe, which would stay locked for the next file, and its compiled programs at its end.

    Each program takes some 30 memory maps, of which Linux allows 65,530 a process; XLA aborts where it gets no more.
    """
    import gin
    import jax

    yield
    gin.clear_config()
    jax.clear_caches()
    gc.collect()


@pytest.fixture(scope="session")
def make_documents():
    """The function ``document_batch``."""
    return document_batch


@pytest.fixture(scope="session")
def tiny_ccp():
    """Function (**options) -> a module of kind "ccp" of a few thousand parameters; BertConfig's fields may be given."""
    import dataclasses

    from vmsst_jax import models
    from vmsst_jax.models.bert import BertConfig
    from vmsst_jax.models.ccp import CcpConfig
    from vmsst_jax.models.text_encoder import TextEncoderConfig

    def make(pooling="cls", **options):
        sizes = dict(vocab_size=40, embed_dim=16, num_heads=2, mlp_dim=24, num_layers=1, max_positions=20)
        sizes |= dict(dropout=0.0, attention_dropout=0.0)
        fields = {f.name for f in dataclasses.fields(BertConfig)} - {"num_languages"}
        bert = BertConfig(**{**sizes, **{k: v for k, v in options.items() if k in fields}})
        rest = {k: v for k, v in options.items() if k not in fields}
        encoder = TextEncoderConfig(bert, pooling=pooling)
        return models.build(
            "ccp", CcpConfig(encoder, **{"num_languages": 3, "head_features": 8, "bank_size": 16, **rest})
        )

    return make


@pytest.fixture(scope="session")
def make_batch():
    """The function ``parallel_batch``."""
    return parallel_batch


@pytest.fixture(scope="session")
def tiny_model():
    """Function (kind, **options) -> a module of a few thousand parameters; T5Config's fields may be given too."""
    import dataclasses

    from vmsst_jax import models
    from vmsst_jax.models.t5 import T5Config
    from vmsst_jax.models.vmsst import ModelConfig

    def make(kind="vmsst", **options):
        sizes = dict(vocab_size=50, embed_dim=16, num_heads=2, head_dim=8, mlp_dim=32)
        sizes |= dict(encoder_layers=2, decoder_layers=2)
        t5_fields = {f.name for f in dataclasses.fields(T5Config)}
        t5 = T5Config(**{**sizes, **{k: v for k, v in options.items() if k in t5_fields}})
        rest = {k: v for k, v in options.items() if k not in t5_fields}
        return models.build(kind, ModelConfig(t5=t5, **{"num_languages": 3, **rest}))

    return make
