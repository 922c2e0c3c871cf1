"""The sets of documents that ship: GNOME's help and a data folder's four sets, on small made-up files."""

import pytest

from vmsst_jax.data import registered
from vmsst_jax.data.documents import Documents
from vmsst_jax.data.languages import Languages
from vmsst_jax.data.text_pairs import CorpusError, is_held_out
from vmsst_jax.data.tokenizer_xlmr import XlmrTokenizer

PAGE = '<page xmlns="http://projectmallard.org/1.0/"><title>{0}</title><p>The first. The second.</p></page>'


def rows(name, split="train"):
    return list(registered.examples_of(name, split, fields=registered.DOCUMENT))


@pytest.fixture
def folder(tmp_path):
    from vmsst_jax.tasks import gnome_help, local_documents  # noqa: F401  (they register their tasks)

    def put(path, text):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    for code in ("en", "mlf"):
        lines = (f"MRK {c}:{v}\t{code} {c} {v}\n" for c in range(30) for v in range(2))
        put(f"bible_gospels_acts/{code}.tsv", "".join(lines))
        put(f"quran/quran.{code}.tsv", "".join(f"{c}\t1\t{code} a {c}\n{c}\t2\t{code} b\n" for c in range(30)))
    for code, pages in (("zh-cn", 30), ("fr", 12), ("id", 0)):
        lines = (f"page{p}\t{i}\tEnglish {p}. Two.\t{code} {p}. Two.\n" for p in range(pages) for i in range(2))
        put(f"python_docs/en-{code}.tsv", "".join(lines))
    for code in ("en", "fr"):
        put(f"multi30k/train.{code}", "".join(f"{code} picture {i}\n" for i in range(30)))
    put("ntrex/DOCUMENT_IDS.tsv", "".join(f"d{i // 2}\n" for i in range(60)))
    for name in ("src.eng", "ref.zho_Hans", "ref.arb"):
        put(f"ntrex/newstest2019-{name}.txt", "".join(f"{name} {i}\n" for i in range(60)))
    for locale, pages in (("C", 30), ("de", 30)):
        for p in range(pages):
            put(f"help/{locale}/gnome-help/p{p}.page", PAGE.format(f"{locale} {p}"))
    return tmp_path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("gnome_help.languages = ('en',)", r"gnome_help.languages was \['en', 'de'\], now \['en'\]"),
        ("gnome_help.held_out = 0.2", "gnome_help.held_out was 0.1, now 0.2"),
        ("", "pages was '.*', now"),
    ],
)
def test_kept_tokens_are_not_read_for_other_text(folder, gin_bindings, change, message):
    bound = [f'gnome_help.folder = "{folder}/help"', "gnome_help.manuals = ('gnome-help',)"]
    gin_bindings(*bound, "gnome_help.languages = ('en', 'de')")
    kept = registered.made_from("gnome_help")
    (folder / "help").rename(folder / "moved")
    registered.check_made_from("gnome_help", kept, "tokens")  # the pages are not there
    bound[0] = f'gnome_help.folder = "{folder}/moved"'
    gin_bindings(*bound)
    registered.check_made_from("gnome_help", kept, "tokens")
    if not change:
        (folder / "moved/C/gnome-help/p3.page").write_text(PAGE.format("another page"))
    gin_bindings(*bound, *filter(None, [change]))
    with pytest.raises(ValueError, match=rf"the cache in tokens holds .* of gnome_help: {message}.*Remove that folder"):
        registered.check_made_from("gnome_help", kept, "tokens")


def test_a_cache_keeps_what_its_text_is_made_from(folder, gin_bindings, tmp_path):
    gin_bindings(f'local_documents.data_dir = "{folder}"')
    tokenizer = XlmrTokenizer.train([r["text"] for r in rows("quran_documents")], 26)
    languages = Languages(("en", "mlf"))
    documents = Documents("quran_documents", pairs=2, min_pieces=1, cache=str(tmp_path / "tokens"))
    for _ in range(2):  # made, then kept
        documents.check(languages)
        documents.open(tokenizer, languages, seed=0)
    gin_bindings("local_documents.languages = ('en',)")
    for again in (lambda: documents.check(languages), lambda: documents.open(tokenizer, languages, seed=0)):
        with pytest.raises(ValueError, match=r"other text of quran_documents: local_documents.languages was None, now"):
            again()


def test_four_sets_of_a_folder(folder, gin_bindings):
    from vmsst_jax.tasks import local_documents

    gin_bindings(f'local_documents.data_dir = "{folder}"')
    assert local_documents.languages() == ("en", "fr", "mlf", "zh")
    assert local_documents.languages(names=("ntrex_documents",)) == ("en", "ar", "zh")
    held = {c for c in range(30) if is_held_out(f"MRK {c}", 0.1)}
    bible = rows("bible_documents")
    assert len(bible) == 2 * (30 - len(held)) and bible[0]["text"] in {f"en {c} 0\nen {c} 1" for c in range(30)}
    assert {r["lang"] for r in rows("quran_documents")} == {"en", "mlf"}
    python = rows("python_documents") + rows("python_documents", "validation")
    assert {(r["lang"], r["text"]) for r in python} == {
        *(("zh", f"zh-cn {p}.\nTwo.\nzh-cn {p}.\nTwo.") for p in range(30)),
        *(("fr", f"fr {p}.\nTwo.\nfr {p}.\nTwo.") for p in range(12)),
        *(("en", f"English {p}.\nTwo.\nEnglish {p}.\nTwo.") for p in range(30)),
    }
    news = rows("ntrex_documents") + rows("ntrex_documents", "validation")
    assert {r["lang"] for r in news} == {"en", "zh", "ar"} and len(news) == 90
    assert {r["lang"] for r in rows("local_documents")} == {"en", "fr", "mlf", "zh"}  # not the news
    captions = rows("caption_documents") + rows("caption_documents", "validation")
    pictures = {code: {r["text"].split()[-1] for r in captions if r["lang"] == code} for code in ("en", "fr")}
    assert len(captions) == 30 and not pictures["en"] & pictures["fr"] and len(pictures["en"]) == 15
    assert any("picture" in r["text"] for r in rows("local_text"))
    assert not any("picture" in r["text"] for r in rows("local_documents"))
    gin_bindings('local_documents.languages = ["fr", "zh"]')
    assert local_documents.languages(names=("python_documents",)) == ("en", "fr", "zh")
    assert {r["lang"] for r in rows("python_documents")} == {"fr", "zh"}
    gin_bindings('local_documents.languages = ["fr"]')
    with pytest.raises(CorpusError, match="none of local_documents.languages, fr; wanted one of en, mlf"):
        rows("quran_documents")


def test_help_pages(folder, gin_bindings):
    from vmsst_jax.tasks import gnome_help

    gin_bindings(
        f'gnome_help.folder = "{folder}/help"',
        'gnome_help.manuals = ["gnome-help"]',
        'gnome_help.languages = ["de", "en"]',
    )
    assert gnome_help.languages() == ("en", "de")
    train, held = rows("gnome_help"), rows("gnome_help", "validation")
    assert len(train) + len(held) == 60
    assert {r["text"] for r in held if r["lang"] == "de"} == {
        f"de {p}" for p in range(30) if is_held_out(f"gnome-help/p{p}", 0.1)
    }


def test_a_missing_folder(tmp_path, gin_bindings):
    from vmsst_jax.tasks import gnome_help, local_documents  # noqa: F401

    gin_bindings(f'gnome_help.folder = "{tmp_path}"')
    with pytest.raises(CorpusError, match="no pages of gnome-help, system-admin-guide.*apt-get download"):
        rows("gnome_help")
    with pytest.raises(CorpusError, match="no data root: bind local_documents.data_dir"):
        rows("quran_documents")
