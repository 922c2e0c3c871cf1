"""Text in, translations out: a trained translation model behind one ``translate`` call.

Sentences are sorted by length and padded to a few fixed widths, and all batches of a width have the same number of
rows: few programs are compiled, and neither a sentence's neighbours nor their order change its translation.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from vmsst_jax import models, sharding
from vmsst_jax.models.generation import Decoding
from vmsst_jax.retrieval.embedder import check_texts, fingerprint, growing_widths
from vmsst_jax.retrieval.progress import Progress

NARROWEST = 8
BATCH_TOKENS = {"cpu": 2048}  # rows times width times beams
BATCH_TOKENS_ELSEWHERE = 16_384
ENDS = 2  # tokens around a sentence


def load(path: str | os.PathLike, step: int | str | None = None, **options) -> Translator:
    """Loads a trained translation model; several local devices share each batch.

    Args:
      path: a model directory, its ``checkpoints`` folder or one step folder.
      step: a step number or "best"; None takes the last checkpoint.
      options: those of ``Translator``: decoding, max_length, batch_tokens, seed.

    Raises:
      FileNotFoundError, CheckpointError: there is no such checkpoint.
      ValueError: it is no translation model.
    """
    from vmsst_jax.training import checkpoint

    mesh = sharding.make_mesh(devices=jax.local_devices()) if jax.local_device_count() > 1 else None
    model = checkpoint.load_model(path, step=step, mesh=mesh)
    if not hasattr(type(model.module), "translate"):
        raise ValueError(
            f"{model.directory} is a model of kind {model.module.kind!r}, which does not translate; wanted one of kind "
            "'seq2seq', as gin/umt_small.gin trains it"
        )
    options.setdefault("max_length", model.embedding["max_length"] - ENDS)
    source = {"directory": str(model.directory), "step": model.step}
    return Translator(model.module, model.params, model.tokenizer, model.languages, mesh=mesh, source=source, **options)


class Translator:
    """Translates sentences by ``module.apply({"params": params}, ..., method="translate")``.

    Args:
      module: a ``models.seq2seq.Seq2Seq``.
      params: its parameters, on the device or mesh where they are to be used.
      tokenizer, languages: the model's own.
      decoding: how to write.
      max_length: most pieces of a sentence; longer ones are cut and counted.
      batch_tokens: rows times width times beams of a device call; None is what suits the device.
      seed: of the draws, where ``decoding`` samples.
      mesh: the mesh on which ``params`` live, if any.
      source: where the model comes from, for ``describe``.

    Attributes:
      counts: {"sentences", "empty", "truncated", "tokens"} so far; tokens are those written.
    """

    def __init__(
        self,
        module,
        params,
        tokenizer,
        languages,
        *,
        decoding: Decoding = Decoding(),
        max_length: int = 100,
        batch_tokens: int | None = None,
        seed: int = 0,
        mesh: Mesh | None = None,
        source: dict | None = None,
    ):
        most = module.config.backbone.max_tokens - ENDS
        if not 1 <= max_length <= most:
            raise ValueError(f"max_length is {max_length}; this model has positions for 1 to {most} pieces")
        module = models.of_vocabulary(module, tokenizer.vocab_size)
        self.module, self.params, self.tokenizer, self.languages = module, params, tokenizer, languages
        self.decoding, self.max_length, self.seed, self.mesh = decoding, max_length, seed, mesh
        self.batch_tokens = batch_tokens or BATCH_TOKENS.get(jax.default_backend(), BATCH_TOKENS_ELSEWHERE)
        self.source = dict(source or {})
        self.widths = np.array(list(growing_widths(min(NARROWEST, max_length + ENDS), max_length + ENDS)))
        self.counts = dict.fromkeys(("sentences", "empty", "truncated", "tokens"), 0)

        def run(params, rows, source_lang, target_lang, numbers):
            keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(seed), numbers) if decoding.sample else None
            given = (rows, source_lang, target_lang, decoding, keys)
            return module.apply({"params": params}, *given, method="translate")[0]

        # Replicated, so that every process of a multi-host run can read the result.
        self._run = jax.jit(run, out_shardings=NamedSharding(mesh, PartitionSpec()) if mesh else None)

    def with_params(self, params) -> Translator:
        """The same translator with other parameters of the same shapes; compiled programs are shared."""
        other = copy.copy(self)
        other.params, other.counts = params, dict.fromkeys(self.counts, 0)
        return other

    def translate(
        self, texts: Sequence[str], source: str, target: str, *, first: int = 0, progress: Progress | None = None
    ) -> list[str]:
        """Translations of sentences, in their order; an empty sentence becomes an empty one.

        Args:
          texts: any number of sentences.
          source, target: codes of the languages.
          first: number of the first sentence, which sampling depends on.
          progress: told how many sentences are done.

        Raises:
          ValueError: a language that the model lacks, or a sentence that is no text.
        """
        if isinstance(texts, str):
            raise ValueError("translate() wants a list of sentences, found a single string; write translate([text])")
        check_texts(texts)
        langs = self.languages.id(source), self.languages.id(target)
        if langs[0] == langs[1]:
            raise ValueError(f"source and target are both {source!r}; wanted two languages")
        pieces = self._pieces(texts)
        lengths = np.array([len(row) for row in pieces], np.int64)
        out = [""] * len(texts)
        group = np.searchsorted(self.widths, lengths + ENDS)
        for g, width in enumerate(self.widths.tolist()):
            chosen = np.flatnonzero((group == g) & (lengths > 0))
            size = self._rows_of(width)
            for start in range(0, len(chosen), size):
                index = chosen[start : start + size]
                for i, row in zip(index.tolist(), self._batch(pieces, index, width, size, langs, first), strict=True):
                    out[i] = self._text(row, target)
                if progress is not None:
                    progress.update(len(index))
        empty = int((lengths == 0).sum())
        if progress is not None and empty:
            progress.update(empty)
        self.counts["sentences"] += len(texts)
        self.counts["empty"] += empty
        return out

    def _rows_of(self, width: int) -> int:
        shards = sharding.batch_shards(self.mesh) if self.mesh else 1
        return max(self.batch_tokens // (width * self.decoding.beams) // shards, 1) * shards

    def _pieces(self, texts: Sequence[str]) -> list[np.ndarray]:
        before, after = len(self.tokenizer.prefix_ids), len(self.tokenizer.suffix_ids)
        rows, cut = self.tokenizer.encode(texts, self.max_length + before + after)
        self.counts["truncated"] += cut
        return [row[before : len(row) - after] for row in rows]

    def _batch(self, pieces, index, width: int, size: int, langs: tuple[int, int], first: int) -> list[np.ndarray]:
        """The written tokens of sentences ``index``, without their ends."""
        eos, pad = self.module.eos_id, self.module.pad_id
        rows = np.full((size, width), pad, np.int32)
        for row, i in zip(rows, index.tolist(), strict=False):
            row[: len(pieces[i]) + ENDS] = [eos, *pieces[i], eos]
        numbers = np.zeros(size, np.uint32)
        numbers[: len(index)] = first + index
        given = (rows, *(np.full(size, lang, np.int32) for lang in langs), numbers)
        if self.mesh is None:
            found = self._run(self.params, *map(jnp.asarray, given))
        else:
            with jax.set_mesh(self.mesh):
                found = self._run(self.params, *sharding.put_batch(given, self.mesh))
        found = np.asarray(found)[: len(index)]
        written = [row[(row != pad) & (row != eos)] for row in found]
        self.counts["tokens"] += sum(map(len, written))
        return written

    def _text(self, ids: np.ndarray, language: str) -> str:
        text = self.tokenizer.decode(ids)
        detokenize = getattr(self.tokenizer, "detokenize", None)
        text = detokenize(text, language) if detokenize else text
        return " ".join(text.split())

    def describe(self) -> dict:
        """What is translated by what, ready for JSON."""
        return {
            **self.source,
            "decoding": {name: getattr(self.decoding, name) for name in self.decoding.__dataclass_fields__},
            "seed": self.seed,
            "max_length": self.max_length,
            "tokenizer_sha256": self.tokenizer.sha256,
        }

    def fingerprint(self) -> str:
        """A checksum over all that decides a translation but the program itself."""
        decides = {k: v for k, v in self.describe().items() if k not in self.source}
        return fingerprint(f"{decides} {self.languages.codes}", self.params)
