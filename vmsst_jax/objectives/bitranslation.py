"""BiTranslation: write each sentence from its translation's semantic vector (METHODS 2.4)."""

from __future__ import annotations


def bitranslation(model, batch, step, key, train: bool):
    """L_BT = 1/(2B) sum_i [-log p(t_i | mu_sem(s_i)) - log p(s_i | mu_sem(t_i))], token sums per sentence.

    ``model`` needs ``embedded``, ``semantic``, ``translation_passes`` and ``reconstruct``. Returns (loss, metrics).
    """
    batch = model.embedded(batch)
    mu = model.semantic(batch, deterministic=not train)
    conditions, weights = model.translation_passes(mu, 1.0 / mu.shape[0])
    total, nll = model.reconstruct(batch, conditions, weights, deterministic=not train)
    return total, {"translation": nll.mean()}


bitranslation.needs = ("embedded", "semantic", "translation_passes", "reconstruct")
