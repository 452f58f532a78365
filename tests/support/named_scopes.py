# SPDX-License-Identifier: Apache-2.0
"""Tracepoints of which only the names of arguments and fields are known, as of other kernels."""

import tomllib
from collections.abc import Mapping

from biotrail.recorder.schema.errors import SiteError
from biotrail.recorder.sites.declarations import Scopes
from biotrail.recorder.sites.expressions import Scope, Source, Step, Value
from tests.support.paths import ROOT

_DATA = ROOT / "tests" / "data" / "kernels" / "tracepoints.toml"


class NamedScope(Scope):
    """Arguments or fields by name; members of structs are taken to exist."""

    def __init__(self, site: str, names: list[str], source: Source) -> None:
        self.site, self._names, self._source = f"tracepoint {site}", names, source
        self.listed = ", ".join(names)

    def _named(self, name: str, path: list[Step], text: str) -> Value:
        if name not in self._names:
            raise SiteError(f"'{text}' at character 1: no field {name}; there is {self.listed}")
        return Value(self._source, text, at=(self._names.index(name), *(0 for _ in path)))


def scopes_of(known: Mapping[str, Mapping[str, list[str]]]) -> Scopes:
    """What `resolve` asks, from names: {"system:name": {"typed": […], "format": […]}}."""

    def find(tracepoint: str) -> Mapping[str, Scope]:
        if tracepoint not in known:
            raise SiteError(f"this kernel has no tracepoint {tracepoint}")
        return {
            way: NamedScope(tracepoint, names, Source.ARGUMENT if way == "typed" else Source.FIELD)
            for way, names in known[tracepoint].items()
        }

    return find


def kernel_names(kernel: str) -> dict[str, dict[str, list[str]]]:
    """The tracepoints of a stock Debian kernel, as "6.1", that ready-made pairs use."""
    tables = tomllib.loads(_DATA.read_text())[kernel]
    ways = {"arguments": "typed", "fields": "format"}
    return {
        name: {ways[key]: text.split() for key, text in table.items()}
        for name, table in tables.items()
    }


KERNELS = ("5.10", "6.1", "6.12", "7.2")
