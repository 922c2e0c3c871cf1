"""gettext catalogues: which entries become pairs, which source wins, and what the installed packages give."""

import subprocess
import sys

import polib
import pytest

from vmsst_jax.data import catalogues
from vmsst_jax.data.catalogues import plain_code, read_catalogues
from vmsst_jax.data.text_pairs import CorpusError


def write(path, entries, **options):
    """Writes a catalogue of (msgid, msgstr) pairs or entries; `.mo` or `.po` by the name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    catalogue = polib.POFile(**options)
    catalogue.metadata = {"Content-Type": "text/plain; charset=UTF-8"}
    for entry in entries:
        catalogue.append(entry if isinstance(entry, polib.POEntry) else polib.POEntry(msgid=entry[0], msgstr=entry[1]))
    (catalogue.save_as_mofile if path.suffix == ".mo" else catalogue.save)(str(path))


def texts(splits):
    examples = [example for split in splits.values() for example in split]
    return {(example["target_lang"], example["source"]): example["target"] for example in examples}


@pytest.mark.parametrize(
    ("locale", "code"),
    [
        *(
            ("de", "de"),
            ("pt_BR", "pt"),
            ("pt-br", "pt"),
            ("zh_Hans", "zh"),
            ("zh_CN", "zh"),
            ("iw", "he"),
            ("ckb", "ckb"),
        ),
        *(("sr_Cyrl", "sr"), ("sr_Latn", None), ("sr@latin", None), ("ca@valencia", None)),
        *(("zh_Hant", None), ("zh_TW", None), ("zh_TW.Big5", None), ("zh_Hant_HK", None)),
        *(("en_GB", None), ("en", None), ("django", None), ("README", None), ("", None)),
    ],
)
def test_locale_names_become_plain_codes(locale, code):
    assert plain_code(locale) == code


@pytest.mark.parametrize("name", ["de/LC_MESSAGES/app.po", "locale/de/LC_MESSAGES/sub/app.mo", "de.po", "x/de.mo"])
def test_only_real_sentences_become_pairs(tmp_path, name):
    compiled = name.endswith(".mo")
    entries = [
        ("Delete %(name)s\n  now", "%(name)s jetzt löschen"),
        ("Delete", "Löschen"),
        ("No translation", ""),
        ("Same text", "Same text"),
        polib.POEntry(msgid="Two words", msgstr="Zwei Wörter", msgctxt="menu"),
        polib.POEntry(msgid="%d file", msgid_plural="%d files", msgstr_plural={0: "%d Datei", 1: "%d Dateien"}),
    ]
    if not compiled:
        entries += [
            polib.POEntry(msgid="Unsure text", msgstr="Unsicherer Text", flags=["fuzzy"]),
            polib.POEntry(msgid="Old text", msgstr="Alter Text", obsolete=True),
        ]
    write(tmp_path / name, entries)
    assert texts(read_catalogues([str(tmp_path)])) == {
        ("de", "Delete %(name)s now"): "%(name)s jetzt löschen",
        ("de", "Two words"): "Zwei Wörter",
    }


def test_the_first_source_of_a_message_wins(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    write(one / "pt_BR/LC_MESSAGES/a.mo", [("Sign out", "BR"), ("Log in", "BR")])
    write(one / "pt/LC_MESSAGES/z.po", [("Sign out", "plain")])
    write(one / "pt/LC_MESSAGES/y.po", [("Only here", "stale source of the compiled file")])
    write(one / "pt/LC_MESSAGES/y.mo", [("Only here", "compiled")])
    write(two / "pt.po", [("Sign out", "two"), ("Log out", "two")])
    expected = {"Sign out": "plain", "Log in": "BR", "Only here": "compiled", "Log out": "two"}
    assert texts(read_catalogues([one, two])) == {("pt", english): text for english, text in expected.items()}


def test_languages_limit_what_is_read(tmp_path):
    write(tmp_path / "de.po", [("Sign out", "Abmelden")])
    write(tmp_path / "fr.po", [("Sign out", "Se déconnecter"), ("One", "Un")])
    write(tmp_path / "fi.po", [("One", "Yksi")])
    assert set(texts(read_catalogues([tmp_path]))) == {("de", "Sign out"), ("fr", "Sign out")}
    assert set(texts(read_catalogues([tmp_path], ["en", "fr"]))) == {("fr", "Sign out")}
    with pytest.raises(CorpusError, match=r"two words or more for fi, cy in .*catalogues there are for: de, fi, fr"):
        read_catalogues([tmp_path], ["fr", "fi", "cy"])


def test_bad_folders_and_files_are_named(tmp_path, monkeypatch):
    with pytest.raises(CorpusError, match="nowhere: no such folder"):
        read_catalogues([tmp_path / "nowhere"])
    with pytest.raises(CorpusError, match="no translated message of two words or more"):
        read_catalogues([tmp_path])
    write(tmp_path / "cut/de.mo", [("Sign out", "Abmelden"), ("Sign in", "Anmelden")])
    whole = (tmp_path / "cut/de.mo").read_bytes()
    for damaged in (b"no catalogue at all", whole[:40], b""):
        (tmp_path / "cut/de.mo").write_bytes(damaged)
        with pytest.raises(CorpusError, match=r"de\.mo: not a readable gettext catalogue"):
            read_catalogues([tmp_path])
    (tmp_path / "cut/de.mo").unlink()
    for damaged in ('msgid "Sign out"\nno keyword\n', 'msgid "Sign out"\nmsgstr "Gr\xfc\xdfe"\n'):
        (tmp_path / "de.po").write_text(damaged, "latin-1")
        with pytest.raises(CorpusError, match=r"de\.po: not a readable gettext catalogue"):
            read_catalogues([tmp_path])
    with pytest.raises(ValueError, match="held_out is 1.5; wanted a number of 0 or more and below 1"):
        read_catalogues([tmp_path], held_out=1.5)
    monkeypatch.setitem(catalogues.PACKAGES, "surely_not_installed", "Surely-Not")
    with pytest.raises(CorpusError, match=r"not found: Surely-Not\. .*pip install 'vmsst_jax\[quickstart\]'"):
        read_catalogues()


def test_installed_packages_give_the_quickstart_corpus():
    splits = read_catalogues()
    examples = [example for split in splits.values() for example in split]
    assert 20_000 < len(examples) < 30_000
    assert len({example["target_lang"] for example in examples}) >= 20
    assert len({example["pair_id"] for example in examples}) == len(examples)
    assert any("%(name)s" in example["target"] for example in examples)
    english = {split: {example["source"] for example in rows} for split, rows in splits.items()}
    assert not english["train"] & english["validation"]
    assert 0.08 < len(english["validation"]) / len(english["train"] | english["validation"]) < 0.12
    for language in {example["target_lang"] for example in examples}:
        assert sum(example["target_lang"] == language for example in splits["validation"]) > 50


def test_reading_needs_no_tensorflow():
    code = "import sys, vmsst_jax.data.catalogues as c; c.read_catalogues(languages=['de']); print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"tensorflow", "seqio", "gin", "jax", "django", "sphinx", "allauth", "rest_framework"} & set(modules)
