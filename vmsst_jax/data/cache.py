"""Token cache: a parallel corpus tokenised once, as flat memory-mapped arrays that are read without TensorFlow."""

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from vmsst_jax.data import array_files
from vmsst_jax.data.batching import ragged_index, text_ids
from vmsst_jax.data.languages import Languages
from vmsst_jax.data.tokenizer import Tokenizer

FORMAT = 3
BLOCK = 8192  # pairs tokenised at once while building
# Array name -> type; P pairs are 2P sentences, sentence 2p being the source of pair p and 2p + 1 its target.
# `tokens` is uint16 where the vocabulary allows, int32 otherwise.
ARRAYS = {
    "tokens": None,  # [all sentences one after another]
    "offsets": np.int64,  # [2P + 1] sentence s is tokens[offsets[s]:offsets[s + 1]]
    "lang": np.int32,  # [2P] index into meta["languages"]
    "text_id": np.int32,  # [2P] batching.text_ids
    "cut": np.bool_,  # [2P] whether the sentence was truncated
    "pair_id": np.int64,  # [P]
}

META = {
    **dict.fromkeys(("format", "pairs", "tokens", "truncated", "max_length"), int),
    **{"source": str, "sha256": str, "tokenizer_sha256": str, "languages": list, "sentences": dict, "crc32": dict},
}


class TokenCache:
    """A tokenised parallel corpus in memory or in a folder; make it with :meth:`build`, read it with :meth:`open`.

    A folder holds one ``.npy`` file per array of :data:`ARRAYS` and ``meta.json``.

    Attributes:
      meta: the contents of ``meta.json``: format, source, made_from, sha256 (of all texts and their languages, in
        order), pairs, tokens, truncated, max_length, tokenizer_sha256, languages (codes in the order of the ids) and
        sentences (their number per language code).
      folder: where the cache lies, or None.
    """

    def __init__(self, arrays: dict[str, np.ndarray], meta: dict, languages: Languages, folder: Path | None = None):
        self.meta, self.folder = meta, folder
        self.max_length: int = meta["max_length"]
        self._arrays = arrays
        # The run's own ids of the cache's languages; codes that no sentence has need not be known to the run.
        self._lang = np.array(
            [languages.id(c) if meta["sentences"].get(c) else -1 for c in meta["languages"]], np.int32
        )

    def __len__(self) -> int:
        """Number of pairs P."""
        return self.meta["pairs"]

    @property
    def lengths(self) -> np.ndarray:
        """Tokens per sentence, eos included: int64 [P, 2] (source, target), computed anew at each call."""
        return np.diff(self._arrays["offsets"]).reshape(-1, 2)

    @property
    def cuts(self) -> np.ndarray:
        """Whether sentences were truncated: bool [P, 2] (source, target)."""
        return self._arrays["cut"].reshape(-1, 2)

    @property
    def langs(self) -> np.ndarray:
        """Languages of sentences in the run's language table: int32 [P, 2] (source, target)."""
        return self._lang[self._arrays["lang"]].reshape(-1, 2)

    def pair_ids(self, pairs: np.ndarray) -> np.ndarray:
        """The corpus's own ids of pairs: int64 [K] of int64 [K] indices."""
        return self._arrays["pair_id"][pairs]

    def sentences(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Reads sentences (2p = source of pair p, 2p + 1 = its target).

        Args:
          index: int64 [K].

        Returns:
          (tokens int32 [sum of lengths], and what ``facts`` gives).
        """
        return self.tokens(index), *self.facts(index)

    def tokens(self, index: np.ndarray) -> np.ndarray:
        """The tokens of sentences (int64 [K]) one after another: int32 [sum of lengths]."""
        starts = self._arrays["offsets"][index]
        lengths = self._arrays["offsets"][index + 1] - starts
        return self._arrays["tokens"][ragged_index(starts, lengths)].astype(np.int32, copy=False)

    def facts(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """What is known of sentences (int64 [K]) without reading them.

        Returns:
          (lengths int64 [K], lang int32 [K] in the run's language table, text_id int32 [K], cut bool [K]).
        """
        arrays = self._arrays
        lengths = arrays["offsets"][index + 1] - arrays["offsets"][index]
        return lengths, self._lang[arrays["lang"][index]], arrays["text_id"][index], arrays["cut"][index]

    @classmethod
    def build(
        cls,
        examples: Iterable[dict],
        tokenizer: Tokenizer,
        languages: Languages,
        max_length: int,
        folder: str | os.PathLike | None = None,
        source: str = "examples",
        made_from: dict | None = None,
    ) -> "TokenCache":
        """Tokenises a corpus, block by block and on several threads.

        Args:
          examples: dicts with source, target, source_lang, target_lang (str) and pair_id (int).
          max_length: longest sentence in tokens; longer ones are cut (eos kept) and counted in ``meta["truncated"]``.
          folder: where to keep the cache, or None to keep it in memory. It appears whole or not at all.
          source: where the examples come from, for messages and ``meta.json``.
          made_from: what decides their text, for ``meta.json``: see ``registered.made_from``.

        Raises:
          FileExistsError: the folder exists.
          ValueError: no examples, or an unknown language.
        """
        sink = array_files.sink(ARRAYS, tokenizer.vocab_size, folder)
        meta = {
            "format": FORMAT,
            "source": source,
            "made_from": made_from or {},
            "max_length": max_length,
            "tokenizer_sha256": tokenizer.sha256,
            "languages": list(languages.codes),
        }
        try:
            counts, sentences, digest = Counter(), np.zeros(len(languages), np.int64), hashlib.sha256()
            for block in _tokenise(examples, tokenizer, languages, max_length, digest):
                with array_files.room(folder):
                    sink.add(block)
                counts["pairs"] += len(block["pair_id"])
                counts["tokens"] += len(block["tokens"])
                counts["truncated"] += int(block["cut"].sum())
                sentences += np.bincount(block["lang"], minlength=len(languages))
            if not counts["pairs"]:
                raise ValueError(f"no examples in {source}: wanted at least one pair. Check the corpus and the split.")
            meta |= {**counts, "sha256": digest.hexdigest()}
            meta |= {"sentences": {c: int(n) for c, n in zip(languages.codes, sentences, strict=True) if n}}
            with array_files.room(folder):
                arrays = sink.finish(meta)
        except BaseException:
            sink.discard()
            raise
        return cls(arrays, meta, languages) if folder is None else cls.open(folder, tokenizer, languages)

    @classmethod
    def open(cls, folder: str | os.PathLike, tokenizer: Tokenizer, languages: Languages) -> "TokenCache":
        """Opens a cache folder, memory-mapped; ``languages`` may be another table that knows the cache's languages.

        Raises:
          FileNotFoundError: no cache there. ValueError: made with another tokenizer or format, or damaged.
        """
        folder = Path(folder)
        meta = array_files.read_meta(folder, FORMAT, META, tokenizer.sha256)
        pairs = meta["pairs"]
        sizes = {"tokens": meta["tokens"], "offsets": 2 * pairs + 1, "pair_id": pairs}
        arrays = array_files.open_arrays(folder, {name: sizes.get(name, 2 * pairs) for name in ARRAYS}, meta)
        return cls(arrays, meta, languages, folder)


def _tokenise(
    examples: Iterable[dict], tokenizer: Tokenizer, languages: Languages, max_length: int, digest
) -> Iterator[dict[str, np.ndarray]]:
    """The cache's arrays for BLOCK pairs at a time, ready to be appended to those of the blocks before.

    The hash object ``digest`` gets all that is read.
    """
    ids: dict[str, int] = {}
    examples = iter(examples)
    total = 0
    while block := list(islice(examples, BLOCK)):
        texts = [text for e in block for text in (e["source"], e["target"])]
        codes = [code for e in block for code in (e["source_lang"], e["target_lang"])]
        for code in set(codes) - ids.keys():
            ids[code] = languages.id(code)
        digest.update("".join(f"{code}\n{text}\n" for code, text in zip(codes, texts, strict=True)).encode())
        tokens, lengths, cut = tokenizer.encode_flat(texts, max_length)
        ends = total + np.cumsum(lengths)
        offsets = ends if total else np.concatenate([[0], ends])
        total = ends[-1]
        yield {
            "tokens": tokens,
            "offsets": offsets,
            "lang": np.array([ids[code] for code in codes], np.int32),
            "text_id": text_ids(tokens, lengths),
            "cut": cut,
            "pair_id": np.array([e["pair_id"] for e in block], np.int64),
        }
