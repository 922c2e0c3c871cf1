"""The mesh: sizes that no mesh has."""

import pytest

from vmsst_jax import sharding


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"fsdp": 0}, "make_mesh.fsdp is 0; wanted a whole number of 1 or more"),
        ({"model": "two"}, "make_mesh.model is 'two'"),
        ({"data": 0}, "make_mesh.data is 0"),
        ({"data": 2.5}, "make_mesh.data is 2.5"),
        ({"fsdp": 3}, "data 2 x fsdp 3 x model 1 needs 6 devices, 8 are here"),
    ],
)
def test_impossible_meshes(sizes, message):
    with pytest.raises(ValueError, match=message):
        sharding.make_mesh(**sizes)
