# SPDX-License-Identifier: Apache-2.0
"""Self-contained HTML pages, which open offline and make no network requests."""

import base64
import hashlib
import re
from collections.abc import Mapping
from html import escape
from importlib import resources
from typing import Any

from biotrail.converters.analysis.page.data import as_json
from biotrail.recorder.schema.strings import shown

PAGES = {
    "page": (
        ("page.css",),
        (
            *("format.js", "charts.js", "overtime.js", "tables.js", "path.js", "blame.js"),
            *("guest.js", "pairs.js", "timeline.js", "slow.js", "verdict.js", "main.js"),
        ),
    ),
    "flame": (("page.css", "flame.css"), ("format.js", "charts.js", "flame.js")),
    "fleet": (("page.css",), ("format.js", "charts.js", "blame.js", "fleet.js")),
}
"""Kind of a page, as its template is called → (styles, scripts in the order in which it runs them).
"""
_LIBRARY = "echarts/echarts.min.js"
_PLACE = re.compile(r"\{\{(\w+)\}\}")


def page(kind: str, title: str, data: Mapping[str, Any]) -> str:
    """Return a page of PAGES as HTML. data: of page_data, flame.as_dict or fleet_data."""
    styles, scripts = PAGES[kind]
    library, script = _part(_LIBRARY), "\n".join(map(_part, scripts))
    parts = {
        "title": escape(shown(title), quote=False),
        # The policy lets only these scripts run, not one that a recorded name might smuggle in.
        "scripts": f"'{_hash(library)}' '{_hash(script)}'",
        "style": "\n".join(map(_part, styles)),
        "library": library,
        "script": script,
        "data": as_json(readable(data)),
    }
    return _PLACE.sub(lambda found: parts[found[1]], _part(f"{kind}.html"))


def readable(value: Any) -> Any:
    """Return a copy in which every text is safe to show (docs/names.md); keys are not changed."""
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
