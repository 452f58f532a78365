# SPDX-License-Identifier: Apache-2.0
"""slow --functions: the trees of the lives that slow I/Os' requests are."""

import json
from pathlib import Path
from typing import Any

import pytest

from biotrail.recorder.schema.payloads import FollowFacts
from biotrail.recorder.schema.records import HIT_BORN, HIT_ENDED, Kind
from tests.support.cli_runner import Cli, Done
from tests.support.site_logs import FOLLOW, SiteLog
from tests.support.stack_logs import DEV

US = 1_000


def written(path: Path, follow: FollowFacts | None = FOLLOW) -> Path:
    """Three reads of 900, 500 and 100 µs with one address of requests; the last two followed."""
    log = SiteLog(pairs=[], follow=follow)
    for number, (start, took) in enumerate(((0, 900), (2_000, 500), (4_000, 100)), 1):
        both = {"bio": number << 6, "sector": 8 * number, "bytes": 4096, "dev": DEV}
        begin, end = start * US, (start + took) * US
        log.add(Kind.Q, begin, **both, part=DEV, tid=42)
        log.add(Kind.START, begin + 10, rq=0x1000, **both)
        log.add(Kind.D, begin + 20, rq=0x1000, **both, nr_bios=1)
        log.add(Kind.C, end, rq=0x1000, **both)
        if number > 1 and follow is not None:
            log.span(begin + 15, begin + 30, 0, flags=HIT_BORN, life=number, object=0x1000)
            log.span(end - 10, end + 10, 2, flags=HIT_ENDED, life=number, object=0x1000)
    if follow is not None:
        log.hit(50, 1, life=9, object=0x7000, flags=HIT_BORN)
    return log.write(path)


def found(done: Done) -> list[dict[str, Any]]:
    assert done.status == 0, done.err
    ios: list[dict[str, Any]] = json.loads(done.out)["ios"]
    return ios


def test_each_io_has_the_tree_of_its_own_request(cli: Cli, tmp_path: Path) -> None:
    # GIVEN slow I/Os, of which one was not followed  WHEN they are shown with functions
    log = written(tmp_path / "log")
    ios = found(cli("slow", "--functions", "--json", log))
    # THEN each one has its request's lives, and the functions of these with their times
    assert [[one["life"] for one in io["followed"]] for io in ios] == [[], [2], [3]]
    assert ios[0]["functions"] == []
    (life,) = ios[1]["functions"]
    assert life["request"] == ios[1]["requests"][0]["number"] == ios[1]["followed"][0]["number"]
    nodes = [(n["name"], n["end_ns"] - n["begin_ns"]) for c in life["contexts"] for n in c["nodes"]]
    assert nodes == [("blk_mq_start_request", 15), ("blk_mq_end_request", 20)]
    # AND without the option there are only the lives' numbers
    assert all("functions" not in io for io in found(cli("slow", "--json", log)))


def test_the_page_of_an_io_shows_them(cli: Cli, tmp_path: Path) -> None:
    # GIVEN the same  WHEN shown as text
    text = cli("slow", "--functions", written(tmp_path / "log")).out
    # THEN the beginning says how many were followed, and each page has its tree or says why not
    assert "functions: of 2 of these 3 I/Os; 2 of 3 followed lives are a recorded request's" in text
    pages = text.split("\n#")[1:]
    assert "functions: no request of it was followed" in pages[0]
    assert "blk_mq_end_request" not in pages[0]
    for page in pages[1:]:
        assert "functions that request 1 passed, from 15 ns after the I/O was queued:" in page
        assert "blk_mq_start_request" in page
        assert "blk_mq_end_request" in page


@pytest.mark.parametrize(
    ("follow", "message"),
    [
        (None, "--functions: the log follows nothing; record with --follow request"),
        ({**FOLLOW, "type": "folio"}, "--functions: the log follows folio, which is no I/O"),
    ],
)
def test_a_log_without_followed_io_is_refused(
    cli: Cli, tmp_path: Path, follow: FollowFacts | None, message: str
) -> None:
    # GIVEN a log that follows nothing, or what is no I/O  WHEN functions are asked for
    done = cli("slow", "--functions", written(tmp_path / "log", follow))
    # THEN one message says so
    assert done.status == 1
    assert message in done.err


def test_info_says_how_many_lives_are_known(cli: Cli, tmp_path: Path) -> None:
    # GIVEN the same, of whose three lives two are requests  WHEN info is asked  THEN it says so
    text = cli("info", written(tmp_path / "log")).out
    assert "2 of 3 lives joined with a recorded request" in text
