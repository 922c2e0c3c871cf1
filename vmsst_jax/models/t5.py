"""T5 encoder and decoder stacks (mT5 and T5 1.1 with gated GELU, T5 1.0 with ReLU), as T5X defines them.

Pre-norm RMSNorm without bias, attention logits that are not divided by sqrt(head_dim) (the factor sits in the
query's initialiser), one relative-position table per stack shared by its layers, two-dimensional kernels, T5X's
parameter names:

    layers_0/attention/{query,key,value,out}/kernel   [D, H*K], out [H*K, D]
    layers_0/mlp/{wi_0,wi_1,wo}/kernel                [D, F], wo [F, D]
    relpos_bias/rel_embedding                         [H, buckets]

With ``scan_layers`` the layers' parameters are stacked on a leading axis under ``layers`` instead.

A row may hold several sentences, one after another in *segments* of static ``lengths``: [B, sum of lengths, D]. They
share every product and every norm, and only attention treats each for itself. Without ``lengths`` it is one sentence.
"""

from __future__ import annotations

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from vmsst_jax import checks
from vmsst_jax.models.dense import Dense

ACTIVATIONS = {
    "gelu": functools.partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
    "linear": lambda x: x,
}
REMAT_POLICIES = {
    "full": None,
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
}
MASKED = -1e10


@dataclasses.dataclass(frozen=True)
class T5Config:
    """Geometry of a pair of T5 stacks. The defaults are mT5-Large.

    ``mlp_activations``, one entry per input projection: ("gelu", "linear") is T5 1.1's gated MLP, ("relu",) T5 1.0's.
    ``dtype`` is the compute type; parameters are float32, and norms and softmax are computed in float32.
    ``remat`` is "none", "dots" (matrix products are kept) or "full" (only the layers' inputs are kept).
    """

    vocab_size: int = 250_112
    embed_dim: int = 1024
    num_heads: int = 16
    head_dim: int = 64
    mlp_dim: int = 2816
    encoder_layers: int = 24
    decoder_layers: int = 24
    mlp_activations: tuple[str, ...] = ("gelu", "linear")
    relative_buckets: int = 32
    relative_max_distance: int = 128
    dropout: float = 0.0
    dtype: str = "float32"
    scan_layers: bool = False
    remat: str = "none"

    def __post_init__(self):
        for name in ("vocab_size", "embed_dim", "num_heads", "head_dim", "mlp_dim"):
            checks.whole(f"T5Config.{name}", getattr(self, name))
        for name in ("encoder_layers", "decoder_layers"):
            checks.whole(f"T5Config.{name}", getattr(self, name), 0)
        # The encoder halves the buckets for the two directions, and half of those count single steps.
        checks.whole("T5Config.relative_buckets", self.relative_buckets, 4)
        checks.whole("T5Config.relative_max_distance", self.relative_max_distance, self.relative_buckets // 2 + 1)
        checks.number("T5Config.dropout", self.dropout, below=1)
        if isinstance(self.mlp_activations, str) or not self.mlp_activations:
            raise ValueError(
                f"T5Config.mlp_activations is {self.mlp_activations!r}; wanted one or more names in brackets, as in "
                '("gelu", "linear") or ("relu",)'
            )
        object.__setattr__(self, "mlp_activations", tuple(self.mlp_activations))
        unknown = [a for a in self.mlp_activations if a not in ACTIVATIONS]
        if unknown:
            raise ValueError(f"mlp_activations has {unknown}; known are {sorted(ACTIVATIONS)}")
        if self.remat not in ("none", *REMAT_POLICIES):
            raise ValueError(f"remat is {self.remat!r}; use 'none', 'dots' or 'full'")
        if self.dtype not in ("float32", "bfloat16"):
            raise ValueError(f"dtype is {self.dtype!r}; use 'float32' or 'bfloat16'")


def fan_in_normal(fan_in: int, *, truncated: bool = False, scale: float = 1.0):
    """Initialiser N(0, scale / fan_in), for kernels that are slices of a wider one: ``fan_in`` is the whole's."""

    def init(key, shape, dtype=jnp.float32):
        std = np.sqrt(scale / fan_in)
        if not truncated:
            return std * jax.random.normal(key, shape, dtype)
        # 0.87962566 is the standard deviation of a unit normal truncated at two standard deviations.
        return std / 0.87962566 * jax.random.truncated_normal(key, -2.0, 2.0, shape, dtype)

    return init


def dense(features: int, init, dtype, name: str | None) -> Dense:
    return Dense(features, init, dtype, name=name)


def tied_kernel(embedding):
    """The output layer of T5 1.0, where it is the token table: [V, D] -> kernel [D, V].

    T5 divides the decoder's states by sqrt(D) before that product; here the kernel carries the factor.
    """
    return embedding.T * embedding.shape[1] ** -0.5


class RMSNorm(nn.Module):
    """Scales each vector to unit root mean square, then by a learned vector: [..., D] -> [..., D]."""

    dtype: str = "float32"

    @nn.compact
    def __call__(self, x):
        scale = self.param("scale", nn.initializers.ones, (x.shape[-1],), jnp.float32)
        x = x.astype(jnp.float32)
        y = x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + 1e-6)
        return (y * scale).astype(self.dtype)


def relative_buckets(query_length: int, key_length: int, *, bidirectional: bool, buckets: int, max_distance: int):
    """T5's relative position buckets, int32 [query_length, key_length] (numpy: a constant of the program).

    Half of the buckets are exact distances, the rest grow logarithmically to ``max_distance``; the last serves beyond.
    Bidirectional stacks spend one half on keys to the right.
    """
    distance = np.arange(query_length)[:, None] - np.arange(key_length)[None, :]
    offset = np.zeros_like(distance)
    if bidirectional:
        buckets //= 2
        offset = (distance < 0) * buckets
        distance = np.abs(distance)
    else:
        distance = np.maximum(distance, 0)
    exact = buckets // 2
    # T5X adds float32's epsilon, so that distances which are exact powers never round down.
    ratio = np.log(np.maximum(distance, 1) / exact + np.finfo(np.float32).eps) / np.log(max_distance / exact)
    logarithmic = np.minimum(exact + (ratio * (buckets - exact)).astype(np.int64), buckets - 1)
    return (offset + np.where(distance < exact, distance, logarithmic)).astype(np.int32)


def split(x, lengths: tuple[int, ...]) -> list:
    """[B, sum of lengths, ...] -> the segments, [B, length, ...] each."""
    if len(lengths) == 1:
        return [x]
    ends = np.cumsum(lengths)
    return [x[:, end - length : end] for length, end in zip(lengths, ends.tolist(), strict=True)]


def spread(x, lengths: tuple[int, ...]):
    """[B, segments, ...], a value for each -> [B, sum of lengths, ...], the same at all of its positions."""
    parts = [jnp.broadcast_to(x[:, i : i + 1], (x.shape[0], length, *x.shape[2:])) for i, length in enumerate(lengths)]
    return jnp.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]


class RelativeBias(nn.Module):
    """One learned scalar per head and bucket -> attention biases [1, H, L, L] of segments of these lengths."""

    config: T5Config
    bidirectional: bool

    @nn.compact
    def __call__(self, lengths: tuple[int, ...]):
        c = self.config
        init = nn.initializers.variance_scaling(1.0, "fan_avg", "uniform")
        table = self.param("rel_embedding", init, (c.num_heads, c.relative_buckets), jnp.float32)
        longest = max(lengths)
        buckets = relative_buckets(
            longest,
            longest,
            bidirectional=self.bidirectional,
            buckets=c.relative_buckets,
            max_distance=c.relative_max_distance,
        )
        bias = jnp.take(table, buckets, axis=1)[None]
        return [bias[:, :, :length, :length] for length in lengths]


class Attention(nn.Module):
    """Multi-head attention: queries [B, Q, D], keys and values from ``memory`` [B, K, D] -> [B, Q, D].

    ``biases``: of each segment, [1 or B, 1 or H, queries, keys]; they say where segments begin and end.
    """

    config: T5Config

    @nn.compact
    def __call__(self, x, memory, biases, deterministic: bool):
        c = self.config
        inner = c.num_heads * c.head_dim
        dtype = jnp.dtype(c.dtype)

        def heads(name, inputs, axis, scale=1.0):
            y = dense(inner, fan_in_normal(inputs.shape[-1], scale=scale), dtype, name)(inputs)
            return split(y.reshape(*y.shape[:-1], c.num_heads, c.head_dim), tuple(b.shape[axis] for b in biases))

        def attend(q, k, v, bias):
            logits = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) + bias
            weights = jax.nn.softmax(logits, axis=-1).astype(dtype)
            # T5X drops whole key columns for all queries at once.
            weights = nn.Dropout(c.dropout, broadcast_dims=(2,))(weights, deterministic=deterministic)
            return jnp.einsum("bhqk,bkhd->bqhd", weights, v)

        q, k, v = heads("query", x, -2, 1.0 / c.head_dim), heads("key", memory, -1), heads("value", memory, -1)
        y = [attend(*each) for each in zip(q, k, v, biases, strict=True)]
        y = (jnp.concatenate(y, axis=1) if len(y) > 1 else y[0]).reshape(*x.shape[:-1], inner)
        return dense(x.shape[-1], fan_in_normal(inner), dtype, "out")(y)


class Mlp(nn.Module):
    """wo(product over i of act_i(wi_i x)): gated with two activations, plain with one. [B, L, D] -> [B, L, D]."""

    config: T5Config

    @nn.compact
    def __call__(self, x, deterministic: bool):
        c = self.config
        dtype = jnp.dtype(c.dtype)
        y = 1.0
        for i, activation in enumerate(c.mlp_activations):
            name = "wi" if len(c.mlp_activations) == 1 else f"wi_{i}"
            init = fan_in_normal(x.shape[-1], truncated=True)
            y = y * ACTIVATIONS[activation](dense(c.mlp_dim, init, dtype, name)(x))
        y = nn.Dropout(c.dropout, broadcast_dims=(-2,))(y, deterministic=deterministic)
        return dense(x.shape[-1], fan_in_normal(c.mlp_dim, truncated=True), dtype, "wo")(y)


class EncoderLayer(nn.Module):
    config: T5Config

    @nn.compact
    def __call__(self, x, biases, deterministic: bool):
        c = self.config
        drop = nn.Dropout(c.dropout, broadcast_dims=(-2,))
        y = RMSNorm(c.dtype, name="pre_attention_layer_norm")(x)
        x = x + drop(Attention(c, name="attention")(y, y, biases, deterministic), deterministic=deterministic)
        y = RMSNorm(c.dtype, name="pre_mlp_layer_norm")(x)
        return x + drop(Mlp(c, name="mlp")(y, deterministic), deterministic=deterministic)


class Condition(nn.Module):
    """The linear map of [x ; c] that stands where cross-attention was (METHODS 2.3).

    ``x`` [B, L, D], ``c`` [B, segments, C] -> [B, L, D]. The kernel is kept in two parts, so that the product with
    ``c`` is made once per sentence, not once per token.
    """

    config: T5Config

    @nn.compact
    def __call__(self, x, c, lengths: tuple[int, ...]):
        dtype = jnp.dtype(self.config.dtype)
        init = fan_in_normal(x.shape[-1] + c.shape[-1], truncated=True)
        hidden = dense(x.shape[-1], init, dtype, "hidden")(x)
        return hidden + spread(dense(x.shape[-1], init, dtype, "latent")(c), lengths)


class DecoderLayer(nn.Module):
    """Causal self-attention; cross-attention (given ``memory``) or a linear map (given ``condition``); MLP."""

    config: T5Config

    @nn.compact
    def __call__(self, x, biases, condition, memory, memory_biases, deterministic: bool):
        c = self.config
        drop = nn.Dropout(c.dropout, broadcast_dims=(-2,))
        y = RMSNorm(c.dtype, name="pre_self_attention_layer_norm")(x)
        x = x + drop(Attention(c, name="self_attention")(y, y, biases, deterministic), deterministic=deterministic)
        if memory is not None:
            y = RMSNorm(c.dtype, name="pre_cross_attention_layer_norm")(x)
            y = Attention(c, name="encoder_decoder_attention")(y, memory, memory_biases, deterministic)
            x = x + drop(y, deterministic=deterministic)
        if condition is not None:
            y = RMSNorm(c.dtype, name="pre_condition_layer_norm")(x)
            y = Condition(c, name="condition")(y, condition, tuple(bias.shape[-1] for bias in biases))
            x = x + drop(y, deterministic=deterministic)
        y = RMSNorm(c.dtype, name="pre_mlp_layer_norm")(x)
        return x + drop(Mlp(c, name="mlp")(y, deterministic), deterministic=deterministic)


def run_layers(layer_class, config: T5Config, num_layers: int, x, *args, deterministic: bool, all_layers: bool):
    """Applies ``num_layers`` layers in turn (called inside a compact method). ``args`` are the same for every layer.

    Returns (last hidden state, tuple of every layer's output if ``all_layers`` else ()).
    """
    if config.remat != "none":
        policy = REMAT_POLICIES[config.remat]
        last = len(args) + 2  # `deterministic`, counted from self; Flax doesn't understand -1
        layer_class = nn.remat(layer_class, policy=policy, prevent_cse=not config.scan_layers, static_argnums=last)
    if not config.scan_layers:
        states = []
        for i in range(num_layers):
            x = layer_class(config, name=f"layers_{i}")(x, *args, deterministic)
            states.append(x)
        return x, tuple(states) if all_layers else ()

    def body(layer, carry, *args):
        y = layer(carry, *args, deterministic)
        return y, y if all_layers else None

    scan = nn.scan(
        body,
        variable_axes={"params": 0},
        split_rngs={"params": True, "dropout": True},
        in_axes=nn.broadcast,
        length=num_layers,
    )
    x, stacked = scan(layer_class(config, name="layers"), x, *args)
    return x, tuple(stacked[i] for i in range(num_layers)) if all_layers else ()


class Encoder(nn.Module):
    """Bidirectional stack. Embedded tokens [B, L, D] and mask [B, L] (1 = token) -> hidden states.

    Returns the last state [B, L, D] (after the final norm), or with ``all_layers`` the tuple of num_layers + 1 states:
    [0] the embeddings, [i] the output of layer i, the last one after the final norm.
    """

    config: T5Config
    num_layers: int

    @nn.compact
    def __call__(
        self,
        x,
        mask,
        deterministic: bool = True,
        all_layers: bool = False,
        lengths: tuple[int, ...] | None = None,
    ):
        c = self.config
        x = x.astype(c.dtype)
        lengths = lengths or (x.shape[1],)
        biases = RelativeBias(c, bidirectional=True, name="relpos_bias")(lengths)
        biases = [bias + masked(part) for bias, part in zip(biases, split(mask, lengths), strict=True)]
        embedded = x
        x = nn.Dropout(c.dropout, broadcast_dims=(-2,))(x, deterministic=deterministic)
        x, states = run_layers(
            EncoderLayer, c, self.num_layers, x, biases, deterministic=deterministic, all_layers=all_layers
        )
        x = RMSNorm(c.dtype, name="encoder_norm")(x)
        x = nn.Dropout(c.dropout)(x, deterministic=deterministic)
        return (embedded, *states[:-1], x) if all_layers else x


def masked(mask):
    """What keeps attention away from padding: [B, K] -> [B, 1, 1, K]."""
    return jnp.where(mask[:, None, None, :] > 0, 0.0, MASKED)


class Decoder(nn.Module):
    """Causal stack. Embedded inputs [B, L, D] (already shifted right) -> hidden states [B, L, D] after the final norm.

    ``condition`` [B, C], or [B, segments, C], goes through a linear map in every layer; ``memory`` [B, M, D] with
    ``memory_mask`` [B, M] is attended to, an equal share of M by each segment; with neither the stack is a plain
    language model. Inputs need no mask: padding stands at the end, where causal attention never looks.
    """

    config: T5Config
    num_layers: int

    @nn.compact
    def __call__(
        self,
        x,
        condition=None,
        memory=None,
        memory_mask=None,
        deterministic: bool = True,
        lengths: tuple[int, ...] | None = None,
    ):
        c = self.config
        x = x.astype(c.dtype)
        lengths = lengths or (x.shape[1],)
        biases = RelativeBias(c, bidirectional=False, name="relpos_bias")(lengths)
        biases = [bias + jnp.where(np.tri(n, dtype=bool), 0.0, MASKED) for bias, n in zip(biases, lengths, strict=True)]
        memory_biases = None
        if memory is not None:
            memory = memory.astype(c.dtype)
            parts = split(memory_mask, (memory.shape[1] // len(lengths),) * len(lengths))
            memory_biases = [
                jnp.broadcast_to(masked(part), (len(part), 1, n, part.shape[1]))
                for part, n in zip(parts, lengths, strict=True)
            ]
        if condition is not None:
            condition = condition.reshape(x.shape[0], len(lengths), -1).astype(c.dtype)
        x = nn.Dropout(c.dropout, broadcast_dims=(-2,))(x, deterministic=deterministic)
        args = (biases, condition, memory, memory_biases)
        x, _ = run_layers(DecoderLayer, c, self.num_layers, x, *args, deterministic=deterministic, all_layers=False)
        x = RMSNorm(c.dtype, name="decoder_norm")(x)
        return nn.Dropout(c.dropout, broadcast_dims=(-2,))(x, deterministic=deterministic)
