"""The text that a pipeline begins with, in one folder: monolingual to train on, aligned to validate and to test.

    train.<code>              one sentence a line; of the languages that are kept apart each has other ones
    val.<code>, test.<code>   line i of all languages is the same sentence
    mining/xx-yy.SPLIT.xx     test sentences, some with their translations, in the form that the benchmark bucc reads

The source is a folder of such files, or gettext catalogues: the messages of installed packages, or of folders of yours.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from vmsst_jax import checks
from vmsst_jax.benchmarks import mining_data
from vmsst_jax.data import catalogues
from vmsst_jax.data.text_pairs import hash62
from vmsst_jax.retrieval.lines import TextFile, read_lines, scan
from vmsst_jax.retrieval.store import write_json

TRAIN, VALIDATION, TEST, MINING, ABOUT = "train", "val", "test", "mining", "about.json"
ENGLISH = "en"  # of catalogues
COMPARED = 20_000  # lines of a training file that are looked at to see whether it is of the language that it should be
CLOSER = 2.0  # how many times as much of another language's words it takes to be taken for that one


def prepare(
    output: str | os.PathLike,
    languages: Sequence[str],
    *,
    apart: Sequence[str] = (),
    folder: str | os.PathLike | None = None,
    names: Sequence[str] = (TRAIN, VALIDATION, TEST),
    catalogue_folders: Sequence[str] | None = None,
    held_out: float = 0.15,
    limit: int | None = None,
    mining: Sequence[str] = (),
    overwrite: bool = False,
) -> dict:
    """Makes the folder, which appears whole or not at all.

    Args:
      output: the folder; the one above it must exist.
      languages: codes.
      apart: those of which none may have a translation of another's sentence: the lines of aligned files, or the
        messages, are shared out among them. The other languages get all there is.
      folder: with files NAME.<code> for each of the three ``names``, training, validation and test; the latter two
        aligned, the first, where languages are kept apart, too. None reads catalogues.
      catalogue_folders: folders of catalogues, None for those of the installed packages.
      held_out: of catalogues, the share of the messages that all languages have which goes into each of validation
        and test.
      limit: most sentences of each training file.
      mining: pairs such as "en-fr" to make sets for mining of.
      overwrite: replace what is there, where that is such a folder.

    Returns:
      {"lines": {file: number of lines}, "source": where the text is from}, also in ``about.json``.

    Raises:
      ValueError: fewer than two languages, one twice; ``apart`` or ``mining`` names another one; files of unequal
        length, blank lines in aligned ones, a training file of another language than its name says; ``output`` lies in
        ``folder`` or the other way round.
      CorpusError, FileNotFoundError: no such files or catalogues. FileExistsError: the folder is there.
    """
    output = Path(output)
    _check(languages, apart, mining, limit)
    check_outside(output, folder)
    if folder is not None and catalogue_folders:
        raise ValueError("text is taken from a folder or from catalogues, and both are given: leave one out")
    if not 0 < held_out < 0.5:
        raise ValueError(f"held_out is {held_out!r}; wanted a share above 0 and below 0.5: it is taken twice")
    if not output.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {output.parent} to make {output.name} in; make it first")
    if output.exists() and not overwrite:
        raise FileExistsError(f"{output} exists; use --overwrite to replace it, or another output")
    if output.exists() and not (output / ABOUT).is_file():
        raise FileExistsError(f"{output} has no {ABOUT}, so vmsst_jax.text has not made it and leaves it alone")
    if folder is None:
        source = "gettext catalogues"
        train, aligned = _from_catalogues(languages, apart, catalogue_folders, held_out)
    else:
        source = str(folder)
        train, aligned = _from_folder(Path(folder), languages, apart, names)
    draft = output.with_name(f".{output.name}.new")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    counts = {
        f"{split}.{code}": _write(draft, split, code, t) for split, of in aligned.items() for code, t in of.items()
    }
    counts |= {f"{TRAIN}.{code}": _write(draft, TRAIN, code, itertools.islice(t, limit)) for code, t in train.items()}
    for name, count in counts.items():
        if not count:
            raise ValueError(f"{source}: there is no sentence for {name}; it takes more text")
    check_languages(draft, languages)
    for pair in mining:
        _hide(draft, pair, aligned[TEST])
    about = {"source": source, "lines": counts}
    write_json(draft / ABOUT, about)
    shutil.rmtree(output, ignore_errors=True)
    os.replace(draft, output)
    return about


def check_outside(output: str | os.PathLike, folder: str | os.PathLike | None) -> None:
    """ValueError where one of two folders is the other or lies in it: what is written would change the source."""
    if folder is None:
        return
    written, read = Path(output).resolve(), Path(folder).resolve()
    if written == read or written in read.parents or read in written.parents:
        raise ValueError(
            f"the output is {output}, and {folder} is read: one of them is the other or lies in it; give an output "
            "elsewhere"
        )


def _check(languages: Sequence[str], apart: Sequence[str], mining: Sequence[str], limit: int | None) -> None:
    if len(set(languages)) < max(2, len(languages)):
        raise ValueError(f"the languages are {', '.join(languages) or 'none'}; wanted two or more, none of them twice")
    if len(set(apart)) < len(apart):
        raise ValueError(f"apart are {', '.join(apart)}; wanted none of them twice")
    for what, named in (("apart", apart), *(("mining", pair.split("-")) for pair in mining)):
        if unknown := [code for code in named if code not in languages]:
            raise ValueError(f"{what} names {', '.join(unknown)}, and the languages are {', '.join(languages)}")
        if what == "mining" and not len(set(named)) == len(named) == 2:
            raise ValueError(f"mining is of pairs such as en-fr, found {'-'.join(named)}")
    if limit is not None:
        checks.whole("limit", limit)


def _from_catalogues(
    languages: Sequence[str], apart: Sequence[str], folders: Sequence[str] | None, held_out: float
) -> tuple[dict[str, Iterable[str]], dict[str, dict[str, list[str]]]]:
    """({code: training sentences}, {split: {code: aligned sentences}}) of messages, shared out by a hash of theirs."""
    if ENGLISH not in languages:
        raise ValueError(f"catalogues translate English, and the languages are {', '.join(languages)}: add en")
    others = [code for code in languages if code != ENGLISH]
    messages: dict[str, dict[str, str]] = {}
    for example in catalogues.read_catalogues(folders, others, held_out=0.0)["train"]:
        english = example["source"]
        messages.setdefault(english, {ENGLISH: english})[example["target_lang"]] = example["target"]
    whole = sorted((key for key, texts in messages.items() if len(texts) == len(languages)), key=_order)
    size = int(held_out * len(whole))
    held = {VALIDATION: whole[:size], TEST: whole[size : 2 * size]}
    aligned = {
        split: {code: [messages[key][code] for key in keys] for code in languages} for split, keys in held.items()
    }
    seen = {code: {text for of in aligned.values() for text in of[code]} for code in languages}
    train: dict[str, dict[str, None]] = {code: {} for code in languages}
    for key in sorted(messages.keys() - set(whole[: 2 * size]), key=_order):
        texts = messages[key]
        shared = [code for code in apart if code in texts]
        for code in texts:
            if (code not in shared or code == shared[_order(key) % len(shared)]) and texts[code] not in seen[code]:
                train[code][texts[code]] = None
    return train, aligned


def _order(key: str) -> int:
    return hash62(key.encode())


def _from_folder(
    folder: Path, languages: Sequence[str], apart: Sequence[str], names: Sequence[str]
) -> tuple[dict[str, Iterator[str]], dict[str, dict[str, list[str]]]]:
    """As ``_from_catalogues``, of files; training files are read as they are written."""
    if len(names) != 3:
        raise ValueError(
            f"names are {', '.join(names)}; wanted three: of the files to train, to validate and to test on"
        )
    if len(set(names)) < 3:
        raise ValueError(f"names are {', '.join(names)}; wanted three different ones, or tests are trained on")
    texts = {code: scan(folder / f"{names[0]}.{code}") for code in languages}
    check_equal({text.path: text.rows for code, text in texts.items() if code in apart})
    train = {code: _part(text, code, apart) for code, text in texts.items()}
    aligned = {}
    for split, name in zip((VALIDATION, TEST), names[1:], strict=True):
        files = {code: folder / f"{name}.{code}" for code in languages}
        texts = {code: [line.strip() for line in read_lines(file)] for code, file in files.items()}
        first = languages[0]
        for code, sentences in texts.items():
            if len(sentences) != len(texts[first]):
                raise ValueError(
                    f"{files[first]} has {len(texts[first])} lines and {files[code]} {len(sentences)}; line i of all "
                    "has to be the same sentence"
                )
            if blank := next((number for number, text in enumerate(sentences, 1) if not text), None):
                raise ValueError(
                    f"{files[code]}, line {blank}: no text; remove the line from the files of all languages"
                )
        aligned[split] = texts
    return train, aligned


def check_equal(rows: dict[object, int]) -> None:
    """ValueError unless files, {name: lines}, have as many lines each: parts of aligned ones would else overlap."""
    if len(set(rows.values())) > 1:
        raise ValueError(
            f"languages are kept apart by taking other lines of aligned files, and {', '.join(map(str, rows))} have "
            f"{', '.join(map(str, rows.values()))} lines; give aligned files, or, of text that is nowhere a "
            "translation, don't keep them apart"
        )


def _part(text: TextFile, code: str, apart: Sequence[str]) -> Iterator[str]:
    """The lines of a training file that belong to a language: all, or its part of those of aligned files."""
    first, last = 0, text.rows
    if code in apart:
        place = list(apart).index(code)
        first, last = text.rows * place // len(apart), text.rows * (place + 1) // len(apart)
    lines = (line.strip() for block in text.blocks(first, 1024) for line in block)
    return (line for line in itertools.islice(lines, last - first) if line)


def _write(folder: Path, split: str, code: str, sentences: Iterable[str]) -> int:
    count = 0
    with open(folder / f"{split}.{code}", "w", encoding="utf-8", newline="\n") as file:
        for sentence in sentences:
            file.write(" ".join(sentence.split()) + "\n")
            count += 1
    return count


def check_languages(folder: str | os.PathLike, languages: Sequence[str]) -> None:
    """ValueError where train.<code> or test.<code> has another language's words: files in the wrong order.

    Each should have more of the words of the validation text of its own language than of any other's. Languages that
    are written without spaces between words are not told apart.
    """
    held = {code: _words(Path(folder, f"{VALIDATION}.{code}")) for code in languages}
    for split, code in itertools.product((TRAIN, TEST), languages):
        own = _words(Path(folder, f"{split}.{code}"))
        share = {other: len(words & own) / len(words) for other, words in held.items() if words}
        closest = max(share, key=share.get, default=code)
        if share.get(closest, 0.0) > CLOSER * share.get(code, 0.0):
            raise ValueError(
                f"{split}.{code} has {share[closest]:.0%} of the words of the validation text in {closest} and "
                f"{share.get(code, 0.0):.0%} of those in {code}: are files named by the wrong language?"
            )


def _words(file: Path) -> set[str]:
    with open(file, encoding="utf-8") as lines:
        return {word for line in itertools.islice(lines, COMPARED) for word in line.lower().split()}


def _hide(folder: Path, pair: str, aligned: dict[str, list[str]]) -> None:
    """Writes sets for mining whose sentences are all of the test set: half of the pairs stay whole."""
    one, other = pair.split("-")
    sentences = list(zip(aligned[one], aligned[other], strict=True))
    files = (folder / f"{TEST}.{one}", folder / f"{TEST}.{other}", folder / MINING)
    made = mining_data.hide(sentences, len(sentences) // 4, languages=(one, other), files=files)
    for split, contents in made.items():
        mining_data.write(folder / MINING, pair, split, contents)
