"""Lines per second and peak memory of corpus preparation, on a corpus and on one of ten times its size.

    python tests/perf/prepare_memory.py --tatoeba=DATA/tatoeba
    python tests/perf/prepare_memory.py --lines=50000 --factor=4

The corpus has OPUS's published form and is made of the translations in the installed packages (gettext) and, with
--pairs, of tab-separated files, as often as it takes, each time with another number at the end. In every 500th pair a
test sentence is planted in capitals: one of --tatoeba's, or of a hundred made up ones. Memory is that of the whole
process tree, as resident sets, looked at ten times a second.
"""

from __future__ import annotations

import argparse
import glob
import itertools
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import zipfile

import psutil
import timing


def pairs_at_hand(files: list[str]) -> dict[str, list[tuple[str, str]]]:
    """{language: [(English, translation)]} of the catalogues and of the last columns of ``files`` (en-LANGUAGE.tsv)."""
    from vmsst_jax import config
    from vmsst_jax.data import registered

    config.import_tasks("gettext")
    found: dict[str, list] = {}
    for example in registered.examples_of("gettext", "train"):
        sides = {example["source_lang"]: example["source"], example["target_lang"]: example["target"]}
        other = next((code for code in sides if code != "en"), None)
        if other is not None and "en" in sides:
            found.setdefault(other, []).append(tuple(" ".join(sides[code].split()) for code in ("en", other)))
    for file in files:
        language = pathlib.Path(file).stem.split("-")[1]
        rows = [line.split("\t") for line in pathlib.Path(file).read_text("utf-8").splitlines()]
        found.setdefault(language, []).extend((row[-2], row[-1]) for row in rows if len(row) > 1)
    return found


def make_corpus(root: pathlib.Path, pairs: dict, lines: int, tests: list[str]) -> int:
    """Writes one archive a language, ``lines`` pairs in all, and the table; a fifth of later lines are repetitions."""
    languages = sorted(pairs, key=lambda code: -len(pairs[code]))[:12]
    rows = ["language\tpivot\tthousand_pairs\tcorpora\tfiles"]
    total = 0
    for language in languages:
        folder = root / "in/GlobalVoices"
        folder.mkdir(parents=True, exist_ok=True)
        count = lines // len(languages)
        codes = sorted(("en", language))
        name = "-".join(codes)
        with zipfile.ZipFile(folder / f"{name}.txt.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for side, code in enumerate(("en", language)):
                with archive.open(f"GlobalVoices.{name}.{code}", "w") as out:
                    for i, pair in enumerate(itertools.islice(itertools.cycle(pairs[language]), count)):
                        turn = i // len(pairs[language])
                        # Every fifth turn repeats the one before, word for word.
                        text = f"{pair[side]} {turn - (turn % 5 == 4)}"
                        if side == 0 and i % 500 == 0:
                            text = tests[i // 500 % len(tests)].upper()
                        out.write(f"{text}\n".encode())
        total += count
        rows.append(f"{language}\ten\t{0.6 * count / 1000}\tGlobalVoices\tperf/en-{language}/*.tsv")
    (root / "table.tsv").write_text("\n".join(rows) + "\n")
    return total


def run(root: pathlib.Path, tests: list[str], vocabulary: str, options: list[str]) -> tuple[float, float]:
    """(seconds, MB at most) of one preparation."""
    command = [sys.executable, "-m", "vmsst_jax.prepare", f"--opus={root / 'in'}", f"--table={root / 'table.tsv'}"]
    command += [f"--output={root / 'out'}", f"--vocabulary={vocabulary}", *(f"--test={t}" for t in tests), *options]
    begin, most = time.perf_counter(), 0
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    tree = psutil.Process(process.pid)
    while process.poll() is None:
        try:
            most = max(most, sum(p.memory_info().rss for p in [tree, *tree.children(recursive=True)]))
        except psutil.NoSuchProcess:
            pass
        time.sleep(0.1)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    print("  " + process.stdout.read().splitlines()[0])
    return time.perf_counter() - begin, most / 1e6


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--lines", type=int, default=500_000, help="of the smaller corpus (%(default)s)")
    flags.add_argument("--factor", type=int, default=10, help="how much larger the other one is (%(default)s)")
    flags.add_argument("--pairs", action="append", default=[], metavar="PATTERN", help="files named en-LANGUAGE.tsv")
    flags.add_argument("--tatoeba", metavar="DIR", help="folder of Tatoeba's test files")
    flags.add_argument("--partition_mb", type=int, default=8)
    flags.add_argument("--workers", type=int, default=1)
    a = flags.parse_args()

    from vmsst_jax.data.tokenizer import Tokenizer

    pairs = pairs_at_hand([file for pattern in a.pairs for file in sorted(glob.glob(pattern))])
    sample = [text for rows in pairs.values() for pair in rows[:500] for text in pair]
    options = [f"--partition_mb={a.partition_mb}", f"--workers={a.workers}"]
    print(timing.machine("apache-beam"), *options)
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        home = pathlib.Path(folder)
        (home / "v.model").write_bytes(Tokenizer.train(sample, 8000).serialized)
        (home / "tests.txt").write_text("".join(f"This is test sentence {i}.\n" for i in range(100)))
        tests = [os.path.join(a.tatoeba, "tatoeba.*-eng.*")] if a.tatoeba else [str(home / "tests.txt")]
        with open(os.path.join(a.tatoeba, "tatoeba.deu-eng.eng") if a.tatoeba else home / "tests.txt", "rb") as file:
            planted = file.read().decode().splitlines()
        for factor in (1, a.factor):
            lines = make_corpus(home / str(factor), pairs, factor * a.lines, planted)
            seconds, megabytes = run(home / str(factor), tests, str(home / "v.model"), options)
            results[factor] = megabytes
            print(f"{lines:,} lines: {seconds:.1f} s, {lines / seconds:,.0f} lines/s, {megabytes:,.0f} MB at most")
    print(f"memory of {a.factor} times the lines: {results[a.factor] / results[1]:.2f} times as much")


if __name__ == "__main__":
    main()
