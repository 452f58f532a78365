# SPDX-License-Identifier: Apache-2.0
"""The option `record --follow`: its settings, and what it refuses."""

from typing import Any

import click
import pytest

from biotrail.cli.options.record_arguments import FollowValue
from biotrail.recorder.probes.sites.follow_options import FollowOptions
from biotrail.text.record.closing import followed_lines
from tests.support.cli_runner import Cli


def wish(text: str) -> Any:
    return FollowValue().convert(text, None, None)


def test_a_type_alone_follows_all() -> None:
    # GIVEN a type  THEN all are followed, as many as devices have in flight, in the best way
    assert wish("request") == FollowOptions("request", 1, 1000, 0, 0, "auto", 2000)


def test_settings_choose() -> None:
    # GIVEN all settings  THEN each is taken
    given = wish("bio,every=10,max=50,lives=7,slower=5ms,way=typed,max-functions=30")
    assert given == FollowOptions("bio", 10, 50, 7, 5_000_000, "typed", 30)
    # AND a value that was converted already stays
    assert wish(given) is given


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("folio", "'folio' is no I/O of the block layer: give request or bio"),
        ("request,each=3", "there is no setting 'each=3': choose of every="),
        ("request,every", "there is no setting 'every'"),
        ("request,every=0", "every=0: give a whole number from 1 to 4294967295"),
        ("request,every=-1", "every=-1: give a whole number from 1 to"),
        ("request,max=5000", "max=5000: give a whole number from 1 to 4096"),
        ("request,way=best", "there is no way 'best': choose of auto, session, multi"),
        ("request,slower=soon", "'soon' is no duration"),
    ],
)
def test_what_is_wrong_is_said(text: str, message: str) -> None:
    # GIVEN a wrong value  THEN one message says what there is
    with pytest.raises(click.UsageError) as error:
        wish(text)
    assert message in error.value.format_message()


def test_bcc_cannot_follow(capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN the backend that has no types  WHEN it is to follow  THEN that is a usage error
    done = Cli(capsys)("record", "--follow", "request", "--backend", "bcc")
    assert done.status == 2
    assert "--follow needs the core backend" in done.err


def test_the_end_says_what_was_followed() -> None:
    # GIVEN counts of lives  THEN there is a line for them, and one for each kind that is missing
    counts = {"born": 1024, "quick": 599, "full": 3, "cut": 0}
    first, *rest = followed_lines(FollowOptions("request"), counts)
    assert first == "followed 1,024 lives of request, 599 of them too quick to be recorded"
    assert len(rest) == 1
    assert rest[0].startswith("3 births")
