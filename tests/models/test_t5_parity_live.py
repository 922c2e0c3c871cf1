"""Our T5 stacks against transformers + PyTorch at work: new weights, gradients, files, relative buckets.

pip install -e '.[parity,test]' && pytest -m parity
"""

import importlib.util
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vmsst_jax.interop import hf_t5
from vmsst_jax.models import t5

HERE = pathlib.Path(__file__).parent
NAMES = ("mt5", "t5_1_0")
REASON = "needs PyTorch and transformers: pip install 'vmsst_jax[parity]'"
pytestmark = pytest.mark.parity


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason=REASON)


@pytest.fixture(scope="module")
def hugging_face(torch):
    """The module make_t5_goldens.py."""
    pytest.importorskip("transformers", reason=REASON)
    spec = importlib.util.spec_from_file_location("make_t5_goldens", HERE / "make_t5_goldens.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", NAMES)
def test_stored_goldens_are_what_the_script_makes(hugging_face, name):
    made = hugging_face.make_arrays(name, hugging_face.SEEDS[name])
    with np.load(HERE / "goldens" / f"{name}.npz") as stored:
        assert set(stored) == set(made)
        for key, array in made.items():
            np.testing.assert_allclose(stored[key], array, rtol=1e-5, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("name", NAMES)
def test_outputs_and_gradients_of_other_weights(hugging_face, torch, t5_model, name):
    seed = 17
    model, inputs = hugging_face.make_model(name, seed), hugging_face.make_inputs(seed)
    tokens, targets = inputs["tokens"], inputs["targets"]
    theirs = hugging_face.forward(model, tokens, targets)
    labels = torch.tensor(np.where(targets > 0, targets, -100), dtype=torch.long)
    their_loss = torch.nn.functional.cross_entropy(theirs.logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
    their_loss.backward()

    def loss_fn(params):
        states, hidden, logits = t5_model(name)(params, tokens, targets)
        nll = -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], axis=-1)[..., 0]
        return jnp.sum(nll * (targets > 0)) / np.sum(targets > 0), (states, hidden, logits)

    params = hf_t5.model_params({k: v.detach() for k, v in model.named_parameters()})
    (loss, (states, hidden, logits)), grads = jax.jit(jax.value_and_grad(loss_fn, has_aux=True))(params)
    wanted = (*theirs.encoder_hidden_states, theirs.decoder_hidden_states[-1], theirs.logits, their_loss)
    for ours, tensor in zip((*states, hidden, logits, loss), wanted, strict=True):
        np.testing.assert_allclose(ours, tensor.detach(), rtol=1e-5, atol=1e-5)
    ours, theirs = hf_t5.model_state_dict(grads), dict(model.named_parameters())
    assert ours.keys() == theirs.keys()
    for key, weight in theirs.items():
        gradient = weight.grad.numpy()
        assert np.abs(gradient).max() > 1e-3, key
        np.testing.assert_allclose(ours[key], gradient, rtol=1e-4, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("name", NAMES)
def test_transformers_reads_what_we_write(hugging_face, t5_model, tmp_path, name):
    from safetensors.numpy import save_file

    model, inputs = hugging_face.make_model(name, 5), hugging_face.make_inputs(5)
    params = hf_t5.model_params(model.state_dict(), scan_layers=True)  # state_dict holds the tied copies too
    weights = {k: np.ascontiguousarray(v) for k, v in hf_t5.model_state_dict(params).items()}
    model.config.save_pretrained(tmp_path)
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    read, report = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    theirs = hugging_face.forward(read, inputs["tokens"], inputs["targets"])
    _, _, logits = t5_model(name, scan_layers=True)(params, inputs["tokens"], inputs["targets"])
    np.testing.assert_allclose(logits, theirs.logits.detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("buckets, max_distance", [(32, 128), (16, 64), (64, 256)])
def test_relative_buckets(hugging_face, torch, bidirectional, buckets, max_distance):
    ours = t5.relative_buckets(201, 201, bidirectional=bidirectional, buckets=buckets, max_distance=max_distance)
    positions = torch.arange(201)
    theirs = hugging_face.T5Attention._relative_position_bucket(
        positions[None] - positions[:, None], bidirectional, buckets, max_distance
    )
    np.testing.assert_array_equal(ours, theirs)
