# SPDX-License-Identifier: Apache-2.0
"""Arguments of requests in Perfetto traces that say what the driver did."""

import io

from biotrail.converters.outputs.perfetto.convert import convert
from biotrail.converters.outputs.perfetto.names import ARGUMENTS, REQUEST
from biotrail.converters.pipeline import Trace
from tests.support.driver_logs import SCSI, request, sample
from tests.support.path_logs import PathLog
from tests.support.perfetto_check import Slice, read

NAMES = {
    "driver",
    "setup_to_issue_ns",
    "issue_to_dispatch_ns",
    "dispatch_to_answer_ns",
    "answer_to_complete_ns",
    "driver_done_to_complete_ns",
    "driver_errors",
    "driver_timeouts",
}


def requests_of(log: PathLog) -> list[Slice]:
    """The slices of a log's requests, in their order."""
    source, out = Trace(io.BytesIO(log.data())), io.BytesIO()
    convert(source.lifecycles(), source.context, out)
    return read(out.getvalue()).slices(REQUEST)


def test_requests_say_what_their_driver_did() -> None:
    # GIVEN a request of each driver, and one without steps WHEN they are drawn
    found = [
        {name: one.args[name] for name in NAMES & one.args.keys()} for one in requests_of(sample())
    ]
    # THEN each has its driver's times, and the last one none
    assert found == [
        {
            "driver": "nvme",
            "setup_to_issue_ns": 5,
            "dispatch_to_answer_ns": 700,
            "answer_to_complete_ns": 300,
            "driver_done_to_complete_ns": 100,
        },
        {
            "driver": "scsi",
            "issue_to_dispatch_ns": 100,
            "dispatch_to_answer_ns": 850,
            "answer_to_complete_ns": 50,
            "driver_errors": 2,
            "driver_timeouts": 1,
        },
        {
            "driver": "loop",
            "issue_to_dispatch_ns": 400,
            "dispatch_to_answer_ns": 400,
            "answer_to_complete_ns": 200,
        },
        {},
    ]
    assert {argument.name for argument in ARGUMENTS[REQUEST]} >= NAMES


def test_a_request_that_was_issued_again_has_no_times() -> None:
    # GIVEN a request that was issued twice WHEN it is drawn
    log = PathLog()
    request(log, 1000, 2000, {"driver": SCSI, "begun": 900, "answered": 50, "errors": 1}, tries=2)
    (one,) = requests_of(log)
    # THEN it has its driver and its failures, and no times, as they are of the last issue alone
    assert one.args["driver"] == "scsi"
    assert one.args["driver_errors"] == 1
    assert not {name for name in NAMES & one.args.keys() if name.endswith("_ns")}
