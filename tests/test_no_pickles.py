"""No file that somebody else may have written runs code when it is read: arrays without pickles, and one unpickler that
knows nothing but tensors (tests/interop/test_torch_file.py)."""

import ast
import functools
import pathlib

ROOT = pathlib.Path(__file__).parents[1]
FILES = [path for folder in ("vmsst_jax", "tasks") for path in sorted((ROOT / folder).rglob("*.py"))]
# What runs code that a file or a text names.
MODULES = {"pickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
UNPICKLER = "vmsst_jax/interop/torch_file.py"


@functools.cache
def nodes():
    """[(path below the root, node of its syntax tree)] of all files."""
    trees = {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text("utf-8")) for path in FILES}
    return [(path, node) for path, tree in trees.items() for node in ast.walk(tree)]


def found(test):
    """["path:line name"] of the calls that ``test(dotted name, keywords)`` is true of."""
    calls = [(path, node) for path, node in nodes() if isinstance(node, ast.Call)]
    named = ((path, node, ast.unparse(node.func)) for path, node in calls)
    return [
        f"{path}:{node.lineno} {name}"
        for path, node, name in named
        if test(name, {k.arg: ast.unparse(k.value) for k in node.keywords})
    ]


def test_arrays_are_read_without_pickles():
    def is_load(name, _):
        return name in ("np.load", "numpy.load", "np.lib.format.open_memmap", "np.lib.npyio.NpzFile")

    assert len(found(is_load)) >= 8
    assert found(lambda name, keywords: is_load(name, keywords) and keywords.get("allow_pickle") != "False") == []


def test_pickles_are_read_in_one_place():
    imported = set()
    for path, node in nodes():
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if MODULES & {name.split(".")[0] for name in names}:
            imported.add(path)
    assert imported == {UNPICKLER}
    assert found(lambda name, _: name in ("pickle.load", "pickle.loads", "torch.load", "eval", "exec")) == []


def test_archives_are_never_unpacked_by_their_own_names():
    assert found(lambda name, _: name.split(".")[-1] in ("extractall", "extract", "unpack_archive")) == []
    assert found(lambda _, keywords: keywords.get("shell") == "True" or "trust_remote_code" in keywords) == []
