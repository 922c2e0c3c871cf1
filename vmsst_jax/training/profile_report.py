"""What ``profiling.profile`` found, for people and for programs."""

from __future__ import annotations

import json
import os

from vmsst_jax.disk import write_atomically, writing


def text(found: dict, memory_gb: float | None = None) -> str:
    """A page of text; with ``memory_gb``, whether a device of that memory (in 10^9 bytes) holds each stream's step."""
    where, counts = found["devices"], found["bytes_per_device"]
    mesh = " x ".join(f"{name} {size}" for name, size in where["mesh"].items())
    lines = [
        f"{where['count']} x {where['kind']}, mesh {mesh}",
        f"{found['parameters']:,} parameters",
        f"on each device: parameters {_size(counts['parameters'])}, optimizer {_size(counts['optimizer'])}, "
        f"model state {_size(counts['model_state'])}, gradients {_size(counts['gradients'])}",
    ]
    for name, stream in found["streams"].items():
        lines += ["", f"stream {name}", *(f"  {line}" for line in _stream(stream, where, memory_gb))]
    return "\n".join(lines)


def _stream(stream: dict, where: dict, memory_gb: float | None) -> list[str]:
    flops, seconds, analytic, memory = stream["flops"], stream["seconds"], stream["analytic"], stream["memory"]
    lines = [
        f"{stream['examples']:,} examples and {stream['tokens']:,} tokens (padding included) an update, in "
        f"{stream['dtype']}",
        f"matrix products: {flops['model'] / 1e12:,.3f} TFLOP by the model, {flops['executed'] / 1e12:,.3f} as "
        "executed (what remat makes again included)"
        + (f"; XLA counts {flops['xla'] / 1e12:,.3f}, a loop's body once" if flops["xla"] else ""),
        *(_collective(kind, total) for kind, total in stream["collectives"].items()),
    ]
    if not stream["collectives"] and where["count"] > 1:
        lines.append("nothing crosses devices")
    lines.append(f"tracing took {seconds['trace']:.1f} s, compiling {seconds['compile']:.1f} s")
    lines.append(
        f"memory by counting: {_size(analytic['total'])} a device (gradients {_size(analytic['gradients'])}, kept for "
        f"the backward pass {_size(analytic['kept_for_backward'])}); short-lived arrays come on top"
    )
    if memory:
        lines.append(
            f"memory by the compiler: {_size(memory['total'])} a device (arguments {_size(memory['arguments'])}, "
            f"temporaries {_size(memory['temporaries'])})"
        )
    else:
        lines.append("memory by the compiler: not given, a CPU computes bfloat16 in float32")
    if memory_gb:
        needed = (memory or analytic)["total"]
        verdict = "fits" if needed <= memory_gb * 1e9 else "does not fit"
        lines.append(f"{verdict} {memory_gb:g} GB {'by the compiler' if memory else 'by counting'}")
    if measured := stream.get("measured"):
        lines.append(
            f"measured: {measured['seconds']:.3f} s a step, {measured['examples_per_second']:,.1f} examples/s, "
            f"{measured['flops_per_second'] / 1e9:,.1f} GFLOP/s, {measured['utilization']:.0%} of the "
            f"{measured['matmul_flops_per_second'] / 1e9:,.1f} that plain matrix products reach"
        )
    return lines


def _collective(kind: str, total: dict) -> str:
    return f"{kind}: {total['calls']:,.0f} a step, {_size(total['bytes'])} on each device"


def _size(count: float) -> str:
    return f"{count / 1e9:,.2f} GB" if count >= 1e8 else f"{count / 1e6:,.2f} MB"


def write(path: str | os.PathLike, found: dict) -> None:
    """Writes all figures as JSON; OSError where the disk is full or the folder missing."""
    with writing(path):
        write_atomically(path, json.dumps(found, indent=1).encode())
