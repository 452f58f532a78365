# SPDX-License-Identifier: Apache-2.0
"""Numbers that the compiled parts name: kinds of records, roles, certainties, stages, rules."""

# Kinds of recorder.schema.records.Kind.
Q = 1
G = 2
M = 3
F = 4
X = 5
A = 6
BIO_COMPLETE = 7
START = 8
I = 9  # noqa: E741
R = 10
RQ_MERGE = 11
D = 12
CHAIN = 13
C = 14
E = 15
DONE = 16
P = 17
U = 18
RQ_REMAP = 19
BACKING = 43

# Roles of a bio in an event that are no kind: split by X; left by an X of dm; early c of NVMe
# multipath.
PARENT = 200
REST = 201
EARLY_COMPLETE = 202

LOW_32 = 0xFFFFFFFF
LOW_63 = 0x7FFFFFFFFFFFFFFF
TIME_BITS = 0xFFFFFFFFFFFFFF
NEVER = -1
FOREVER = 1 << 62
FIRST_UNRECORDED = 1 << 62
DEEPEST = 64  # stacks and merges: deeper than any kernel allows

# converters.events.tables.Certainty
EXACT = 0
INTERVAL = 1
AMBIGUOUS = 2
INCOMPLETE = 3
LOST = 4

# converters.events.tables.Stage; ABSENT: none
Q2G = 0
G2I = 1
I2D = 2
G2D = 3
D2C = 4
Q2M = 5
M2D = 6
R2D = 7
PRE_FLUSH = 8
POST_FLUSH = 9
FLUSH = 10
BIO_BASED = 11
FAILED = 12
UNKNOWN = 13
Q2D = 14
M2I = 15
ABSENT = 255

# The tables that the machine writes.
BIOS = 0
REQUESTS = 1
EDGES = 2
BIO_STAGES = 3
REQUEST_STAGES = 4
MENTIONS = 5
LIVES = 6
TABLES = 7

MENTIONED = 7
"""Events of a `Mention`."""

# Where the finder has a bio or request: in a tree of its device.
NOWHERE = 0
WAITING = 1
HELD = 2
ISSUED = 3

# Guesses that may matter later: among what waits or is held; of partial completions.
GUESSES = 0
PARTIALS = 1

# What is known of when the I/O ended that a completion was given to (Ending.state).
PENDING = 0
KNOWN = 1
UNBOUNDED = 2

# What is done once with each of a row of alike flights (Row.fresh).
SHARED = 0
OPENED = 1
PAIRED = 2
GUESSED = 3

# Lists in which flights are with others (Flight.before). Of the first two is a tag (Flight.tags).
LIFE_TAG = 0
DRIVER_TAG = 1
SHARED_FLUSH = 2
FRESH = 3

SHARE = 10  # an end that is not known to a tenth of the latency is said to be doubtful
