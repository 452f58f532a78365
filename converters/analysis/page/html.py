# SPDX-License-Identifier: Apache-2.0
"""Self-contained pages: they open offline, and ask nothing of any network."""

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
    "timeline.js",
    "slow.js",
    "verdict.js",
    "main.js",
)
"""In the order in which the page runs them."""
FLAME_SCRIPTS = ("format.js", "charts.js", "flame.js")
"""Of a flame graph."""
_LIBRARY = "echarts/echarts.min.js"
_PLACE = re.compile(r"\{\{(\w+)\}\}")


def page(title: str, data: Mapping[str, Any]) -> str:
    """The page as HTML text. title: plain text. data: page_data's, and `words` for people."""
    return _whole("page.html", ("page.css",), SCRIPTS, title, data)


def flame_page(title: str, data: Mapping[str, Any]) -> str:
    """A flame graph as HTML text. title: plain text. data: flame.as_dict's, and `words`."""
    return _whole("flame.html", ("page.css", "flame.css"), FLAME_SCRIPTS, title, data)


def _whole(
    template: str,
    styles: Sequence[str],
    scripts: Sequence[str],
    title: str,
    data: Mapping[str, Any],
) -> str:
    library, script = _part(_LIBRARY), "\n".join(map(_part, scripts))
    parts = {
        "title": _escaped(shown(title)),
        # Nothing else runs: not even a script that got in by a name.
        "scripts": f"'{_hash(library)}' '{_hash(script)}'",
        "style": "\n".join(map(_part, styles)),
        "library": library,
        "script": script,
        "data": as_json(readable(data)),
    }
    return _PLACE.sub(lambda found: parts[found[1]], _part(template))


def readable(value: Any) -> Any:
    """Return the value with every text in it as a person is shown it (docs/names.md)."""
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, Mapping):
        return {key: readable(item) for key, item in value.items()}
    return [readable(item) for item in value] if isinstance(value, list | tuple) else value


def _part(name: str) -> str:
    return resources.files(__name__.rpartition(".")[0]).joinpath(name).read_text("utf-8").strip()


def _hash(script: str) -> str:
    """As a Content-Security-Policy names a script."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
