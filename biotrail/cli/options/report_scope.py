# SPDX-License-Identifier: Apache-2.0
"""The scope of a report: the filters of the recording, and the part chosen of the log."""

from typing import Any

from biotrail.cli.options.cuts import Cut
from biotrail.converters.pipeline import Trace
from biotrail.text import tallies, units
from biotrail.text.record.left_out import filters_text, read_left_out


def facts(trace: Trace, cut: Cut) -> dict[str, Any]:
    """Return a report's scope for JSON: `filters` (or None); others only where they apply.

    `left_out_bios` of the filters: None if the log has no end.
    """
    filters = None
    header, end = trace.context.header.get("filters", {}), trace.reader.end
    named = [str(one["spec"]) for one in header.get("devices", []) if one.get("spec")]
    if text := " ".join([*(f"-d {name}" for name in named), filters_text(header)]).strip():
        left_out = sum(read_left_out(end).bios.values()) if end and "left_out" in end else None
        filters = {key: value for key, value in header.items() if key != "devices" and value}
        filters |= {"options": text, "devices": named, "left_out_bios": left_out}
    chosen = cut.facts(trace)
    light = {"light": True} if trace.context.is_light else {}
    doubtful = {"include_ambiguous": True} if trace.include_ambiguous else {}
    return {"filters": filters, **({"cut": chosen} if chosen else {}), **light, **doubtful}


def lines(scope: dict[str, Any]) -> list[str]:
    found = [tallies.LIGHT] if scope.get("light") else []
    if scope["filters"]:
        found.append(f"recorded with filters: {scope['filters']['options']}")
        if left_out := scope["filters"]["left_out_bios"]:
            found[-1] += f" ({units.plural(left_out, 'bio')} left out while recording)"
    if scope.get("include_ambiguous"):
        found.append("latencies in doubt count as known (--include-ambiguous)")
    if chosen := scope.get("cut"):
        found.append(f"a part of the log: {'; '.join(chosen.values())}")
    return found
