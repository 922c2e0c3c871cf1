"""A module outside the package registers a corpus: the one that docs/adding_a_corpus.md shows, taken from there."""

import gzip
import importlib
import pathlib
import re
import sys

import pytest

from vmsst_jax.data import registered

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "adding_a_corpus.md"
NAME = "my_corpus_of_this_test"


@pytest.fixture
def module(tmp_path, registry, monkeypatch):
    """Imports all Python of the document as one module that lies beside its files."""
    blocks = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    (tmp_path / f"{NAME}.py").write_text("\n".join(blocks), "utf-8")
    for code in ("gd", "cy"):
        (tmp_path / f"en-{code}.tsv").write_text("".join(f"English {i}\t{code} {i}\n" for i in range(100)))
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module(NAME)
    del sys.modules[NAME]


def test_the_documented_module_is_read_by_seqio(module, registry, read):
    train, validation = read("my_en_gd"), read("my_en_gd", "validation")
    assert len(train) + len(validation) == 100
    assert {(e["source_lang"], e["target_lang"]) for e in train} == {("en", "gd")}
    welsh = {e["source"] for e in read("my_en_cy", "validation")}
    assert welsh == {e["source"] for e in validation}
    assert not welsh & {e["source"] for e in train}
    for name in ("my_corpus", "my_corpus_by_size"):
        mixed = read(name, shuffle=True, seed=0)
        assert {e["target_lang"] for e in mixed} == {"gd", "cy"}
    assert read("my_own_reader")[0]["target"] == "madainn mhath"


def test_the_documented_documents_are_read_by_seqio(module, read, tmp_path):
    (tmp_path / "gd").mkdir()
    (tmp_path / "gd" / "a.txt").write_text("Aon.\nDhà.\n\nTrì.\n")
    (tmp_path / "cy_head_0.json.gz").write_bytes(gzip.compress(b'{"raw_content": "Un. Dau."}\n'))
    for code in ("gd", "cy"):
        (tmp_path / f"{code}.tsv").write_text(f"MRK 1:1\t{code} 1\nMRK 1:2\t{code} 2\n")
    rows = list(registered.examples_of("my_documents", "train", fields=registered.DOCUMENT))
    assert {(row["lang"], row["text"]) for row in rows} == {
        *(("gd", "Aon.\nDhà."), ("gd", "Trì.")),
        *(("cy", "Un.\nDau."), ("gd", "gd 1\ngd 2"), ("cy", "cy 1\ncy 2")),
    }
    assert read("my_documents")[0] in rows
