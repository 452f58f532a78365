# SPDX-License-Identifier: Apache-2.0
"""Made-up scenes for the Perfetto writer, and what the trace of one must show."""

import io

from hypothesis import strategies as st

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import NEVER, Certainty, RequestKind, Stage
from biotrail.converters.outputs.perfetto.convert import convert
from biotrail.converters.outputs.perfetto.names import STAGE_ARGUMENTS, STAGE_TITLES
from tests.support.perfetto_check import read
from tests.support.perfetto_make import (
    DISK,
    FUA,
    LOOP,
    PART,
    SYNC,
    WRITE,
    Scene,
    bio,
    context,
    request,
)

T = 1_000_000_000
ROOT = "testhost: block I/O"
LABELS = {DISK: "nvme0n1 (259:0)", PART: "nvme0n1p1 (259:1)", LOOP: "loop0 (7:0)"}


def trace_of(scene, cuts=(), header=None, **how):
    out = io.BytesIO()
    facts = context() if header is None else Context(header)
    summary = convert(scene.windows(cuts, **how), facts, out)
    data = out.getvalue()
    assert summary.bytes == len(data)
    return read(data), summary


# What every slice must say, derived from the rows alone.


def common_arguments(row, facts):
    ended = row["complete"] >= 0
    return {
        "sector": row["sector"] if row["sector"] != 2**64 - 1 else None,
        "bytes": row["bytes"],
        "flags": facts.flag_names(row["opf"]) or None,
        "status": facts.status_name(row["status"]),
        "certainty": Certainty(row["certainty"]).name.lower(),
        "device": LABELS[row["dev"]],
        "number": row["number"],
        "done_bytes": row["done_bytes"] if ended and row["done_bytes"] != row["bytes"] else None,
        "requeues": row["requeues"] or None,
    }


def stage_arguments(row):
    sums = {}
    for stage, start, end in row["stages"]:
        name = STAGE_ARGUMENTS[stage].name
        sums[name] = sums.get(name, 0) + end - start
    return sums


def bio_arguments(row, scene, facts):
    task = scene.tasks[row["task"]] if row["task"] >= 0 else None
    ended = row["complete"] >= 0
    return {
        **common_arguments(row, facts),
        "tid": row["tid"] or None,
        "process": task and task["comm"],
        "pid": task and task["tgid"],
        "latency_ns": row["complete"] - row["queue"] if ended else None,
        "partition": LABELS[row["part"]] if row["part"] != row["dev"] else None,
        "request": row["request"] if row["request"] >= 0 else None,
        "parent": row["parent"] if row["parent"] >= 0 else None,
        "fragments": row["fragments"] if row["fragments"] != 1 else None,
        "requests": row["requests"] if row["requests"] > 1 else None,
        "ioprio": "best-effort 4" if row["ioprio"] else None,
        "open_at_end": (not ended and row["certainty"] != Certainty.LOST) or None,
        "end_not_seen": (not ended and row["certainty"] == Certainty.LOST) or None,
        **stage_arguments(row),
    }


def request_arguments(row, facts):
    ended = row["complete"] >= 0

    def number(name):
        return row[name] if row[name] != 0xFFFF else None

    return {
        **common_arguments(row, facts),
        "latency_ns": row["complete"] - row["start"] if ended else None,
        "bios": row["bios"],
        "tag": number("tag"),
        "sched_tag": number("sched_tag"),
        "hctx": number("hctx"),
        "kind": RequestKind(row["kind"]).name.lower() if row["kind"] else None,
        "parent": row["parent"] if row["parent"] >= 0 else None,
        "absorbed_by": row["absorbed_by"] if row["absorbed_by"] >= 0 else None,
        "open_at_end": (not ended and row["absorbed_by"] < 0) or None,
        **stage_arguments(row),
    }


def present(arguments):
    return {k: v for k, v in arguments.items() if v is not None}


def assert_shows(trace, scene):
    """Every bio and request is there once, with its times, stages and arguments."""
    facts = context()
    for category, rows, start in (
        ("bio", scene.bios, "queue"),
        ("request", scene.requests, "start"),
    ):
        found = {s.args["number"]: s for s in trace.slices(category)}
        assert sorted(found) == sorted(r["number"] for r in rows)
        for row in rows:
            one = found[row["number"]]
            expected = (
                bio_arguments(row, scene, facts)
                if category == "bio"
                else request_arguments(row, facts)
            )
            assert one.args == present(expected)
            assert one.start == row[start]
            assert one.correlation == (row["family"] if row["parent"] >= 0 else None)
            above, _, lanes = trace.path(one.track).rpartition("/")
            assert above == f"{ROOT}/{LABELS[row['dev']]}"
            assert lanes in (f"{category}s", f"more {category}s")
            if row["complete"] >= 0:
                assert one.end == row["complete"]
            nested = [(c.name, c.start, c.end) for c in one.children]
            assert nested == [(STAGE_TITLES[s], a, b) for s, a, b in row["stages"] if b > a]
            assert {c.category for c in one.children} <= {"stage"}


# Loads made up at random.


def make_stages(draw, start, end):
    count = draw(st.integers(0, 4))
    inner = sorted(draw(st.integers(start, end)) for _ in range(count))
    bounds = [start, *inner, end]
    kinds = [draw(st.sampled_from(list(Stage))) for _ in bounds[1:]]
    return list(zip(kinds, bounds[:-1], bounds[1:], strict=True))


@st.composite
def scenes(draw):
    scene = Scene(tasks=[{"tid": 101 + i, "tgid": 100, "comm": f"job{i}"} for i in range(3)])
    for number in range(draw(st.integers(0, 25))):
        start = T + draw(st.integers(0, 400))
        end = start + draw(st.integers(0, 150))
        fate = draw(st.sampled_from(["done", "done", "done", "open", "lost"]))
        row = {
            "dev": draw(st.sampled_from([DISK, LOOP])),
            "sector": draw(st.sampled_from([0, 8, 2**40])),
            "bytes": draw(st.sampled_from([0, 512, 4096, 2**31])),
            "opf": draw(st.sampled_from([0, WRITE, WRITE | SYNC, WRITE | FUA | SYNC, 3])),
            "requeues": draw(st.sampled_from([0, 0, 3])),
            "status": draw(st.sampled_from([0, 0, 10, -5])),
            **draw(st.sampled_from([{}, {"family": 2**62 + 5, "parent": 0}])),
            "stages": make_stages(draw, start, end),
            "complete": end if fate == "done" else NEVER,
            "certainty": {
                "done": draw(st.sampled_from([Certainty.EXACT, Certainty.INTERVAL])),
                "open": Certainty.INCOMPLETE,
                "lost": Certainty.LOST,
            }[fate],
        }
        if fate == "lost":
            row["closed"] = end + draw(st.integers(0, 100))
        if draw(st.booleans()):
            row["part"] = draw(st.sampled_from([row["dev"], PART]))
            row["issue"] = draw(st.sampled_from([NEVER, draw(st.integers(start, end))]))
            row["task"] = draw(st.sampled_from([-1, 0, 1, 2]))
            row["fragments"] = draw(st.integers(0, 3))
            row["ioprio"] = draw(st.sampled_from([0, 2 << 13 | 4]))
            row["request"] = draw(st.sampled_from([NEVER, 7]))
            scene.bios.append(bio(number, start, **row))
        elif fate != "lost":
            row["tag"] = draw(st.sampled_from([0, 300, 0xFFFF]))
            row["kind"] = draw(st.sampled_from([0, 1, 2]))
            row["issue"] = draw(st.sampled_from([NEVER, draw(st.integers(start, end))]))
            scene.requests.append(request(number, start, **row))
    for _ in range(draw(st.integers(0, 3))):
        start = T + draw(st.integers(0, 400))
        scene.losses.append(
            {
                "start": start,
                "end": start + draw(st.integers(0, 100)),
                "cpu": draw(st.sampled_from([-1, 0, 1])),
                "kind": draw(st.sampled_from([0, 1, 14])),
                "count": draw(st.sampled_from([-1, 1, 1000])),
            }
        )
    return scene


cuts = st.lists(st.integers(T, T + 700), max_size=5)


def drawn(trace):
    """All slices without their lanes."""
    return sorted(
        (s.category, s.name, s.start, s.end, sorted(map(str, s.args.items())), s.correlation or -1)
        for category in ("bio", "request", "loss")
        for s in trace.slices(category)
    )
