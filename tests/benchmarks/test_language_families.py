from vmsst_jax.benchmarks import language_families
from vmsst_jax.language_codes import canonical

# The 112 languages of LASER's Tatoeba files, and those of the other benchmarks (NTREX, MKQA, Mr. TyDi, XQuAD, Bible).
TATOEBA = """
afr amh ang ara arq arz ast awa aze bel ben ber bos bre bul cat cbk ceb ces cha cmn cor csb cym dan deu dsb
dtp ell epo est eus fao fin fra fry gla gle glg gsw heb hin hrv hsb hun hye ido ile ina ind isl ita jav jpn
kab kat kaz khm kor kur kzj lat lfn lit lvs mal mar max mhr mkd mon nds nld nno nob nov oci orv pam pes pms
pol por ron rus slk slv spa sqi srp swe swg swh tam tat tel tgl tha tuk tur tzl uig ukr urd uzb vie war wuu
xho yid yue zsm
""".split()
OTHERS = "arb guj mya zul en ms no sv zh_cn zh_hk zh_tw zho_Hans zho-Hant bn te sw id fi hi ro".split()


def test_families_and_scripts_of_the_benchmarks_languages():
    table = language_families.languages()
    assert len(TATOEBA) == 112 and {canonical(code) for code in TATOEBA} <= table.keys()
    assert all(language_families.find(code) for code in TATOEBA + OTHERS)
    assert all(all(language) for language in table.values())
    assert len({language.name for language in table.values()}) == len(table)
    known = {
        "deu": ("German", "Germanic", "Latin"),
        "yid": ("Yiddish", "Germanic", "Hebrew"),
        "ka": ("Georgian", "Kartvelian", "Georgian"),
        "mlt": ("Maltese", "Semitic", "Latin"),
        "ur": ("Urdu", "Indo-Aryan", "Arabic"),
        "hun": ("Hungarian", "Uralic", "Latin"),
    }
    assert {key: tuple(language_families.find(key)) for key in known} == known
    assert language_families.find("srp_Cyrl").script == "Cyrillic" and language_families.find("srp").script == "Latin"
    for key in ("ara-deu", "cs->de", "sts12.MSRpar", "xxx", "all", ""):
        assert language_families.find(key) is None
    names = [language_families.name(key) for key in ("ara-deu", "cs->de", "pt-BR", "sts-xx")]
    assert names == ["Arabic – German", "Czech → German", "Portuguese", ""]
