import pytest

from vmsst_jax.benchmarks import language_sets
from vmsst_jax.language_codes import canonical

FOUND = "ara cmn deu fra lvs nob pes zsm".split()


def test_sets_have_their_sizes_and_no_language_twice():
    sizes = {name: len({canonical(code) for code in codes}) for name, codes in language_sets.SETS.items()}
    assert sizes == {"xtreme36": 36, "ccp14": 14, "laser93": 93}
    assert sizes == {name: len(codes) for name, codes in language_sets.SETS.items()}


def test_choice_by_code_of_either_standard_and_by_set():
    assert language_sets.choose(FOUND, None) == FOUND
    assert language_sets.choose(FOUND, ["lv", "zh", "deu", "no", "fa"]) == ["cmn", "deu", "lvs", "nob", "pes"]
    everything = [*FOUND, *language_sets.SETS["ccp14"]]
    assert len(language_sets.choose(everything, ["ccp14"])) == 14
    assert language_sets.expand(["ccp14", "xx"])[-3:] == ["ur", "vi", "xx"]


def test_impossible_choices():
    for wanted, message in (
        (["dau"], "no language 'dau'; closest: deu; it has ara"),
        (["ccp15"], "closest: ccp14"),
        ([], "no language is chosen"),
        ("deu", "wanted a list of codes"),
        (["xtreme36"], "the data has no language 'he'"),
    ):
        with pytest.raises(ValueError, match=message):
            language_sets.choose(FOUND, wanted)


def test_sets_that_are_all_there():
    found = "ara bul cmn deu ell fra hin rus spa swh tha tur urd vie afr".split()
    assert language_sets.whole_sets(found) == {"ccp14": sorted(found[:-1])}
    assert language_sets.whole_sets(found[1:]) == {}
