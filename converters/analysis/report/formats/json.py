# SPDX-License-Identifier: Apache-2.0
"""A report as JSON: stable, versioned, with the unit in each key. docs/report.md lists the keys."""

from typing import Any

from biotrail.converters.analysis.blame.json import as_dict as blame
from biotrail.converters.analysis.report.formats.json_pairs import (
    doubtful_key,
    interval_pair,
    pairs,
    summary,
)
from biotrail.converters.analysis.report.tree.figures import StageTimes
from biotrail.converters.analysis.report.tree.submissions import SubmissionReport
from biotrail.converters.analysis.report.tree.tree import (
    FORMAT,
    Buckets,
    CallReport,
    CommitReport,
    CompletionReport,
    DepthReport,
    DeviceReport,
    DriverReport,
    FlushReport,
    GroupReport,
    HeldReport,
    IntervalDepth,
    OperationReport,
    PatternReport,
    Report,
    StackedReport,
    WaitReport,
)

_SIZES = ("bytes", "done_bytes")
_NOT_EVENTS = ("ios", *_SIZES)


def as_dict(report: Report) -> dict[str, Any]:
    """Return the report as dicts and lists for json.dumps, with the keys of docs/report.md.

    Lists of texts and dicts of counts of the report are not copied.
    """
    span = report.span_ns
    return {
        "format": FORMAT,
        "log": {"id": report.log_id, "host": report.host, "kernel": report.kernel},
        "time": {
            "begin": report.begin,
            "begin_ns": report.begin_ns,
            "end_ns": report.end_ns,
            "span_ns": span,
            "of": "events" if report.of_events else "recording",
        },
        "percentiles": {
            "method": report.percentiles.method,
            "buckets_per_octave": report.percentiles.buckets_per_octave,
            "relative_error": report.percentiles.relative_error,
            "bios_without": report.percentiles.without,
        },
        "total": operation(report.total),
        "lower": {"bios": report.lower_bios, "bytes": report.lower_bytes},
        "devices": [_device(device) for device in report.devices],
        "stacked": [_stacked(pair) for pair in report.stacked],
        "stacked_unmatched": report.stacked_unmatched,
        "processes": [group(one) for one in report.processes],
        "cgroups": [group(one) for one in report.cgroups],
        "cpus": [group(one) for one in report.cpus],
        "files": [group(one) for one in report.files],
        "by": report.by,
        "groups": [group(one) for one in report.groups],
        "interval_ns": report.interval_ns,
        "intervals": [
            {
                "begin_ns": interval.begin_ns,
                "end_ns": interval.end_ns,
                "groups": [group(one) for one in interval.groups],
                "depths": [_interval_depth(one) for one in interval.depths],
                "pairs": [interval_pair(pair) for pair in interval.pairs],
            }
            for interval in report.intervals
        ],
        "intervals_left_out": report.intervals_left_out,
        "certainty": report.certainty,
        "loss": {**vars(report.loss)},
        **_of_path(report),
        "pairs": pairs(report.pairs),
        "blame": None if report.blamed is None else blame(report.blamed),
    }


def _of_path(report: Report) -> dict[str, Any]:
    """Return what the report has of the path beside the block layer as a dict for json.dumps.

    Held bios, calls by name, calls by group, waits, commits and submissions are lists, [] where the
    log has none; the other values are numbers, `calls_until_ns` may be None.
    """
    return {
        "held": [_held(one) for one in report.held],
        "calls": [call(one) for one in report.calls],
        "call_groups": [call(one) for one in report.call_groups],
        "waits": [_wait(one) for one in report.waits],
        "waits_dropped": report.waits_dropped,
        "commits": [_commit(one) for one in report.commits],
        "calls_until_ns": report.calls_until_ns,
        "submissions": [_submission(one) for one in report.submissions],
        "submissions_unknown": report.submissions_unknown,
    }


def buckets(found: Buckets, unit: str) -> list[dict[str, int]]:
    """Return a histogram as a dict for each bucket: begin, end (excluded) and count.

    unit: "ns", "bytes" or "", appended to begin and end (`begin_ns`).
    """
    end = f"_{unit}" if unit else ""
    return [{f"begin{end}": b, f"end{end}": e, "count": c} for b, e, c in found]


def group(one: GroupReport) -> dict[str, Any]:
    """Return the figures of a group of bios (or requests) as a dict for json.dumps.

    Keys: the fields of the group's name, then ios, bytes, done_bytes, ios_per_s, bytes_per_s, each
    other counter by its name, errors (status name → count), size and ranges (bytes) and
    latency (ns; each a
    summary with a histogram; that of the latency without those in doubt, with `with_doubtful`, the
    count, mean and p99 with them in, where there are any), and stages: a list of dicts with stage
    (its name), share (0 to 1), the summary of its time (ns), and recorder_ns where it is known.
    `errors` is not copied.
    """
    counters = one.counters
    return {
        **one.name,
        "ios": counters["ios"],
        "bytes": counters["bytes"],
        "done_bytes": counters["done_bytes"],
        "ios_per_s": round(one.ios_per_s, 3),
        "bytes_per_s": round(one.bytes_per_s, 3),
        **{name: count for name, count in counters.items() if name not in _NOT_EVENTS},
        "errors": one.errors,
        "size": {**summary(one.size, "bytes"), "histogram": buckets(one.sizes, "bytes")},
        "ranges": {**summary(one.ranges, "bytes"), "histogram": buckets(one.range_sizes, "bytes")},
        "latency": {
            **summary(one.latency, "ns"),
            "histogram": buckets(one.latencies, "ns"),
            **doubtful_key(one.with_doubtful),
        },
        "stages": [
            {
                "stage": s.stage,
                "share": round(s.share, 6),
                **summary(s.time, "ns"),
                **({} if s.recorder_ns is None else {"recorder_ns": round(s.recorder_ns, 3)}),
            }
            for s in one.stages
        ],
        **_in_list(one),
    }


def _in_list(one: GroupReport) -> dict[str, Any]:
    """Return what a group of a list has beside: its share of the time, and its operations."""
    if not one.operations and not one.share:
        return {}
    operations = [
        {
            "operation": of.operation,
            "ios": of.ios,
            "bytes": of.bytes,
            "latency": summary(of.latency, "ns"),
        }
        for of in one.operations
    ]
    divided = {"by_operation": operations} if operations else {}
    return {"time_share": round(one.share, 6), **divided}


def operation(one: OperationReport) -> dict[str, Any]:
    """Return an operation as a dict for json.dumps: the figures of its bios, as `group`.

    And, as `requests`, those of its requests without the fields of the name; and `depth` (queue:
    bios, issued: requests in flight), only if both depths are known.
    """
    requests = group(one.requests)
    return {
        **group(one.bios),
        "requests": {k: v for k, v in requests.items() if k not in one.requests.name},
        **_depths(one),
    }


def _depths(one: OperationReport) -> dict[str, Any]:
    """Return the key `depth` with the operation's depths; empty if it has none."""
    if one.queue is None or one.issued is None:
        return {}
    return {"depth": {"queue": depth(one.queue), "issued": depth(one.issued)}}


def _device(device: DeviceReport) -> dict[str, Any]:
    """Return the figures of one device as a dict for json.dumps.

    Keys: device (name), dev (major:minor), kind, stacked_on (names of the devices right below),
    total, operations (as `operation`), events (name → count), depth and pattern (of bios and of
    requests), flushes, which is None if the device had no flush requests and no bios waiting for
    any, and completions and drivers (lists, empty where interrupts and drivers were not recorded).
    """
    return {
        "device": device.device,
        "dev": device.dev,
        "kind": device.kind,
        "stacked_on": device.stacked_on,
        "total": operation(device.total),
        "operations": [operation(one) for one in device.operations],
        "events": device.events,
        "depth": {"queue": depth(device.queue), "issued": depth(device.issued)},
        "pattern": {"q2q": pattern(device.q2q), "d2d": pattern(device.d2d)},
        "flushes": flushes(device.flushes) if device.flushes else None,
        "completions": [_completion(one) for one in device.completions],
        "drivers": [_driver(one) for one in device.drivers],
    }


def _completion(one: CompletionReport) -> dict[str, Any]:
    """Return how some of a device's requests were completed as a dict for json.dumps.

    Keys: way, requests, undivided (requests without steps), steps (name, share and summary in ns).
    """
    return {
        "way": one.way,
        "requests": one.requests,
        "undivided": one.undivided,
        "steps": [_share(step, "step") for step in one.steps],
    }


def _driver(one: DriverReport) -> dict[str, Any]:
    """Return what a device's driver did with requests as a dict for json.dumps.

    Keys: driver, requests, undivided (requests without steps), errors, timeouts, setup (summary in
    ns, None where the driver has none), steps (name, share and summary in ns).
    """
    return {
        "driver": one.driver,
        "requests": one.requests,
        "undivided": one.undivided,
        "errors": one.errors,
        "timeouts": one.timeouts,
        "setup": None if one.setup is None else summary(one.setup, "ns"),
        "steps": [_share(step, "step") for step in one.steps],
    }


def _share(one: StageTimes, key: str) -> dict[str, Any]:
    """Return a part of a time as a dict: its name by the key `key`, its share, and its summary."""
    return {key: one.stage, "share": round(one.share, 6), **summary(one.time, "ns")}


def call(one: CallReport) -> dict[str, Any]:
    """Return the calls of one name as a dict for json.dumps.

    Keys: the fields of the group's name (none for a call that is not of a group), then call, io,
    count, failed, errors (name → count), bytes, bios, time (summary in ns), parts (name, share and
    summary in ns). `errors` is not copied.
    """
    return {
        **one.name,
        "call": one.call,
        "io": one.io,
        "count": one.count,
        "failed": one.failed,
        "errors": one.errors,
        "bytes": one.bytes,
        "bios": one.bios,
        "time": summary(one.time, "ns"),
        "parts": [_share(part, "part") for part in one.parts],
    }


def _wait(one: WaitReport) -> dict[str, Any]:
    """Return waits of one call's name and reason as a dict for json.dumps.

    Keys: call, reason, share, own_io_ns, no_file_ns, and the summary in ns.
    """
    return {
        "call": one.call,
        "reason": one.reason,
        "share": round(one.share, 6),
        "own_io_ns": one.own_io_ns,
        "no_file_ns": one.no_file_ns,
        **summary(one.time, "ns"),
    }


def _held(one: HeldReport) -> dict[str, Any]:
    """Return the bios that a limit held, of one device and operation, as a dict for json.dumps.

    Keys: cgroup, device, dev, operation, bios, several, bps, iops, process, pid, time (in ns).
    """
    process, pid = one.process or (None, None)
    return {
        "cgroup": one.cgroup,
        "device": one.device,
        "dev": one.dev,
        "operation": one.operation,
        "bios": one.bios,
        "several": one.several,
        "bps": one.bps,
        "iops": one.iops,
        "process": process,
        "pid": pid,
        "time": summary(one.time, "ns"),
    }


def _commit(one: CommitReport) -> dict[str, Any]:
    """Return the commits of one journal as a dict for json.dumps.

    Keys: device, dev, commits, waits, time (summary in ns), phases (name, share and summary).
    """
    return {
        "device": one.device,
        "dev": one.dev,
        "commits": one.commits,
        "waits": one.waits,
        "time": summary(one.time, "ns"),
        "phases": [_share(phase, "phase") for phase in one.phases],
    }


def _submission(one: SubmissionReport) -> dict[str, Any]:
    """Return the submissions of one operation as a dict for json.dumps.

    Keys: operation, count, modes (name → count), completed, failed, errors (name → count), bios,
    bytes, time (summary in ns), steps (name, share and summary in ns). The dicts are not copied.
    """
    return {
        "operation": one.operation,
        "count": one.count,
        "modes": one.modes,
        "completed": one.completed,
        "failed": one.failed,
        "errors": one.errors,
        "bios": one.bios,
        "bytes": one.bytes,
        "time": summary(one.time, "ns"),
        "steps": [_share(step, "step") for step in one.steps],
    }


def depth(one: DepthReport) -> dict[str, Any]:
    """Return how many bios or requests were in flight as a dict: mean, max, active_ns, idle_ns.

    And `at_start`: how many others were in flight when each began, with a histogram. `unended`: how
    many have no known end; `high`: the same figures if these were in flight as long as they may
    have been, null without any.
    """
    return {
        "mean": round(one.mean, 6),
        "max": one.max,
        "active_ns": one.busy_ns,
        "idle_ns": one.idle_ns,
        "at_start": {**summary(one.at_start, ""), "histogram": buckets(one.at_starts, "")},
        **_high_depth(one),
    }


def _high_depth(one: DepthReport) -> dict[str, Any]:
    """Return the keys `unended` and `high` of a depth; `high` itself has neither."""
    if one.high is None:
        return {"unended": one.unended, "high": None}
    high = depth(one.high)
    return {
        "unended": one.unended,
        "high": {k: v for k, v in high.items() if k not in ("unended", "high")},
    }


def pattern(one: PatternReport) -> dict[str, Any]:
    """Return how I/Os followed each other on a device as a dict for json.dumps.

    Keys: sequential, forward, backward (I/Os that began at, after, before the end of the one
    before), sequential_share, seek (summary and histogram of the distance, bytes), gap (summary of
    the time between beginnings, ns).
    """
    return {
        "sequential": one.sequential,
        "forward": one.forward,
        "backward": one.backward,
        "sequential_share": round(one.sequential_share, 6),
        "seek": {**summary(one.seek, "bytes"), "histogram": buckets(one.seeks, "bytes")},
        "gap": summary(one.gap, "ns"),
    }


def flushes(one: FlushReport) -> dict[str, Any]:
    """Return a device's flush requests as a dict for json.dumps.

    Keys: requests, waits (of bios, for such requests), unmatched (of these waits),
    bios_per_request, shared (number of bios, as text, → requests that so many waited for), time
    (summary of D to C, ns), doubtful (requests that ended and are in no time).
    """
    return {
        "requests": one.requests,
        "waits": one.waits,
        "unmatched": one.unmatched,
        "bios_per_request": round(one.bios_per_request, 6),
        "shared": {str(bios): count for bios, count in one.shared.items()},
        "time": summary(one.time, "ns"),
        "doubtful": one.doubtful,
    }


def _stacked(pair: StackedReport) -> dict[str, Any]:
    """Return the times of bios of stacked devices as a dict for json.dumps.

    Keys: device (upper), below (lower device), operation, children (number of lower bios),
    doubtful (those with a completion in doubt, which is in no time), and summaries in ns: to_child
    (upper Q to lower Q), child (lower Q to C), from_child (lower to upper C).
    """
    return {
        "device": pair.device,
        "below": pair.below,
        "operation": pair.operation,
        "children": pair.children,
        "doubtful": pair.doubtful,
        "to_child": summary(pair.to_child, "ns"),
        "child": summary(pair.child, "ns"),
        "from_child": summary(pair.from_child, "ns"),
    }


def _interval_depth(depth: IntervalDepth) -> dict[str, Any]:
    """Return how many I/Os a device had in flight in one interval as a dict for json.dumps.

    Keys: device, queue_mean and queue_max (bios, Q to C), issued_mean and issued_max (requests, D
    C), active_ns (time with any bio in flight), high (the same figures as `high` of a depth, or
    null). Means are rounded to 6 decimals.
    """
    found = _interval_figures(depth)
    if depth.high is not None:
        found["high"] = {k: v for k, v in _interval_figures(depth.high).items() if k != "device"}
    return found | {"high": found.get("high")}


def _interval_figures(depth: IntervalDepth) -> dict[str, Any]:
    """Return the figures of one interval's depth."""
    return {
        "device": depth.device,
        "queue_mean": round(depth.mean_queue, 6),
        "queue_max": depth.max_queue,
        "issued_mean": round(depth.mean_issued, 6),
        "issued_max": depth.max_issued,
        "active_ns": depth.busy_ns,
    }
