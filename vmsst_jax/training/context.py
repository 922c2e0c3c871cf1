"""What evaluations and reports may know of a run."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

from vmsst_jax.data.languages import Languages
from vmsst_jax.data.tokenizer import Tokenizer


@dataclasses.dataclass
class RunContext:
    """The fixed parts of a run.

    ``embedding`` is the checkpoint's record of how vectors are made (pooling, max_length, ...); ``untrained`` returns
    the parameters that the run started from; ``data`` holds {where training text comes from: its SHA-256}, of streams
    that read all of it at the start.
    """

    module: Any
    tokenizer: Tokenizer
    languages: Languages
    mesh: Any
    seed: int
    model_dir: pathlib.Path
    embedding: dict
    untrained: Callable[[], Any]
    data: dict[str, str] = dataclasses.field(default_factory=dict)


class Report(NamedTuple):
    """What a report of a finished run says: ``text`` for people, ``scores`` by name for programs (``report.json``)."""

    text: str
    scores: dict[str, float]
