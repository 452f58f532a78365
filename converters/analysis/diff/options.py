# SPDX-License-Identifier: Apache-2.0
"""How a recording was made, as far as that changes its figures: options of `record`.

The recorder's own programs take time in the path of an I/O: a stack walk at Q makes Q2G longer.
"""

from collections.abc import Mapping
from typing import Any


def options_of(header: Mapping[str, Any]) -> dict[str, str]:
    """Return option of `record` → its value as text; options that were not given are not there.

    header: of a log. Other tools' recordings have none of these.
    """
    found: dict[str, str] = {}
    if isinstance(events := header.get("events"), dict) and events.get("set"):
        found["--events"] = str(events["set"])
    if isinstance(stacks := header.get("stacks"), dict):
        found["--stacks"] = "kernel and user" if stacks.get("user") else "kernel"
    if isinstance(header.get("files"), dict):
        found["--files"] = "yes"
    if isinstance(path := header.get("path"), dict):
        found["--path"] = ",".join(sorted(str(part) for part in path.get("parts") or ()))
    sites = header.get("sites")
    if isinstance(sites, dict) and (follow := sites.get("follow")):
        found["--follow"] = str(follow.get("type", ""))
    if isinstance(filters := header.get("filters"), dict):
        found |= {f"filter {name}": _filter(value) for name, value in filters.items() if value}
    if header.get("backend") not in (None, "core"):
        found["--backend"] = str(header["backend"])
    return dict(sorted(found.items()))


def _filter(value: Any) -> str:
    if not isinstance(value, list):
        return "yes" if value is True else str(value)
    specs = (one.get("spec", "") if isinstance(one, dict) else one for one in value)
    return ", ".join(map(str, specs))
