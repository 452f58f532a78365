# SPDX-License-Identifier: Apache-2.0
"""The data that a fleet's page shows: the report's JSON, bounded for any number of hosts."""

from typing import Any

from biotrail.converters.analysis.fleet.tree import FleetReport, as_dict
from biotrail.converters.analysis.page.data import bounded

ROOM = {
    "groups": 1_200_000,
    "hosts": 1_500_000,
    "outliers": 300_000,
    "said": 200_000,
    "blame": 60_000,
    "incomplete": 100_000,
    "left_out": 100_000,
}
"""Characters of JSON that each list may have, so that a page with the library is below 5 MB."""
_NOT_SHOWN = ("operations", "depth", "pattern", "flushes", "events")
"""Keys of groups that the page does not show."""


def fleet_data(report: FleetReport) -> dict[str, Any]:
    """Return the data of a fleet's page as dicts and lists for json.dumps.

    Lists are cut to ROOM characters of JSON; `left_out` has the number of rows cut from each, if
    any. Groups have their totals alone, hosts the first sentence of their reports, as `said`.
    """
    shown = as_dict(report)
    shown["groups"] = [
        {key: value for key, value in group.items() if key not in _NOT_SHOWN}
        for group in shown["groups"]
    ]
    shown["said"] = [
        {"host": host["host"], **host["verdict"][0]} for host in shown["hosts"] if host["verdict"]
    ]
    for host in shown["hosts"]:
        del host["verdict"], host["blame"]
    shown["blame"] = shown["blame"] or []
    left_out = {}
    for name, room in ROOM.items():
        shown[name], left_out[name] = bounded(shown[name], room)
    return {"report": shown, "left_out": {name: n for name, n in left_out.items() if n}}
