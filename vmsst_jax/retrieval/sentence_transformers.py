"""Models that the library sentence-transformers runs, for those that ``convert`` doesn't read."""

from __future__ import annotations

import hashlib

import numpy as np

from vmsst_jax.retrieval.embedders import External


class SentenceTransformersModel(External):
    """``SentenceTransformer(name)``, with the calls of our own embedder.

    Args:
      name: a folder, or a name that the library looks up and downloads.
      max_length: most tokens of a sentence; None leaves the model's own limit.
      batch_size: sentences per step, the library's 32 unless said otherwise.
      prefix: put before every sentence, the library's "prompt"; None leaves the model's own.

    Raises:
      ValueError: the library is not installed, or can't load the model.
    """

    def __init__(
        self, name: str, *, max_length: int | None = None, batch_size: int | None = None, prefix: str | None = None
    ):
        try:
            import sentence_transformers
        except ImportError as error:
            raise ValueError(
                f"{name} needs the library sentence-transformers, which can't be imported ({error}); install it (pip "
                "install sentence-transformers), or give the model's folder as checkpoint, which needs no PyTorch"
            ) from None
        try:
            self.model = sentence_transformers.SentenceTransformer(name)
        except Exception as error:  # the library and those below it have errors of many kinds for one cause
            raise ValueError(f"sentence-transformers can't load {name}: {error}") from error
        if max_length is not None:
            self.model.max_seq_length = max_length
        own = self.model.prompts.get(self.model.default_prompt_name or "", "")
        versions = {"sentence_transformers": sentence_transformers.__version__}
        source = {"kind": "sentence_transformers", "name": name, **versions}
        normalizes = any(type(module).__name__ == "Normalize" for module in self.model)
        super().__init__(source, batch_size=batch_size, prefix=own if prefix is None else prefix, normalize=normalizes)
        poolings = [m.pooling_mode for m in self.model if hasattr(m, "pooling_mode")]
        self.embedding["pooling"] = " ".join(map(str, poolings)) or None
        self.max_length = self.model.max_seq_length
        self.dim = self.model.encode(["one sentence"], show_progress_bar=False).shape[1]
        self._fingerprint = self._checksum()
        self._step = batch_size or 32
        self.batch_size = 8192  # of one call: the library sorts these by length before it cuts them into steps

    def _embed(self, texts: list[str], language: str | None) -> np.ndarray:
        if self.max_length:
            self.counts["truncated"] += int(self.truncated(texts).sum())
        return self.model.encode(
            texts,
            prompt=self.embedding["prefix"],  # an empty one too: without any, the library takes the model's own
            batch_size=self._step,
            show_progress_bar=False,
            convert_to_numpy=True,
        )

    def truncated(self, texts: list[str]) -> np.ndarray:
        """bool [n]: which sentences have more tokens than ``max_length``."""
        prefixed = [self.embedding["prefix"] + text for text in texts]
        ids = self.model.tokenizer(prefixed, truncation=False, verbose=False)["input_ids"]
        return np.array([len(row) > self.max_length for row in ids])

    def _checksum(self) -> str:
        """Over the modules, what they are set to, and every array of theirs."""
        import torch

        digest = hashlib.sha256(f"{self.model} {self.max_length} {self.embedding}".encode())
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return digest.hexdigest()
