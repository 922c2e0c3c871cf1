"""Language codes, as benchmarks compare them; see ``vmsst_jax.language_codes``."""

from vmsst_jax.language_codes import CANONICAL, canonical

__all__ = ["CANONICAL", "canonical"]
