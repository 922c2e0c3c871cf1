"""CCP's memory bank: vectors of earlier micro-batches as further negatives, shared out over the devices (METHODS 3.3).

Each language has a ring of K slots ("per_language"), or all languages share one ring, in which a vector then only
counts for its own language ("tagged") or for all ("plain"). Every device owns an equal share of every ring's slots: it
compares the queries with its own slots, writes those new vectors that fall on them, and only a maximum and sums over
slots cross devices. Of the rings, only the current languages' are read, and only the new vectors' slots are written.

The logarithm of the bank's part of a denominator has, with logits <q, b_m>, the gradient sum_m softmax_m b_m. It is
made in the same pass, so that nothing of the size queries x slots is kept and the backward pass doesn't see the bank.
"""

from __future__ import annotations

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from vmsst_jax import sharding

LAYOUTS = ("per_language", "tagged", "plain")
dot = functools.partial(jnp.einsum, precision="highest")


@dataclasses.dataclass(frozen=True)
class Negatives:
    """What the bank has for every query, [G, Q]: ``log_sum``, log sum_m exp <q, b_m> (-inf without any slot), the only
    differentiable one; ``top``, the greatest <q, b_m>; ``used`` and ``masked``, numbers of slots. ``filled``: the share
    of the queried rings' slots that have been written."""

    log_sum: jax.Array
    top: jax.Array
    used: jax.Array
    masked: jax.Array
    filled: jax.Array


def check_size(size: int, devices: int) -> None:
    """ValueError for a number of slots that can't be shared out equally over the devices."""
    if size % devices:
        below = size // devices * devices
        raise ValueError(
            f"ccp_model.bank_size is {size}, and {devices} devices can't own equal shares of its slots: take "
            f"{f'{below} or ' if below else ''}{below + devices}"
        )


class MemoryBank(nn.Module):
    """Rings of vectors; its state is the collection "memory".

    Attributes:
      layout: "per_language", "tagged" or "plain".
      size: K, slots of a ring.
      width: of the vectors.
      num_languages: size of the language table.
      dtype: what vectors are kept in, "float32" or "bfloat16"; products are in float32.
    """

    layout: str
    size: int
    width: int
    num_languages: int
    dtype: str = "float32"

    def setup(self):
        check_size(self.size, sharding.slot_shards())
        rings = self.num_languages if self.layout == "per_language" else 1
        slots = {"vectors": ((self.width,), self.dtype), "document": ((), jnp.int32)}
        if self.layout == "tagged":
            slots["language"] = ((), jnp.int32)
        self.slots = {
            name: self.variable("memory", name, jnp.zeros, (rings, self.size, *shape), dtype)
            for name, (shape, dtype) in slots.items()
        }
        # Of each ring, the slot that is written next, and how many have been written.
        self.pointer = self.variable("memory", "pointer", jnp.zeros, (rings,), jnp.int32)
        self.filled = self.variable("memory", "filled", jnp.zeros, (rings,), jnp.int32)

    def _ring(self, lang):
        return lang if self.layout == "per_language" else jnp.zeros_like(lang)

    def __call__(self, queries, lang, document=None) -> Negatives:
        """Compares G groups of queries with the slots of their languages.

        Args:
          queries: [G, Q, width], already divided by the temperature.
          lang: int32 [G], each group's language.
          document: int32 [G, Q], each query's document; slots of the same document are masked. None masks none.
        """
        slots = {name: array.value for name, array in self.slots.items() if name != "document" or document is not None}
        ring = self._ring(lang)
        facts = {"lang": lang, "ring": ring, "filled": self.filled.value[ring]}
        facts |= {} if document is None else {"document": document}
        share = facts["filled"].mean(dtype=jnp.float32) / self.size
        return Negatives(*_log_sum(queries.astype(jnp.float32), facts, slots), share)

    def push(self, vectors, lang, document, after):
        """Writes vectors [G, Q, width] of the languages [G] and documents [G, Q] over the oldest slots, in the order of
        the groups; no gradient flows. ``after``: what the bank gave before, for the vectors of the same step.

        Raises:
          ValueError: a group has more vectors than a ring has slots.
        """
        size, count = self.size, vectors.shape[1]
        if count > size:
            raise ValueError(
                f"a group of a micro-batch gives {count} vectors, more than the {size} slots of bank_size: take "
                "a larger bank or smaller groups"
            )
        ring = self._ring(lang)
        earlier = jnp.tril(ring[:, None] == ring[None, :], -1).sum(axis=1)
        start = (self.pointer.value[ring] + count * earlier) % size
        new = {"vectors": vectors, "document": document, "language": jnp.broadcast_to(lang[:, None], document.shape)}
        new = {name: jax.lax.stop_gradient(new[name]).astype(array.value.dtype) for name, array in self.slots.items()}
        slots = {name: array.value for name, array in self.slots.items()}
        # Never true, which XLA doesn't know: it must read the bank before it writes, and so needs no copy.
        start += (after.used < 0).any()
        written = _over_slots(functools.partial(_write, size=size), slots, {"new": new, "ring": ring, "start": start})
        for name, array in self.slots.items():
            array.value = written[name]
        self.pointer.value = self.pointer.value.at[ring].add(count) % size
        self.filled.value = jnp.minimum(self.filled.value.at[ring].add(count), size)


def _over_slots(function, slots, rest, reduced: bool = False):
    """``function`` (this device's slots, ``rest``, number of its first slot, mesh axes or ()) on every device.

    Arrays of ``slots`` are [rings, K, ...]; ``rest`` is the same everywhere. What comes back has the layout of
    ``slots``, or is the same everywhere where the function has ``reduced`` it.
    """
    if sharding.slot_shards() == 1:
        return function(slots, rest, 0, ())
    own, whole = sharding.slot_spec(), PartitionSpec()

    def local(slots, rest):
        share = next(iter(slots.values())).shape[1]
        return function(slots, rest, share * jax.lax.axis_index(sharding.AXES), sharding.AXES)

    return jax.shard_map(
        local,
        in_specs=(own, whole),
        out_specs=whole if reduced else own,
        axis_names=set(sharding.AXES),
        check_vma=False,
    )(slots, rest)


def _compare(slots, rest, first: int, axes, with_gradients: bool):
    """Queries against this device's slots: (log sum, top, used, masked [G, Q], weighted mean of slots [G, Q, D])."""

    def group(_, x):
        queries, facts = x

        def ring(name):
            return jax.lax.dynamic_index_in_dim(slots[name], facts["ring"], keepdims=False)

        vectors = ring("vectors").astype(jnp.float32)  # [S, D]
        valid = first + jnp.arange(vectors.shape[0]) < facts["filled"]
        if "language" in slots:
            valid &= ring("language") == facts["lang"]
        valid = jnp.broadcast_to(valid, (queries.shape[0], vectors.shape[0]))
        kept = valid & (ring("document") != facts["document"][:, None]) if "document" in facts else valid
        logits = jnp.where(kept, dot("qd,sd->qs", queries, vectors), -jnp.inf)
        top = logits.max(axis=1)
        exp = jnp.exp(logits - _finite(top)[:, None])
        mean = dot("qs,sd->qd", exp, vectors) if with_gradients else None
        return None, (top, exp.sum(axis=1), kept.sum(axis=1), (valid & ~kept).sum(axis=1), mean)

    _, (top, total, used, masked, mean) = jax.lax.scan(group, None, rest)
    if axes:
        local, top = top, jax.lax.pmax(top, axes)
        scale = jnp.exp(local - _finite(top))
        total = scale * total
        mean = scale[..., None] * mean if with_gradients else None
        total, used, masked, mean = jax.lax.psum((total, used, masked, mean), axes)
    if with_gradients:
        mean = mean / jnp.where(total > 0, total, 1.0)[..., None]
    return jnp.log(total) + _finite(top), top, used, masked, mean


def _finite(x):
    """``x`` with 0 where it is -inf: the maximum over no slots."""
    return jnp.where(jnp.isneginf(x), 0.0, x)


def _compared(queries, facts, slots, with_gradients: bool):
    compare = functools.partial(_compare, with_gradients=with_gradients)
    return _over_slots(compare, slots, (queries, facts), reduced=True)


@jax.custom_vjp
def _log_sum(queries, facts, slots):
    """(log sum, top, used, masked), each [G, Q], of queries [G, Q, D]; see ``Negatives``."""
    return _compared(queries, facts, slots, False)[:4]


def _forward(queries, facts, slots):
    *results, mean = _compared(queries, facts, slots, True)
    return tuple(results), mean


def _backward(mean, cotangents):
    return cotangents[0][..., None] * mean, None, None


_log_sum.defvjp(_forward, _backward)


def _write(slots, rest, first: int, axes, *, size: int):
    """The slots after every group's vectors have been written, from its ``start`` on and around the ring's end."""
    groups = rest["start"].shape[0]

    def part(slots, i):
        # Twice for each group: at its start, and where it goes on behind the ring's end. Both in one pass would have
        # XLA read the slots between two writes, for which it copies them all.
        x = jax.tree.map(lambda a: jax.lax.dynamic_index_in_dim(a, i // 2, keepdims=False), rest)
        begin = x["start"] - first - size * (i % 2)
        return {name: _write_block(array, x["new"][name], x["ring"], begin) for name, array in slots.items()}, None

    return jax.lax.scan(part, slots, jnp.arange(2 * groups))[0]


def _write_block(array, new, ring, begin):
    """[rings, S, ...] with ``new`` [W, ...] in those slots from ``begin`` to begin + W that are here, 0 to S."""
    width, here = new.shape[0], array.shape[1]
    window = min(width, here)
    tail = (0,) * (array.ndim - 2)
    at = jnp.clip(begin, 0, here - window)
    which = at - begin + jnp.arange(window)  # the new row for each slot of the window
    old = jax.lax.dynamic_slice(array, (ring, at, *tail), (1, window, *array.shape[2:]))[0]
    ours = ((which >= 0) & (which < width)).reshape(-1, *(1 for _ in tail))
    block = jnp.where(ours, new[jnp.clip(which, 0, width - 1)], old)
    return jax.lax.dynamic_update_slice(array, block[None], (ring, at, *tail))
