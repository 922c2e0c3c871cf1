"""Reading parallel files: exact texts out of awkward files, the held-out rule, archives that misbehave."""

import gzip
import os
import random
import types
import zipfile

import pytest

from vmsst_jax.data.text_pairs import (
    CorpusError,
    LineFile,
    PairFile,
    expand,
    extracted,
    hash62,
    is_held_out,
    opus_members,
)


def pairs(file):
    return [(source.decode(), target.decode(), problem) for source, target, problem in file.pairs()]


def make_zip(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return str(path)


def test_hash_is_the_same_for_ever():
    # blake2b-64 of "a" by coreutils' b2sum -l 64, shifted right by two bits.
    assert hash62(b"a") == 0x40F89E395B66422F >> 2
    assert all(0 <= hash62(str(i).encode()) < 2**62 for i in range(1000))


def test_held_out_share_ignores_case_spacing_and_punctuation():
    texts = [f"message number {i}" for i in range(20_000)]
    held = [text for text in texts if is_held_out(text, 0.1)]
    assert 0.09 < len(held) / len(texts) < 0.11
    assert all(is_held_out(text, 0.2) for text in held)
    assert not any(is_held_out(text, 0.0) for text in texts)
    for text in texts[:200]:
        assert is_held_out(f"  {text.title()}!", 0.1) == is_held_out(text, 0.1)
    # Texts without any letter still fall on both sides.
    assert len({is_held_out("!" * n, 0.5) for n in range(1, 20)}) == 2


def test_awkward_lines_come_out_exactly(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_bytes("\ufeffone\tein s \r\n two \u2028 x\t zwei\tmore\r\nthree\tdrei".encode())
    assert pairs(PairFile(LineFile(str(path)))) == [
        ("one", "ein s", ""),
        ("two \u2028 x", "zwei", ""),
        ("three", "drei", ""),
    ]
    assert pairs(PairFile(LineFile(str(path)), columns=(1, 0)))[2] == ("drei", "three", "")


def test_gz_with_several_members_is_read_to_its_end(tmp_path):
    path = tmp_path / "a.tsv.gz"
    path.write_bytes(gzip.compress(b"a\tb\n") + gzip.compress(b"c\td\n"))
    assert [pair[0] for pair in pairs(PairFile(LineFile(str(path))))] == ["a", "c"]


def test_problems_are_named(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_bytes(b"only one\n\ttarget\nsource\t \nx\xff\ty\n\na\tb\n")
    problems = [problem for _, _, problem in PairFile(LineFile(str(path))).pairs()]
    assert problems == [
        "found 1 column(s), wanted at least 2, separated by tabs",
        "the source text is empty",
        "the target text is empty",
        "the source text is not valid UTF-8 (invalid start byte at byte 2 of the text)",
        "found 1 column(s), wanted at least 2, separated by tabs",
        "",
    ]


def test_unequal_line_counts_are_counted(tmp_path):
    (tmp_path / "a.de").write_text("eins\nzwei\ndrei\n")
    (tmp_path / "a.en").write_text("one\n")
    left, right = LineFile(str(tmp_path / "a.de")), LineFile(str(tmp_path / "a.en"))
    with pytest.raises(CorpusError, match=r"a\.de: 3 and .*a\.en: 1;"):
        pairs(PairFile(left, right))
    with pytest.raises(CorpusError, match=r"a\.en: 1 and .*a\.de: 3;"):
        pairs(PairFile(right, left))
    (tmp_path / "a.en").write_text("one\ntwo\nthree")
    assert pairs(PairFile(left, right))[-1] == ("drei", "three", "")


def test_unreadable_files_are_named(tmp_path):
    (tmp_path / "empty.tsv").touch()
    (tmp_path / "no.gz").write_bytes(b"a\tb\n")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(bytes(random.Random(0).choices(b"ab\t\n", k=9999)))[:-900])
    for name, message in (
        ("missing.tsv", "no such corpus file"),
        ("empty.tsv", "is empty"),
        ("no.gz", "damaged or unreadable compressed data"),
        ("cut.gz", "damaged or unreadable compressed data after line [1-9]"),
        ("", "can't be read"),
    ):
        with pytest.raises(CorpusError, match=f"{name}: .*{message}"):
            pairs(PairFile(LineFile(str(tmp_path / name))))


def test_files_made_to_fill_a_memory_are_refused(tmp_path):
    """Whatever a line's length or an archive's, no more than LONGEST_LINE of it is held."""
    (tmp_path / "long").write_bytes(b"a\n" + b"x" * (2**24 + 1))
    with pytest.raises(CorpusError, match="long, line 2: longer than 16,777,216 bytes"):
        list(LineFile(str(tmp_path / "long")).lines())
    (tmp_path / "bomb.gz").write_bytes(gzip.compress((b"x" * 2**20 + b"\n") * 40))
    with pytest.raises(CorpusError, match=r"bomb\.gz: more than 200 times its packed size \(by line 1[67]\)"):
        list(LineFile(str(tmp_path / "bomb.gz")).lines())
    path = make_zip(tmp_path / "bomb.zip", {"C.de-en.de": "x" * 2**25, "C.de-en.en": "x\n"})
    with pytest.raises(CorpusError, match=r"bomb\.zip:C\.de-en\.de: more than 200 times .*\(its directory says\)"):
        opus_members(path, ("de", "en"))
    # A directory that lies about the size: no more is read than it tells of, and the checksum is another one.
    data = bytearray((tmp_path / "bomb.zip").read_bytes())
    size = data.index(b"PK\x01\x02") + 24
    data[size : size + 4] = (100).to_bytes(4, "little")
    (tmp_path / "bomb.zip").write_bytes(data)
    with pytest.raises(CorpusError, match=r"bomb\.zip:C\.de-en\.de: damaged"):
        pairs(opus_members(path, ("de", "en")))


def test_a_draft_in_the_cache_is_not_written_through_a_link(tmp_path):
    """In a folder that others may write to, a name that can be guessed may be a link to something of ours."""
    path = make_zip(tmp_path / "a.zip", {"C.de-en.de": "eins\n", "C.de-en.en": "one\n"})
    member, cache = opus_members(path, ("de", "en")).source, tmp_path / "cache"
    target = extracted(member, str(cache)).path
    os.remove(target)
    (tmp_path / "mine").write_text("mine")
    os.symlink(tmp_path / "mine", f"{target}.{os.getpid()}")
    assert list(extracted(member, str(cache)).lines()) == [b"eins"]
    assert (tmp_path / "mine").read_text() == "mine"


def test_patterns_expand_in_order(tmp_path):
    for name in ("b.tsv", "a.tsv", "c[1].tsv"):
        (tmp_path / name).touch()
    found = expand([tmp_path / "c[1].tsv", f"{tmp_path}/[ab].tsv"])
    assert [os.path.basename(path) for path in found] == ["c[1].tsv", "a.tsv", "b.tsv"]
    with pytest.raises(CorpusError, match="no such corpus file"):
        expand(f"{tmp_path}/*.txt")


def test_opus_archive_is_read_in_both_name_orders(tmp_path):
    members = {
        "README": "x",
        "../../Corpus.de-en.en": "evil",
        "folder/Corpus.de-en.en": "evil",
        "Corpus.de-en.xml": "<x/>",
        "Corpus.de-en.de": "eins\nzwei\n",
        "Corpus.de-en.en": "one\ntwo\n",
    }
    path = make_zip(tmp_path / "de-en.txt.zip", members)
    assert pairs(opus_members(path, ("en", "de"))) == [("one", "eins", ""), ("two", "zwei", "")]
    assert pairs(opus_members(path, ("de", "en")))[0] == ("eins", "one", "")


def test_archives_without_the_pair_are_refused(tmp_path):
    path = make_zip(tmp_path / "a.zip", {"C.de-en.de": "a", "D.de-en.de": "b", "C.de-en.en": "c"})
    with pytest.raises(CorpusError, match=r"named <Corpus>\.de-en\.de, found 2; the archive holds 'C\.de-en\.de'"):
        opus_members(path, ("de", "en"))
    with pytest.raises(CorpusError, match="found 0; .*OPUS's own codes"):
        opus_members(path, ("zh", "en"))
    (tmp_path / "b.zip").write_text("no zip")
    with pytest.raises(CorpusError, match=r"b\.zip: not a readable zip archive"):
        opus_members(str(tmp_path / "b.zip"), ("de", "en"))


def test_damage_inside_an_archive_is_found(tmp_path):
    path = make_zip(tmp_path / "a.zip", {"C.de-en.de": "eins\n" * 50, "C.de-en.en": "one\n" * 50})
    file = opus_members(path, ("de", "en"))
    data = bytearray((tmp_path / "a.zip").read_bytes())
    data[data.index(b"C.de-en.de") + 14] ^= 0xFF
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(CorpusError, match=r"a\.zip:C\.de-en\.de: damaged or unreadable"):
        pairs(file)


def test_members_are_unpacked_once_under_a_name_of_our_own(tmp_path):
    path = make_zip(tmp_path / "a.zip", {"C.de-en.de": "eins\r\nzwei", "C.de-en.en": "one\ntwo\n"})
    member = opus_members(path, ("de", "en")).source
    cache = tmp_path / "cache"
    first = extracted(member, str(cache))
    assert list(first.lines()) == [b"eins", b"zwei"]
    written = os.stat(first.path).st_mtime_ns
    assert extracted(member, str(cache)) == first
    assert os.stat(first.path).st_mtime_ns == written
    assert [file.parent for file in tmp_path.rglob("*.txt")] == [cache]
    # A newer archive of the same name is unpacked anew.
    os.utime(path, ns=(0, 0))
    assert extracted(member, str(cache)) != first


def test_a_full_disk_is_reported_before_unpacking(tmp_path, monkeypatch):
    path = make_zip(tmp_path / "a.zip", {"C.de-en.de": "eins\n", "C.de-en.en": "one\n"})
    monkeypatch.setattr("shutil.disk_usage", lambda _: types.SimpleNamespace(free=2))
    with pytest.raises(CorpusError, match=r"5 bytes unpacked, but .* has 2 free"):
        extracted(opus_members(path, ("de", "en")).source, str(tmp_path / "cache"))
