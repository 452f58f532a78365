# SPDX-License-Identifier: Apache-2.0
"""Records of chosen sites for `biotrail dump`: names beside their numbers."""

from collections.abc import Mapping
from typing import Any

from biotrail.converters.sites.pair_names import PairNames
from biotrail.converters.sites.tables import Following
from biotrail.recorder.schema.records import HIT_BORN, HIT_CUT, HIT_ENDED, Role

ROLE_NAMES = {Role.ENTRY: "entry", Role.RETURN: "return", Role.EVENT: "tracepoint"}


def name_hits(columns: dict[str, list[Any]], following: Following) -> None:
    """Add to the columns of HIT records names of sites and roles, and their flags.

    `site_name`, `role_name`; `born`, `ended`, `cut`: whether the flag is set.
    """
    columns["site_name"] = [following.site(number).name for number in columns["site"]]
    columns["role_name"] = [ROLE_NAMES.get(role, f"role {role}") for role in columns["role"]]
    for name, bit in (("born", HIT_BORN), ("ended", HIT_ENDED), ("cut", HIT_CUT)):
        columns[name] = [bool(flags & bit) for flags in columns["flags"]]


def name_pairs(columns: dict[str, list[Any]], names: PairNames) -> None:
    """Add to the columns of PAIR records `pair_name`, `key` and `by_text`."""
    numbers = columns["pair"]
    columns["pair_name"] = [names.name(number) for number in numbers]
    keys = zip(numbers, columns["key0"], columns["key1"], strict=True)
    columns["key"] = [names.key(*key) for key in keys]
    by = zip(numbers, columns["by"], strict=True)
    columns["by_text"] = [names.by(*value) for value in by]


def hidden_of_pair(row: Mapping[str, Any]) -> set[str]:
    """Return the fields of a pair that its line leaves out, as it has their texts.

    row: with the columns of `name_pairs`.
    """
    return {"pair", "key0", "key1", "by"} | (set() if row["by_text"] else {"by_text"})


def hidden_of_hit(row: Mapping[str, Any]) -> set[str]:
    """Return the fields of a hit that its line leaves out, as it has their names or they say none.

    row: with the columns of `name_hits`.
    """
    hidden = {"site", "role", "flags"}
    hidden |= set() if row["role"] == Role.RETURN else {"value"}
    return hidden | ({"stack"} if row["stack"] < 0 else set())
