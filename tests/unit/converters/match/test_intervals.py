# SPDX-License-Identifier: Apache-2.0
"""Associations without pointers: parents, flushes, remaps, and which latencies are in doubt."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from biotrail.converters.events.tables import NEVER, Bios, Certainty
from biotrail.converters.lifecycles.account import Pairing
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.records import NO_TAG
from biotrail.text.tallies import pairing_lines
from tests.scenarios.cases_more import LOOP
from tests.scenarios.cases_more import REQUEST_BASED as REQUEST_BASED_LOG
from tests.scenarios.stacks import HEAD, PATH_A
from tests.scenarios.tools import events_of, tables_of
from tests.scenarios.variants import DM, REQUEST_BASED
from tests.simulation.model import LIFECYCLE, MINIMAL, Rec
from tests.simulation.world import VDA
from tests.support import captures, heavy_loads
from tests.support.captures import BASE_NS
from tests.support.cli_runner import Cli
from tests.support.paths import DATA

# Captured sequences associated by intervals alone: the same lifecycles as by identity.

NAMES = sorted(p.stem for p in captures.DATA.glob("*.txt"))
FIELDS = (
    "queue",
    "getrq",
    "merge",
    "insert",
    "issue",
    "complete",
    "fragments",
    "requests",
    "requeues",
    "status",
    "done_bytes",
)


def _bios(log: Path, associate: str) -> Bios:
    windows = list(Trace(log, associate).lifecycles())
    return Bios.concatenate([w.bios for w in windows])


@pytest.mark.parametrize("name", NAMES)
def test_a_capture_by_intervals_is_as_by_identity(name: str, tmp_path: Path) -> None:
    # GIVEN real events of one kind of I/O
    log = tmp_path / "a.biotrail"
    captures.write_log(log, captures.load(name))
    # WHEN they are associated by kernel pointers, and by sectors alone
    exact, found = _bios(log, "identity"), _bios(log, "intervals")
    # THEN both give the same bios with the same times, and each says how it is known
    assert found.number.tolist() == exact.number.tolist()
    for field in FIELDS:
        assert getattr(found, field).tolist() == getattr(exact, field).tolist(), field
    assert set(exact.certainty.tolist()) == {Certainty.EXACT}
    assert set(found.certainty.tolist()) == {Certainty.INTERVAL}


# Without pointers, the parent of a clone whose upper bio has others of its sectors beside it.

AT_ONCE = """
    0 Q 252:0 R 100+8 bio=1 pid={first}
    1 Q 252:0 R 100+8 bio=2 pid={second}
    3 A 254:0 R 2148+8 bio=3 from=252:0+100 pid={sender}
    4 QG 254:0 R 2148+8 bio=3 pid={sender}
    8 D 254:0 R 2148+8 bio=3 rq=1
    30 c 252:0 R 100+8 bio=2
    70 C 254:0 R 2148+8 bio=3 rq=1
    75 c 252:0 R 100+8 bio=1
    """
"""Two reads of the same sectors, and the clone of one; of the other nothing else is told."""

LATE_REMAP = """
    0 Q 252:0 R 100+8 bio=1 pid=100
    1 Q 252:0 R 100+8 bio=2 pid=150
    2 AQG 254:0 R 2148+8 bio=3 from=252:0+100 pid=150
    5 D 30 C 254:0 R 2148+8 bio=3 rq=1
    31 c 252:0 R 100+8 bio=2
    40 AQG 254:0 R 2148+8 bio=4 from=252:0+100 pid=100
    43 D 70 C 254:0 R 2148+8 bio=4 rq=2
    71 c 252:0 R 100+8 bio=1
    """
"""A thread is preempted between Q and A, and a younger read of its sectors ends meanwhile."""


def _parents(text: str, associate: str = "intervals") -> list[tuple[int, int]]:
    """Return (Q of the clone, Q of its parent) of all bios of vda, in µs; NEVER: no parent."""
    t = tables_of(events_of(text), devices=(DM, REQUEST_BASED), associate=associate)
    queued = dict(zip(t.bios.number.tolist(), t.bios.queue.tolist(), strict=True))
    found = []
    for number, parent, dev in zip(
        t.bios.number.tolist(), t.bios.parent.tolist(), t.bios.dev.tolist(), strict=True
    ):
        if dev == 254 << 20:
            above = (queued[parent] - BASE_NS) // 1000 if parent >= 0 else NEVER
            found.append(((queued[number] - BASE_NS) // 1000, above))
    return found


@pytest.mark.parametrize(
    ("first", "second", "sender", "parent"),
    [(100, 150, 100, 0), (100, 150, 150, 1), (100, 100, 100, NEVER), (100, 150, 200, NEVER),
     (0, 150, 0, NEVER)],
    ids=["the first", "the second", "both of one thread", "a worker", "in an idle thread"],
)  # fmt: skip
def test_the_thread_of_the_remap_decides_among_identical_bios(
    first: int, second: int, sender: int, parent: int
) -> None:
    # GIVEN identical reads of two threads, and a clone that one of them sends, both, or neither
    text = AT_ONCE.format(first=first, second=second, sender=sender)
    # WHEN the log is read without pointers / THEN the clone is of the only thread that it may be of
    assert _parents(text) == [(4, parent)]
    # AND by identity it has no parent
    assert _parents(text, "identity") == [(4, NEVER)]


def test_a_late_remap_is_not_of_another_threads_read() -> None:
    # GIVEN a read whose completion seems to be that of the older one, which is remapped after it
    # WHEN the log is read by identity / THEN each clone has one read alone as parent in the end
    assert _parents(LATE_REMAP, "identity") == [(3, NEVER), (41, 0)]
    # WHEN it is read without pointers / THEN the late clone is not said to be of the younger read
    assert _parents(LATE_REMAP) == [(3, 1), (41, NEVER)]
    # AND both reads above are marked, as either may have ended first
    t = tables_of(events_of(LATE_REMAP), devices=(DM, REQUEST_BASED), associate="intervals")
    assert t.bios.certainty[t.bios.dev == 252 << 20].tolist() == [Certainty.AMBIGUOUS] * 2
    # GIVEN a read alone on its sectors, whose clone a worker sends
    text = "\n".join(line for line in AT_ONCE.splitlines() if "bio=2" not in line)
    # WHEN the log is read without pointers / THEN it is the clone's parent
    assert _parents(text.format(first=100, second=0, sender=200)) == [(4, 0)]


# Upper bios below loop devices, by the request that the recorder tells of a lower bio.


def uppers(text: str) -> dict[int, int]:
    """Sector of each lower bio → sector of its upper bio, NEVER where there is none."""
    t = tables_of(events_of(text), devices=(LOOP, REQUEST_BASED_LOG))
    sector = {number: int(s) for number, s in zip(t.bios.number, t.bios.sector, strict=True)}
    lower = t.bios.dev == 254 << 20
    return {
        int(t.bios.sector[row]): sector.get(t.bios.parent[row], NEVER) for row in lower.nonzero()[0]
    }


SPLIT = """
    0 Q 7:1 W 0+32 bio=1 page=4000
    1 XG 7:1 W 0+16 bio=2 parent=1
    3 sD 7:1 W 0+16 bio=2 rq=1
    5 GsD 7:1 W 16+16 bio=1 rq=2
    20 Q 254:0 W 7000+16 bio=3 page=4000 {0}
    21 Q 254:0 W 9000+8 bio=4 page=4080 {1}
    22 Q 254:0 W 9100+8 bio=5 page=40c0 {1}
    60 C 7:1 W 0+16 bio=2 rq=1
    61 C 7:1 W 16+16 bio=1 rq=2
"""


def test_all_lower_bios_of_a_split_one_are_its() -> None:
    # GIVEN a write that was split in two, of which the second's part of the file is in two pieces
    # WHEN the requests of the lower bios are told THEN all of them are the upper bio's
    told = SPLIT.format("backing=1", "backing=2")
    assert uppers(told) == {7000: 0, 9000: 0, 9100: 0}
    # AND without, as in a log of before, the one with its first page
    assert uppers(SPLIT.format("", "")) == {7000: 0, 9000: NEVER, 9100: NEVER}


MERGED = """
    0 QG 7:1 R 0+8 bio=1 page=4000
    2 s 7:1 R 0+8 bio=1 rq=1
    3 Q 7:1 R 8+16 bio=2 page=5000
    4 M 7:1 R 8+16 bio=2 rq=1
    5 Q 7:1 R 24+8 bio=3 page=6000
    6 M 7:1 R 24+8 bio=3 rq=1
    7 D 7:1 R 0+32 bio=1 rq=1 chain=1,2,3
{}
    60 C 7:1 R 0+32 bio=1 rq=1
"""


def test_lower_bios_of_a_merged_request_are_of_where_they_begin() -> None:
    # GIVEN three reads in one request WHEN its file is read in other pieces
    lower = """
        20 Q 254:0 R 7000+12 bio=4 page=4000 backing=1
        21 Q 254:0 R 8000+4 bio=5 page=5040 backing=1
        22 Q 254:0 R 9000+16 bio=6 page=5080 backing=1
    """
    # THEN each piece is of the read in which it begins
    assert uppers(MERGED.format(lower)) == {7000: 0, 8000: 8, 9000: 8}
    # WHEN the second's part of the file is a hole, of which no bio is read
    lower = """
        20 Q 254:0 R 7000+8 bio=4 page=4000 backing=1
        21 Q 254:0 R 9000+8 bio=6 page=6000 backing=1
    """
    # THEN what comes behind is of the third, as its first page says
    assert uppers(MERGED.format(lower)) == {7000: 0, 9000: 24}
    # WHEN the request's address is told of a bio after it has ended
    text = MERGED.format("") + "70 Q 254:0 R 7000+8 bio=4 page=7000 backing=1"
    # THEN the bio has no parent, as its own request was not recorded
    assert uppers(text) == {7000: NEVER}


# An array's parity has no parent, though md says that it comes from the array's sector 0.

PARITY = """
    0 Q 9:5 W 0+8 bio=1
    1 Q 9:5 W 512+8 bio=2
    2 AQ 254:0 W 2304+8 bio=3 from=9:5+512
    4 AQ 254:16 W 2304+8 bio=4 from=9:5+0
    40 c 254:0 W 2304+8 bio=3
    41 c 254:16 W 2304+8 bio=4
    50 c 9:5 W 512+8 bio=2
    60 c 9:5 W 0+8 bio=1
"""
"""Two writes; the stripe of the second goes to the disks, while the first waits for its own."""


def array(level: str) -> tuple[str, dict[str, object]]:
    return ("9:5", {"name": "md5", "kind": "md", "md": {"level": level}})


@pytest.mark.parametrize(("level", "parent"), [("raid5", NEVER), ("raid6", NEVER), ("raid1", 0)])
def test_parity_is_not_of_what_is_at_sector_0(level: str, parent: int) -> None:
    # GIVEN a write of the array's sector 0 in flight, and parity of another stripe
    t = tables_of(events_of(PARITY), devices=(array(level),))
    first, second, data, parity = range(4)
    # WHEN the log is read
    above = t.bios.parent.tolist()
    # THEN the data is the other write's, and the parity nobody's; where sector 0 means
    # itself, it is the first's
    assert above[data] == t.bios.number[second]
    assert above[parity] == (NEVER if parent == NEVER else t.bios.number[first])


# Completions that NVMe multipath tells twice: c by its driver, then C by the block layer.

TWICE = """
    0 Q 259:8 W 0+16 bio=1
    1 Q 259:8 W 16+8 bio=2
    2 AG 259:10 W 0+16 bio=1 from=259:8+0 opf=2000001
    4 s 259:10 W 0+16 bio=1 rq=1 opf=2000001
    5 AM 259:10 W 16+8 bio=2 from=259:8+16 opf=2000001
    7 D 259:10 W 0+24 bio=1 rq=1 chain=1,2 opf=2000001
    60 c 259:10 W 0+16 bio=1 opf=2000001
    61 C 259:10 W 0+24 bio=1 rq=1 opf=2000001
    70 Q 259:8 R 8+8 bio=1
    71 AG 259:10 R 8+8 bio=1 from=259:8+8 opf=2000000
    73 sD 80 cC 259:10 R 8+8 bio=1 rq=1 opf=2000000
"""
"""Of the request's two bios the driver names the first."""


def test_what_is_completed_twice_has_one_life() -> None:
    # GIVEN two bios that share a request, then one at the first one's address
    t = tables_of(events_of(TWICE), devices=(HEAD, PATH_A))
    # WHEN the log is read  THEN there are three, each known exactly, done with its request
    assert t.bios.bytes.tolist() == t.bios.done_bytes.tolist() == [8192, 4096, 4096]
    assert set(t.bios.certainty.tolist()) == {Certainty.EXACT}
    first, second = t.requests.complete.tolist()
    assert t.bios.complete.tolist() == [first, first, second]
    assert set(t.requests.certainty.tolist()) == {Certainty.EXACT}


@pytest.mark.parametrize("line", ["c 259:10 W 16+8 bio=1 opf=2000001", "c 259:10 W 0+16 bio=1"])
def test_another_bios_end_is_none_of_it(line: str) -> None:
    # GIVEN a c elsewhere, or that no driver of several paths told
    text = TWICE.replace("c 259:10 W 0+16 bio=1 opf=2000001", line)
    # WHEN the log is read  THEN the issued bio's own end was not seen
    t = tables_of(events_of(text), devices=(HEAD, PATH_A))
    assert t.bios.certainty[0] == Certainty.LOST


# Recordings without pointers of dm on a partition, whose remap goes on with dm's clone.


@pytest.mark.parametrize(
    ("name", "count", "linked", "kibibytes"),
    [
        ("lvmdisk.txt", 40, 20, 160),
        ("lvmpart.txt", 40, 20, 160),
        ("lvm-on-luks-on-partition.perf.txt", 3, 2, 12),
        ("old-kernel-form.txt", 2, 1, None),
        ("sda.blktrace.0", 20, 0, 80),
    ],
)
def test_dm_has_one_bio_of_the_disk_for_both_remaps(
    name: str, count: int, linked: int, kibibytes: int | None
) -> None:
    # GIVEN reads of dm on a disk, on a partition, on LUKS on one, as Linux 4.x reports a remap, and
    # of the disk alone  WHEN they are read
    windows = list(Trace(DATA / "stacked" / name).lifecycles())
    found = Bios.concatenate([window.bios for window in windows])
    # THEN there is one bio for each Q, below its own, and all that ended are certain
    assert (len(found), int((found.parent != NEVER).sum())) == (count, linked)
    ended = found.complete != NEVER
    assert ended.sum() >= sum(len(window.requests) for window in windows)
    assert (found.certainty[ended] <= Certainty.INTERVAL).all()
    if kibibytes is not None:
        assert int(found.bytes.sum()) == kibibytes << 10


def test_a_lost_completion_is_the_older_ones() -> None:
    # GIVEN a write whose completion was lost, and the same write again 80 s later, which completed
    found = _bios(DATA / "ftrace" / "doubtful.txt", "auto")
    again = np.flatnonzero((found.sector == 1000) & (found.opf & 1 == 1))
    older, newer = again[np.argsort(found.queue[again])]
    # WHEN they are matched THEN the later one has its completion, in doubt, the older one none
    assert found.complete[older] == NEVER
    assert found.complete[newer] - found.queue[newer] == 1_002_000
    assert found.doubtful[newer]


# Flushes whose completion is one of several, without pointers: how far their times may be off.


def test_completions_at_one_time_leave_only_the_pairing_open() -> None:
    # GIVEN two flushes that could each have ended by either of two completions at one time
    assert pairing_lines(Pairing()) == []
    pairing = Pairing(completions=2, same=2, spans=Counter({0: 2}))
    # THEN both have exact times
    assert pairing.as_dict() == {
        "completions": 2, "same_time": 2, "half_within_ns": 0, "all_within_ns": 0
    }  # fmt: skip
    assert pairing_lines(pairing) == [
        "2 flushes could have ended by one of several completions",
        "  2 came at one time: times are exact, only which is whose is open",
    ]


@pytest.mark.parametrize("letters", [LIFECYCLE, MINIMAL])
def test_ends_are_within_what_is_said(letters: str) -> None:
    # GIVEN a log of flushes, some of which end at once
    one = heavy_loads.stretch("flushes", letters)

    def read(associate: str) -> tuple[Bios, Pairing]:
        trace = Trace(heavy_loads.log_of(one, 900)[0], associate)
        windows = [window.bios for window in trace.lifecycles()]
        return Bios.concatenate(windows), trace.account.pairing

    # WHEN they are associated with pointers, and without
    (truth, none), (found, said) = read("identity"), read("intervals")
    # THEN what is ambiguous is said, and no bio's end is further off
    assert not none.completions
    ambiguous = int((found.certainty == Certainty.AMBIGUOUS).sum())
    assert 0 < said.completions == ambiguous
    ends = dict(zip(truth.number.tolist(), truth.complete.tolist(), strict=True))
    pairs = zip(found.number.tolist(), found.complete.tolist(), strict=True)
    assert all(abs(end - ends[number]) <= said.most_ns for number, end in pairs)


def test_info_and_report_say_how_far_ends_may_be_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # GIVEN a log of flushes
    path = tmp_path / "flushes.biotrail"
    path.write_bytes(heavy_loads.log_of(heavy_loads.stretch("flushes", LIFECYCLE), 900)[0].read())
    cli = Cli(capsys)
    # WHEN it is asked about, without pointers and with
    text = cli("info", "--associate", "intervals", path).out
    facts = cli.json("info", "--associate", "intervals", path)
    report = cli("report", "--associate", "intervals", path).out
    exact = cli("info", path).out
    # THEN it says so where there is something to say
    told = facts["account"]["flushes_to_pair"]
    line = f"{told['completions']} flushes could have ended by one of several completions"
    assert line in text
    assert line in report
    assert 0 < told["half_within_ns"] <= told["all_within_ns"]
    assert "one of several completions" not in exact


# Without pointers: of which I/O the latency is in doubt, and of which it is known all the same.

WINDOWS = (1, 10, 1_000, 1_000_000)

TWO_READS = """
    0 Q R 0+8 bio=1 pid={first}
    2 G R 0+8 bio=1 pid={first}
    4 D R 0+8 bio=1 rq=1
    {q}   Q R 0+8 bio=2 pid={second}
    {q}.1 G R 0+8 bio=2 pid={second}
    {q}.2 D R 0+8 bio=2 rq=2
    1000 C R 0+8 bio=1 rq=1
    {end} C R 0+8 bio=2 rq=2
    """
"""Two reads of one place at once."""

SWAPPED = """
    0 Q R 0+8 bio=1 pid=1
    1 Q 10 G R 0+8 bio=2 pid=1
    11 D 100 C R 0+8 bio=2 rq=1
    110 G R 0+8 bio=1 pid=1
    111 D R 0+8 bio=1 rq=2
    {end} C R 0+8 bio=1 rq=2
    """
"""Two reads of one place, of which the second gets the first request."""

LOST_COMPLETION = """
    0 QGD W 1000+8 bio=1 rq=1
    10000 QGDC W 2000+8 bio=2 rq=2
    80000 QGDC W 1000+8 bio=3 rq=3
    80010 QGDC W 1000+8 bio=4 rq=4
    90000 Q W 3000+8 bio=5
    """
"""A completion is missing, and the same place is written again, twice."""

MERGE_INTO_ONE_OF_TWO = """
    0 QG W 0+8 bio=1 pid=1
    2 QG W 0+8 bio=2 pid=1
    4 QM W 8+8 bio=3 pid=1
    10 D W 0+16 bio=1 rq=1
    11 D W 0+8 bio=2 rq=2
    1000 C W 0+16 bio=1 rq=1
    1001 C W 0+8 bio=2 rq=2
    """
"""A write joins one of two requests that end where it begins."""

SECOND = 1_000_000
"""ns of a scenario's unit that make its hundreds last longer than a window is held open."""


def doubtful(text: str, **options: int) -> list[tuple[str, bool]]:
    """(certainty, doubtful) of each bio, in the order of their Q; the same for all windows."""
    found = []
    for window in WINDOWS:
        events = events_of(text, options.get("scale", 1000))
        chunks = len(events) if window < 1000 else 1
        t = tables_of(events, associate="intervals", window_events=window, chunks=chunks)
        names = [Certainty(c).name.lower() for c in t.bios.certainty.tolist()]
        found.append(list(zip(names, t.bios.doubtful.tolist(), strict=True)))
    assert all(one == found[0] for one in found)
    return found[0]


@pytest.mark.parametrize("scale", [1000, SECOND])
@pytest.mark.parametrize(
    ("q", "end", "in_doubt"),
    [
        (20, 1050, False),  # within a tenth, whichever completion is whose
        (600, 1050, True),  # the first's is within a tenth; the second's is 400 or 450
        (20, 1200, True),  # they began at one time, and one of them ended 20 % later
    ],
)
def test_two_reads_of_one_place_at_once(q: int, end: int, *, in_doubt: bool, scale: int) -> None:
    # GIVEN two identical reads in flight at once / WHEN it is open which completion is whose
    found = doubtful(TWO_READS.format(first=1, second=2, q=q, end=end), scale=scale)
    # THEN both are ambiguous, and in doubt where a latency may be off by more than a tenth
    if q == 600:
        assert found == [("ambiguous", False), ("ambiguous", True)]
    else:
        assert found == [("ambiguous", in_doubt)] * 2


@pytest.mark.parametrize("letters", ["QGsIDC", "QDC"])
def test_many_identical_reads_at_once(letters: str) -> None:
    # GIVEN 20,000 identical reads in flight, queued, issued and completed one after the other
    times = 20_000
    asked = {"dev": VDA, "sector": 2048, "bytes": 4096, "tid": 100, "part": VDA}
    asked |= {"tag": NO_TAG, "sched_tag": NO_TAG, "hctx": NO_TAG}
    phases = "".join(letter * times for letter in letters)
    events = [Rec(letter, ts, 0, asked) for ts, letter in enumerate(phases)]
    log, _ = heavy_loads.log_of(heavy_loads.Stretch(events, captures.DEVICES, letters), 1)
    # WHEN they are read, which takes minutes if each event looks at all of them
    bios = Bios.concatenate([w.bios for w in Trace(log, "intervals").lifecycles()])
    # THEN the oldest one is what each event is of, and all are in doubt
    assert (np.diff(bios.queue) == 1).all()
    assert set((bios.complete - bios.queue).tolist()) == {(len(letters) - 1) * times}
    assert set(bios.certainty.tolist()) == {Certainty.AMBIGUOUS}


@pytest.mark.parametrize(("end", "in_doubt"), [(105, False), (300, True)])
def test_bios_that_may_have_swapped_their_requests(end: int, *, in_doubt: bool) -> None:
    # GIVEN two identical bios, of which the second may have got the first request, whose own
    # completions are certain / WHEN these are apart by more than a tenth / THEN both are in doubt
    text = SWAPPED.replace("110 ", "20 ").replace("111 ", "21 ") if end < 110 else SWAPPED
    assert doubtful(text.format(end=end)) == [("ambiguous", in_doubt)] * 2


@pytest.mark.parametrize("scale", [1000, SECOND])
def test_after_a_lost_completion_the_next_of_the_place_are_in_doubt(scale: int) -> None:
    # GIVEN a write whose completion is missing, and two more of its place later
    # WHEN each completion may be the older one's
    found = doubtful(LOST_COMPLETION, scale=scale)
    # THEN no latency there counts; the write elsewhere is not touched by it
    assert found[0] == ("ambiguous", True)
    assert found[1] == ("interval", False)
    assert found[2] == ("ambiguous", True)
    # THEN one of them has no end: that of the last
    assert found[3] == ("ambiguous", False)


def test_a_merge_into_one_of_two_requests_bounds_nothing() -> None:
    # GIVEN a bio that joined one of two requests / WHEN their completions are 0.1 % apart
    # THEN all are in doubt all the same: which request there was at all rests on the choice
    assert doubtful(MERGE_INTO_ONE_OF_TWO) == [("ambiguous", True)] * 3
