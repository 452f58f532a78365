# SPDX-License-Identifier: Apache-2.0
"""Write definitions, which events refer to: system tree, locations, files, handles, attributes."""

from typing import TYPE_CHECKING

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import NEVER
from biotrail.converters.outputs.otf2.archive import Archive
from biotrail.converters.outputs.otf2.handles import (
    BIOS,
    CALLS,
    COUNTERS,
    GAUGES,
    PAIRS,
    REQUESTS,
    Handles,
)
from biotrail.converters.outputs.otf2.writer import (
    ATTRIBUTES,
    MEANINGS,
    PAIR_MEANINGS,
    PATH_MEANINGS,
)
from biotrail.recorder.schema.device_numbers import dev_text
from biotrail.recorder.schema.strings import shown

if TYPE_CHECKING:
    from biotrail.converters.outputs.otf2.convert import Otf2Summary

_PARADIGMS = {
    BIOS: ("block_bio", "Linux block layer: bios"),
    REQUESTS: ("block_rq", "Linux block layer: requests"),
}
"""(identification, name) of each layer's I/O paradigm."""
WAITS = {
    "blocked": "off the CPU, inside a system call, until woken",
    "runnable": "ready to run, inside a system call, until it ran",
}
"""Regions of a wait, and what they mean."""
_NS_PER_SECOND = 1_000_000_000
_NO_TIME = 2**64 - 1
_HOST, _BLOCK_DEVICES = 0, 1
"""Numbers of the first nodes of the system tree; devices follow."""
_FACTS = ("kind", "model", "serial", "scheduler", "dm_name", "dm_uuid", "rotational", "sectors")
"""Keys of a device in the log's header that become properties of its node."""


class _Definitions:
    """Writes an archive's definitions, each after those that it refers to."""

    def __init__(self, archive: Archive, context: Context, handles: Handles) -> None:
        self._archive = archive
        self._context = context
        self._handles = handles
        self._lib, self._text = archive.lib, archive.string
        # Disks before their partitions: a node's parent must be defined before the node.
        devices = sorted(handles.disks, key=lambda dev: (handles.disks[dev] != dev, dev))
        self._nodes = {dev: _BLOCK_DEVICES + 1 + at for at, dev in enumerate(devices)}
        self._files = {dev: at for at, dev in enumerate(devices)}

    def attributes(self) -> None:
        """Define the attributes that events carry; of threads and pairs where there are any."""
        pairs = PAIR_MEANINGS if self._handles.pairs else {}
        # Readers want attributes without a gap in their numbers.
        meanings = MEANINGS | (PATH_MEANINGS if self._handles.threads or pairs else {}) | pairs
        for name, (_, meaning) in meanings.items():
            attribute = ATTRIBUTES[name]
            texts = self._text(name), self._text(meaning)
            kind = self._lib.Type(attribute.type)
            self._archive.define("Attribute", attribute.number, *texts, kind)

    def system_tree(self) -> None:
        """Define the nodes: host, "block devices", disks and partitions with their properties."""
        lib, define = self._lib, self._archive.define
        none = lib.UNDEFINED_SYSTEM_TREE_NODE
        host = self._text(self._context.host)
        define("SystemTreeNode", _HOST, host, self._text("machine"), none)
        define("SystemTreeNodeDomain", _HOST, lib.SYSTEM_TREE_DOMAIN_SHARED_MEMORY)
        group = self._text("block devices")
        define("SystemTreeNode", _BLOCK_DEVICES, group, group, _HOST)
        for dev, node in self._nodes.items():
            disk = self._handles.disks[dev]
            parent = self._nodes[disk] if dev != disk else _BLOCK_DEVICES
            kind = self._text("partition" if dev != disk else "disk")
            name = self._text(self._context.device_name(dev))
            define("SystemTreeNode", node, name, kind, parent)
            entry = self._context.devices.get(dev, {})
            facts = {"dev": dev_text(dev)}
            facts |= {key: str(entry[key]) for key in _FACTS if key in entry}
            below = [self._context.device_name(d) for d in self._context.lower_devices(dev)]
            facts |= {"stacked_on": ", ".join(below)} if below else {}
            for key, value in facts.items():
                union = lib.AttributeValue()
                union.stringRef = self._text(value)
                text = self._text(key)
                define("SystemTreeNodeProperty", node, text, lib.TYPE_STRING, union)

    def locations(self) -> None:
        """Define groups and locations: of disks at their nodes, of threads and pairs at the host's.

        Bios and requests are CPU threads, counters a metric location. Groups are numbered in their
        order, as readers require.
        """
        lib, define = self._lib, self._archive.define
        groups: list[int | str | None] = []
        for location in self._handles.locations.values():
            owner: int | str | None = None
            node, kind = _HOST, lib.LOCATION_TYPE_CPU_THREAD
            if location.layer == CALLS:
                owner, name = self._handles.threads[location.dev]
                text = f"{name or 'thread'} {location.dev}"
                title = f"{self._handles.processes.get(owner) or name or 'process'} {owner}"
            elif location.layer == PAIRS:
                owner, text = self._handles.pairs[location.dev]
                title = f"pairs: {owner}"
            else:
                text = title = f"{self._context.device_label(location.dev)} {location.layer}"
                node = self._nodes[location.dev]
                if location.layer == COUNTERS:
                    kind = lib.LOCATION_TYPE_METRIC
            if owner is None or owner not in groups:
                group = (lib.LOCATION_GROUP_TYPE_PROCESS, node, lib.UNDEFINED_LOCATION_GROUP)
                define("LocationGroup", len(groups), self._text(title), *group)
                groups.append(owner)
            at = len(groups) - 1 if owner is None else groups.index(owner)
            events = self._archive.event_counts[location.number]
            define("Location", location.number, self._text(text), kind, events, at)

    def regions(self) -> None:
        """Define the regions: calls are functions that do I/O, waits and pairs artificial."""
        lib, none = self._lib, self._text("")
        pair_role = lib.REGION_ROLE_ARTIFICIAL
        how = (lib.PARADIGM_NONE, lib.REGION_FLAG_NONE, lib.UNDEFINED_STRING, 0, 0)
        for name, number in self._handles.regions.items():
            title = self._text(name)
            known, role = (none, pair_role) if name in WAITS else (title, lib.REGION_ROLE_FILE_IO)
            meaning = self._text(WAITS.get(name, "system call"))
            self._archive.define("Region", number, title, known, meaning, role, *how)
        for (name, pair, events), number in self._handles.pair_regions.items():
            title, meaning = self._text(name), self._text(f"{pair}: {events}")
            self._archive.define("Region", number, title, none, meaning, pair_role, *how)

    def metrics(self) -> None:
        """Define a metric member and class per gauge, and their instances for each disk."""
        lib, define = self._lib, self._archive.define
        kind = (lib.METRIC_TYPE_OTHER, lib.METRIC_ABSOLUTE_NEXT)
        for at, (name, meaning, unit) in enumerate(GAUGES):
            texts = self._text(name), self._text(meaning)
            value = (lib.TYPE_UINT64, lib.BASE_DECIMAL, 0)
            define("MetricMember", at, *texts, *kind, *value, self._text(unit))
            how = (lib.METRIC_ASYNCHRONOUS, lib.RECORDER_KIND_ABSTRACT)
            define("MetricClass", at, [at], *how)
        for location in self._handles.locations.values():
            if location.layer == COUNTERS:
                node = (lib.SCOPE_SYSTEM_TREE_NODE, self._nodes[location.dev])
                for at in range(len(GAUGES)):
                    number = self._handles.metric(location, at)
                    define("MetricInstance", number, at, location.number, *node)

    def io(self) -> None:
        """Define I/O paradigms, a file /dev/NAME per device, and open I/O handles."""
        lib, define = self._lib, self._archive.define
        for number, (identification, name) in enumerate(_PARADIGMS.values()):
            texts = (self._text(identification), self._text(name))
            kind = (lib.IO_PARADIGM_CLASS_SERIAL, lib.IO_PARADIGM_FLAG_OS)
            define("IoParadigm", number, *texts, *kind, [], [], [])
        for dev, file in self._files.items():
            path = self._text(f"/dev/{self._context.device_name(dev)}")
            define("IoRegularFile", file, path, self._nodes[dev])
        if any(isinstance(key, str) or isinstance(key[0], int) for key in self._handles.handles):
            texts = (self._text("POSIX"), self._text("POSIX I/O"))
            kind = (lib.IO_PARADIGM_CLASS_SERIAL, lib.IO_PARADIGM_FLAG_OS)
            define("IoParadigm", len(_PARADIGMS), *texts, *kind, [], [], [])
        paths = len(self._files)
        # In order of their numbers, with parents first: readers require both.
        for key, number in self._handles.handles.items():
            parent, paradigm = lib.UNDEFINED_IO_HANDLE, len(_PARADIGMS)
            if isinstance(key, str):  # of calls: files are numbered after those of the devices
                text, file = self._text(key), paths
                paths += 1
                define("IoRegularFile", file, text, _HOST)
            elif isinstance(key[0], str):
                layer, dev = key
                text = self._text(f"{self._context.device_label(dev)} {layer}")
                file, paradigm = self._files[dev], list(_PARADIGMS).index(layer)
                parent = self._handles.handles[BIOS, dev] if layer == REQUESTS else parent
            else:  # named after its process, as far as the name is known
                pid, fd = key
                process = self._handles.processes.get(pid) or "process"
                text = self._text(f"fd {fd} of {process} {pid}")
                file = lib.UNDEFINED_IO_FILE
            how = (lib.IO_HANDLE_FLAG_PRE_CREATED, lib.UNDEFINED_COMM, parent)
            define("IoHandle", number, text, file, paradigm, *how)
            state = (lib.IO_ACCESS_MODE_READ_WRITE, lib.IO_STATUS_FLAG_NONE)
            define("IoPreCreatedHandleState", number, *state)


def _describe(archive: Archive, context: Context, summary: "Otf2Summary") -> None:
    """Set what the anchor file says of the archive: host, creator, counts, and properties."""
    lib, handle, header = archive.lib, archive.handle, context.header
    unknown = f" and in {summary.lost_unknown} windows an unknown number" * (
        summary.lost_unknown > 0
    )
    pairs = f", {summary.pairs} pairs of events" * (summary.pairs > 0)
    what = f"{summary.bios} bios, {summary.requests} requests{pairs}"
    text = f"{what}; lost {summary.lost} events{unknown}"
    archive.call(lib.Archive_SetMachineName, handle, shown(context.host))
    archive.call(lib.Archive_SetCreator, handle, shown(str(header.get("created_by", "biotrail"))))
    archive.call(lib.Archive_SetDescription, handle, text)
    for name, value in (
        ("LOG_ID", context.log_id),
        ("KERNEL", str(header.get("kernel", {}).get("release", ""))),
        ("COMMAND", " ".join(map(str, header.get("command", [])))),
        ("LOST_EVENTS", str(summary.lost)),
        ("LOSS_WINDOWS_OF_UNKNOWN_COUNT", str(summary.lost_unknown)),
    ):
        if value:  # the library takes an empty value for a wish to remove the property
            archive.call(lib.Archive_SetProperty, handle, f"BIOTRAIL::{name}", shown(value), True)


def define(
    archive: Archive,
    context: Context,
    handles: Handles,
    summary: "Otf2Summary",
    losses: list[tuple[int, int, str]],
) -> None:
    """End the archive's events; write all definitions, the description and the loss markers.

    losses: markers (start ns, duration ns, text). The clock's range covers events and losses.
    """
    archive.end_events()
    definitions = _Definitions(archive, context, handles)
    times = [t for start, length, _ in losses for t in (start, start + length)]
    times += [t for t in (summary.first_ns, summary.last_ns) if t != NEVER]
    # Time stamps are ns of CLOCK_MONOTONIC. The wall clock at the first is computed from the log's
    # first clock reading, if there is one.
    first, last = min(times, default=0), max(times, default=0)
    reading = context.clocks[0] if context.clocks else None
    start = max(first, 0)
    realtime = reading["realtime"] - reading["monotonic"] + start if reading else _NO_TIME
    archive.define("ClockProperties", _NS_PER_SECOND, start, max(last - first, 0), realtime)
    for text, number in archive.strings.items():
        archive.define("String", number, text)
    definitions.attributes()
    definitions.system_tree()
    definitions.locations()
    definitions.regions()
    definitions.metrics()
    definitions.io()
    _describe(archive, context, summary)
    if losses:
        archive.mark_losses(losses)
