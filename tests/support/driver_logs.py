# SPDX-License-Identifier: Apache-2.0
"""Made-up requests with the steps of their driver, for a `PathLog`."""

from typing import Any

from biotrail.recorder.schema.records import Kind
from tests.support.path_logs import NEVER_AGO, PathLog
from tests.support.stack_logs import DEV

NVME, SCSI, LOOP = 1, 2, 3


def request(
    log: PathLog,
    issue: int,
    end: int,
    steps: dict[str, int] | None = None,
    *,
    interrupt: bool = False,
    tries: int = 1,
    address: int = 0,
) -> None:
    """A bio with a request that is issued at `issue`, and completed at `end` as `steps` say.

    steps: fields of its DRIVER record; None: it has none. interrupt: an INTERRUPT record is between
    C and it. tries: issues, a nanosecond apart. address: the request's; 0: one of its own.
    """
    log.bios += 1
    both = {"bio": log.bios << 6, "sector": 8 * log.bios, "bytes": 4096, "dev": DEV}
    rq = {"rq": address or log.bios << 10}
    log.add(Kind.Q, issue - 20, **both, part=DEV, tid=42)
    log.add(Kind.START, issue - 10, **rq, **both)
    for number in range(tries):
        if number:
            log.add(Kind.R, issue + 2 * number - 1, **rq, **both)
        log.add(Kind.D, issue + 2 * number, **rq, **both, nr_bios=1)
    log.add(Kind.C, end, **rq, **both)
    if interrupt:
        log.add(Kind.INTERRUPT, end, **rq, hard=5, raised=NEVER_AGO, soft=NEVER_AGO, context=2)
    if steps is not None:
        fields: dict[str, Any] = {"answered": NEVER_AGO, "finished": NEVER_AGO, **steps}
        log.add(Kind.DRIVER, end, **rq, **fields)
    log.add(Kind.BIO_COMPLETE, end, **both)


def sample() -> PathLog:
    """A request of each driver, and one without steps, all of one device."""
    log = PathLog()
    nvme = {"driver": NVME, "begun": 1005, "answered": 300, "finished": 100}
    request(log, 1000, 2000, {**nvme, "sq_head": 4, "sq_tail": 7}, interrupt=True)
    request(log, 3000, 4000, {"driver": SCSI, "begun": 900, "answered": 50, "errors": 2,
                              "timeouts": 1})  # fmt: skip
    request(log, 5000, 6000, {"driver": LOOP, "begun": 600, "answered": 200})
    request(log, 7000, 8000)
    return log
