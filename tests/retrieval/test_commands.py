"""The commands on a real checkpoint, end to end."""

import io
import json

import numpy as np

import vmsst_jax
from vmsst_jax import embed, evaluate, search

LINES = ["the dog barks", "a big house", "", "le chien aboie fort"]


def test_embed(model_dir, tmp_path, capsys):
    (tmp_path / "in.txt").write_text("\n".join(LINES))
    embed.main([f"--checkpoint={model_dir}", f"--input={tmp_path}/in.txt", f"--output={tmp_path}/out.npy", "--step=3"])
    expected = vmsst_jax.load(model_dir, step=3).encode(LINES)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, atol=1e-6)
    assert "4 rows of 16 float32, 1 lines empty, 0 truncated to 20 tokens" in capsys.readouterr().out


def test_search(model_dir, tmp_path, capsys, monkeypatch):
    (tmp_path / "in.txt").write_text("\n".join(LINES))
    queries = io.TextIOWrapper(io.BytesIO(b"a big house\nle chien aboie fort\n"))
    monkeypatch.setattr("sys.stdin", queries)
    search.main([f"--checkpoint={model_dir}", f"--corpus={tmp_path}/in.txt", "--top_k=1"])
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "query: a big house", "   1.0000  line 2: a big house",
        "query: le chien aboie fort", "   1.0000  line 4: le chien aboie fort",
    ]  # fmt: skip


def test_evaluate(model_dir, tmp_path, capsys):
    for ending in ("deu", "eng"):  # the same sentences on both sides: every model finds them
        (tmp_path / f"tatoeba.deu-eng.{ending}").write_text("the dog barks\na big house\nle chien\n")
    flags = [f"--checkpoint={model_dir}", "--benchmark=tatoeba", f"--data_dir={tmp_path}", f"--output={tmp_path}/r"]
    evaluate.main([*flags, f"--cache_dir={tmp_path}/cache"])
    saved = json.loads((tmp_path / "r" / "results.json").read_text())
    found = saved["per_language"]["deu"]
    assert (found["pairs"], found["seen"], found["xx->en"], found["en->xx"], found["mean"]) == (3, True, 1.0, 1.0, 1.0)
    assert saved["model"]["step"] == 7 and saved["sentences"]["sentences"] == 6
    assert "100.0" in capsys.readouterr().out
