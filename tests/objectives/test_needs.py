"""What an objective needs of a model is known before training, and its settings are checked."""

import functools

import jax
import pytest

from vmsst_jax import objectives
from vmsst_jax.objectives.bitranslation import bitranslation
from vmsst_jax.objectives.contrastive import contrastive
from vmsst_jax.objectives.vmsst import vmsst, vmsst_contrastive

# By METHODS section 2: every model has the encoder, the second a decoder too, the third also the posteriors.
SERVED = {
    "contrastive": {contrastive},
    "bitranslation": {contrastive, bitranslation},
    "vmsst": {contrastive, bitranslation, vmsst, vmsst_contrastive},
}


@pytest.mark.parametrize("objective", [contrastive, bitranslation, vmsst, vmsst_contrastive])
@pytest.mark.parametrize("kind", SERVED)
def test_needs(tiny_model, objective, kind):
    module = tiny_model(kind)
    if objective not in SERVED[kind]:
        message = f"objective {objective.__name__} needs .*a model of kind '{kind}' has not: set model.kind"
        with pytest.raises(ValueError, match=message):
            objectives.check_model(functools.partial(objective), module)
    else:
        objectives.check_model(functools.partial(objective), module)


def test_an_objective_of_ones_own_may_need_nothing(tiny_model):
    objectives.check_model(lambda model, batch, step, key, train: (0.0, {}), tiny_model("contrastive"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lam": "much"}, "lam is 'much'; wanted a number of 0 or more"),
        ({"kl_warmup_steps": 0}, "kl_warmup_steps is 0; wanted a whole number of 1 or more"),
    ],
)
def test_settings(options, message):
    with pytest.raises(ValueError, match=message):
        vmsst(None, None, 0, jax.random.key(0), True, **options)
