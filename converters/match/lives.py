# SPDX-License-Identifier: Apache-2.0
"""What is known of a bio, of a request, and of a family of them while events come.

A bio or request is one use of its address. A `Note` is an event as it is remembered: its number is
NEVER where there was none, and then the rest means nothing.
"""

from typing import Any, TypeVar

# In C: numbers of that width, and pointers to structs.
_Class = TypeVar("_Class")

int64 = int
uint64 = int
uint32 = int
uint16 = int
uint8 = int
int32 = int
bint = bool
words = Any
"""A column of a window's records: uint64*."""
pointer = Any
"""void*."""

int64_2 = Any
"""Two of int64; likewise the next ones."""
int64_7 = Any
int64_32 = Any
range_2 = Any
"""Two pointers to ranges; likewise the next ones."""
tags_2 = Any
flight_4 = Any

BioRow = RequestRow = EdgeRow = StageRow = MentionRow = LifeRow = Any
"""Pointers to structs with the columns of a table of `tables`, such as BIO_COLUMNS."""

NULL: Any = None
calloc: Any = None
free: Any = None
memcpy: Any = None
memset: Any = None
realloc: Any = None
size_of: Any = None
"""Of C's library, and its sizeof."""
begin_task: Any = None
"""setjmp: 0; once more, not 0, when `give_task_up` was called."""
give_task_up: Any = None
"""longjmp to where this thread last called `begin_task`."""


def struct(cls: type[_Class]) -> type[_Class]:
    """Mark a class as a C struct; its name then stands for a pointer to one."""
    return cls


@struct
class Pooled:
    """A struct whose first field leads to the next one: of those of a pool that are free.

    Of structs in lists that field is `next`, for `free_list`.
    """

    next_free: "Pooled"


@struct
class Note:
    """An event: sector, bytes and operation as it says them. dev: the disk."""

    number: int64
    ts: int64
    sector: uint64
    size: int64
    opf: uint32
    dev: uint32
    status: int32
    kind: int32
    """Of a bio: its role there."""


At = Note
"""A pointer to one; where a struct has a `Note`, that is one itself."""


@struct
class Device:
    """A disk. Bios and requests that are not closed stand in lists, in the order they began."""

    dev: uint32
    lower: words
    """Disks directly below it, as the log says."""
    lower_count: int64
    disk: int64
    """Of a partition: its disk (dev_t); NEVER: it is none, or not listed."""
    start: int64
    """Of a partition: its first sector; NEVER: not known."""
    parity: bint
    """An md array with parity: raid4, 5, 6."""
    requests_since: int64
    """Number of its first request; NEVER: the log says that it makes requests; FOREVER: none."""
    merged_last: int64
    """Last m of a request of which it is not known who absorbed it."""
    first_bio: "Bio"
    last_bio: "Bio"
    first_request: "Request"
    last_request: "Request"
    first_clone: "Bio"
    """Clones of its bios, on devices below."""
    next: "Device"
    was_merged_last: int64
    """The same before a family was closed that goes on."""
    counts: int64_32
    """Of its events, by kind, since they were last asked for."""
    bios: int64
    """In the list of bios."""
    is_indexed: bint
    """Its bios stand in the next trees, too: there were many when a question came up."""
    over: "Range"
    """By the range of their Q."""
    empty: "Range"
    """Those without bytes."""
    pieces: "Range"
    """By the range that went to a request."""
    first_waiting: "Life"
    """No request before it in the list waits for its issue; nor, before the next, without an s."""
    first_startless: "Life"
    # What the finder has of it.
    waiting: "Range"
    """Bios in no request; trees, as the next ones."""
    held: "Range"
    """Requests that are not issued, requeued ones included."""
    issued: "Range"
    """Requests with the driver, and flush sequences whose data is done."""
    guesses: range_2
    """Where an event was given to one of several (GUESSES), or one completed in part (PARTIALS)."""
    guess_count: int64_2
    guess_most: int64_2
    """So many guesses, and those that matter no more are dropped."""
    issued_sector: uint64
    """The range of the last D, until the next event that asks for guesses."""
    issued_end: uint64
    one_queue: bint
    """It has one hardware queue: tags that a request has from its start on are unique."""
    takes_requests: bint
    """A request of it was seen: its bios complete by C, not c."""
    tells_allocations: bint
    """A G or s of it was seen: each request begins with an event."""
    queues: bint
    """A Q of it was seen."""
    flush_issued: int64
    """`order` of the newest flush request that was issued."""


@struct
class Life(Pooled):
    """What bios and requests have in common.

    A family, of those that events link, is a ring (`next`), known by one of it: `found_by` leads
    there.
    """

    address: uint64
    is_bio: bint
    closed: bint
    is_due: bint
    """In the queue of those that may be over; `due_next` is behind it."""
    born: Note
    told: Note
    """The last event at the address, to which the next one is held."""
    again: int64
    """The event that began the next life at the address."""
    again_ts: int64
    next: "Life"
    found_by: "Life"
    """NULL: the family is known by this one."""
    members: int64
    over: int64
    """Of a family: when some of it was last seen to end, ns."""
    due_next: "Life"
    due_since: int64
    """Time (ns) when it came into the queue."""
    earlier: "Life"
    later: "Life"
    device: Device
    mentions: "Mention"
    """Events that name it, if they are noted; `last_mention` is the last with room."""
    last_mention: "Mention"
    shown: int64
    """The last time that what is open was shown with it."""
    is_own: bint
    """Of the recording itself; found when the family is over."""
    doubt: int64
    """Without pointers: how surely the least sure of its events is its own, as a certainty."""
    flight: "Flight"
    """What the finder has of it, while it is in flight."""
    endings: "Ending"
    """Completions of it that may be another one's."""


@struct
class Bio(Life):
    """A bio, from its Q (or first event) on; a front piece of a split is one, too."""

    slot: int64
    """Place in the chain of the D that it is first known by."""
    queue: Note
    """First Q; the next eight are as it says them."""
    part: uint32
    tid: uint32
    cgroup: uint64
    page: uint64
    stack: int64
    file: int32
    ioprio: uint16
    cpu: uint16
    hint: uint8
    flags: uint8
    front: Note
    """X that made it."""
    remap: Note
    """Last A."""
    told_part: uint32
    """Partition or disk that the last Q or A names."""
    got: Note
    """First G."""
    start: Note
    """First s."""
    joined: Note
    """Last M or F."""
    ended: Note
    """First c."""
    last_ended: Note
    issue: int64
    """First D that names it; its time."""
    issue_ts: int64
    request: "Request"
    """Of the last D that names it, else of its last event that names one."""
    among: "Request"
    """Of its last event."""
    early: "Request"
    """Of its first event before a D that names one."""
    parent: "Bio"
    """It was split from."""
    first_front: "Bio"
    """The first piece of which an X says that it was split off; with every X the first of all."""
    fronts_size: int64
    """Bytes that X split off."""
    candidates: "Link"
    """Bios that it may be split from, or a clone of."""
    is_clone: bint
    """The question is of its upper bio; it is in `Device.first_clone` of that device."""
    sent_on: bint
    """It was the bio above itself, which goes on without a Q; it has no row."""
    maybe_unrecorded: bint
    """A clone: it may be of a bio of which only the c was recorded."""
    source: Device
    source_sector: uint64
    """From where its first A says that it comes."""
    asked: Note
    earlier_clone: "Bio"
    later_clone: "Bio"
    chains: "Offer"
    """Requests with a cut chain that may have it."""
    above: "Bio"
    """The bio above with the same first page, at its Q."""
    in_pages: bint
    backing: "Request"
    """The loop device's request that it was queued for, as the recorder tells."""
    # Found when the family is over.
    root: "Bio"
    upper: "Bio"
    sibling: "Bio"
    """The next bio of its request."""
    first_piece: "Bio"
    """Of the whole bio; each has the next as `next_piece`."""
    next_piece: "Bio"
    best: Note
    """The event that tells device, range and operation."""
    bytes: int64
    piece: Note
    """The event that tells the range that went to its own request."""
    piece_begin: uint64
    piece_bytes: int64
    shift: uint64
    certainty: int64
    completion_lost: bint
    end: int64
    end_ts: int64
    status: int32
    good: int64
    left: int64
    """Of a partial completion: bytes that are not completed yet; negative: not known."""
    gone: bint
    """… it has ended; `named`: the last D names it."""
    named: bint
    claim: "Request"
    """The only request with a cut chain that can have it."""
    asks: int64
    """Its merge, if no chain names it; NEVER."""
    own: "Request"
    """The request that it came with, which was absorbed by no one that is known."""
    first_clone: "Bio"
    """Of its clones; each has the next as `next_clone`."""
    next_clone: "Bio"
    number: int64
    told_piece: "Bio"
    """Of the bios of `backing`, the one in which it begins; it has the next one as `next_lower`."""
    next_lower: "Bio"
    itself: "Bio"
    """Where it stands, in a copy of it."""
    complete: bint
    """A queued bio of which it is known when it ended."""
    spot: "Range"
    """Where it stands in its device's tree by Q; `piece_spot` by its piece."""
    piece_spot: "Range"


@struct
class Request(Life):
    """A request, from its allocation (or first event) on."""

    told_bio: uint64
    """Head of its chain, as its last event said; 0: none."""
    start: Note
    insert: Note
    issue: Note
    """First D; `last_issue` the last."""
    last_issue: Note
    sched_tag: uint16
    hctx: uint16
    tag: uint16
    """The first two of the first D, the third of the last."""
    complete: Note
    """Last C, and the head that it names."""
    complete_bio: uint64
    data_end: int64
    """Last C with data; its time."""
    data_end_ts: int64
    first_complete: int64
    requeue: int64
    """First R."""
    last_requeue: Note
    merged: Note
    """m: it was absorbed."""
    taker: "Request"
    """By whom, where the finder says it."""
    is_clone: bint
    """a began it, or came."""
    implied: int64
    """First good C after an R without a D in between."""
    requeued: bint
    """An R came since the last D."""
    completions: int64
    requeues: int64
    done: int64
    """Bytes completed; `good`: without error; `since_issue`: since the last D."""
    good: int64
    since_issue: int64
    begun: int64
    """Bytes of the last D, without one of the last s or I; NEVER. Completed since: the next."""
    since_begun: int64
    status: int32
    """Of the last failing C."""
    in_driver: bint
    """Issued; no R, C or a since."""
    open_ended: bint
    """A D of it had a cut chain, or no head."""
    last_cut: bint
    """Its last D had a cut chain."""
    others: int64
    """Bios of its last D that the recording's filters left out."""
    first_head: uint64
    first_cut: bint
    first_alone: bint
    """Of its first D: the head; whether the chain was cut; whether the head is its only bio. Then
    the bios behind the head."""
    first_chain: "Named"
    last_named: "Named"
    first_step: "Step"
    last_step: "Step"
    """Its D, C and R; NULL: one D, one C, or both in this order."""
    joins: "Join"
    last_join: "Join"
    """Its M and F since its last other event."""
    merged_bio: Bio
    """Its head at m."""
    moved: "Link"
    """Bios that were in it, and then in the D of another request."""
    # Found when the family is over.
    absorbed_by: "Request"
    first_taken: "Request"
    """Of those with an m that it absorbed, by time; each has the next as `next_taken`."""
    next_taken: "Request"
    above: "Request"
    first_lower: Bio
    """Of the bios that were queued for it, by time."""
    first: Bio
    """Of its bios, by address."""
    bios: int64
    counted: Bio
    """The queued bio that counted it last."""
    flags: uint32
    total: int64
    sequence: bint
    finished: bint
    certainty: int64


@struct
class Mention(Pooled):
    """Some events that name a life: numbers; kind and disk (kind << 32 | dev_t)."""

    count: int64
    next: "Mention"
    number: int64_7
    what: int64_7


@struct
class Link:
    """A bio in a list."""

    next: "Link"
    bio: Bio


@struct
class Offer:
    """A request in a list, as of its D or C."""

    next: "Offer"
    request: Request
    at: Note


@struct
class Join:
    """An M or F of a request, the event before it, and the bio."""

    next: "Join"
    at: Note
    before: Note
    bio: Bio


@struct
class Named:
    """An address in the chain of a D."""

    next: "Named"
    address: uint64


@struct
class Step:
    """A D, C or R of a request; of a D, whether its chain was cut, and the bios that it names."""

    next: "Step"
    at: Note
    head: uint64
    cut: bint
    chain: Named
    last: Named


@struct
class Entry:
    """What stands in a table by two keys, and a number; both can be missing (NULL, NEVER)."""

    one: uint64
    """0: it is free."""
    two: uint64
    what: pointer
    number: int64


@struct
class Table:
    """Entries by the hash of their keys; mask: their number, a power of two, less one."""

    entries: Entry
    mask: uint64
    count: int64


# What the finder has in flight.


@struct
class Range(Pooled):
    """Sectors `[sector, end)`, in a tree by sector, then by age: `order` counts up; 0: not in use.

    highest: the largest end in its part of the tree. weight: at random, none below has a larger.
    """

    sector: uint64
    end: uint64
    order: int64
    highest: uint64
    weight: uint64
    left: "Range"
    right: "Range"
    bio: Bio
    """In a log with pointers, whose it is."""


@struct
class Flight(Range):
    """A bio or request in flight, as ranges tell it; `identity` stands for its address.

    place: the tree of the device that it is in; see `numbers`.
    """

    identity: uint64
    is_bio: bint
    place: int64
    device: Device
    life: Life
    op: int64
    tid: uint32
    flags: uint32
    """PREFLUSH and FUA of its bios."""
    head: uint64
    """Identity of a request's first bio; 0: none."""
    inserted: bint
    started: bint
    sequence: bint
    """blk-flush.c runs it: a C of no bytes ends it."""
    data_done: bint
    joined: bint
    """A bio that merged into a request that is not known."""
    queued: bint
    """A bio of which a Q was seen on its device."""
    row: "Row"
    """Those that are like it, if there are any: the next one and the one before by age."""
    older: "Flight"
    younger: "Flight"
    flush_before: int64
    """Of one without data: the newest flush request issued before it that may end it no more."""
    from_dev: uint32
    from_part: uint32
    """Of a bio that an A sent: from which device; to which partition or disk."""
    issue_ts: int64
    """A request's last D."""
    passed: bint
    """Its completion was likely lost: a later request of its place got one."""
    lived_through: bint
    """Records were lost since its issue, as far as a C of several like it has asked."""
    parent: "Flight"
    """Of a front piece; while `parent_order` is that one's."""
    parent_order: int64
    unserved: int64
    """Front pieces that are in no request; `counts`: it is one of them."""
    counts: bint
    counts_here: bint
    """It is of the request that the event at hand begins."""
    above: "Flight"
    """Of an A: the only bio that it can send on itself; while `above_order` is that one's."""
    above_order: int64
    listed: bint
    """The event at hand made it or took it from its place; `next_listed` is the next of these."""
    next_listed: "Flight"
    # How surely it is known.
    doubt: int64
    exchange: "Exchange"
    began: int64
    """When it, or the first bio of a request, began."""
    first_end: int64
    """The first completion that may be its own; FOREVER: none so far."""
    in_exchange: bint
    """It is among those that have not ended."""
    flushes: "Flushes"
    tags: tags_2
    """Of its driver's tag (DRIVER_TAG), from D to C or R; of the one from s to its end (LIFE_TAG).
    """
    before: flight_4
    """In each list that it is in with others; see `numbers`. Likewise `next`."""
    next: flight_4


@struct
class Row:
    """Flights of a tree that no question tells apart, the oldest first; that one is in the tree.

    fresh: by step in `numbers`, the oldest one that was not yet handled; nor were younger ones.
    """

    first: Flight
    last: Flight
    fresh: flight_4
    guess_sector: uint64
    """What all guesses cover in which those before `fresh[GUESSED]` are."""
    guess_end: uint64
    lost_at: int64
    """The last loss by which they were divided."""


@struct
class Guess(Range):
    """Where an event was given to one of several; `first` is of a list of these."""

    first: "Guessed"
    is_over: bint


@struct
class Guessed:
    """One of several."""

    next: "Guessed"
    flight: Flight
    order: int64


@struct
class Exchange:
    """Those that may have swapped their events: any completion of one may be another's.

    Those without a completion so far that may be their own stand in a list. live: how many have not
    ended. is_open: nothing bounds when they ended.
    """

    first_fresh: Flight
    live: int64
    first_ended: "Ending"
    last_ended: "Ending"
    is_open: bint
    into: "Exchange"
    """It is part of this one now."""
    uses: int64
    """Who refers to it."""


@struct
class Ending:
    """A completion that may be another's: between which times that which it ended did end.

    state: see `numbers`. deadline: until when that can be told to a tenth. uses: who refers to it.
    """

    number: int64
    first: int64
    last: int64
    deadline: int64
    state: int64
    uses: int64
    next: "Ending"
    next_ended: "Ending"


@struct
class Tags:
    """Tags in use, and the requests that have them; which has which is not known of several."""

    first_tag: "Tag"
    tags: int64
    first: Flight
    owners: int64


@struct
class Tag:
    """A tag of a device in use, and its requests."""

    group: Tags
    before: "Tag"
    next: "Tag"


@struct
class Flushes:
    """Bios and requests without data that share completions: of the first and last, the times."""

    first_end: int64
    last_end: int64
    count: int64
    live: int64
    first: Flight
    unbounded: bint
