"""No file that somebody else may have written runs code when it is read: arrays without pickles, and one unpickler that
knows nothing but tensors (tests/interop/test_torch_file.py)."""

import ast
import pathlib

ROOT = pathlib.Path(__file__).parents[1]
FILES = [path for folder in ("vmsst_jax", "tasks") for path in sorted((ROOT / folder).rglob("*.py"))]
# What runs code that a file or a text names.
MODULES = {"pickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
UNPICKLER = "vmsst_jax/interop/torch_file.py"


def calls(tree):
    """(line, dotted name, keywords) of every call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield node.lineno, ast.unparse(node.func), {k.arg: ast.unparse(k.value) for k in node.keywords}


def found(test):
    return [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in FILES
        for line, name, keywords in calls(ast.parse(path.read_text("utf-8")))
        if test(name, keywords)
    ]


def test_arrays_are_read_without_pickles():
    def is_load(name, _):
        return name in ("np.load", "numpy.load", "np.lib.format.open_memmap", "np.lib.npyio.NpzFile")

    assert len(found(is_load)) >= 8
    assert found(lambda name, keywords: is_load(name, keywords) and keywords.get("allow_pickle") != "False") == []


def test_pickles_are_read_in_one_place():
    imported = set()
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if MODULES & {name.split(".")[0] for name in names}:
                imported.add(path.relative_to(ROOT).as_posix())
    assert imported == {UNPICKLER}
    assert found(lambda name, _: name in ("pickle.load", "pickle.loads", "torch.load", "eval", "exec")) == []


def test_archives_are_never_unpacked_by_their_own_names():
    assert found(lambda name, _: name.split(".")[-1] in ("extractall", "extract", "unpack_archive")) == []
    assert found(lambda _, keywords: keywords.get("shell") == "True" or "trust_remote_code" in keywords) == []
