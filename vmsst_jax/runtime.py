"""Processes and devices: what must be set before JAX starts."""

from __future__ import annotations

import os
import pathlib
import warnings


def start(cache_dir: str | None = None) -> None:
    """Prepares JAX in this process: compiled programs are kept in ``cache_dir`` (default: ~/.cache/vmsst_jax/jax).

    An existing JAX_COMPILATION_CACHE_DIR wins. Call it before the first JAX computation.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow only reads text here; its view of GPUs is noise
    import jax

    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        folder = pathlib.Path(cache_dir or pathlib.Path.home() / ".cache" / "vmsst_jax" / "jax")
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 1.0)
    # Donated buffers that XLA cannot reuse are not the user's concern.
    warnings.filterwarnings("ignore", message="Some donated buffers were not usable")


def is_main_process() -> bool:
    """Whether this process writes logs and reports."""
    import jax

    return jax.process_index() == 0


def devices_line() -> str:
    """What JAX runs on, in words: "8 cpu devices in 1 process"."""
    import jax

    def many(n, noun, plural):
        return f"{n} {noun if n == 1 else plural}"

    devices = jax.devices()
    kind = devices[0].device_kind if devices[0].platform != "cpu" else "cpu"
    processes = many(jax.process_count(), "process", "processes")
    return f"{many(len(devices), f'{kind} device', f'{kind} devices')} in {processes}"
