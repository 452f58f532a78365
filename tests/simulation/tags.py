# SPDX-License-Identifier: Apache-2.0
"""Tags of a device's hardware queues, as blk-mq gives them out and takes them back."""

from tests.simulation.model import NO_TAG, Request


class Tags:
    """Free and used tags. With a scheduler a request has one of its own for life, too."""

    def __init__(self, queues: int, *, scheduler: bool) -> None:
        self._queues, self._scheduler = queues, scheduler
        self._driver: set[tuple[int, int]] = set()
        self._sched: set[tuple[int, int]] = set()

    def start(self, rq: Request, cpu: int) -> None:
        rq.hctx = cpu % self._queues
        if self._scheduler:
            rq.sched_tag = _take(self._sched, rq.hctx)
        else:
            rq.tag = _take(self._driver, rq.hctx)

    def dispatch(self, rq: Request) -> None:
        if rq.tag == NO_TAG:
            rq.tag = _take(self._driver, rq.hctx)

    def put_driver_tag(self, rq: Request) -> None:
        """It is not with the driver any more; without a scheduler it keeps its tag."""
        if self._scheduler:
            self._driver.discard((rq.hctx, rq.tag))
            rq.tag = NO_TAG

    def lend(self, first: Request, flush: Request) -> None:
        """The flush machinery's request goes by the tag of the first one that it serves."""
        flush.hctx, flush.sched_tag = first.hctx, first.sched_tag
        flush.tag = NO_TAG if self._scheduler else first.tag

    def free(self, rq: Request) -> None:
        self._driver.discard((rq.hctx, rq.tag))
        self._sched.discard((rq.hctx, rq.sched_tag))
        rq.tag = rq.sched_tag = NO_TAG


def _take(used: set[tuple[int, int]], queue: int) -> int:
    tag = next(t for t in range(1024) if (queue, t) not in used)
    used.add((queue, tag))
    return tag
