# SPDX-License-Identifier: Apache-2.0
"""Finds tracepoints by name: by their types (BTF), and by their formats (tracefs)."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path

from biotrail.recorder.probes.kernel import tracefs
from biotrail.recorder.schema.errors import ProbeError, SiteError
from biotrail.recorder.schema.formats import Format
from biotrail.recorder.sites.expressions import FormatScope, Scope, TypedScope
from biotrail.recorder.sites.resolving import FORMAT, TYPED
from biotrail.recorder.sites.types import Prototype, TypeTable

_NEAR = 5


@dataclass(frozen=True)
class Tracepoint:
    """A tracepoint of this kernel. prototype: None: it has no types here."""

    system: str
    name: str
    prototype: Prototype | None
    format: Format

    @property
    def full_name(self) -> str:
        return f"{self.system}:{self.name}"


class Tracepoints:
    """The tracepoints of the running kernel and its modules."""

    def __init__(self, types: TypeTable, place: Path | None = None) -> None:
        """Look in tracefs, which is mounted where it is not. Raises ProbeError: it cannot be.

        place: tracefs's directory; None: found.
        """
        self.types = types
        self._place = place or tracefs.find()
        self._found: dict[str, Tracepoint] = {}

    @cached_property
    def systems(self) -> dict[str, list[str]]:
        """Names of tracepoints by their system. Raises ProbeError: they cannot be listed."""
        events = self._place / "events"
        try:
            return {
                entry.name: [one.name for one in os.scandir(entry) if one.is_dir()]
                for entry in os.scandir(events)
                if entry.is_dir()
            }
        except OSError as error:
            raise ProbeError(
                f"the tracepoints below {events} cannot be listed: {error.strerror}; run as root"
            ) from error

    def find(self, text: str) -> Tracepoint:
        """Return the tracepoint that is named as system:name, or by its name alone.

        Raises SiteError: there is none, or several systems have one of this name; the message names
        those that are near. ProbeError: tracefs cannot be read.
        """
        if text in self._found:
            return self._found[text]
        system, colon, name = text.strip().rpartition(":")
        holders = [one for one, names in self.systems.items() if name in names]
        if not colon and len(holders) > 1:
            raise SiteError(
                f"several systems have a tracepoint {name}: write one of "
                + ", ".join(f"{one}:{name}" for one in sorted(holders))
            )
        if (colon and system not in holders) or not holders:
            raise SiteError(f"this kernel has no tracepoint {text}{self._near(text)}")
        system = system or holders[0]
        formats = tracefs.read(self._place, system, [name])
        found = Tracepoint(system, name, self.types.prototype(name), formats[name])
        self._found[text] = found
        return found

    def scopes(self, text: str) -> Mapping[str, Scope]:
        """Return what names mean at a tracepoint, by way. Raises as `find`."""
        found = self.find(text)
        scopes: dict[str, Scope] = {}
        if found.prototype is not None:
            scopes[TYPED] = TypedScope(found.prototype, found.full_name)
        scopes[FORMAT] = FormatScope(found.format, found.full_name, self.types)
        return scopes

    def _near(self, text: str) -> str:
        known = [f"{system}:{name}" for system, names in self.systems.items() for name in names]
        if ":" in text:
            near = get_close_matches(text, known, _NEAR)
        else:
            by_name = {one.partition(":")[2]: one for one in known}
            near = [by_name[name] for name in get_close_matches(text, by_name, _NEAR)]
        hint = f"; near: {', '.join(near)}" if near else ""
        return f"{hint}; a module's are there once it is loaded (modprobe)"
