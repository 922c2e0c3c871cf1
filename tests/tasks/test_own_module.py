"""A module outside the package registers a corpus; naming it is all that a run needs."""

import importlib
import sys

MODULE = '''
"""My corpus."""

import pathlib

import seqio

from vmsst_jax.tasks import parallel

FOLDER = pathlib.Path(__file__).parent

parallel.register_tsv("my_en_gd", FOLDER / "en-gd.tsv", languages=("en", "gd"), held_out=0.2)
parallel.register_tsv("my_en_cy", FOLDER / "en-cy.tsv", languages=("en", "cy"), held_out=0.2)
seqio.MixtureRegistry.add("my_corpus", [("my_en_gd", 2.0), ("my_en_cy", 1.0)])
'''


def test_a_module_outside_the_package(tmp_path, registry, read, monkeypatch):
    (tmp_path / "my_corpus_of_this_test.py").write_text(MODULE)
    for code in ("gd", "cy"):
        (tmp_path / f"en-{code}.tsv").write_text("".join(f"English {i}\t{code} {i}\n" for i in range(50)))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("my_corpus_of_this_test")
    try:
        train, validation = (read(name, split) for name, split in (("my_en_gd", "train"), ("my_en_gd", "validation")))
        assert len(train) + len(validation) == 50
        assert {e["target_lang"] for e in train} == {"gd"}
        mixed = registry.get_mixture_or_task("my_corpus").get_dataset(
            sequence_length=None, split="train", shuffle=True, seed=0, num_epochs=1
        )
        languages = {bytes(e["target_lang"]).decode() for e in mixed.as_numpy_iterator()}
        assert languages == {"gd", "cy"}
    finally:
        del sys.modules["my_corpus_of_this_test"]
