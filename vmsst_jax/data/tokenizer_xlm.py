"""XLM's tokenizer: Moses normalisation and tokenisation, byte-pair codes, a dictionary, the frame ``</s> ... </s>``."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vmsst_jax.data.framed import FramedTokenizer

EOS, PAD, UNK, MASK = 1, 2, 3, 5
SPECIALS = ("<s>", "</s>", "<pad>", "<unk>", *(f"<special{i}>" for i in range(10)))
WORD_END = "</w>"
CONTINUES = "@@"
# Words are looked up over and over; beyond this many, those already split are forgotten.
REMEMBERED = 1 << 18


class XlmTokenizer(FramedTokenizer):
    """Text -> Moses tokens (library ``sacremoses``) -> byte-pair codes -> ids; no lower-casing (METHODS 1.3).

    Args:
      pieces: all pieces in the order of their ids, the 14 special ones first; a piece that ends a word ends in "</w>".
      merges: pairs of symbols, the most frequent first.
      language: whose Moses rules are applied, as the language of a sentence is not known here.
      lower_case: lower-case and strip accents, as XLM's English-only models want it.
    """

    kind = "xlm_bpe"

    def __init__(
        self, pieces: Sequence[str], merges: Sequence[Sequence[str]], language: str = "en", lower_case: bool = False
    ):
        serialized = json.dumps({"pieces": list(pieces), "merges": [list(m) for m in merges]}, ensure_ascii=False)
        super().__init__(serialized.encode(), [EOS], [EOS], language=language, lower_case=lower_case)
        if tuple(pieces[: len(SPECIALS)]) != SPECIALS:
            raise ValueError(
                f"the dictionary begins with {list(pieces[: len(SPECIALS)])}; XLM's begins with {list(SPECIALS)}."
            )
        self._pieces = tuple(pieces)
        self._ids = {piece: i for i, piece in enumerate(pieces)}
        self._ranks = {tuple(pair): rank for rank, pair in reversed(list(enumerate(merges)))}
        self._split: dict[str, list[int]] = {}
        self._detokenizers: dict = {}
        self._normalize, self._tokenize = _moses(language)
        self.vocab_size = len(pieces)
        self.pad_id, self.unk_id, self.eos_id, self.mask_id = PAD, UNK, EOS, MASK

    @classmethod
    def from_bytes(cls, serialized: bytes, language: str = "en", lower_case: bool = False) -> XlmTokenizer:
        """The inverse of ``serialized``."""
        saved = json.loads(serialized)
        return cls(saved["pieces"], saved["merges"], language, lower_case)

    @classmethod
    def from_files(
        cls, codes: str, words: Sequence[str] | str, origin: str = "the codes", language: str = "en"
    ) -> XlmTokenizer:
        """Builds the tokenizer from the text of fastBPE's files.

        Args:
          codes: lines of two symbols and a count.
          words: the dictionary in the order of ids, special words included (as a checkpoint's ``dico_id2word`` has
            it), or the text of a vocabulary file: lines of a word and a count, without the special ones.
        """
        if isinstance(words, str):
            words = [*SPECIALS, *dict.fromkeys(_vocabulary_words(words))]
        pieces = [w if i < len(SPECIALS) else _piece(w) for i, w in enumerate(words)]
        return cls(pieces, _merges(codes, origin), language)

    @classmethod
    def from_hugging_face(
        cls, vocabulary: dict[str, int], merges: str, origin: str, language: str = "en", lower_case: bool = False
    ) -> XlmTokenizer:
        """Builds the tokenizer from ``vocab.json`` (piece -> id) and the text of ``merges.txt``."""
        pieces = sorted(vocabulary, key=vocabulary.__getitem__)
        if [vocabulary[piece] for piece in pieces] != list(range(len(pieces))):
            raise ValueError(f"the ids of {origin}'s vocabulary are not 0 to {len(pieces) - 1}, each once")
        return cls(pieces, _merges(merges, origin), language, lower_case)

    @property
    def hugging_face_files(self) -> dict[str, str]:
        """The texts of vocab.json and merges.txt."""
        merges = sorted(self._ranks, key=self._ranks.__getitem__)
        return {
            "vocab.json": json.dumps(self._ids, ensure_ascii=False),
            "merges.txt": "".join(f"{a} {b} {len(merges) - i}\n" for i, (a, b) in enumerate(merges)),
        }

    def pieces(self, texts: Sequence[str]) -> list[list[int]]:
        """N texts -> N lists of ids without special tokens."""
        if len(self._split) > REMEMBERED:
            self._split.clear()
        return [[i for word in self.words(text) for i in self._word_ids(word)] for text in texts]

    def words(self, text: str) -> list[str]:
        """Moses tokens of a text."""
        words = self._tokenize(self._normalize(text), escape=False)
        return [w for w in map(_plain, words) if w] if self.options["lower_case"] else words

    def word_starts(self, ids: np.ndarray) -> np.ndarray:
        """Whether each piece of one sentence begins a word, bool [N]: the first, and those behind the end of one."""
        ends = np.array([self._pieces[i].endswith(WORD_END) for i in ids], bool)
        return np.concatenate([[True], ends[:-1]]) if len(ends) else ends

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """A sentence's tokens, separated by spaces; special ones vanish. IndexError for an unknown id."""
        ids = [int(i) for i in ids]
        if wrong := [i for i in ids if not 0 <= i < self.vocab_size]:
            raise IndexError(f"id {wrong[0]} is outside the vocabulary of {self.vocab_size}")
        text = "".join(self._pieces[i] for i in ids if i >= len(SPECIALS))
        return text.replace(WORD_END, " ").strip()

    def detokenize(self, text: str, language: str) -> str:
        """Tokens between spaces -> plain text, by Moses' rules for the language."""
        if language not in self._detokenizers:
            self._detokenizers[language] = _detokenizer(language)
        return self._detokenizers[language](text.split())

    def _word_ids(self, word: str) -> list[int]:
        ids = self._split.get(word)
        if ids is None:
            ids = self._split[word] = [self._ids.get(symbol, UNK) for symbol in self._symbols(word)]
        return ids

    def _symbols(self, word: str) -> list[str]:
        """The byte-pair encoding of a word: the best-ranked pair is joined everywhere, until none has a rank."""
        symbols = [*word[:-1], word[-1] + WORD_END]
        while len(symbols) > 1:
            pairs = set(zip(symbols, symbols[1:], strict=False))
            best = min(pairs, key=lambda pair: self._ranks.get(pair, len(self._ranks)))
            if best not in self._ranks:
                break
            joined, i = [], 0
            while i < len(symbols):
                here = tuple(symbols[i : i + 2]) == best
                joined.append("".join(best) if here else symbols[i])
                i += 2 if here else 1
            symbols = joined
        return symbols


def _moses(language: str):
    try:
        import sacremoses
    except ImportError:
        raise ValueError("XLM's tokenizer needs the library sacremoses: pip install 'vmsst_jax[hf]'") from None
    normalizer = sacremoses.MosesPunctNormalizer(
        language, pre_replace_unicode_punct=True, post_remove_control_chars=True
    )
    return normalizer.normalize, sacremoses.MosesTokenizer(language).tokenize


def _detokenizer(language: str):
    import sacremoses

    return sacremoses.MosesDetokenizer(language).detokenize


def _merges(codes: str, origin: str) -> list[list[str]]:
    merges = [line.split()[:2] for line in codes.splitlines() if line.strip() and not line.startswith("#version")]
    if not merges or any(len(pair) != 2 for pair in merges):
        bad = next((i for i, pair in enumerate(merges, 1) if len(pair) != 2), 1)
        raise ValueError(f"{origin} is not a file of byte-pair codes: line {bad} lacks two symbols between spaces")
    return merges


def _vocabulary_words(text: str):
    for line in text.split("\n"):
        fields = line.split()
        if len(fields) == 2 and "\u2028" not in line and fields[0] not in SPECIALS:  # XLM passes over the others too
            yield fields[0]


def _piece(word: str) -> str:
    return word.removesuffix(CONTINUES) if word.endswith(CONTINUES) else word + WORD_END


def _plain(word: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFD", word.lower()) if unicodedata.category(c) != "Mn")


def xlm_bpe_files(codes: str, vocabulary: str, language: str = "en") -> XlmTokenizer:
    """The tokenizer of fastBPE's two files, by their paths: codes, and the vocabulary with its counts.

    Raises:
      FileNotFoundError: one of them is missing. ValueError: the codes are none.
    """
    texts = []
    for name, path in (("codes", codes), ("vocabulary", vocabulary)):
        if not Path(path).is_file():
            raise FileNotFoundError(f"xlm_bpe_files.{name} is {path!r}: no such file; wanted one that fastBPE wrote")
        texts.append(Path(path).read_text(encoding="utf-8"))
    return XlmTokenizer.from_files(*texts, codes, language)
