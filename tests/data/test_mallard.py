"""GNOME's help pages: which text counts, which translation is read, and what is wrong with a folder."""

import pytest

from vmsst_jax.data.mallard import read_pages
from vmsst_jax.data.text_pairs import CorpusError

PAGE = """<page xmlns="http://projectmallard.org/1.0/" type="topic" id="x">
  <info><title type="link">Not this</title><desc>Nor this.</desc></info>
  <title>{title}</title>
  <p>{first} <gui>Button</gui> is
     red. It works.</p>
  <steps><item><p>{step}</p></item></steps>
  <note><media type="image"><p>Not the picture.</p></media><p>A note.</p></note>
  <screen>ls -l</screen>
</page>"""


@pytest.fixture
def folder(tmp_path):
    def put(locale, name="a", manual="user-help", **texts):
        path = tmp_path / locale / manual / f"{name}.page"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PAGE.format(**{"title": "A page", "first": "The", "step": "Press it.", **texts}))

    put("C")
    put("C", "b", title="Page two")
    put("C", "b", "other-help")
    put("de", title="Eine Seite", step="Drücken.")
    put("de", "b", title="Page two")  # nothing in it is translated
    put("pt", title="Uma")
    put("pt_BR", title="Uma página", first="O", step="Pressione.")
    put("pt_BR", "b", title="Outra página")
    put("fr", "b", "other-help", title="Page")
    (tmp_path / "de" / "user-help" / "picture.png").write_text("no page")
    return tmp_path


def test_what_counts_as_text(folder):
    english, *_ = read_pages(folder, ["user-help"], ["en"])
    assert (english.key, english.lang) == ("user-help/a", "en")
    assert english.sentences == ("A page", "The Button is red.", "It works.", "Press it.", "A note.")


def test_translations(folder):
    pages = list(read_pages(folder, ["user-help"]))
    assert [(d.lang, d.key) for d in pages] == [
        *[("en", "user-help/a"), ("en", "user-help/b")],
        ("de", "user-help/a"),
        *[("pt", "user-help/a"), ("pt", "user-help/b")],  # pt_BR has more text
    ]
    assert pages[2].sentences == ("Eine Seite", "Drücken.")
    assert pages[3].sentences == ("Uma página", "O Button is red.", "It works.", "Pressione.")
    both = {(d.lang, d.key) for d in read_pages(folder, ["user-help", "other-help"], ["en", "fr"])}
    assert both == {("en", f"user-help/{x}") for x in "ab"} | {("en", "other-help/b"), ("fr", "other-help/b")}


def test_wrong_folders(folder):
    with pytest.raises(CorpusError, match=r"C: no pages of gnome-help.*gnome-user-docs"):
        list(read_pages(folder, ["user-help", "gnome-help"]))
    with pytest.raises(CorpusError, match="no pages in cy, xx; there are en, de, pt"):
        list(read_pages(folder, ["user-help"], ["cy", "de", "xx"]))
    (folder / "de" / "user-help" / "a.page").write_text("<page>")
    with pytest.raises(CorpusError, match="a.page: not a readable Mallard page"):
        list(read_pages(folder, ["user-help"]))
