"""The command's dialogue, with a stand-in for the search itself; tests/retrieval runs it on a real checkpoint."""

import io
from types import SimpleNamespace

import pytest

from vmsst_jax import command, search
from vmsst_jax.retrieval import embedder, text_search
from vmsst_jax.retrieval.text_search import Hit


@pytest.fixture
def asked(monkeypatch):
    """Batches of queries that reached the search, which finds the query itself at line 1."""
    batches = []

    class Echo:
        blank = 0

        def __init__(self, model, corpus, cache_dir, query_embedder):
            pass

        def search(self, queries, k):
            batches.append(list(queries))
            return [[Hit(0.5, 1, query.upper())] * k for query in queries]

    monkeypatch.setattr(embedder, "load", lambda *args, **options: None)
    monkeypatch.setattr(text_search, "TextSearch", Echo)
    return batches


def run(*flags):
    command.run(search.NAME, search.main, ["--checkpoint=model", "--corpus=lines.txt", *flags])


def pipe(monkeypatch, *chunks):
    """Standard input that hands out ``chunks`` one read at a time, as a pipe does."""
    rest = list(chunks)
    stdin = SimpleNamespace(buffer=SimpleNamespace(read1=lambda n: rest.pop(0) if rest else b""), isatty=lambda: False)
    monkeypatch.setattr("sys.stdin", stdin)


def test_one_query(asked, capsys):
    run("--query=hello", "--top_k=2")
    assert capsys.readouterr().out == "query: hello\n" + 2 * "   0.5000  line 1: HELLO\n"


def test_piped_queries(asked, capsys, monkeypatch):
    pipe(monkeypatch, b"one\ntwo\n\nthr", b"ee\r\n", "fünf".encode())
    run()
    assert asked == [["one", "two"], ["three"], ["fünf"]]
    assert capsys.readouterr().out.count("query: ") == 4


def test_piped_queries_that_are_not_utf8(asked, capsys, monkeypatch):
    pipe(monkeypatch, b"fine\n", b"na\xefve\n")
    with pytest.raises(SystemExit) as stopped:
        run()
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "vmsst_jax.search: error: standard input, line 2: not valid UTF-8\n"


def test_typed_queries(asked, monkeypatch):
    typed = io.StringIO("one\n\n  two\n")
    typed.isatty = lambda: True
    monkeypatch.setattr("sys.stdin", typed)
    run()
    assert asked == [["one"], ["two"]]


def test_an_empty_query(asked, capsys):
    for query in ("", "  "):
        with pytest.raises(SystemExit):
            run(f"--query={query}")
        assert "--query is empty; give a sentence" in capsys.readouterr().err
    assert asked == []
