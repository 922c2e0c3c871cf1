"""Files of sentence pairs with a gold similarity of 0 to 5: SemEval's STS 2012 to 2017, STS-B and its translations."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from vmsst_jax.benchmarks.sentences import read_columns
from vmsst_jax.retrieval.lines import read_lines

# A pair: (line in its file, gold score or "" where the pair is not scored, sentence, sentence).
Pair = tuple[int, str, str, str]

_PAIR = "score, sentence, sentence"
_YEAR = re.compile(r"sts\D{0,3}(?:20)?(1[2-7])(?!\d)", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Files:
    """Where one set lies: ``paths`` is one file with everything, or SemEval's input file and its gold file."""

    paths: tuple[Path, ...]

    def read(self) -> Scored:
        """The pairs with a gold score.

        Raises:
          FileNotFoundError, ValueError: a file is missing, empty, not UTF-8 or malformed, or its gold scores are
            missing, outside 0 to 5 or all the same; file and line are named.
        """
        if len(self.paths) == 2:
            pairs, gold_path = _semeval(*self.paths), self.paths[1]
        elif self.paths[0].suffix == ".tsv":
            rows = read_columns(self.paths[0], 3, _PAIR)
            pairs, gold_path = [(i, *row) for i, row in enumerate(rows, 1)], self.paths[0]
        else:
            pairs, gold_path = list(_csv(self.paths[0])), self.paths[0]
        scored = [pair for pair in pairs if pair[1].strip()]
        gold = np.array([_score(gold_path, line, text) for line, text, *_ in scored])
        if len(set(gold)) < 2:
            raise ValueError(
                f"{gold_path} has {len(gold)} gold scores, {len(set(gold))} of them different; a correlation wants two "
                "or more"
            )
        lines, _, first, second = zip(*scored, strict=True)
        return Scored(gold, list(first), list(second), list(lines), len(pairs) - len(scored))


@dataclasses.dataclass(frozen=True)
class Scored:
    """One set's pairs: gold float64 [n], sentences, their lines in the (first) file, how many have no gold score."""

    gold: np.ndarray
    first: list[str]
    second: list[str]
    lines: list[int]
    unscored: int


def find_semeval(data_dir: str | os.PathLike) -> dict[tuple[int, str], Files]:
    """{(year, set): its files} of SemEval's test sets in ``data_dir``, in either of two forms:

    * ``sts12.MSRpar.tsv`` and so on, lines ``score TAB sentence TAB sentence``;
    * as published, in folders at any depth: ``STS.input.MSRpar.txt`` and ``STS.gs.MSRpar.txt`` (2016:
      ``STS2016.input...``), below a folder whose name has the year, such as ``STS2012-gold`` or ``STS12-en-test``.
      Folders whose names say train or trial are left aside.

    Raises:
      FileNotFoundError: an input without gold scores.
      ValueError: two files for one set, or an input in a folder without a year.
    """
    folder, whole = Path(data_dir), {}
    parts: dict[str, dict[tuple[int, str], Path]] = {"input": {}, "gs": {}}
    for path in sorted(folder.glob("sts1[2-7].*.tsv")):
        whole[2000 + int(path.name[3:5]), path.name[6:-4]] = Files((path,))
    for path in sorted(folder.rglob("STS*.*.txt")):
        named = re.fullmatch(r"STS(?:20\d\d)?\.(input|gs)\.(.+)\.txt", path.name)
        inside = path.relative_to(folder).parent.parts
        if not named or any("train" in p.lower() or "trial" in p.lower() for p in inside):
            continue
        year = next((m for p in (path.name, *reversed(inside), folder.resolve().name) if (m := _YEAR.match(p))), None)
        if not year:
            raise ValueError(f"{path}: of which year? Put it into a folder named after it, such as STS2012-gold")
        key, known = (2000 + int(year[1]), named[2]), parts[named[1]]
        if key in known:
            raise ValueError(f"{path} and {known[key]} are the same set of STS {key[0]}; keep one of them")
        known[key] = path
    for key, path in parts["input"].items():
        if key not in parts["gs"]:
            raise FileNotFoundError(f"there is no gold file {path.name.replace('input', 'gs')} for {path}; fetch it")
        if key in whole:
            raise ValueError(f"{path} and {whole[key].paths[0]} are the same set of STS {key[0]}; keep one of them")
        whole[key] = Files((path, parts["gs"][key]))
    return whole


def find_stsb(data_dir: str | os.PathLike) -> dict[tuple[str, str], Files]:
    """{(split, language): its file} of STS-B in ``data_dir``, whichever of these forms is there:

    * ``stsb.de.dev.tsv``, lines ``score TAB sentence TAB sentence``;
    * stsb-multi-mt's ``stsb-de-dev.csv``, lines ``sentence,sentence,score`` with quotes;
    * the original ``sts-dev.csv``, columns genre, file, year, id, score, sentence, sentence with tabs between.

    Raises ValueError for two files of one split and language.
    """
    forms = (r"stsb\.(?P<language>\w+)\.(?P<split>\w+)\.tsv", r"stsb-(?P<language>\w+)-(?P<split>\w+)\.csv")
    found: dict[tuple[str, str], Files] = {}
    for path in sorted(Path(data_dir).glob("sts*")):
        for form in (*forms, r"sts-(?P<split>\w+)\.csv"):
            if named := re.fullmatch(form, path.name):
                key = named["split"], named.groupdict().get("language", "en")
                if key in found:
                    raise ValueError(f"{path} and {found[key].paths[0]} are the same set; keep one of them")
                found[key] = Files((path,))
    return found


def _semeval(inputs: Path, gold: Path) -> list[Pair]:
    sentences, scores = read_lines(inputs), read_lines(gold)
    if len(sentences) != len(scores):
        raise ValueError(
            f"{inputs} has {len(sentences)} lines and {gold} {len(scores)}; line i of one has to be line i of the other"
        )
    pairs = []
    for number, (line, score) in enumerate(zip(sentences, scores, strict=True), 1):
        cells = line.split("\t")  # 2016 names the sentences' sources behind them
        if len(cells) < 2:
            raise ValueError(f"{inputs}, line {number}: no tab; wanted sentence, tab, sentence")
        pairs.append((number, score, *cells[:2]))
    return pairs


def _csv(path: Path) -> Iterator[Pair]:
    """Pairs of stsb-multi-mt's or the original STS-B's file."""
    original = path.name.startswith("sts-")
    lines = read_lines(path)
    if original:
        rows: Iterable[tuple[int, list[str]]] = enumerate((line.split("\t") for line in lines), 1)
    else:
        reader = csv.reader(line + "\n" for line in lines)
        # A quoted sentence may run over lines: a row's own line is the one behind where the row before ended.
        starts = itertools.chain([1], (reader.line_num + 1 for _ in itertools.count()))
        rows = zip(starts, reader, strict=False)
    for line, cells in rows:
        if original and len(cells) >= 7:
            yield line, cells[4], cells[5], cells[6]
        elif not original and len(cells) == 3:
            yield line, cells[2], cells[0], cells[1]
        else:
            raise ValueError(
                f"{path}, line {line}: {len(cells)} columns; wanted "
                + ("7 with tabs between: genre, file, year, id, " + _PAIR if original else "sentence, sentence, score")
            )


def _score(path: Path, line: int, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not 0 <= value <= 5:
        raise ValueError(f"{path}, line {line}: the gold score is {text!r}; wanted a number from 0 to 5")
    return value
