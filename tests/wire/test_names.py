"""Names that people misspell: the nearest one is told, and nothing is taken for a map that it is not."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from veil.errors import InputError
from veil.wire.names import chosen, require_known, require_map_name, unknown


@dataclass(frozen=True)
class Item:
    id: str
    name: str


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("polciy", "there is no field 'polciy'; did you mean 'policy'?"),
        ("POLICY", "there is no field 'POLICY'; did you mean 'policy'?"),
        ("colour", "there is no field 'colour'; there are name, policy"),
        ("a\u202eb\n", "there is no field 'a\\u202eb\\n'; there are name, policy"),
    ],
)
def test_the_nearest_name_is_told(name: str, told: str) -> None:
    """Oracle: by hand. What hides or turns text around is escaped."""
    assert unknown("field", name, ["policy", "name"]) == told
    with pytest.raises(InputError) as error:
        require_known("field", ["name", name], {"policy", "name"})
    assert str(error.value) == told


def test_a_hostile_name_is_cut_and_costs_nothing() -> None:
    assert len(unknown("map", "x" * 1_000_000, ["lobby"])) < 120
    assert unknown("map", "lobby", []) == "there is no map 'lobby'; there is none"
    assert unknown("map", "zzz", [f"hall {number}" for number in range(100)]).endswith(", ...")


def test_a_map_is_an_id_or_a_name_of_one() -> None:
    """Old databases hold two maps of one name, and names that look like another map's id: ids go first."""
    items = [Item("m1", "lobby"), Item("m2", "lobby"), Item("m3", "m1"), Item("m4", "hall")]
    assert chosen(items, "hall").id == "m4" and chosen(items, "m1").id == "m1" and chosen(items, "m2").id == "m2"
    with pytest.raises(InputError, match="2 maps are called 'lobby'; give the id of one: m1, m2"):
        chosen(items, "lobby")
    with pytest.raises(InputError, match="there is no map 'hal'; did you mean 'hall'"):
        chosen(items, "hal")


def test_names_that_cannot_be_those_of_maps() -> None:
    for name in ("lobby", "Eingang 2", "大厅", "m012", "m0123456789abcdeg", "a" * 200):
        require_map_name(name)
    for name in ("", " ", "a" * 201, "a\nb", "a\x1bb", "lob\u202eyb", "lob\u200bby", "lobby ", " lobby", "m0123456789abcdef"):
        with pytest.raises(InputError):
            require_map_name(name)
