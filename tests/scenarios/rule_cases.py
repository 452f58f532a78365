# SPDX-License-Identifier: Apache-2.0
"""Short sequences of events at one address, of which one rule alone makes two bios or requests."""

CASES = {
    "requests/cloned": "0 sa R 0+8 bio=1 rq=1",
    "requests/issued-other-bio": "0 D R 0+8 bio=1 rq=1\n1 D R 0+8 bio=2 rq=1 chain=2",
    "requests/issued-other-operation": "0 D R 0+8 bio=1 rq=1\n1 D W 0+8 bio=1 rq=1",
    "requests/issued-bio-and-none": "0 D R 0+8 bio=1 rq=1\n1 R R 0+8 rq=1",
    "requests/queued-since-issue": "0 DQD R 0+8 bio=1 rq=1",
    "requests/sectors-left-out": "0 s R 0+16 bio=1 rq=1\n1 D R 0+8 bio=1 rq=1",
    "requests/other-head-at-sector": "0 s R 0+8 bio=1 rq=1\n1 D R 0+8 bio=2 rq=1 chain=2",
    "requests/waiting-other-operation": "0 s R 0+8 bio=1 rq=1\n1 D W 0+8 bio=1 rq=1",
    "requests/joined-other-operation": "0 R R 0+8 bio=1 rq=1\n1 D W 0+8 bio=1 rq=1",
    "requests/inserted-elsewhere": "0 I R 8+8 bio=1 rq=1\n1 I R 0+16 bio=1 rq=1",
    "requests/flush-after-requeue": "0 R W 0+8 bio=1 rq=1\n1 QC W 0+0 bio=1 rq=1",
    "requests/requeued-other-operation": "0 R W 0+8 bio=1 rq=1\n1 C R 0+8 bio=1 rq=1",
    "completed/no-completion-yet": "0 sEC R 0+8 bio=1 rq=1",
    "completed/completed-in-full": "0 DC R 0+8 bio=1 rq=1\n2 C R 8+8 bio=1 rq=1",
    "completed/not-where-completion-ended": """
        0 D R 0+16 bio=1 rq=1
        1 C R 0+4 bio=1 rq=1
        2 C R 8+4 bio=1 rq=1
        """,
    "completed/second-empty-completion": "0 DC W 0+8 bio=1 rq=1\n2 CC W 8+0 bio=1 rq=1",
    "completed/empty-of-other-bio": "0 DC W 0+8 bio=1 rq=1\n2 C W 8+0 bio=2 rq=1",
    "completed/empty-of-other-operation": "0 DC W 0+8 bio=1 rq=1\n2 C R 8+0 bio=1 rq=1",
    "completed/empty-elsewhere": "0 DC W 0+8 bio=1 rq=1\n2 C W 64+0 bio=1 rq=1",
    "completed/queued-since-completion": """
        0 D R 0+16 bio=1 rq=1
        1 C R 0+8 bio=1 rq=1
        2 QC R 8+8 bio=1 rq=1
        """,
    "bios/queued-elsewhere": "0 A R 8+8 bio=1 from=259:0+0\n1 Q R 64+8 bio=1",
    "bios/other-device": "0 Q R 0+8 bio=1\n1 G 8:0 R 0+8 bio=1",
    "bios/starts-again": "0 QM R 0+8 bio=1\n2 s R 0+8 bio=1 rq=1",
    "bios/served-after-completion": "0 cC R 0+8 bio=1 rq=1",
    "bios/joins-outside": "0 Q R 0+8 bio=1\n1 G R 64+8 bio=1",
    "bios/joins-with-other-operation": "0 Q R 0+8 bio=1\n1 G W 0+8 bio=1",
    "bios/issued-outside": "0 M R 0+8 bio=1\n1 D R 64+8 bio=1 rq=1",
    "bios/issued-with-other-operation": "0 M R 0+8 bio=1\n1 D W 0+8 bio=1 rq=1",
    "bios/served-outside": "0 m R 0+8 bio=1 rq=1\n1 D R 64+8 bio=1 rq=2",
    "bios/served-with-other-operation": "0 m R 0+8 bio=1 rq=1\n1 D W 0+8 bio=1 rq=2",
    "resubmissions/from-its-device": "0 Q 9:0 R 8+8 bio=1\n1 A R 8+8 bio=1 from=9:1+8",
    "resubmissions/begins-inside": "0 Q 9:0 R 8+8 bio=1\n1 A R 8+8 bio=1 from=9:0+0",
    "resubmissions/ends-inside": "0 Q 9:0 R 8+8 bio=1\n1 A R 8+8 bio=1 from=9:0+12",
    "resubmissions/same-operation": "0 Q 9:0 R 8+8 bio=1\n1 A W 8+8 bio=1 from=9:0+8",
}
"""Events of which one begins another generation by this rule alone."""
