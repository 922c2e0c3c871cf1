"""The shape of the package: which part imports what, what importing it starts, and the sizes of files and functions."""

import ast
import functools
import pathlib
import re
import subprocess
import sys
import tomllib

import gin
import pytest

ROOT = pathlib.Path(__file__).parents[1]
# From the ground up; a part imports from its own floor and from those before it.
FLOORS = [
    {"checks", "runtime", "processes", "hub", "company", "sharding", "command", "disk", "language_codes"},
    {"interop"},
    {"data"},
    {"models", "objectives"},
    {"training"},
    {"conversion"},
    {"retrieval", "words"},
    {"translation"},
    {"benchmarks"},
    {"experiments"},
    {"pipelines"},
    {"config", "tasks"},  # config registers parts of every floor; tasks are loaded by name
    {"preparation"},  # reads the tables of the tasks that it prepares
    {
        *("train", "embed", "evaluate", "search", "convert", "profile", "calibrate", "mine", "translate", "experiment"),
        *("text", "pipeline", "word_mapping"),
    },
    {"prepare"},
]
FLOOR = {name: height for height, names in enumerate(FLOORS) for name in names}
# The package's own __init__ offers `load`; tasks have a test of their own.
EXEMPT = {"__init__", "tasks"}
# What only these parts may import.
KEPT = {
    "gin": {"config", "tasks"},
    "seqio": {"data", "tasks"},
    "tensorflow": {"data", "tasks"},
    "tensorflow_datasets": {"data", "tasks"},
    "scann": {"retrieval"},
    "apache_beam": {"preparation"},
}


@functools.cache
def sources():
    """{path below the root: syntax tree} of the package and its tasks."""
    files = [f for folder in ("vmsst_jax", "tasks") for f in sorted((ROOT / folder).rglob("*.py"))]
    return {f.relative_to(ROOT).as_posix(): ast.parse(f.read_text("utf-8")) for f in files}


def part(path):
    """The part of the package that a file belongs to: "data", "config", "tasks", ..."""
    parts = path.removesuffix(".py").split("/")
    return parts[0] if parts[0] == "tasks" else parts[1]


def imports(tree):
    """(line, dotted name) of every import in a file, also of those inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in line {node.lineno}"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def imports_of_ours():
    for path, tree in sources().items():
        for line, name in imports(tree):
            names = name.split(".")
            if names[0] == "vmsst_jax" and len(names) > 1:
                yield f"{path}:{line} imports {name}", part(path), names[1]


def test_every_part_has_a_floor():
    parts = {part(path) for path in sources()} - EXEMPT
    assert parts <= FLOOR.keys(), f"add {sorted(parts - FLOOR.keys())} to FLOORS"


def test_parts_import_downwards():
    upwards = [
        where
        for where, here, there in imports_of_ours()
        if here not in EXEMPT and FLOOR.get(there, 99) > FLOOR.get(here, 99)
    ]
    assert upwards == []


def test_models_and_objectives_do_not_know_each_other():
    pairs = {("models", "objectives"), ("objectives", "models")}
    assert [where for where, here, there in imports_of_ours() if (here, there) in pairs] == []


def test_tasks_use_the_data_floor_and_checks_alone():
    allowed = ("data", "tasks", "checks")
    assert [w for w, here, there in imports_of_ours() if here == "tasks" and there not in allowed] == []


@pytest.mark.parametrize("library", KEPT)
def test_libraries_stay_in_their_parts(library):
    outside = [
        f"{path}:{line}"
        for path, tree in sources().items()
        for line, name in imports(tree)
        if name.split(".")[0] == library and part(path) not in KEPT[library]
    ]
    assert outside == []


@pytest.mark.parametrize("library", ["tensorflow", "seqio", "scann", "apache_beam"])
def test_heavy_libraries_are_imported_late(library):
    """In the package; modules in tasks/ are imported when a recipe names them."""
    early = [
        f"{path}:{node.lineno}"
        for path, tree in sources().items()
        if part(path) != "tasks"
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for _, name in imports(ast.Module([node], []))
        if name.split(".")[0] == library
    ]
    assert early == []


def test_importing_the_package_starts_nothing():
    code = (
        "import sys, vmsst_jax\n"
        "loaded = {'tensorflow', 'seqio', 'scann', 'gin'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
        "bridge = sys.modules.get('jax._src.xla_bridge')\n"
        "assert bridge is None or not bridge.backends_are_initialized()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_recipes_do_not_hide_gin():
    """A package named gin in the root would be found instead of gin-config by whoever runs from there."""
    assert not list((ROOT / "gin").rglob("__init__.py"))
    code = "import gin; print(gin.__file__)"
    found = subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True, text=True).stdout
    assert found.strip() == gin.__file__


def lines_of(function):
    """Lines of a function from its name to its end, its docstring left out."""
    lines = function.end_lineno - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function) is not None:
        lines -= first.end_lineno - first.lineno + 1
    return lines


def test_files_and_functions_are_short():
    long = []
    files = [*sources(), *(f.relative_to(ROOT).as_posix() for f in (ROOT / "tests").rglob("*.py"))]
    for path in files:
        text = (ROOT / path).read_text("utf-8")
        if (lines := len(text.splitlines())) >= 400:
            long.append(f"{path}: {lines} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (lines := lines_of(node)) >= 60:
                long.append(f"{path}:{node.lineno} {node.name}: {lines} lines")
    assert long == []


def test_extras_have_names_that_every_pip_finds():
    """With "_" in its name an extra is left out by pip 23.2, with no more than a warning."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert "word-vectors" in extras
    assert [name for name in extras if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)] == []
