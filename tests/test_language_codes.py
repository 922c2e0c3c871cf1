import pytest

from vmsst_jax.language_codes import CANONICAL, canonical

# The 112 languages of LASER's Tatoeba files.
TATOEBA = """
afr amh ang ara arq arz ast awa aze bel ben ber bos bre bul cat cbk ceb ces cha cmn cor csb cym dan deu dsb
dtp ell epo est eus fao fin fra fry gla gle glg gsw heb hin hrv hsb hun hye ido ile ina ind isl ita jav jpn
kab kat kaz khm kor kur kzj lat lfn lit lvs mal mar max mhr mkd mon nds nld nno nob nov oci orv pam pes pms
pol por ron rus slk slv spa sqi srp swe swg swh tam tat tel tgl tha tuk tur tzl uig ukr urd uzb vie war wuu
xho yid yue zsm
""".split()

# The languages LASER was trained on, as its README lists them (without English), plus its three-letter ones.
LASER = """
af sq am ar hy ay az eu be bn ber bs br bg my ca zh km cbk kzj kw hr cs da nl mhr eo et fi fr gl ka de el ha he hi hu
is io id ia ie ga it ja kab kk ko ku lv la lfn lt nds mk mg ms ml dv mr nb oc fa pl pt ro ru sr sd si sk sl so es sw sv
tl tg ta tt te th tr ug uk ur uz vi wuu yue dtp en
""".split()
UNSEEN = """
ang arq arz ast awa ceb cha csb cym dsb fao fry gla gsw hsb jav max mon nno nov orv pam pms swg tuk tzl war xho yid
""".split()


def test_laser_languages_split_the_tatoeba_files_83_to_29():
    trained = {canonical(code) for code in LASER}
    assert len(TATOEBA) == 112
    assert [code for code in TATOEBA if canonical(code) not in trained] == UNSEEN
    assert len(UNSEEN) == 29


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        (("lv", "lav", "lvs"), "lv"),
        (("sw", "swa", "swh"), "sw"),
        (("ms", "msa", "zsm"), "ms"),
        (("fa", "fas", "pes"), "fa"),
        (("ar", "ara", "arb"), "ar"),
        (("zh", "zho", "cmn", "zh_Hans", "zh-TW", "ZH"), "zh"),
        (("nb", "nob", "no", "nor"), "nb"),
        (("et", "est", "ekk"), "et"),
        (("ku", "kur", "kmr"), "ku"),
        (("uz", "uzb", "uzn"), "uz"),
        (("tl", "tgl", "fil"), "tl"),
        (("mg", "mlg", "plt"), "mg"),
        (("he", "iw", "heb"), "he"),
        (("sr_Latn", "srp", "sr@latin"), "sr"),
        (("pt_BR", "por"), "pt"),
    ],
)
def test_names_of_one_language(codes, expected):
    assert {canonical(code) for code in codes} == {expected}


def test_languages_of_their_own():
    own = [
        "arz",
        "arq",
        "nn",
        "yue",
        "wuu",
        "gsw",
        "hsb",
        "dsb",
        "kzj",
        "dtp",
        "ber",
        "kab",
        "nds",
        "cbk",
        "bs",
        "hr",
        "sr",
    ]
    assert len({canonical(code) for code in own}) == len(own)
    assert canonical("nno") == "nn" != canonical("nob")


def test_agrees_with_cldr():
    aliases = pytest.importorskip("babel.core").get_global("language_aliases")
    differ = {k: (v, aliases.get(k)) for k, v in CANONICAL.items() if len(k) == 3 and aliases.get(k) != v}
    # CLDR prefers Filipino and generic Norwegian, and counts Twi as Akan; corpora say tl, nb and tw.
    assert differ == {"tgl": ("tl", "fil"), "fil": ("tl", None), "nor": ("nb", "no"), "twi": ("tw", "ak")}
