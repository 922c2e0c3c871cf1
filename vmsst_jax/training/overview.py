"""What a run says of itself before the first step: parameters, devices, and the facts that follow from the recipe."""

from __future__ import annotations

import math

import jax

from vmsst_jax import objectives, runtime
from vmsst_jax.sharding import path_of


def parameter_table(params, depth: int = 2) -> str:
    """Names (to ``depth`` components), shapes or leaf counts, and sizes of abstract or real parameters."""
    groups: dict[str, list] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        groups.setdefault("/".join(path_of(path)[:depth]), []).append(leaf)
    rows = [
        (
            name,
            str(leaves[0].shape) if len(leaves) == 1 else f"{len(leaves)} arrays",
            sum(math.prod(x.shape) for x in leaves),
        )
        for name, leaves in groups.items()
    ]
    width = max(len(name) for name, _, _ in rows)
    lines = [f"  {name:<{width}}  {shape:>16}  {size:>15,}" for name, shape, size in rows]
    return "\n".join([*lines, f"  {'all parameters':<{width}}  {'':>16}  {sum(r[2] for r in rows):>15,}"])


def stream_facts(stream, opened) -> list[str]:
    """What one stream says of its batches and its corpus, and the negatives of an objective on whole batches."""
    facts = opened.facts()
    if objectives.needs_whole_batch(stream.objective):
        facts.insert(1, f"{opened.negatives} negatives for each sentence, from all devices")
    return facts


def text(context, abstract_state, streams, opened, rhythm, start: int) -> str:
    """The whole overview, ready to print."""
    mesh = context.mesh
    lines = [
        parameter_table(abstract_state.params),
        f"on {runtime.devices_line()}: mesh " + " x ".join(f"{axis} {size}" for axis, size in mesh.shape.items()),
        f"vocabulary {context.tokenizer.vocab_size:,} pieces, {len(context.languages)} languages",
    ]
    for stream, data in zip(streams, opened, strict=True):
        lines.append(f"stream {stream.name}: " + "; ".join(stream_facts(stream, data)))
        final = final_kl_weight(stream.objective, rhythm.steps)
        if final is not None:
            lines.append(f"KL weight at step {rhythm.steps:,}: {final:.4g}")
    begins = "resuming after" if start else "starting at"
    lines.append(f"{begins} step {start:,} of {rhythm.steps:,} in {context.model_dir}")
    return "\n".join(lines)


def final_kl_weight(objective, steps: int) -> float | None:
    """The KL weight of the last step, for objectives that anneal one."""
    options = objectives.options(objective)
    if not options.get("kl"):
        return None
    return min(1.0, steps / options["kl_warmup_steps"])
