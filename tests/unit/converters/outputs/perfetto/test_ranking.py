# SPDX-License-Identifier: Apache-2.0
"""Which I/Os are drawn with all arguments; and the ids of sequences."""

import numpy as np

from biotrail.converters.outputs.perfetto.packets.columns import Slices
from biotrail.converters.outputs.perfetto.packets.ranking import Ranking
from biotrail.converters.outputs.perfetto.tracks.lanes import FOREVER
from biotrail.converters.outputs.perfetto.tracks.tracks import Identity


def slices(latency, group=0, name=1):
    n = len(latency)
    start = np.arange(n, dtype=np.int64) * 10
    whole = np.array([FOREVER if one is None else one for one in latency], dtype=np.int64)
    end = np.where(whole == FOREVER, FOREVER, start + np.where(whole == FOREVER, 0, whole))
    names = np.broadcast_to(np.asarray(name, dtype=np.uint64), n)
    groups = np.broadcast_to(np.asarray(group, dtype=np.int64), n)
    return Slices("bio", start // 10, groups, start, end, names, None)


def fine(n):
    return np.zeros(n, dtype=np.bool_)


def test_the_slowest_of_all_windows_are_chosen():
    # GIVEN windows of random latencies, many of them equal
    rng = np.random.default_rng(7)
    windows = [rng.integers(0, 50, rng.integers(0, 60)) for _ in range(40)]
    ranking, chosen = Ranking(20), []
    # WHEN each is ranked as it comes
    for window in windows:
        rows = ranking.choose(slices(window), fine(len(window)))
        assert (np.diff(rows) > 0).all()
        chosen.append(window[rows])
    # THEN the slowest of all are among them, and of a window no more than are wanted
    everything, found = np.concatenate(windows), np.concatenate(chosen)
    assert sorted(found)[-20:] == sorted(everything)[-20:]
    assert max(map(len, chosen)) == 20
    assert len(found) < len(everything) // 4


def test_devices_operations_and_failures_are_apart():
    # GIVEN fast and slow I/Os of two devices, two operations, some with an error
    latency = [1, 9, 8, 2, 7, 3]
    group, name = [1, 1, 2, 2, 1, 1], [1, 1, 1, 1, 2, 1]
    failed = np.array([0, 0, 0, 0, 0, 1], dtype=np.bool_)
    # WHEN one of each is wanted THEN it is the slowest of its kind
    assert Ranking(1).choose(slices(latency, group, name), failed).tolist() == [1, 2, 4, 5]


def test_what_is_open_is_slower_than_all():
    # GIVEN an I/O without an end / WHEN one is wanted THEN it is that one
    assert Ranking(1).choose(slices([5, None, 7]), fine(3)).tolist() == [1]


def test_many_kinds():
    # GIVEN more devices than are looked for one by one / WHEN ranked THEN each has its slowest
    found = Ranking(1).choose(slices([1, 2] * 30, [i // 2 for i in range(60)]), fine(60))
    assert found.tolist() == list(range(1, 60, 2))


def test_no_two_sequences_of_a_trace_have_one_id():
    # GIVEN a log with very many lanes, and one behind it in the same trace
    one, other = Identity("a", "t"), Identity("b", "t", 20_000)
    # WHEN they get their ids THEN all differ, from each other and from Perfetto's own
    ids = [who.sequence(i) for who in (one, other) for i in range(20_000)]
    assert len(set(ids)) == len(ids)
    assert min(ids) >= 4096 and max(ids) < 1 << 21
    # AND those of slices take two bytes as long as there are any
    assert max(ids[1:12_288]) < 1 << 14
    assert one.clock == other.clock and 66 <= one.clock < 128
