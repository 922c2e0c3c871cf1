"""What evaluations and reports may know of a run."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

from vmsst_jax.data.languages import Languages
from vmsst_jax.data.tokenizer import Tokenizer


@dataclasses.dataclass
class RunContext:
    """The fixed parts of a run.

    ``embedding`` is the checkpoint's record of how vectors are made (pooling, max_length, ...); ``untrained`` returns
    the parameters that the run started from.
    """

    module: Any
    tokenizer: Tokenizer
    languages: Languages
    mesh: Any
    seed: int
    model_dir: pathlib.Path
    embedding: dict
    untrained: Callable[[], Any]
