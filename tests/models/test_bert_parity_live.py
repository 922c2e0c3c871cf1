"""Our post-norm encoder against transformers + PyTorch at work: new weights, options, gradients, files.

pip install -e '.[parity,test]' && pytest -m parity
"""

import importlib.util
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vmsst_jax import models
from vmsst_jax.interop import hf_config, hf_encoder

HERE = pathlib.Path(__file__).parent
NAMES = ("bert", "distilbert", "xlm_roberta", "xlm", "xlm_languages")
REASON = "needs PyTorch and transformers: pip install 'vmsst_jax[parity]'"
pytestmark = pytest.mark.parity


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason=REASON)


@pytest.fixture(scope="module")
def hugging_face(torch):
    """The module make_bert_goldens.py."""
    pytest.importorskip("transformers", reason=REASON)
    spec = importlib.util.spec_from_file_location("make_bert_goldens", HERE / "make_bert_goldens.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def converted(model, weights):
    """(module, parameters, configuration) of a model of PyTorch's"""
    kind, config = hf_config.config_from_hf(model.config.to_dict())
    config = hf_encoder.fit_config(config, weights)
    return models.build(kind, config), hf_encoder.to_params(weights, config).params, config


def states_and_logits(module, tokens, **inputs):
    states = module.backbone(tokens, all_layers=True, **inputs)
    return states, module.backbone.logits(states[-1])


def assert_close(ours, theirs):
    np.testing.assert_allclose(ours, theirs.detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_stored_goldens_are_what_the_script_makes(hugging_face, name):
    made = hugging_face.make_arrays(name, hugging_face.MODELS[name][2])
    with np.load(HERE / "goldens" / f"{name}.npz") as stored:
        assert set(stored) == set(made)
        for key in made.keys() - {"config"}:
            np.testing.assert_allclose(stored[key], made[key], rtol=1e-5, atol=1e-5, err_msg=key)


@pytest.mark.parametrize(
    "name, changes",
    [
        ("bert", {"hidden_act": "gelu_new", "layer_norm_eps": 0.1}),
        ("distilbert", {"activation": "relu"}),
        ("xlm_roberta", {"layer_norm_eps": 0.1, "num_hidden_layers": 2}),
        ("xlm", {"gelu_activation": False, "layer_norm_eps": 0.1}),
        ("xlm_languages", {}),
    ],
)
def test_outputs_and_gradients_of_other_weights(hugging_face, torch, name, changes):
    model, inputs = hugging_face.make_model(name, 17, **changes), hugging_face.make_inputs(name, 17)
    real = inputs["tokens"] != model.config.pad_token_id
    targets = np.random.default_rng(0).integers(0, hugging_face.VOCAB, real.shape)
    their_states, their_logits, _ = hugging_face.forward(model, inputs)
    labels = torch.tensor(np.where(real, targets, -100))
    their_loss = torch.nn.functional.cross_entropy(their_logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
    their_loss.backward()
    module, params, config = converted(model, hugging_face.weights_of(model))

    def loss_fn(params):
        states, logits = module.apply({"params": {"backbone": params}}, **inputs, method=states_and_logits)
        nll = -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], axis=-1)[..., 0]
        return jnp.sum(nll * real) / real.sum(), (states, logits)

    (loss, (states, logits)), grads = jax.jit(jax.value_and_grad(loss_fn, has_aux=True))(params)
    for ours, theirs in zip((*states, logits, loss), (*their_states, their_logits, their_loss), strict=True):
        assert_close(ours, theirs)
    weights = dict(model.named_parameters(remove_duplicate=False))
    for key, ours in hf_encoder.from_params(grads, config).items():
        if (gradient := weights[key].grad) is None:  # the pooler's: the loss doesn't depend on it
            assert "pooler" in key and not ours.any()
            continue
        np.testing.assert_allclose(ours, gradient.numpy(), rtol=1e-4, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("name", NAMES)
def test_transformers_reads_what_we_write(hugging_face, tmp_path, name):
    from safetensors.numpy import save_file

    model, inputs = hugging_face.make_model(name, 5), hugging_face.make_inputs(name, 5)
    # Here with the second names of tied weights, which some files have.
    _, params, config = converted(model, {k: v.detach().numpy() for k, v in model.state_dict().items()})
    written = hf_config.config_to_hf(config)
    (tmp_path / "config.json").write_text(json.dumps(written))
    save_file(hf_encoder.from_params(params, config), tmp_path / "model.safetensors", metadata={"format": "pt"})
    reader = getattr(hugging_face.hf, written["architectures"][0])
    read, report = reader.from_pretrained(tmp_path, output_loading_info=True)
    # BERT's pooler is kept beside the MLM head; the class with both wants a sentence-pair head too.
    assert not report["missing_keys"] and all("pooler" in key for key in report["unexpected_keys"])
    states, logits, _ = hugging_face.forward(read, inputs)
    their_states, their_logits, _ = hugging_face.forward(model, inputs)
    assert_close(logits.detach(), their_logits)
    assert_close(states[-1].detach(), their_states[-1])


@pytest.mark.parametrize("name", ["bert", "xlm"])
def test_transformers_reads_a_backbone_alone(hugging_face, tmp_path, name):
    from safetensors.numpy import save_file

    model = hugging_face.make_model(name, 6)
    kind, config = hf_config.config_from_hf(model.config.to_dict())
    weights = {k: v.detach().numpy() for k, v in model.base_model.named_parameters()}
    config = hf_encoder.fit_config(config, weights)
    assert config["bert"]["mlm_head"] == "none"
    written = hf_encoder.from_params(hf_encoder.to_params(weights, config).params, config)
    assert written.keys() == weights.keys()
    (tmp_path / "config.json").write_text(json.dumps(hf_config.config_to_hf(config)))
    save_file(written, tmp_path / "model.safetensors", metadata={"format": "pt"})
    read, report = hugging_face.hf.AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    assert type(read) is type(model.base_model)
