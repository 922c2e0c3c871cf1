"""opus_92 and cc_108: the tables as shipped, reading below a data root, and tables that are wrong."""

import gzip

import pytest


@pytest.fixture
def opus(gin_bindings):
    from vmsst_jax.tasks import opus

    return opus


@pytest.fixture
def common_crawl(gin_bindings):
    from vmsst_jax.tasks import common_crawl

    return common_crawl


def test_opus_92_is_the_papers_languages_and_amounts(registry, opus):
    codes = opus.languages()
    assert len(codes) == len(set(codes)) == 92
    assert {"en", "es", "de", "zh", "dtp", "lfn"} <= set(codes)
    assert "ay" not in codes
    mixture = registry.get_mixture_or_task("opus_92")
    # LASER's published 223 million without Aymara's 14,000.
    assert mixture.total_rate == pytest.approx(222_829, abs=1)
    assert mixture.get_rate(registry.TaskRegistry.get("opus_92_en_es")) == 7400
    rates = [mixture.get_rate(registry.TaskRegistry.get(f"opus_92_{pivot}_fr")) for pivot in ("en", "es")]
    assert sum(rates) == 8800


def test_cc_108_rates_follow_the_exponent(registry, common_crawl, gin_bindings):
    assert len(common_crawl.languages()) == 108
    mixture = registry.get_mixture_or_task("cc_108")
    english, swahili = (registry.TaskRegistry.get(f"cc_108_{code}") for code in ("en", "sw"))
    assert mixture.get_rate(english) / mixture.get_rate(swahili) == pytest.approx((82_000 / 332) ** 0.3)
    gin_bindings("common_crawl.exponent = 1.0")
    assert mixture.get_rate(english) / mixture.get_rate(swahili) == pytest.approx(82_000 / 332)


def test_opus_table_of_ones_own_is_read_below_the_root(tmp_path, registry, opus, gin_bindings, read):
    (tmp_path / "table.tsv").write_text(
        "# mine\nlanguage\tpivot\tthousand_pairs\tcorpora\tfiles\n"
        "fr\ten\t3\tX\tmine/en-fr/*.tsv*\nfr\tes\t1\tX\tmine/es-fr.tsv\n"
    )
    (tmp_path / "mine/en-fr").mkdir(parents=True)
    with gzip.open(tmp_path / "mine/en-fr/a.tsv.gz", "wt") as out:
        out.write("hello\tbonjour\n" * 40)
    (tmp_path / "mine/es-fr.tsv").write_text("hola\tbonjour\n" * 40)
    mixture = opus.register_table("mine", str(tmp_path / "table.tsv"))
    assert opus.languages(str(tmp_path / "table.tsv")) == ("en", "es", "fr")
    gin_bindings(f'opus.data_root = "{tmp_path}"')
    assert {e["source_lang"] for e in read(mixture, shuffle=True, seed=0)} == {"en", "es"}
    example = read("mine_es_fr")[0]
    del example["pair_id"]
    assert example == {"source": "hola", "target": "bonjour", "source_lang": "es", "target_lang": "fr"}


def test_documents_are_read_below_the_root(tmp_path, common_crawl, gin_bindings, read):
    (tmp_path / "cc_108/br").mkdir(parents=True)
    with gzip.open(tmp_path / "cc_108/br/0.txt.gz", "wt") as out:
        out.write("Un.\tDaou.\n")
    (tmp_path / "cc_108/br/1.txt").write_text("Tri.\tPevar.\n")
    gin_bindings(f'common_crawl.data_root = "{tmp_path}"')
    examples = read("cc_108_br")
    assert sorted((e["text"], e["lang"]) for e in examples) == [("Tri.\nPevar.", "br"), ("Un.\nDaou.", "br")]
    assert len({e["document_id"] for e in examples}) == 2


@pytest.mark.parametrize(("name", "setting"), [("opus_92", "opus"), ("cc_108", "common_crawl")])
def test_missing_roots_and_files_are_named(tmp_path, opus, common_crawl, gin_bindings, read, name, setting):
    with pytest.raises(ValueError, match=f"bind {setting}.data_root .* vmsst_jax.prepare makes it"):
        read(name)
    gin_bindings(f'{setting}.data_root = "{tmp_path}/none"')
    with pytest.raises(ValueError, match=f"{setting}.data_root = .*none' is no folder"):
        read(name)
    gin_bindings(f'{setting}.data_root = "{tmp_path}"')
    with pytest.raises(
        ValueError, match=rf"{name}/\S*af/\S*: no such file under {setting}.data_root; .*vmsst_jax.prepare makes it"
    ):
        read(name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a table without rows"),
        ("language\tfiles\n", r"line 1: wanted the columns \('language', 'megabytes', 'files'\), found"),
        ("language\tmegabytes\tfiles\n# x\nfr\t3\n", "line 3: wanted 3 columns, found 2"),
        ("language\tmegabytes\tfiles\nfr\tmuch\tx\n", "line 2: megabytes is a number above 0"),
        ("language\tmegabytes\tfiles\nfr\t-1\tx\n", "line 2: megabytes is a number above 0"),
    ],
)
def test_wrong_tables_name_the_line(tmp_path, common_crawl, text, message):
    (tmp_path / "table.tsv").write_text(text)
    with pytest.raises(ValueError, match=message):
        common_crawl.register_table("wrong", str(tmp_path / "table.tsv"))
