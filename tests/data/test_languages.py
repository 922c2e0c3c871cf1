"""The language table: ids are positions, and an unknown code says what there is."""

import pytest

from vmsst_jax.data.languages import Languages


def test_ids_are_positions():
    table = Languages(code for code in ["en", "de", "pt"])
    assert table.codes == ("en", "de", "pt")
    assert [table.id(code) for code in ("de", "pt", "en")] == [1, 2, 0]
    assert len(table) == 3
    assert Languages(table.codes).codes == table.codes


def test_unknown_code_lists_the_known_and_the_closest():
    table = Languages(["en", "de", "zh", "pt"])
    with pytest.raises(ValueError, match=r"unknown language 'pt_BR', closest: pt;.* 4 languages are: en, de, zh, pt"):
        table.id("pt_BR")
    with pytest.raises(ValueError, match=r"unknown language '';"):
        table.id("")


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        ([], "at least one"),
        (["en", "de", "en"], "twice in one table: en"),
        (["en", " de"], "white space"),
        (["en", ""], "empty"),
        (["en", "../../etc"], "'../../etc' could be part of a path"),
        (["en", "d\\e"], "could be part of a path"),
        (["en", "d\0e"], "could be part of a path"),
        (["en", 3], "found 3 of type int"),
        ("en", "'en', one string; wanted a list"),
        (5, "5, a int; wanted a list"),
    ],
)
def test_bad_tables_are_refused(codes, message):
    with pytest.raises(ValueError, match=message):
        Languages(codes)
