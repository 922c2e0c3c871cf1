"""The wheel carries recipes and tasks: it works where no checkout is."""

import os
import pathlib
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
CHECK = """
import pathlib, vmsst_jax
from vmsst_jax import config
home = pathlib.Path(vmsst_jax.__file__).parents[1]
assert home.name == "installed", home
train = config.configure(["quickstart.gin"], [])
import vmsst_jax.tasks.gettext
assert pathlib.Path(vmsst_jax.tasks.gettext.__file__).is_relative_to(home)
print(train.keywords["model_dir"], len(train.keywords["languages"]))
"""


@pytest.mark.slow
def test_the_wheel_works_on_its_own(tmp_path):
    source = tmp_path / "source"
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for name in files:
        if name.split("/")[0] in ("vmsst_jax", "gin", "tasks", "pyproject.toml", "README.md", "LICENSE"):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for name in files:
        top, _, rest = name.partition("/")
        if top in ("vmsst_jax", "gin", "tasks"):
            packed = {"gin": f"vmsst_jax/recipes/{rest}", "tasks": f"vmsst_jax/tasks/{rest}"}.get(top, name)
            assert packed in names, name
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    empty = tmp_path / "empty"
    empty.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    done = subprocess.run([sys.executable, "-c", CHECK], cwd=empty, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["runs/quickstart", "21"]
