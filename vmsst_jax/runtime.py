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


def fake_devices(count: int) -> None:
    """Makes JAX see ``count`` CPU devices and nothing else, to compile for a mesh of that size. Before JAX starts."""
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"
    os.environ["JAX_PLATFORMS"] = "cpu"


def topology(name: str) -> list:
    """Compile-only devices of a TPU slice that isn't here, such as "v5e:2x4" or "v4:2x2x4".

    Raises ValueError for a name that the TPU compiler doesn't know, or where it isn't installed.
    """
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")  # else it asks a cloud machine's metadata server, for minutes
    from jax.experimental import topologies

    try:
        return list(topologies.get_topology_desc(platform="tpu", topology_name=name).devices)
    except Exception as error:  # libtpu raises whatever its C++ says
        reason = str(error).strip().splitlines()[0][:200]
        raise ValueError(
            f"no TPU topology {name!r} can be had: {reason}. Names are like v5e:2x4 or v4:2x2x4, and the compiler "
            "comes with the package libtpu (extra `tpu`)"
        ) from error


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
