"""From files of word vectors to a file with all languages in one space; an interrupted run goes on where it stopped."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from vmsst_jax import disk
from vmsst_jax.retrieval.lines import scan
from vmsst_jax.words import lexicon, mapping, vectors
from vmsst_jax.words.mapped import Mapped, WordMapping
from vmsst_jax.words.mapping import MappingSettings, Round

LAST = ("symmetric", "orthogonal")
# Least time between two saves: what a killed run does again at most.
SECONDS_BETWEEN_SAVES = 30


def map_files(
    files: Mapping[str, str | os.PathLike],
    output: str | os.PathLike,
    settings: MappingSettings | None = None,
    *,
    pivot: str | None = None,
    last: str | None = None,
    dictionary: str | os.PathLike | None = None,
    idf_texts: Mapping[str, str | os.PathLike] | None = None,
    most: int = vectors.MOST,
    overwrite: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> dict:
    """Maps every language to the pivot's and writes ``output``, which is left alone if it was made of the same.

    Args:
      files: {code: word vectors in word2vec's text form}, two languages or more.
      output: a file NAME.npz, see ``mapped.WordMapping``.
      settings: of the learning; None takes the defaults.
      pivot: the language to which each other one is mapped; None is the first.
      last: "symmetric" or "orthogonal", the map from the last dictionary: with re-weighting, which makes a space for
        two languages alone, or a rotation into the pivot's space. None is symmetric for two languages.
      dictionary: words of the first and the second language in a line, for ``settings.start`` "dictionary"; two
        languages only.
      idf_texts: {code: text with one sentence a line} in which document frequencies are counted; None for none.
      most: words read of each file.
      overwrite: make it anew, whatever is there, and drop what an interrupted run of something else left.
      say: told, line by line, what happens.

    Returns:
      What ``output`` says of itself, and "found": whether it was there.

    Raises:
      ValueError: settings that don't go together, vectors of different widths, what reading raises, no pair to begin
        with, an interrupted run of other inputs. FileNotFoundError: a file or folder is missing.
      FileExistsError: the output exists, and is of something else. BlockingIOError: another process is writing it.
    """
    settings = settings or MappingSettings()
    output = disk.check_place(output, (".npz",))
    files, idf_texts = dict(files), dict(idf_texts or {})
    pivot, last = _checked(files, pivot, last, dictionary, idf_texts, settings)
    texts = {code: scan(text).identity() for code, text in idf_texts.items()}
    identity = {
        "files": [[code, _sha256(path)] for code, path in files.items()],  # a list: their order counts
        "settings": dataclasses.asdict(settings),
        "pivot": pivot,
        "last": last,
        "dictionary": dictionary and _sha256(dictionary),
        "idf_texts": texts,
        "most": most,
    }
    if (made := _finished(output, identity, overwrite)) is not None:
        return {**made, "found": True}
    partial = output.with_name(output.name + ".partial")
    with disk.open_alone(partial):
        try:
            progress = _Progress(output.with_name(output.name + ".progress.npz"), identity, overwrite)
            known = {code: vectors.read(path, most) for code, path in files.items()}
            _check_widths(files, known)
            weights = {code: lexicon.idf(idf_texts[code], known[code].words, say) for code in idf_texts}
            start = _Start(settings, known, dictionary)
            spaces, learned = _learn(known, pivot, last, start, progress, say)
            about = {"identity": identity, "vectors": {c: str(f) for c, f in files.items()}, "learned": learned}
            languages = {c: Mapped(known[c].words, spaces[c], weights.get(c)) for c in known}
            WordMapping(languages, about).save(output)
        finally:
            partial.unlink()
    progress.file.unlink(missing_ok=True)
    return {**about, "found": False}


def _checked(files, pivot, last, dictionary, idf_texts, settings) -> tuple[str, str]:
    """The pivot and the last map; ValueError for what doesn't go together."""
    if len(files) < 2:
        raise ValueError(f"there are vectors of {', '.join(files) or 'no language'}; wanted two languages or more")
    if pivot is not None and pivot not in files:
        raise ValueError(f"the pivot is {pivot!r}, and there are vectors of {', '.join(files)}")
    last = last or (LAST[0] if len(files) == 2 else LAST[1])
    if last not in LAST:
        raise ValueError(f"the last map is {last!r}; use one of {', '.join(LAST)}")
    if last == LAST[0] and len(files) > 2:
        raise ValueError(
            f"re-weighting makes a space for two languages, and there are {len(files)}; map them two by two, or with "
            "the last map orthogonal into the pivot's space"
        )
    if (dictionary is not None) != (settings.start == "dictionary"):
        raise ValueError(f"the start is {settings.start!r}, the dictionary {dictionary}; the two go together")
    if dictionary is not None and len(files) > 2:
        raise ValueError(f"a dictionary is for two languages, and there are vectors of {', '.join(files)}")
    if idf_texts and idf_texts.keys() != files.keys():
        raise ValueError(f"texts for document frequencies are of {', '.join(idf_texts)}; wanted {', '.join(files)}")
    return pivot or next(iter(files)), last


def _check_widths(files, known) -> None:
    widths = {code: one.vectors.shape[1] for code, one in known.items()}
    if len(set(widths.values())) > 1:
        said = ", ".join(f"{files[code]} {width}" for code, width in widths.items())
        raise ValueError(f"vectors have different widths: {said}; train all with the same --dim")


class _Start:
    """Makes the first dictionary of two languages."""

    def __init__(self, settings: MappingSettings, known: dict[str, vectors.WordVectors], dictionary):
        self.settings, self.dictionary = settings, dictionary
        self.codes = list(known)

    def pairs(self, code: str, pivot: str, words: tuple[list[str], list[str]], sides) -> tuple[np.ndarray, np.ndarray]:
        """Rows of ``sides`` (x, z), whose words are ``words``; ValueError where there are none."""
        if self.settings.start == "similarities":
            return mapping.similarity_dictionary(*sides, self.settings)
        if self.settings.start == "identical":
            pairs, what = [(word, word) for word in words[0]], "words that are spelled alike"
        else:
            pairs, what = lexicon.read(self.dictionary), f"pairs of {self.dictionary}"
            pairs = pairs if self.codes == [code, pivot] else [(b, a) for a, b in pairs]
        source, target = lexicon.rows(pairs, *words)
        if not len(source):
            raise ValueError(
                f"{code} and {pivot} have no {what} among their {len(words[0])} and {len(words[1])} most frequent words"
            )
        return source, target


def _learn(known, pivot, last, start: _Start, progress, say) -> tuple[dict[str, np.ndarray], dict]:
    """({code: vectors in one space}, {code: how its mapping was learned})."""
    settings = start.settings
    units = {code: mapping.normalized(one.vectors) for code, one in known.items()}
    spaces, learned = dict(units), {}
    for code in (code for code in known if code != pivot):
        x, z = units[code][: settings.words], units[pivot][: settings.words]
        words = known[code].words[: settings.words], known[pivot].words[: settings.words]
        states = []
        for attempt in range(settings.attempts):
            numbered = f" {attempt + 1}" if settings.attempts > 1 else ""
            name, label = f"{code} {attempt}", f"{code} -> {pivot}{numbered}"
            state = progress.rounds.get(name)
            if state is None:
                pairs = start.pairs(code, pivot, words, (x, z))
                say(f"{label}: {len(pairs[0]):,} pairs to begin with ({settings.start})")
                state = Round(*pairs, keep=settings.keep)
            else:
                say(f"{label}: goes on behind {state.done} rounds")
            seeded = dataclasses.replace(settings, seed=settings.seed + attempt)
            state = mapping.learn(x, z, state, seeded, _labelled(say, label), progress.saver(name))
            progress.save(name, state, at_once=True)
            states.append(state)
        objectives = [state.objective for state in states]
        state = states[best := int(np.argmax(objectives))]
        if settings.attempts > 1:
            say(f"{code} -> {pivot}: attempt {best + 1} has the highest objective, {state.objective:.4f}")
        learned[code] = {"rounds": state.done, "objectives": objectives, "seed": settings.seed + best}
        if last == LAST[0]:
            one, other = mapping.symmetric(x[state.source], z[state.target])
            spaces[pivot] = (units[pivot] @ other).astype(np.float32)
        else:
            one = mapping.orthogonal(x[state.source], z[state.target])
        spaces[code] = (units[code] @ one).astype(np.float32)
    return spaces, learned


def _labelled(say: Callable[[str], None], label: str) -> Callable[[str], None]:
    return lambda line: say(f"{label}: {line}")


class _Progress:
    """The state of every learning begun so far, in a file.

    Attributes:
      rounds: {"CODE ATTEMPT": its ``Round``}.
    """

    def __init__(self, file: Path, identity: dict, overwrite: bool):
        self.file, self._identity = file, json.dumps(identity, sort_keys=True)
        self.rounds: dict[str, Round] = {}
        self._saved_at = time.monotonic()
        if file.exists():
            self._load(overwrite)

    def _load(self, overwrite: bool) -> None:
        found: dict[str, Round] = {}
        try:
            with np.load(self.file, allow_pickle=False) as kept:
                same = str(kept["identity"]) == self._identity
                for code in json.loads(str(kept["codes"])):
                    numbers = json.loads(str(kept[f"{code}/numbers"]))
                    found[code] = Round(kept[f"{code}/source"], kept[f"{code}/target"], **numbers)
        except Exception as error:  # whatever zip, npy and JSON raise on a damaged file
            if overwrite:
                return
            raise ValueError(f"{self.file} is damaged ({error}); use --overwrite to start anew") from None
        if same:
            self.rounds = found
        elif not overwrite:
            raise ValueError(
                f"{self.file} is of an interrupted run with other files or settings; repeat that run to finish it, or "
                "use --overwrite to start anew"
            )

    def saver(self, name: str) -> Callable[[Round], None]:
        """A function that saves a state, not long after the last time."""
        return lambda state: self.save(name, state)

    def save(self, name: str, state: Round, at_once: bool = False) -> None:
        """Takes note of a state, and writes the file whole or not at all."""
        self.rounds[name] = state
        if not at_once and time.monotonic() - self._saved_at < SECONDS_BETWEEN_SAVES:
            return
        arrays = {"identity": np.array(self._identity), "codes": np.array(json.dumps(list(self.rounds)))}
        for name, one in self.rounds.items():
            numbers = {key: value for key, value in one._asdict().items() if key not in ("source", "target")}
            arrays |= {f"{name}/source": one.source, f"{name}/target": one.target}
            arrays[f"{name}/numbers"] = np.array(json.dumps(numbers))
        with disk.writing(self.file), disk.replacing(self.file, alone=True) as file:
            np.savez(file, **arrays)
        self._saved_at = time.monotonic()


def _finished(output: Path, identity: dict, overwrite: bool) -> dict | None:
    """What ``output`` says of itself if it was made as ``identity`` says; None if it is to be made."""
    if overwrite or not output.exists():
        return None
    try:
        with np.load(output, allow_pickle=False) as file:
            made = json.loads(str(file["about"]))
        if made["identity"] == identity:
            return made
    except Exception:  # damaged, or another kind of file
        pass
    raise FileExistsError(
        f"{output} exists and was made of other files or settings; use --overwrite to replace it, or another output"
    )


def _sha256(path: str | os.PathLike) -> str:
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}")
    return disk.sha256(path)
