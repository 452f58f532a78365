# SPDX-License-Identifier: Apache-2.0
"""`biotrail info`: what a log holds, what is missing from it, and how much is certain."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from biotrail.cli.options.opening import Reading, reading_options
from biotrail.cli.options.recordings import (
    InputRecording,
    as_one_object,
    headed,
    logs_argument,
    of_each,
    recordings,
)
from biotrail.converters.pipeline import Trace
from biotrail.converters.sites.pair_names import PairNames, unpaired_text
from biotrail.converters.sites.tables import Following, follows
from biotrail.recorder.schema.payloads import WAYS
from biotrail.recorder.schema.records import RECORDS
from biotrail.text import tallies, units
from biotrail.text.printing import say_all, say_json
from biotrail.text.record.left_out import filters_text, left_out_text, let_pass_text, read_left_out

_WIDTH = 14


@click.command()
@logs_argument
@reading_options(own_io=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(logs: tuple[str, ...], reading: Reading, as_json: bool) -> None:
    """Show what LOGs hold, what they lack, and how much of it is certain.

    Reads each log to its end and shows its header, the number of events of each kind and
    device, the time they cover, what was lost or is damaged, and an account of every event:
    used in a bio's or request's lifecycle, or left out for one named reason. LOG - reads
    standard input. The files of a rotated recording are one log; several recordings are shown
    one after the other.

    \b
    biotrail info disk.biotrail
    biotrail info --json disk.biotrail | jq .account
    biotrail info disk-*.biotrail
    """  # noqa: D301 - \b is click's mark for text that keeps its lines
    with recordings(logs, reading) as found:
        traces = of_each(found, lambda one: (one.name, _read(one)))
    if as_json:
        say_json(as_one_object([(one, facts(of)) for one, (_, of) in traces]), indent=2)
        return
    for name, trace in headed(traces):
        say_all(lines(name, trace))


def _read(one: InputRecording) -> Trace:
    trace = one.again()
    for _ in trace.lifecycles():
        pass
    return trace


def device_kinds(trace: Trace) -> dict[int, dict[str, int]]:
    table: dict[int, dict[str, int]] = {}
    for (dev, letter), number in sorted(trace.account.devices.items()):
        table.setdefault(dev, {})[letter] = number
    return table


def facts(trace: Trace) -> dict[str, Any]:
    account, header = trace.account, trace.context.header
    span = account.last_ns - account.first_ns if account.first_ns >= 0 else 0
    return {
        "size": trace.reader.size,
        "header": {k: v for k, v in header.items() if k != "schema"},
        "end": trace.reader.end,
        "time": {
            "first_ns": account.first_ns,
            "last_ns": account.last_ns,
            "span_ns": span,
            "first": trace.context.wall_clock(account.first_ns) if span else None,
            "last": trace.context.wall_clock(account.last_ns) if span else None,
        },
        "devices": {
            trace.context.device_label(dev): kinds for dev, kinds in device_kinds(trace).items()
        },
        **tallies.as_dict(trace),
    }


def lines(log: str, trace: Trace) -> list[str]:
    account, table = trace.account, device_kinds(trace)
    counts = account.by_letter()
    found = [
        *_origin_lines(log, trace),
        "",
        _field("events", units.count(account.total)),
        *(
            f"  {r.letter}  {r.name:<16}{units.count(counts[r.letter]):>14}"
            for r in RECORDS
            if r.letter in counts
        ),
        "",
        "devices" if table else _field("devices", "none"),
    ]
    for dev, kinds in table.items():
        each = "  ".join(f"{letter} {units.count(n)}" for letter, n in kinds.items())
        found.append(f"  {trace.context.device_label(dev):<20}  {each}")
    found += ["", *_listed("missing", tallies.loss_lines(trace), "nothing")]
    found += ["", "account of every event"]
    for reason, number in sorted(account.by_reason().items(), key=lambda item: -item[1]):
        found.append(f"  {units.count(number):>14}  {reason}")
    found += [_field("own I/O", line) for line in tallies.own_lines(trace)]
    found += _listed("certainty", tallies.certainty_lines(trace), "no block I/O")
    seen = {c for t in (account.bios, account.requests, account.edges) for c in t if t[c]}
    for certainty, meaning in tallies.CERTAINTY_MEANINGS.items():
        if certainty in seen:
            found.append(f"  {certainty:>12}  {meaning}")
    return found


def _field(name: str, value: str) -> str:
    return f"{name:<{_WIDTH}}{value}"


def _origin_lines(log: str, trace: Trace) -> list[str]:
    header, account = trace.context.header, trace.account
    host, kernel = header.get("host", {}), header.get("kernel", {})
    reader = trace.reader
    damaged = reader.problems or reader.damaged or reader.unreadable_bytes
    size = units.size(reader.size) if reader.size >= 0 else "from a pipe"
    state = "interrupted" if reader.interrupted else "damaged" if damaged else "complete"
    found = [
        _field("log", f"{log}, {size}, {state}"),
        _field("id", trace.context.log_id),
        _field("written by", f"{header.get('created_by', '?')}, backend {header.get('backend')}"),
        _field("host", f"{trace.context.host}, {host.get('os', '?')}, {host.get('machine', '?')}"),
        _field("kernel", str(kernel.get("release", "?"))),
        _field("command", " ".join(header.get("command", []))),
        _field("recorded", _recorded(header)),
        *_pair_lines(trace),
        *_followed_lines(trace),
        *_part_lines(trace),
    ]
    if absent := header.get("absent"):
        letters: dict[str, str] = {}
        for letter, name in [(letter, name) for letter, names in absent.items() for name in names]:
            letters[name] = letters.get(name, "") + letter
        fields = ", ".join(f"{name} ({where})" for name, where in letters.items())
        flags = ", ".join(kernel.get("flag_bits", {}))
        found.append(_field("not told", f"{fields}; of the flags, all but {flags}"))
    if account.first_ns >= 0:
        span = units.duration(account.last_ns - account.first_ns)
        first, last = (trace.context.wall_clock(ns) for ns in (account.first_ns, account.last_ns))
        when = f"{first} to {last}" if first else "from an unknown time on"
        found.append(_field("time", f"{when} ({span})"))
    if timing := _timing_text(trace):
        found.append(_field("calls", timing))
    lacks = header.get("rights", {}).get("lacking", [])
    rights = [f"{lack['what']}, needs {lack['needs']}" for lack in lacks]
    return [*found, *_listed("rights", rights), *_cost_lines(trace)]


def _timing_text(trace: Trace) -> str:
    """Return `2024-05-01 12:00:00.1Z to …Z (1.2 s), 4,000 calls: about 1.1 ms of CPU (0.1 %)`.

    Only a log's end, and of several files the last one's, has the cost, of all files.
    """
    context = trace.context
    if "time" not in context.path_parts:
        return ""
    end = trace.reader.end or {}
    since = int(context.header.get("clocks", {}).get("monotonic", 0))
    note = context.call_timing
    stopped = end.get("stopped", {}).get("monotonic", trace.account.last_ns)
    until = int(note["until"] if note else stopped)
    if note and until <= since:
        ended = trace.context.wall_clock(until)
        return f"not timed in this file: timing ended at {ended}, as {_why_ended(note)}"
    text = (
        f"timed from {context.wall_clock(since)} to {context.wall_clock(until)} "
        f"({units.duration(max(until - since, 0))})"
    )
    if note:
        return f"{text}, then no longer: {_why_ended(note)}"
    whole = end.get("run", end)
    path = whole.get("path")
    if not path or "time" not in path.get("seconds", {}):
        return text
    spent, seconds = float(path["seconds"]["time"]), float(whole.get("seconds", 0))
    share = f" ({100 * spent / seconds:.1f} %)" if seconds else ""
    calls = units.plural(int(path.get("calls", 0)), "call")
    return f"{text}, {calls}: about {units.duration(spent * 1e9)} of CPU{share}"


def _why_ended(note: Mapping[str, Any]) -> str:
    if "percent" not in note or "budget" not in note:
        return "it took more than --call-budget"
    percent, budget = note["percent"], note["budget"]
    return f"it took about {percent:.1f} % of a CPU, more than --call-budget {budget:g}"


def _pair_lines(trace: Trace) -> list[str]:
    names = PairNames(trace.context)
    names.finish(trace.reader.end)
    found = []
    for number in range(len(names)):
        found.append(f"{names.name(number)}: {names.events(number)}, {names.way(number)}")
        found += [
            f"{units.count(count)} {unpaired_text(name)}"
            for name, count in names.unpaired(number).items()
        ]
    return _listed("pairs", found)


def _followed_lines(trace: Trace) -> list[str]:
    if not follows(trace.context.header):
        return []
    from biotrail.text.sites.facts import following_lines

    found = following_lines(trace.context.header, trace.reader.end)
    counts, kind = trace.account.followed, Following(trace.context.header).type
    if counts.lives and any(trace.account.bios.values()):
        lives = units.plural(counts.lives, "life", "lives")
        found.append(f"{units.count(counts.joined)} of {lives} joined with a recorded {kind}")
    if counts.several:
        found.append(f"{units.count(counts.several)} of them go on with a later {kind}")
    return _listed("followed", found)


def _part_lines(trace: Trace) -> list[str]:
    header = trace.context.header
    series, kept = header.get("series"), header.get("kept")
    found = []
    if series:
        number, last = series.get("number"), series.get("last")
        which = f"number {number}" if last is None else f"numbers {number} to {last}"
        found.append(_field("file", f"{which} of run {series.get('run')}"))
    if kept:
        seconds = units.duration(float(kept.get("seconds", 0)) * 1e9)
        text = f"number {kept.get('number')} of run {kept.get('run')}: the last {seconds}"
        found.append(_field("kept", f"{text}; {kept.get('reason')}"))
        found += [_field("trigger", _trigger(trace, kept["trigger"]))] if "trigger" in kept else []
        passed = int(kept.get("triggers_let_pass", 0))
        found += [_field("no dump", let_pass_text(passed))] if passed else []
    return found


def _trigger(trace: Trace, hit: Mapping[str, Any]) -> str:
    value, monotonic = int(hit.get("value", 0)), int(hit.get("monotonic", 0))
    what = {
        "slow": f"an I/O took {units.duration(value)}",
        "failed": f"an I/O failed ({trace.context.status_name(value)})",
        "depth": f"{units.plural(value, 'request')} in flight",
        "stuck": f"nothing completed for {units.duration(value)}, {hit.get('what')}",
        "pressure": f"pressure {hit.get('what')}",
    }.get(str(hit.get("trigger")), f"{hit.get('trigger')} {value}")
    when = trace.context.wall_clock(monotonic)
    if not hit.get("dev"):
        return f"{what}, {when}"
    if int(hit.get("sector", -1)) < 0:
        return f"{what}: {trace.context.device_label(int(hit['dev']))}, {when}"
    op = int(hit.get("op", -1))
    where = f"{trace.context.op_name(op)} on " if op >= 0 else ""
    where += trace.context.device_label(int(hit.get("dev", 0)))
    return f"{what}: {where}, sector {hit['sector']}, {when}"


def _recorded(header: Mapping[str, Any]) -> str:
    events = header.get("events", {})
    named = header.get("filters", {}).get("devices", [])
    devices = [str(d["spec"]) for d in named if d.get("spec")]
    where = ", ".join(devices) or "all devices"
    if chosen := filters_text(header.get("filters", {})):
        where += f" {chosen}"
    text = f"{where}; events {events.get('set', '?')} ({''.join(events.get('letters', []))})"
    if "stacks" in header:
        text += "; call stacks" + (", of programs too" if header["stacks"].get("user") else "")
    if "files" in header:
        files = header["files"]
        ways = files.get("ways", ["iomap"] if files.get("direct") else [])
        if ways:
            text += "; files, of direct I/O " + ", ".join(WAYS.get(way, way) for way in ways)
        else:
            text += "; files (direct I/O: file not known)"
    if "path" in header:
        path = header["path"]
        drivers = path.get("drivers", {})
        known = ", ".join(name for name, why in drivers.items() if not why)
        parts = [
            f"driver ({known})" if drivers and part == "driver" else part
            for part in path.get("parts", ())
        ]
        text += "; path: " + (", ".join(parts) or "no part of it")
        lacking = [f"{m['part']}: {m['reason']}" for m in path.get("missing", [])]
        lacking += [f"{name}: {why}" for name, why in drivers.items() if why]
        text += f" (not {'; '.join(lacking)})" if lacking else ""
    missing = ", ".join(f"{m['letter']}: {m['reason']}" for m in events.get("missing", []))
    return f"{text}; missing {missing}" if missing else text


def _cost_lines(trace: Trace) -> list[str]:
    end = trace.reader.end
    if not end or "recorder" not in end:
        return []
    seconds, cost = float(end.get("seconds", 0)), end["recorder"]
    cpu = float(cost["cpu_seconds"])
    share = f" ({100 * cpu / seconds:.1f} % of a core)" if seconds else ""
    text = (
        f"{units.duration(seconds * 1e9)}, ended: {end.get('reason', '?')}; took {cpu:.2f} s of "
        f"CPU time{share}, {units.size(cost['max_rss_bytes'])} of memory"
    )
    left_out = left_out_text(read_left_out(end))
    found = [_field("recorder", text)]
    counted = [p for p in end.get("programs", []) if p.get("run_count")]
    rows = [p for p in counted if not p.get("part")]
    if rows:
        runs, spent = (sum(int(p[key]) for p in rows) for key in ("run_count", "run_ns"))
        each = ", ".join(f"{p['letter']} {p['run_ns'] / p['run_count']:.0f}" for p in rows)
        text = f"{spent / runs:.0f} ns per run ({each}), from {units.plural(runs, 'run')} counted"
        found.append(_field("probes", text))
    if seconds := end.get("path", {}).get("seconds"):
        each = ", ".join(f"{part} {units.duration(s * 1e9)}" for part, s in seconds.items())
        found.append(_field("path cost", f"CPU time of the programs beside these: {each}"))
    return [*found, *([_field("left out", left_out)] if left_out else [])]


def _listed(name: str, items: Sequence[str], none: str = "") -> list[str]:
    """Return the items below each other behind a name; without any `none`, or nothing at all."""
    found = items or ([none] if none else [])
    return [_field("" if place else name, text) for place, text in enumerate(found)]
