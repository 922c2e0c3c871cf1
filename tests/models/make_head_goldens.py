"""Writes tests/models/goldens/projection_head.npz: CCP's projection head in PyTorch, step by step, in both modes.

    pip install -e '.[parity]' && python tests/models/make_head_goldens.py

Made on the CPU in float32; weights and inputs come from numpy's generator. tests/models/test_projection_head.py
compares our head with the file; test_projection_head_live.py, where PyTorch is installed, checks that the file is what
this script makes and repeats the comparison with other sizes.
"""

import pathlib

import numpy as np
import torch

GOLDEN = pathlib.Path(__file__).parent / "goldens" / "projection_head.npz"
STEPS, PAIRS, WIDTHS = 5, 6, (7, 9, 4)  # of the vectors, between the head's products, of its result


def make_inputs(seed: int, pairs: int = PAIRS, widths=WIDTHS) -> dict[str, np.ndarray]:
    """Weights of a head, and for every step the two sides' vectors and the gradient that arrives at their results."""
    rng = np.random.default_rng(seed)
    d, h, f = widths
    shapes = {"hidden": (h, d), "scale": (h,), "bias": (h,), "projection": (f, h), "offset": (f,)}
    arrays = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    arrays["scale"] = 1 + 0.3 * arrays["scale"]
    for side in ("centre", "context"):
        arrays[side] = 2.0 * rng.normal(size=(STEPS, pairs, d)) + rng.normal(size=(STEPS, 1, d))
        arrays[f"{side}_cotangent"] = rng.normal(size=(STEPS, pairs, f))
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def make_head(inputs) -> torch.nn.Sequential:
    h, d = inputs["hidden"].shape
    f = len(inputs["offset"])
    layers = (torch.nn.Linear(d, h, bias=False), torch.nn.BatchNorm1d(h), torch.nn.ReLU(), torch.nn.Linear(h, f))
    head = torch.nn.Sequential(*layers)
    values = ("hidden", "scale", "bias", "projection", "offset")
    for parameter, name in zip(head.parameters(), values, strict=True):
        parameter.data = torch.tensor(inputs[name])
    return head


def evaluate(head, vectors):
    """The head in evaluation mode, on copies of the running statistics: PyTorch's backward pass reads them again, and
    would find those that the other side has meanwhile updated."""
    hidden, norm, relu, projection = head
    statistics = (norm.running_mean.clone(), norm.running_var.clone())
    normed = torch.nn.functional.batch_norm(hidden(vectors), *statistics, norm.weight, norm.bias, False, 0.0, norm.eps)
    return projection(relu(normed))


def run(inputs, mode: str) -> dict[str, np.ndarray]:
    """Every step's results, running statistics after it, and gradients of the parameters and vectors."""
    head, out = make_head(inputs), {}
    for step in range(len(inputs["centre"])):
        sides = {name: torch.tensor(inputs[name][step], requires_grad=True) for name in ("centre", "context")}
        trained = ("centre", "context") if mode == "vanilla" else (("centre", "context")[step % 2],)
        z = {}
        # The side in evaluation mode first: it sees the running statistics as they were.
        for name in sorted(sides, key=lambda side: (side in trained, side)):
            z[name] = head.train()(sides[name]) if name in trained else evaluate(head, sides[name])
        head.zero_grad()
        sum((z[name] * torch.tensor(inputs[f"{name}_cotangent"][step])).sum() for name in z).backward()
        found = {name: value for name, value in z.items()}
        found |= {"mean": head[1].running_mean, "variance": head[1].running_var}
        found |= {f"{name}_gradient": side.grad for name, side in sides.items()}
        found |= {"hidden_gradient": head[0].weight.grad, "scale_gradient": head[1].weight.grad}
        for name, value in found.items():
            out.setdefault(f"{mode}/{name}", []).append(value.detach().clone().numpy())
    return {name: np.stack(values) for name, values in out.items()}


def make_arrays(seed: int = 0, **sizes) -> dict[str, np.ndarray]:
    """Everything that goes into the file."""
    inputs = make_inputs(seed, **sizes)
    return inputs | run(inputs, "asymmetric") | run(inputs, "vanilla")


if __name__ == "__main__":
    np.savez_compressed(GOLDEN, **make_arrays())
    print(f"{GOLDEN.name}: {GOLDEN.stat().st_size:,} bytes")
