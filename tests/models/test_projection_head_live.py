"""CCP's projection head against PyTorch at work.

pip install -e '.[parity,test]' && pytest -m parity
"""

import importlib.util
import pathlib

import numpy as np
import pytest

HERE = pathlib.Path(__file__).parent
pytestmark = pytest.mark.parity


def load(name):
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pytorch():
    """The module make_head_goldens.py."""
    pytest.importorskip("torch", reason="needs PyTorch: pip install 'vmsst_jax[parity]'")
    return load("make_head_goldens")


def test_the_stored_golden_is_what_the_script_makes(pytorch):
    made = pytorch.make_arrays()
    with np.load(pytorch.GOLDEN) as stored:
        assert set(stored) == set(made)
        for name in made:
            np.testing.assert_allclose(stored[name], made[name], rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("mode", ["asymmetric", "vanilla"])
def test_other_sizes(pytorch, mode):
    replay = load("test_projection_head").replay
    arrays = pytorch.make_arrays(5, pairs=3, widths=(4, 11, 6))
    for name, value in replay(arrays, mode).items():
        np.testing.assert_allclose(value, arrays[f"{mode}/{name}"], rtol=1e-4, atol=1e-4, err_msg=name)
