# SPDX-License-Identifier: Apache-2.0
"""What has the programs wake the recorder: the flag, and the ring that it polls."""

from biotrail.recorder.probes.rings.barriers import NoBarrier
from biotrail.recorder.probes.rings.waker import Waker


class Barrier(NoBarrier):
    """Tells what the flag was when the full barrier came."""

    def __init__(self, asleep: bytearray) -> None:
        self._asleep = asleep
        self.seen: list[int] = []

    def release(self) -> None:
        self.seen.append(self._asleep[0])


def test_the_flag_is_set_behind_what_was_told_and_before_the_barrier() -> None:
    # GIVEN a ring in which two wake-ups were told, which nobody has taken
    asleep, consumer, produced = bytearray(8), bytearray(8), bytearray(b"\x20".ljust(8, b"\0"))
    barrier = Barrier(asleep)
    waker = Waker(asleep, consumer, produced, 7, barrier)
    # WHEN it is armed
    waker.arm()
    # THEN they are taken, so that they do not wake once more, and the flag precedes the barrier
    assert consumer == produced
    assert barrier.seen == [1]
    assert waker.descriptor == 7
    # WHEN the recorder is awake THEN the flag is down
    waker.disarm()
    assert asleep == bytes(8)
    waker.close()
