# SPDX-License-Identifier: Apache-2.0
"""`biotrail dump`: records one by one, as text or as JSON lines."""

import sys
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any

import click
import numpy as np

from biotrail.cli.options.cuts import Cut, opened, record_options
from biotrail.cli.options.opening import log_argument
from biotrail.converters.analysis.choosing.choosing import device_named
from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import NO_CPU, SECTOR_BYTES, Bool, known_id
from biotrail.converters.pipeline import Trace
from biotrail.converters.sites.pair_names import PairNames
from biotrail.converters.sites.tables import Following
from biotrail.recorder.schema.device_numbers import dev_text
from biotrail.recorder.schema.errors import ConversionError
from biotrail.recorder.schema.records import (
    BY_KIND,
    BY_LETTER,
    HIT_BORN,
    HIT_CUT,
    HIT_ENDED,
    NO_SECTOR,
    NO_TAG,
    Q_FLAG_OWN,
    Kind,
    Role,
)
from biotrail.recorder.schema.strings import shown
from biotrail.text.printing import as_json, say
from biotrail.text.rows import limit_option

WINDOW_EVENTS = 20_000
"""Events decoded at a time: few, so that output begins soon and memory stays small."""
_POINTERS = frozenset({"bio", "rq", "parent", "page", "object"})
_HIDDEN = frozenset({"head", "reserved"})
_DEVICES = frozenset({"dev", "part", "from_dev"})
_PLACE = frozenset({"time_ns", "seconds", "cpu", "kind", "name", "dev", "device"})
_SHOWN_APART = _PLACE | frozenset(
    {"op", "opf", "op_flags", "sector", "bytes", "tid", "comm", "status_name", "own"}
    | {"site_name", "role_name", "born", "ended", "cut"}
)
_TAGS = frozenset({"tag", "sched_tag", "hctx"})

Row = dict[str, Any]


def kinds(text: str) -> frozenset[int]:
    """Return the numbers of record kinds by letter, `Q,D,C` or `QDC`."""
    letters = [letter for letter in text if letter not in ", "]
    known = [letter for letter, found in BY_LETTER.items() if found.kind != Kind.PAD]
    for letter in letters:
        if letter not in known:
            raise click.BadParameter(
                f"{letter!r} is no kind of record; there are: {' '.join(known)}"
            )
    return frozenset(int(BY_LETTER[letter].kind) for letter in letters)


@click.command()
@log_argument
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "blkparse"]),
    default="text",
    show_default=True,
    help="json: one object per line, with every field by its name. blkparse: lines as blkparse "
    "prints them by default.",
)
@click.option(
    "--kind",
    "kinds",
    type=kinds,
    metavar="Q,D,..",
    help="Only records of these kinds, by letter (docs/log-format.md).",
)
@record_options
@limit_option("all")
def command(log: str, form: str, kinds: frozenset[int] | None, cut: Cut, limit: int | None) -> None:
    """Print the records of LOG in the order of their time stamps.

    Times are seconds since the recording began. A line has time, CPU, kind, device, operation,
    first sector + number of sectors, and the record's other fields; docs/log-format.md lists
    them. --device with a partition chooses by sector, so it leaves out records that have no
    sector. LOG - reads standard input.

    \b
    biotrail dump disk.biotrail | less -S
    biotrail dump --kind QC -d nvme0n1 --from 1.5 --to 1.6 disk.biotrail
    biotrail dump --format blkparse disk.biotrail | awk '$6 == "C"'
    biotrail dump --format json disk.biotrail | jq 'select(.kind == "C" and .status != 0)'
    """  # noqa: D301 - \b is click's mark for text that keeps its lines
    out = sys.stdout
    with opened(log, cut) as source:
        trace = source.trace
        windows = _windows(trace, kinds, cut.devices)
        rows = (row for events, _ in windows for row in _rows(trace, events))
        texts: Iterator[str]
        if form == "blkparse":
            from biotrail.converters.outputs.blktrace import blkparse

            texts = map(shown, blkparse.lines(windows, trace.context, trace.tasks))
        elif form == "json":
            texts = (as_json(row) for row in rows)
        else:
            texts = (shown(_text(row)) for row in rows)
        for text in islice(texts, limit or None):
            out.write(text + "\n")  # click.echo would flush each line
        if limit and next(texts, None) is not None:
            say("biotrail: more records follow: --limit 0 shows all", err=True)


def _windows(
    trace: Trace, kinds: frozenset[int] | None, devices: Collection[str]
) -> Iterator[tuple[Events, int]]:
    """Yield (events of these kinds and devices, ns up to which they are complete) of the log."""
    for events, end in trace.events(WINDOW_EVENTS):
        trace.tasks.add_records(events)
        wanted = np.ones(len(events), dtype=np.bool_)
        if kinds is not None:
            wanted &= np.isin(events.kind, np.array(sorted(kinds), dtype=np.uint8))
        if devices:
            wanted &= np.any([_on_device(trace.context, one, events) for one in devices], axis=0)
        yield events.take(wanted), end


def _on_device(context: Context, name: str, events: Events) -> Bool:
    """Return a mask (n,) of events on a device, which may have been added while recording."""
    dev = device_named(context, name)
    if dev not in context.devices:
        known = ", ".join(sorted(map(context.device_name, context.devices)))
        raise ConversionError(f"the log has no device {name}; it has {known or 'none'}")
    entry = context.devices[dev]
    disk = context.disk_of(dev)
    on_disk: Bool = events.dev == disk
    if disk == dev or "start" not in entry:
        return on_disk
    first = np.uint64(entry["start"])
    last = first + np.uint64(entry["sectors"])
    inside: Bool = (events.sector >= first) & (events.sector < last)
    return on_disk & inside


def _rows(trace: Trace, events: Events) -> list[Row]:
    found: list[Row] = [{}] * len(events)
    for number in np.unique(events.kind).tolist():
        kind = Kind(number)
        at = events.rows(kind)
        records = events.fields(kind, at)
        columns = _columns(trace.context, records)
        if kind == Kind.Q:
            columns["own"] = (records["flags"] & Q_FLAG_OWN != 0).tolist()
        if kind == Kind.HIT:
            following = Following(trace.context.header)
            columns["site_name"] = [following.site(site).name for site in columns["site"]]
            columns["role_name"] = [_ROLE_NAMES.get(r, f"role {r}") for r in columns["role"]]
            for name, bit in (("born", HIT_BORN), ("ended", HIT_ENDED), ("cut", HIT_CUT)):
                columns[name] = (records["flags"] & bit != 0).tolist()
        if kind == Kind.PAIR:
            names = PairNames(trace.context)
            pairs, key0, key1, by = (columns[name] for name in ("pair", "key0", "key1", "by"))
            columns["pair_name"] = [names.name(pair) for pair in pairs]
            columns["key"] = [names.key(*key) for key in zip(pairs, key0, key1, strict=True)]
            columns["by_text"] = [names.by(*value) for value in zip(pairs, by, strict=True)]
        if "tid" in columns:
            if not columns.get("comm"):  # the name that each thread had then
                names_then, tasks = trace.tasks.table().comm, trace.tasks
                places = tasks.rows(records["tid"], events.ts[at]).tolist()
                columns["comm"] = [names_then[row] if row >= 0 else None for row in places]
            for name in {"tid", "tgid"} & columns.keys():
                columns[name] = [known_id(number) for number in columns[name]]
        letter, name = BY_KIND[kind].letter, BY_KIND[kind].name
        for row, values in zip(at.tolist(), zip(*columns.values(), strict=True), strict=True):
            found[row] = {
                "time_ns": int(events.ts[row]),
                "seconds": (int(events.ts[row]) - trace.start) / 1e9,
                "cpu": None if events.cpu[row] == NO_CPU else int(events.cpu[row]),
                "kind": letter,
                "name": name,
                **dict(zip(columns, values, strict=True)),
            }
    return found


def _columns(context: Context, records: np.ndarray[Any, np.dtype[np.void]]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {}
    for name in records.dtype.names or ():
        if name in _HIDDEN:
            continue
        values = records[name].tolist()
        if name in _POINTERS:
            values = [f"{v:#x}" if v else None for v in values]
        elif name == "bios":
            values = [[f"{v:#x}" for v in chain if v] for chain in values]
        elif records.dtype[name].kind == "S":
            values = [v.decode("utf-8", "replace") for v in values]
        elif name in ("sector", "from_sector"):
            values = [None if v == NO_SECTOR else v for v in values]
        elif name in _TAGS:
            values = [None if v == NO_TAG else v for v in values]
        columns[name] = values
    if "dev" in columns:
        columns["device"] = [context.device_name(v) for v in columns["dev"]]
    if "opf" in columns:
        columns["op"] = [context.op_name(v) for v in columns["opf"]]
        columns["op_flags"] = [context.flag_names(v) for v in columns["opf"]]
    if "status" in columns:
        columns["status_name"] = [context.status_name(v) for v in columns["status"]]
    return columns


_ROLE_NAMES = {Role.ENTRY: "entry", Role.RETURN: "return", Role.EVENT: "tracepoint"}


def _text(row: Row) -> str:
    cpu = "?" if row["cpu"] is None else row["cpu"]
    parts = [f"{row['seconds']:14.9f} {cpu:>3} {row['kind']}"]
    if "dev" in row:
        parts.append(f"{dev_text(row['dev']):>7} {row['device']}")
    if "op" in row:
        parts.append(row["op"] + (f" {row['op_flags']}" if row["op_flags"] else ""))
    if "site_name" in row:
        parts.append(f"{row['site_name']} {row['role_name']}")
    if "sector" in row:
        sector = "-" if row["sector"] is None else row["sector"]
        parts.append(f"{sector} + {row['bytes'] // SECTOR_BYTES}")
        if row["bytes"] % SECTOR_BYTES or row["sector"] is None:
            parts.append(f"bytes={row['bytes']}")
    # The only bit of a Q's `flags` is printed as the word `own`.
    named = {"flags"} if "own" in row else set()
    if "site_name" in row:
        named = {"site", "role", "flags", *([] if row["role"] == Role.RETURN else ["value"])}
        named |= {"stack"} if row["stack"] < 0 else set()
    elif "pair_name" in row:
        named = {"pair", "key0", "key1", "by", *([] if row["by_text"] else ["by_text"])}
    others = {k: v for k, v in row.items() if k not in named and k not in _SHOWN_APART}
    for name, value in others.items():
        if value is not None:
            text = dev_text(value) if name in _DEVICES else value
            parts.append(f"{name}={','.join(value) if name == 'bios' else text}")
    parts += [word for word in ("own", "born", "ended", "cut") if row.get(word) is True]
    if "tid" in row:
        tid = "?" if row["tid"] is None else row["tid"]
        parts.append(f"{tid} [{row['comm'] or '?'}]")
    return " ".join(parts)
