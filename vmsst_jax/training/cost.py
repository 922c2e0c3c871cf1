"""What a program costs, counted before it runs: matrix products in its jaxpr, traffic between devices in its HLO."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator

import jax
import numpy as np
from jax.extend import core

# Bytes of HLO's element types.
ELEMENT_BYTES = {
    "pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "f16": 2, "bf16": 2, "s32": 4, "u32": 4, "f32": 4, "s64": 8,
    "u64": 8, "f64": 8,
}  # fmt: skip
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")


def matmul_flops(function: Callable, *args, writing: bool = True) -> float:
    """Floating-point operations of all matrix products in one call, over all devices: 2 m n k each.

    Counted in the function's jaxpr, loop bodies as often as they run (XLA's own count takes a loop's body once);
    everything but matrix products is left out, as is usual where a share of the hardware's peak is computed. A
    ``while`` loop that may end early, as translations are written, counts with the most turns that it can take.

    Args:
      function: a JAX function.
      args: its arguments, or ``jax.ShapeDtypeStruct`` in their place.
      writing: whether ``while`` loops count; they have no gradient.

    Raises:
      ValueError: a ``while`` loop with products inside that no counter ends.
    """
    return _flops(jax.make_jaxpr(function)(*args).jaxpr, writing)


def _flops(jaxpr, writing: bool) -> float:
    return sum(_flops_of(equation, writing) for equation in jaxpr.eqns)


def _flops_of(equation, writing: bool) -> float:
    name, params = equation.primitive.name, equation.params
    if name == "dot_general":
        (contracting, _), _ = params["dimension_numbers"]
        shape = equation.invars[0].aval.shape
        return 2.0 * equation.outvars[0].aval.size * math.prod(shape[i] for i in contracting)
    if name == "while" and not writing:
        return 0.0
    inner = [_flops(jaxpr, writing) for jaxpr in _jaxprs(params)]
    if not any(inner):
        return 0.0
    if name == "cond":
        return max(inner)
    times = params["length"] if name == "scan" else most_turns(equation) if name == "while" else 1
    if name == "shard_map":  # its shapes are those of one device
        axes = params.get("manual_axes", params["mesh"].axis_names)
        times = math.prod(params["mesh"].shape[axis] for axis in axes)
    return times * sum(inner)


def most_turns(equation) -> int:
    """How often a ``while`` loop runs at most: its condition holds only while a counter is below a constant.

    The counter is taken to grow by 1 a turn, from where it begins if that is a constant, else from 0.

    Raises:
      ValueError: its condition has no such counter.
    """
    condition, constants = equation.params["cond_jaxpr"].jaxpr, equation.params["cond_nconsts"]
    before = len(equation.invars) - len(condition.invars[constants:])
    begins = dict(zip(condition.invars[constants:], equation.invars[before:], strict=True))
    for test in (equation for equation in condition.eqns if equation.primitive.name == "lt"):
        counter, limit = test.invars
        if isinstance(limit, core.Literal) and not isinstance(counter, core.Literal) and counter in begins:
            first = begins[counter]
            if not first.aval.shape and np.issubdtype(first.aval.dtype, np.integer):
                return int(limit.val) - (int(first.val) if isinstance(first, core.Literal) else 0)
    raise ValueError("a while loop holds matrix products: how often they are made is known only when it runs")


def _jaxprs(params: dict) -> Iterator:
    for value in params.values():
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, core.ClosedJaxpr):
                yield item.jaxpr
            elif isinstance(item, core.Jaxpr):
                yield item


def collective_bytes(hlo: str) -> dict[str, dict[str, float]]:
    """Traffic of a compiled program, as one device sees it: {kind: {"calls": n, "bytes": b}} of one run.

    Bytes are those of the results (all-reduce: what is summed; all-gather: what comes together). Calls inside loops
    count as often as the loop runs where the compiler knows that, once where it doesn't.

    Args:
      hlo: ``compiled.as_text()``.
    """
    bodies, entry = _computations(hlo)
    totals = {kind: {"calls": 0.0, "bytes": 0.0} for kind in COLLECTIVES}

    def walk(name: str, times: float):
        for line in bodies.get(name, ()):
            found = re.search(r"= (.+?) (" + "|".join(COLLECTIVES) + r")(-start)?\(", line)
            if found:
                totals[found[2]]["calls"] += times
                totals[found[2]]["bytes"] += times * _result_bytes(found[1], bool(found[3]))
            count = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', line)
            inside = times * int(count[1]) if count and " while(" in line else times
            for called in re.findall(
                r"(?:body|condition|calls|to_apply|branch_computations)=\{?([^,}\s]+(?:, ?%[^,}\s]+)*)", line
            ):
                for other in called.split(","):
                    walk(other.strip().lstrip("%"), inside)

    walk(entry, 1.0)
    return {kind: total for kind, total in totals.items() if total["calls"]}


def _computations(hlo: str) -> tuple[dict[str, list[str]], str]:
    """(lines of each computation by name, the entry's name)."""
    bodies, name, entry = {}, None, ""
    for line in hlo.splitlines():
        head = re.match(r"(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$", line)
        if head:
            name = head[2]
            bodies[name] = []
            entry = name if head[1] else entry
        elif name and line.startswith("  "):
            bodies[name].append(line)
    return bodies, entry


def _result_bytes(shape: str, started: bool) -> int:
    """Bytes of "f32[8,4]{1,0}" or of a tuple of such; a started operation's result holds its operands first."""
    sizes = [
        ELEMENT_BYTES.get(kind, 4) * math.prod(int(n) for n in dims.split(",") if n)
        for kind, dims in re.findall(r"\b([a-z]+\d*)\[([\d,]*)\]", shape)
    ]
    return sum(sizes[len(sizes) // 2 :]) if started and len(sizes) > 1 else sum(sizes)


def shard_bytes(tree) -> int:
    """Bytes of one device's share of a tree of arrays or shapes with shardings (whole where there is none)."""

    def of(leaf):
        shape = leaf.sharding.shard_shape(leaf.shape) if getattr(leaf, "sharding", None) is not None else leaf.shape
        return math.prod(shape) * np.dtype(leaf.dtype).itemsize

    return sum(map(of, jax.tree.leaves(tree)))


def residual_bytes(loss: Callable, params, *rest) -> int:
    """Bytes kept between the forward and the backward pass of ``loss``, over all devices, parameters apart.

    Args:
      loss: a function (params, *rest) -> scalar, differentiable in the first.
      params, rest: arrays or shapes.
    """
    kept = jax.eval_shape(lambda p, *rest: jax.vjp(lambda p: loss(p, *rest), p)[1], params, *rest)
    own = [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(params)]
    total = 0
    for leaf in jax.tree.leaves(kept):
        if (leaf.shape, leaf.dtype) in own:
            own.remove((leaf.shape, leaf.dtype))
        elif not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.extended):
            total += leaf.size * leaf.dtype.itemsize
    return total
