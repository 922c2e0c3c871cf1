"""Sets for mining in the form of BUCC 2018: read, made from any line-aligned pairs, and written.

    xx-yy.SPLIT.xx      id TAB sentence
    xx-yy.SPLIT.yy      id TAB sentence
    xx-yy.SPLIT.gold    id of xx TAB id of yy, for the sentences that translate each other

The files of a pair of languages lie in a folder ``xx-yy``, as BUCC's archives unpack, or directly in ``data_dir``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vmsst_jax.benchmarks.sentences import read_columns
from vmsst_jax.retrieval.lines import read_lines

SPLITS = ("sample", "training", "test")  # BUCC's own
MADE_SPLITS = ("training", "test")


class MiningSet(NamedTuple):
    """Two monolingual collections in which translations are hidden.

    Attributes:
      source, target: {id: sentence}.
      gold: [(id of source, id of target)].
      files: where it was read: source, target, gold.
    """

    source: dict[str, str]
    target: dict[str, str]
    gold: list[tuple[str, str]]
    files: tuple[Path, Path, Path]


def find_pairs(data_dir: str | os.PathLike, split: str) -> list[str]:
    """The names "xx-yy" of the pairs of languages that have such a split; FileNotFoundError where there are none."""
    folder = Path(data_dir)
    found = [*folder.glob(f"*-*.{split}.*"), *folder.glob(f"*-*/*-*.{split}.*")]
    names = {path.name.split(".")[0] for path in found if len(path.name.split(".")) == 3}
    if not names:
        raise FileNotFoundError(
            f"{folder} holds no files xx-en.{split}.xx, xx-en.{split}.en and xx-en.{split}.gold, directly or in "
            "folders xx-en, as BUCC 2018 has them"
        )
    return sorted(names)


def read(data_dir: str | os.PathLike, pair: str, split: str, gold_dir: str | os.PathLike | None = None) -> MiningSet:
    """One split of one pair of languages, such as "de-en".

    Args:
      gold_dir: where the file with gold lies if elsewhere: that of BUCC's test split was never published.

    Raises:
      FileNotFoundError: a file is missing.
      ValueError: one is empty or not UTF-8, a line has other columns or no sentence, an id is there twice, gold names
        an unknown id or a pair twice; file and line are named.
    """
    folder = Path(data_dir, pair) if Path(data_dir, pair).is_dir() else Path(data_dir)
    one, other = pair.split("-")
    files = [folder / f"{pair}.{split}.{ending}" for ending in (one, other, "gold")]
    if gold_dir is not None:
        files[2] = Path(gold_dir) / files[2].name
    elif not files[2].is_file():
        raise FileNotFoundError(
            f"{files[2]} does not exist; without gold nothing can be scored: say with the option gold_dir where it is, "
            "or take another split"
        )
    source, target = (_read_side(path) for path in files[:2])
    return MiningSet(source, target, _read_gold(files[2], (source, target), files), tuple(files))


def _read_side(path: Path) -> dict[str, str]:
    sentences, lines = {}, {}
    for number, (name, text) in enumerate(read_columns(path, 2, "id, sentence"), 1):
        if not text.strip():
            raise ValueError(
                f"{path}, line {number}: the sentence {name} is empty; remove its line, or fetch the file again"
            )
        if name in sentences:
            raise ValueError(f"{path}, line {number}: the id {name} is that of line {lines[name]} already")
        sentences[name], lines[name] = text, number
    return sentences


def _read_gold(path: Path, sides: tuple[dict, dict], files: Sequence[Path]) -> list[tuple[str, str]]:
    gold = {}
    for number, (source, target) in enumerate(read_columns(path, 2, "id of one side, id of the other"), 1):
        for name, side, file in zip((source, target), sides, files, strict=False):
            if name not in side:
                raise ValueError(f"{path}, line {number}: no sentence of {file} has the id {name!r}")
        if (source, target) in gold:
            raise ValueError(
                f"{path}, line {number}: {source} and {target} are the pair of line {gold[source, target]}"
            )
        gold[source, target] = number
    return list(gold)


def make(
    pairs: Sequence[tuple[str, str]],
    source_distractors: Sequence[str],
    target_distractors: Sequence[str],
    *,
    hidden: int,
    languages: tuple[str, str],
    seed: int = 0,
    files: tuple[Path, Path, Path] = (Path("source"), Path("target"), Path("gold")),
) -> dict[str, MiningSet]:
    """Hides translations among sentences that have none: a set to tune on and one to test on, without common sentences.

    Sentences that are there several times are used once, and pairs of which a side is there several times not at all.

    Args:
      pairs: translations, at least 2 x ``hidden`` of them usable.
      source_distractors, target_distractors: sentences without translation on the other side; each set gets half.
      hidden: pairs in each set.
      languages: their codes, which begin the ids.
      seed: of what is chosen and of the order.
      files: where the sentences come from, for messages.

    Returns:
      {"training": set, "test": set}.

    Raises:
      ValueError: too few pairs.
    """
    draw = np.random.default_rng(seed)
    sides = [[text for text in side if text.strip()] for side in zip(*pairs, strict=True)] if pairs else [[], []]
    counts = [
        _counts([*side, *more]) for side, more in zip(sides, (source_distractors, target_distractors), strict=True)
    ]
    usable = [(a, b) for a, b in pairs if counts[0].get(a) == 1 and counts[1].get(b) == 1]
    if hidden < 1 or len(usable) < 2 * hidden:
        raise ValueError(
            f"{len(usable)} of {len(pairs)} pairs of {files[0]} and {files[1]} are usable, without repeated or blank "
            f"sentences; to hide {hidden} in each of two sets, {2 * hidden} are wanted"
        )
    chosen = [usable[i] for i in draw.permutation(len(usable))[: 2 * hidden]]
    rest = [
        _shuffled(dict.fromkeys(filter(str.strip, side)), draw) for side in (source_distractors, target_distractors)
    ]
    made = {}
    for number, split in enumerate(MADE_SPLITS):
        gold = chosen[number * hidden : (number + 1) * hidden]
        named = []
        for side, code in enumerate(languages):
            half = [*(pair[side] for pair in gold), *rest[side][number::2]]
            named.append({f"{code}-{i:09d}": text for i, text in enumerate(_shuffled(half, draw), 1)})
        ids = [{text: name for name, text in side.items()} for side in named]
        made[split] = MiningSet(*named, [(ids[0][a], ids[1][b]) for a, b in gold], files)
    return made


def hide(
    pairs: Sequence[tuple[str, str]],
    hidden: int,
    *,
    languages: tuple[str, str],
    seed: int = 0,
    files: tuple[Path, Path, Path] = (Path("source"), Path("target"), Path("gold")),
) -> dict[str, MiningSet]:
    """``make`` without text but the pairs: 2 x ``hidden`` of them stay whole, and of the others one side alone is kept.

    ``languages``, ``seed`` and ``files``, the result and what is raised are as there.
    """
    sides = tuple(zip(*pairs, strict=True)) if pairs else ((), ())
    counts = [_counts(side) for side in sides]
    order = np.random.default_rng(seed).permutation(len(pairs)).tolist()
    # Sentences that are there twice can't be hidden; sorting is stable.
    order.sort(key=lambda i: counts[0][pairs[i][0]] > 1 or counts[1][pairs[i][1]] > 1)
    whole, rest = order[: 2 * hidden], order[2 * hidden :]
    alone = [sides[0][i] for i in rest[::2]], [sides[1][i] for i in rest[1::2]]
    return make([pairs[i] for i in whole], *alone, hidden=hidden, languages=languages, seed=seed, files=files)


def _counts(texts: Sequence[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for text in texts:
        counts[text] = counts.get(text, 0) + 1
    return counts


def _shuffled(texts, draw: np.random.Generator) -> list[str]:
    texts = list(texts)
    return [texts[i] for i in draw.permutation(len(texts))]


def make_from_files(
    source: str | os.PathLike,
    target: str | os.PathLike,
    source_distractors: str | os.PathLike,
    target_distractors: str | os.PathLike,
    output: str | os.PathLike,
    *,
    languages: tuple[str, str],
    hidden: int = 10_000,
    seed: int = 0,
) -> dict[str, MiningSet]:
    """Makes sets out of text files and writes them, in the form that the benchmark ``bucc`` reads.

    Args:
      source, target: line i of one translates line i of the other.
      source_distractors, target_distractors: monolingual text.
      output: folder for the files; "training" and "test" are its splits.
      languages, hidden, seed: see ``make``.

    Raises:
      ValueError, FileNotFoundError: a file is missing, empty or not UTF-8, the first two have other numbers of lines,
        or there are too few pairs.
      FileExistsError: a file is there already.
    """
    sides = read_lines(source), read_lines(target)
    if len(sides[0]) != len(sides[1]):
        raise ValueError(
            f"{source} has {len(sides[0])} lines and {target} {len(sides[1])}; line i of one has to translate line i "
            "of the other"
        )
    made = make(
        list(zip(*sides, strict=True)),
        read_lines(source_distractors),
        read_lines(target_distractors),
        hidden=hidden,
        languages=languages,
        seed=seed,
        files=(Path(source), Path(target), Path(output)),
    )
    for split, contents in made.items():
        write(output, "-".join(languages), split, contents)
    return made


def write(output: str | os.PathLike, pair: str, split: str, contents: MiningSet) -> None:
    """Writes the three files of a split. FileExistsError where one is there already."""
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    one, other = pair.split("-")
    columns = {one: contents.source.items(), other: contents.target.items(), "gold": sorted(contents.gold)}
    for ending, rows in columns.items():
        with open(folder / f"{pair}.{split}.{ending}", "x", encoding="utf-8", newline="\n") as file:
            file.writelines("\t".join(cell.replace("\t", " ") for cell in row) + "\n" for row in rows)
