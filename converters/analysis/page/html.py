# SPDX-License-Identifier: Apache-2.0
"""Self-contained HTML pages, which open offline and make no network requests."""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from biotrail.converters.analysis.page.data import as_json
from biotrail.recorder.schema.strings import shown

SCRIPTS = (
    "format.js",
    "charts.js",
    "overtime.js",
    "tables.js",
    "path.js",
    "blame.js",
    "guest.js",
    "pairs.js",
    "timeline.js",
    "slow.js",
    "verdict.js",
    "main.js",
)
"""Scripts of a report page, in the order in which the page runs them."""
FLAME_SCRIPTS = ("format.js", "charts.js", "flame.js")
"""Scripts of a flame graph's page, likewise."""
FLEET_SCRIPTS = ("format.js", "charts.js", "blame.js", "fleet.js")
"""Scripts of a fleet's page, likewise."""
_LIBRARY = "echarts/echarts.min.js"
_PLACE = re.compile(r"\{\{(\w+)\}\}")


def page(title: str, data: Mapping[str, Any]) -> str:
    """Return a report page as HTML.

    data: as of page_data, with `words`: this version, the meanings of stages and certainties, and
    lines about what is missing.
    """
    return _filled("page.html", ("page.css",), SCRIPTS, title, data)


def flame_page(title: str, data: Mapping[str, Any]) -> str:
    return _filled("flame.html", ("page.css", "flame.css"), FLAME_SCRIPTS, title, data)


def fleet_page(title: str, data: Mapping[str, Any]) -> str:
    return _filled("fleet.html", ("page.css",), FLEET_SCRIPTS, title, data)


def _filled(
    template: str,
    styles: Sequence[str],
    scripts: Sequence[str],
    title: str,
    data: Mapping[str, Any],
) -> str:
    library, script = _part(_LIBRARY), "\n".join(map(_part, scripts))
    parts = {
        "title": _escaped(shown(title)),
        # The policy lets only these scripts run, not one that a recorded name might smuggle in.
        "scripts": f"'{_hash(library)}' '{_hash(script)}'",
        "style": "\n".join(map(_part, styles)),
        "library": library,
        "script": script,
        "data": as_json(readable(data)),
    }
    return _PLACE.sub(lambda found: parts[found[1]], _part(template))


def readable(value: Any) -> Any:
    """Return a copy of the value with every text in it made safe to show (docs/names.md).

    Keys are not changed; tuples become lists.
    """
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, Mapping):
        return {key: readable(item) for key, item in value.items()}
    return [readable(item) for item in value] if isinstance(value, list | tuple) else value


def _part(name: str) -> str:
    return resources.files(__name__.rpartition(".")[0]).joinpath(name).read_text("utf-8").strip()


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
