"""VMSST and its companions, one class on top of the other (METHODS section 2).

    SentenceEncoder   semantic encoder, mean over tokens, linear head            (Contrastive)
    TranslationModel  + a decoder that writes a sentence from one vector         (BiTranslation)
    Vmsst             + language encoder and latent heads                        (VMSST, VMSST Contrastive)

A *bucketed parallel batch* holds B pairs as 2B sentences (i < B: sources, B + i: targets) in groups of equal width:
``tokens`` tuple of int32 [R, L]; ``slot`` int32 [2B], the row of each sentence; ``row``, its inverse; ``lang`` [2B].
``embeddings`` [R, sum of widths, D] is there after ``embedded``.
"Sentence order" below means [2B] in the order of the pairs, "row order" that of the concatenated groups.
"""

from __future__ import annotations

import dataclasses

import flax.linen as nn
import jax.numpy as jnp

from vmsst_jax import checks, sharding
from vmsst_jax.models import t5
from vmsst_jax.models.decoder import ConditionalDecoder, EncoderSet
from vmsst_jax.models.output_layer import OutputOptions
from vmsst_jax.models.pooling import mean_pool

CHOICES = {
    "enc_lang": ("add", "prepend", "none"),
    "dec_lang": ("tag", "none"),
    "decoder_cond": ("bgt_linear", "output_only", "memory2"),
    "bt_decoder": ("shared_zero_lang", "separate"),
}


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Everything that shapes the parameters. METHODS 2.1 to 2.4 and 2.8 have the reasons.

    Attributes:
      t5: geometry of the stacks.
      num_languages: size of the language tables.
      latent_dim: k; None takes ``t5.embed_dim`` as the paper does.
      enc_lang: how the language encoder learns its language: a vector added to every token embedding, prepended as a
        position of its own (left out of the mean), or not at all ("no enc. l.e.").
      dec_lang: "tag" starts decoding with the target language's vector, "none" with the padding piece ("no dec. l.e.").
      decoder_cond: how the latent vectors enter the decoder, see ``ConditionalDecoder``.
      factored_output: the ablation "fact.".
      tied_output: the output layer reads the token embeddings (T5 1.0) instead of a matrix of its own (mT5, T5 1.1).
      shared_encoder: the ablation "1 enc.": one stack in both roles.
      encoder_of_language: which of several language encoders serves each language id; () is one encoder for all.
      decoder_of_language: likewise for decoders.
      bt_decoder: whether translation shares the ELBO's decoder (with z_lang = 0) or has its own.
      encoder_chunk: most sentences that go through an encoder at a time while training, for contrastive
        batches beyond memory: only a chunk's inputs are kept, and its states made again for the gradient. The value of
        the loss doesn't change. None is all at once.
      output: the chunked output layer's options.
    """

    t5: t5.T5Config = t5.T5Config()
    num_languages: int = 1
    latent_dim: int | None = None
    enc_lang: str = "add"
    dec_lang: str = "tag"
    decoder_cond: str = "bgt_linear"
    factored_output: bool = False
    tied_output: bool = False
    shared_encoder: bool = False
    encoder_of_language: tuple[int, ...] = ()
    decoder_of_language: tuple[int, ...] = ()
    bt_decoder: str = "shared_zero_lang"
    encoder_chunk: int | None = None
    output: OutputOptions = OutputOptions()

    def __post_init__(self):
        checks.whole("ModelConfig.num_languages", self.num_languages)
        for name in ("latent_dim", "encoder_chunk"):
            if getattr(self, name) is not None:
                checks.whole(f"model.{name}", getattr(self, name))
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}; use one of {', '.join(map(repr, allowed))}")
        for name in ("encoder_of_language", "decoder_of_language"):
            routing = checks.wholes(f"model.{name}", getattr(self, name), 0)
            object.__setattr__(self, name, routing)
            if routing and len(routing) != self.num_languages:
                raise ValueError(f"{name} routes {len(routing)} languages, the table has {self.num_languages}")
        if self.decoder_cond == "memory2" and self.k != self.t5.embed_dim:
            raise ValueError(
                f"decoder_cond 'memory2' needs latent_dim = embed_dim, found {self.k} and {self.t5.embed_dim}"
            )

    @property
    def k(self) -> int:
        return self.t5.embed_dim if self.latent_dim is None else self.latent_dim


def in_chunks(module, encode, most: int | None, *rows):
    """``encode(module, *rows)`` for equal parts of the rows in turn, under remat: [R, ...] each -> [R, D].

    Parts are strided, row r being in part r mod n, so that rows which are split over devices stay where they are.

    Args:
      encode: function (module, tokens [r, L], ...) -> [r, D].
      most: rows of a part over all devices; None, or enough for all, is ``encode`` itself.
    """
    count, shards = rows[0].shape[0], sharding.batch_shards()
    parts = 1 if most is None else next(n for n in range(-(-count // most), count + 1) if count % n == 0)
    if parts == 1:
        return encode(module, *rows)
    if count // parts % shards:
        raise ValueError(
            f"model.encoder_chunk lets {most} rows at a time through an encoder (of a sentence from each group), and "
            f"parts of {count // parts} of the {count} rows do not divide over {shards} batch shards; take a larger "
            "one that divides the batch, or a batch with more divisors"
        )
    rows = tuple(x.reshape(count // parts, parts, *x.shape[1:]).swapaxes(0, 1) for x in rows)
    scan = nn.scan(
        lambda module, carry, xs: (carry, nn.remat(encode, prevent_cse=False)(module, *xs)),
        variable_broadcast="params",
        split_rngs={"params": False, "dropout": True},
    )
    _, out = scan(module, (), rows)
    return out.swapaxes(0, 1).reshape(count, -1)


def group_lengths(batch) -> tuple[int, ...]:
    """The widths of a bucketed batch's groups: a row of each, side by side, is one row of segments to the stacks."""
    return tuple(tokens.shape[1] for tokens in batch["tokens"])


def pool_segments(hidden, mask, lengths: tuple[int, ...]):
    """Mean over the tokens of each segment: [R, sum of lengths, D] -> [R, segments * D]."""
    parts = zip(t5.split(hidden, lengths), t5.split(mask, lengths), strict=True)
    return jnp.concatenate([mean_pool(h, m) for h, m in parts], axis=1)


def in_sentence_order(pooled, batch):
    """Vectors [R, groups * D] of the rows of segments -> [2B, D]."""
    groups = jnp.split(pooled, len(batch["tokens"]), axis=1)
    return jnp.concatenate(groups)[batch["slot"]]


def with_first(first, x, lengths: tuple[int, ...]):
    """``first`` [R, segments, ...] put before the segments of ``x`` [R, sum of lengths, ...]."""
    parts = t5.split(x, lengths)
    return jnp.concatenate([y for i, part in enumerate(parts) for y in (first[:, i : i + 1], part)], axis=1)


def partner(x):
    """Swaps the two halves of sentence order [2B, ...]: each sentence gets its translation's entry."""
    half = x.shape[0] // 2
    return jnp.concatenate([x[half:], x[:half]])


class SentenceEncoder(nn.Module):
    """Semantic encoder: tokens [B, L] -> vectors [B, k]."""

    config: ModelConfig
    kind = "contrastive"

    def setup(self):
        c = self.config.t5
        self.token_embedder = nn.Embed(
            c.vocab_size, c.embed_dim, embedding_init=nn.initializers.normal(1.0), dtype=jnp.dtype(c.dtype)
        )
        self.semantic_encoder = t5.Encoder(c, c.encoder_layers)
        self.semantic_mean = self.head()

    @property
    def vocab_size(self) -> int:
        return self.config.t5.vocab_size

    def head(self):
        return t5.dense(self.config.k, t5.fan_in_normal(self.config.t5.embed_dim), jnp.float32, None)

    def hidden_states(self, tokens):
        """tokens int32 [B, L] -> tuple of encoder_layers + 1 states [B, L, D]; [0] the embeddings (METHODS 1.4)."""
        return self.semantic_encoder(self.token_embedder(tokens), tokens > 0, all_layers=True)

    def pool(self, hidden, tokens):
        """One hidden state [B, L, D] of ``tokens`` [B, L], pooled: float32 [B, D]. Any layer's state will do."""
        return mean_pool(hidden, tokens > 0)

    def embed(self, tokens):
        """The test-time embedding: tokens int32 [B, L], 0 = padding -> float32 [B, k], not normalised."""
        hidden = self.semantic_encoder(self.token_embedder(tokens), tokens > 0)
        return self.semantic_mean(self.pool(hidden, tokens))

    def embedded(self, batch):
        """The batch with its tokens' embeddings, so that all stacks share one look-up and its one gradient.

        It comes back as it is where encoders take the batch in chunks: of all others only the tokens are to be kept.
        """
        if self.config.encoder_chunk is not None:
            return batch
        return {**batch, "embeddings": self.token_embedder(jnp.concatenate(batch["tokens"], axis=1))}

    def encoder_rows(self, batch):
        """(tokens [R, sum of widths], and their embeddings if the batch has them) of a bucketed batch."""
        tokens = jnp.concatenate(batch["tokens"], axis=1)
        return (tokens, batch["embeddings"]) if "embeddings" in batch else (tokens,)

    def pooled(self, batch, deterministic: bool):
        """Mean semantic hidden state of every sentence: bucketed batch -> [2B, D] in sentence order."""

        lengths = group_lengths(batch)

        def encode(self, tokens, x=None):
            x, mask = self.token_embedder(tokens) if x is None else x, tokens > 0
            return pool_segments(self.semantic_encoder(x, mask, deterministic, False, lengths), mask, lengths)

        rows = self.encoder_rows(batch)
        return in_sentence_order(in_chunks(self, encode, self.rows_at_once(lengths), *rows), batch)

    def rows_at_once(self, lengths) -> int | None:
        """How many rows of segments go through an encoder at a time; None is all."""
        most = self.config.encoder_chunk
        return None if most is None else max(most // len(lengths), 1)

    def semantic(self, batch, deterministic: bool = True):
        """Bucketed batch -> mu_sem [2B, k] in sentence order."""
        return self.semantic_mean(self.pooled(batch, deterministic))

    def __call__(self, batch):
        """Touches every parameter; for initialisation."""
        return self.semantic(batch)


class TranslationModel(SentenceEncoder):
    """Adds the decoder. Its condition is mu_sem alone; the output projection is (D + k) x V."""

    kind = "bitranslation"

    def setup(self):
        super().setup()
        c = self.config
        if c.dec_lang == "tag":
            self.decoder_tags = nn.Embed(c.num_languages, c.t5.embed_dim, embedding_init=nn.initializers.normal(1.0))
        self.decoder = self.make_decoder(self.condition_dim)

    @property
    def condition_dim(self) -> int:
        return self.config.k

    def make_decoder(self, condition_dim: int) -> ConditionalDecoder:
        c = self.config
        return ConditionalDecoder(
            c.t5,
            condition_dim,
            condition=c.decoder_cond,
            factored_output=c.factored_output,
            tied_output=c.tied_output,
            size=max(c.decoder_of_language) + 1 if c.decoder_of_language else 1,
            output=c.output,
        )

    def decoder_inputs(self, tokens, lang, x=None):
        """tokens [R, L] or their embeddings ``x``, lang [R] -> embeddings shifted right [R, L, D].

        Position 0 holds the target language's tag.
        """
        table = self.token_embedder
        x = table(tokens[:, :-1]) if x is None else x[:, :-1]
        if self.config.dec_lang == "tag":
            first = self.decoder_tags(lang)[:, None]
        else:
            first = table(jnp.zeros((tokens.shape[0], 1), jnp.int32))
        return jnp.concatenate([first.astype(self.config.t5.dtype), x], axis=1)

    def reconstruct(self, batch, conditions, weights, deterministic: bool = True, decoder=None):
        """Decodes every sentence once per pass, all passes in one call per group.

        Args:
          batch: a bucketed batch.
          conditions: [P, 2B, C], what each of P passes writes each sentence from, sentence order.
          weights: [P, 2B], each sentence's weight in the returned total.
          decoder: another ``ConditionalDecoder`` than ``self.decoder``.
        Returns:
          (total, nll [P, 2B]): see ``weighted_nll``.
        """
        passes = conditions.shape[0]
        row, lang = batch["row"], batch["lang"][batch["row"]]
        c_rows = conditions[:, row].swapaxes(0, 1)  # [2B, P, C]: rows stay outermost, so their sharding survives
        w_rows = weights[:, row].swapaxes(0, 1)
        groups, embeddings = batch["tokens"], [None] * len(batch["tokens"])
        if "embeddings" in batch:
            embeddings = t5.split(batch["embeddings"], group_lengths(batch))
        inputs, cs, targets, ws, which, start = [], [], [], [], [], 0
        for tokens, x in zip(groups, embeddings, strict=True):
            rows = slice(start, start + tokens.shape[0])
            start += tokens.shape[0]
            inputs.append(jnp.repeat(self.decoder_inputs(tokens, lang[rows], x), passes, axis=0))
            targets.append(jnp.repeat(tokens, passes, axis=0))
            cs.append(c_rows[rows].reshape(-1, c_rows.shape[-1]))
            ws.append(w_rows[rows].reshape(-1))
            if self.config.decoder_of_language:
                which.append(jnp.repeat(jnp.asarray(self.config.decoder_of_language)[lang[rows]], passes))
        decoder, table = decoder or self.decoder, self.token_embedder.embedding
        total, nll = decoder(tuple(inputs), tuple(cs), tuple(targets), tuple(ws), table, tuple(which), deterministic)
        nll = jnp.concatenate([x.reshape(-1, passes) for x in nll])
        return total, nll[batch["slot"]].T

    def translation_passes(self, mu, weight):
        """The passes of BiTranslation: every sentence from its translation's mu_sem [2B, k].

        Returns (conditions [1, 2B, C], weights [1, 2B]).
        """
        return partner(mu)[None], jnp.full((1, mu.shape[0]), weight)

    def __call__(self, batch):
        mu = self.semantic(batch)
        return self.reconstruct(batch, *self.translation_passes(mu, 1.0))


class Vmsst(TranslationModel):
    """Adds the language encoder and the heads of the two posteriors; conditions are [z_sem ; z_lang]."""

    kind = "vmsst"

    def setup(self):
        super().setup()
        c = self.config
        self.semantic_logvar, self.language_mean, self.language_logvar = self.head(), self.head(), self.head()
        if c.enc_lang != "none":
            self.language_tags = nn.Embed(c.num_languages, c.t5.embed_dim, embedding_init=nn.initializers.normal(1.0))
        if not c.shared_encoder:
            self.language_encoder = EncoderSet(c.t5, max(c.encoder_of_language) + 1 if c.encoder_of_language else 1)
        if c.bt_decoder == "separate":
            self.translation_decoder = self.make_decoder(c.k)

    @property
    def condition_dim(self) -> int:
        return 2 * self.config.k

    def semantic_posterior(self, batch, deterministic: bool = True):
        """Bucketed batch -> (mu, log variance) of q(z_sem | sentence), each [2B, k]."""
        pooled = self.pooled(batch, deterministic)
        return self.semantic_mean(pooled), self.semantic_logvar(pooled)

    def language_posterior(self, batch, deterministic: bool = True):
        """Bucketed batch -> (mu, log variance) of q(z_lang | sentence, language), each [2B, k]."""

        lengths = group_lengths(batch)

        def encode(self, lang, tokens, x=None):
            return self.language_pooled(tokens, lang, deterministic, lengths, x)

        rows = self.encoder_rows(batch)
        lang = batch["lang"][batch["row"]].reshape(len(lengths), -1).T  # [R, groups]
        pooled = in_sentence_order(in_chunks(self, encode, self.rows_at_once(lengths), lang, *rows), batch)
        return self.language_mean(pooled), self.language_logvar(pooled)

    def language_pooled(self, tokens, lang, deterministic: bool, lengths: tuple[int, ...], x=None):
        """tokens [R, sum of lengths], lang [R, groups] -> mean hidden state of each sentence [R, groups * D]."""
        c = self.config
        x, mask = self.token_embedder(tokens) if x is None else x, tokens > 0
        pool_mask = mask
        if c.enc_lang != "none":
            tags = self.language_tags(lang).astype(x.dtype)
        if c.enc_lang == "add":
            x = x + t5.spread(tags, lengths)
        elif c.enc_lang == "prepend":
            x = with_first(tags, x, lengths)
            mask, pool_mask = (with_first(jnp.full(lang.shape, first), mask, lengths) for first in (True, False))
            lengths = tuple(length + 1 for length in lengths)
        if c.shared_encoder:
            hidden = self.semantic_encoder(x, mask, deterministic, False, lengths)
        else:
            which = jnp.asarray(c.encoder_of_language, jnp.int32)[lang] if c.encoder_of_language else None
            hidden = self.language_encoder(x, mask, which, deterministic, lengths)
        return pool_segments(hidden, pool_mask, lengths)

    def translation_passes(self, mu, weight):
        if self.config.bt_decoder == "separate":
            return super().translation_passes(mu, weight)
        conditions = jnp.concatenate([partner(mu), jnp.zeros_like(mu)], axis=-1)
        return conditions[None], jnp.full((1, mu.shape[0]), weight)

    def __call__(self, batch):
        mu, _ = self.semantic_posterior(batch)
        z, _ = self.language_posterior(batch)
        if self.config.bt_decoder == "separate":
            self.reconstruct(batch, *self.translation_passes(mu, 1.0), decoder=self.translation_decoder)
        conditions = jnp.concatenate([mu, z], axis=-1)[None]
        return self.reconstruct(batch, conditions, jnp.ones((1, mu.shape[0])))
