"""The gettext task: what the packages ship, or folders that gin names."""

import polib
import pytest

from vmsst_jax.data import catalogues


@pytest.fixture
def gettext(gin_bindings):
    from vmsst_jax.tasks import gettext

    return gettext


@pytest.fixture
def fresh_task(registry):
    """Function that registers the same reading under another name: a task reads its catalogues once."""
    from vmsst_jax.tasks import gettext, sources

    return lambda name: sources.add_task(name, sources.MemorySource(gettext._read, ("train", "validation")))


def test_task_gives_the_examples_that_plain_reading_gives(gettext, read):
    expected = catalogues.read_catalogues()
    for split in ("train", "validation"):
        assert read("gettext", split) == expected[split]
    shuffled = read("gettext", "validation", shuffle=True, seed=0)
    assert shuffled != expected["validation"]
    assert sorted(shuffled, key=lambda e: e["pair_id"]) == sorted(expected["validation"], key=lambda e: e["pair_id"])
    assert {e["target_lang"] for split in expected.values() for e in split} | {"en"} == set(gettext.languages())


def test_gin_names_folders_languages_and_share(tmp_path, gettext, gin_bindings, fresh_task, read):
    for code in ("cy", "gd"):
        catalogue = polib.POFile()
        for i in range(100):
            catalogue.append(polib.POEntry(msgid=f"English message {i}", msgstr=f"{code} {i}"))
        catalogue.save(str(tmp_path / f"{code}.po"))
    gin_bindings(f'gettext.folders = ["{tmp_path}"]', "gettext.held_out = 0.5")
    assert gettext.languages() == ("en", "cy", "gd")
    task = fresh_task("folders")
    train, validation = read(task), read(task, "validation")
    assert len(train) + len(validation) == 200
    assert 60 < len(validation) < 140
    assert not {e["source"] for e in train} & {e["source"] for e in validation}
    gin_bindings('gettext.languages = ["gd", "en"]')
    assert gettext.languages() == ("en", "gd")
    assert {e["target_lang"] for e in read(fresh_task("one"))} == {"gd"}
    gin_bindings('gettext.folders = ["/nowhere"]')
    with pytest.raises(ValueError, match="/nowhere: no such folder"):
        read(fresh_task("nowhere"))
