# SPDX-License-Identifier: Apache-2.0
"""Event sequences with a cause that an answer shall name."""

FLOOD = """
0    Q W 0+128 bio=1 pid=11 comm=writer
1    G W 0+128 bio=1
2    sI W 0+128 bio=1 rq=1
4    D W 0+128 bio=1 rq=1 tag=1/1
10   Q W 1000+128 bio=2 pid=11 comm=writer
11   G W 1000+128 bio=2
12   sI W 1000+128 bio=2 rq=2
20   cpu1 Q R 5000+8 bio=3 pid=12 comm=reader
21   cpu1 G R 5000+8 bio=3
22   cpu1 s R 5000+8 bio=3 rq=3
23   cpu1 I R 5000+8 bio=3 rq=3
30   Q W 2000+128 bio=4 pid=11 comm=writer
31   G W 2000+128 bio=4
32   sI W 2000+128 bio=4 rq=4
40   D W 1000+128 bio=2 rq=2 tag=2/2
50   C W 0+128 bio=1 rq=1
60   D W 2000+128 bio=4 rq=4 tag=1/4
900  cpu1 D R 5000+8 bio=3 rq=3 tag=3/3
910  C W 2000+128 bio=4 rq=4
1000 C R 5000+8 bio=3 rq=3
1010 C W 1000+128 bio=2 rq=2
"""
"""Under a scheduler, a read (bio 3, 980 µs) waits 877 µs for its issue.

When it is queued, write 1 is in the device and write 2 waits; 2 is issued before it, and so is
write 4, which came later. When it is issued, 2 and 4 are in the device; 4 completes before it.
"""
