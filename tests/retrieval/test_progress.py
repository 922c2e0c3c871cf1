from vmsst_jax.retrieval.progress import Progress


def test_rate_counts_only_this_process(capsys):
    with Progress("embedding x", total=10_000, done=4_000) as progress:
        assert "goes on behind 4,000" in capsys.readouterr().err
        progress.update(2_000)
        assert progress.line(seconds=20) == "embedding x: 6,000 of 10,000 sentences, 100/s, 0 min 40 s left"
        progress.update(4_000)
        assert progress.line(seconds=60).endswith("10,000 of 10,000 sentences, 100/s, done")
    assert capsys.readouterr().err.count("\n") == 1  # the last update is always shown
    with Progress("quiet", total=1, shown=False) as progress:
        progress.update(1)
    assert capsys.readouterr().err == ""
