# SPDX-License-Identifier: Apache-2.0
"""Where a reused address begins anew: the event at hand against what lives at its address.

`begins_request` and `begins_bio` are the tables of docs/lifecycles.md: each rule is a condition on
the event, and on what the event before at the address said (`told`), that `m.on` can switch off.
"""

import cython

from biotrail.converters.match.lives import *
from biotrail.converters.match.memory import device_of, end_of, entry_in, entry_of
from biotrail.converters.match.numbers import *
from biotrail.converters.match.state import Machine

# --- Requests


def begins_request(m: Machine, r: Request) -> bint:
    """Return whether the event is of a later request than `r`, which last had its address."""
    kind: int64 = m.kind
    before: int64 = r.told.kind
    other_op: bint = ((m.opf ^ r.told.opf) & 0xFF) != 0
    if kind == E or kind == DONE:
        return False
    if kind == G:
        return m.on["requests/got"]
    if kind == START and before == G:
        return False
    if kind == START and before != RQ_REMAP:
        if m.on["requests/started"]:
            return True
    elif kind == START:
        return m.on["requests/started-unlike-clone"] and (m.sector != r.told.sector or other_op)
    if kind == RQ_REMAP and m.on["requests/cloned"]:
        return True
    if before == RQ_MERGE and m.on["requests/absorbed"]:
        return True
    if before == C or before == E or before == DONE:
        if kind == C or kind == R:
            return completed(m, r)
        return m.on["requests/ended"] and kind != START
    if before == D:
        return begins_behind_issue(m, r, other_op)
    joined: bint = before == M or before == F
    waited: bint = before == START or before == I
    if kind == R and (waited or joined) and end_of(cython.address(r.told)) > m.end:
        if m.on["requests/requeued-before-end"]:
            return True
    if (kind == I or kind == D or kind == RQ_MERGE) and (waited or joined or before == R):
        if not (r.told.sector >= m.sector and end_of(cython.address(r.told)) <= m.end):
            if m.on["requests/sectors-left-out"]:
                return True
        if m.sector == r.told.sector and other_head(m, r) and not joined:
            if m.on["requests/other-head-at-sector"]:
                return True
        if kind != RQ_MERGE and other_op and not waited and m.on["requests/joined-other-operation"]:
            return True
        if (
            kind == I
            and before == I
            and m.sector != r.told.sector
            and m.on["requests/inserted-elsewhere"]
        ):
            return True
    if waited and other_op and m.on["requests/waiting-other-operation"]:
        if kind == M or kind == F or kind == I or kind == D or kind == C or kind == RQ_MERGE:
            return True
    if kind == M or kind == F:
        waited = waited or before == G
        if (
            (waited or joined or before == R)
            and not is_discard(m)
            and m.on["requests/joined-inside"]
        ):
            if kind == M:
                return end_of(cython.address(r.told)) > m.sector
            return r.told.sector < m.end
    elif joined and m.on["requests/queued-since-merge"]:
        if kind == I or kind == D or kind == C or kind == R or kind == RQ_MERGE:
            return queued_since(m, r.told.number)
    if kind == C and (waited or before == R):
        if m.size == 0 and r.told.size > 0 and queued_since(m, r.told.number):
            if (
                m.on["requests/flush-after-requeue"]
                if before == R
                else m.on["requests/flush-after-start"]
            ):
                return True
        return before == R and other_op and m.on["requests/requeued-other-operation"]
    return False


def begins_behind_issue(m: Machine, r: Request, other_op: bint) -> bint:
    """Return `begins_request` of an event whose request was issued before."""
    kind: int64 = m.kind
    if kind == M or kind == F or kind == RQ_MERGE or kind == RQ_REMAP:
        return m.on["requests/joined-after-issue"]
    if kind != D and kind != I and kind != R and kind != C:
        return False
    if other_head(m, r) and m.on["requests/issued-other-bio"]:
        return True
    if other_op and m.on["requests/issued-other-operation"]:
        return True
    if (m.bio == 0) != (r.told_bio == 0) and m.on["requests/issued-bio-and-none"]:
        return True
    if m.sector != r.told.sector and not (kind == C and r.told.size == 0):
        if (
            not (kind == C and (m.opf & 0xFF) == m.zone_append)
            and m.on["requests/issued-other-sector"]
        ):
            return True
    if kind == D:
        if m.bio == 0 and r.told_bio == 0 and m.on["requests/flush-issued-again"]:
            return True
        if (
            m.size != r.told.size
            and is_passthrough(m, r.told.opf)
            and m.on["requests/passthrough-other-size"]
        ):
            return True
    return m.on["requests/queued-since-issue"] and queued_since(m, r.told.number)


def completed(m: Machine, r: Request) -> bint:
    """Return whether a C or R behind a C, E or d is of a later request: this one was complete."""
    last: At = cython.address(r.complete)
    if last.number < 0:
        return m.on["completed/no-completion-yet"]
    elsewhere: bint = m.sector != end_of(last)
    if m.kind == C and m.size == 0:
        if last.size == 0 and m.on["completed/second-empty-completion"]:
            return True
        if m.bio != r.complete_bio and m.bio != 0 and r.complete_bio != 0:
            if m.on["completed/empty-of-other-bio"]:
                return True
        if ((m.opf ^ last.opf) & 0xFF) != 0 and m.on["completed/empty-of-other-operation"]:
            return True
        if elsewhere and m.sector != last.sector and m.on["completed/empty-elsewhere"]:
            return True
    else:
        if r.begun >= 0 and r.since_begun >= r.begun and m.on["completed/completed-in-full"]:
            return True
        if elsewhere and m.on["completed/not-where-completion-ended"]:
            return True
    return m.on["completed/queued-since-completion"] and queued_since(m, last.number)


def other_head(m: Machine, r: Request) -> bint:
    """Return whether the event names another head bio than the one before; both must name one."""
    return m.bio != r.told_bio and m.bio != 0 and r.told_bio != 0


def queued_since(m: Machine, number: int64) -> bint:
    """Return whether the event's bio was queued after an event: then it can't be in the request."""
    if m.bio == 0:
        return False
    place: Entry = entry_in(m.bios, m.bio, 0)
    return place.one != 0 and place.number > number


def is_passthrough(m: Machine, opf: uint32) -> bint:
    """Return whether an operation is a command of SCSI or a driver's."""
    op: uint64 = opf & 0xFF
    return op < 64 and (m.passthrough >> op) & 1 != 0


def is_discard(m: Machine) -> bint:
    return (m.opf & 0xFF) == m.discard


# --- Bios


def had_request(role: int64) -> bint:
    """Return whether a bio in this role has its request, or has ended."""
    if role == M or role == F or role == BIO_COMPLETE or role == START or role == I:
        return True
    return role == RQ_MERGE or role == D or role == C


def begins_bio(m: Machine, b: Bio, role: int64, request: Request, slot: int64) -> bint:
    """Return whether the event is of a later bio than `b`, which last had its address."""
    before: int64 = b.told.kind
    if role == A:
        return not resubmitted(m, b) and m.on["bios/remapped"]
    if role == X:
        return m.on["bios/split-off"]
    if role == Q:
        if before != A:
            if before == Q and queued_below(m, b):
                return False
            return m.on["bios/queued"] or (m.dev != b.told.dev and m.on["bios/other-device"])
        if m.sector != b.told.sector and m.on["bios/queued-elsewhere"]:
            return True
    if m.dev != b.told.dev and m.on["bios/other-device"]:
        return True
    if role == Q:
        return False
    had: bint = had_request(before)
    if role == G or role == M or role == F:
        if (had or before == G) and m.on["bios/joins-again"]:
            return True
    elif had and (role == START or role == PARENT or role == REST) and m.on["bios/starts-again"]:
        return True
    elif had and role == BIO_COMPLETE and m.on["bios/completes-again"]:
        return True
    if before == BIO_COMPLETE and m.on["bios/served-after-completion"]:
        if had_request(role) and role != BIO_COMPLETE:
            return True
    if role == G or role == M or role == F or role == START:
        if (before == Q or before == A or before == X) and m.size > 0 and b.told.size > 0:
            if beside(m, b) and m.on["bios/joins-outside"]:
                return True
            if other_operation(m, b) and m.on["bios/joins-with-other-operation"]:
                return True
    elif role == D and (before == G or before == M or before == F):
        if m.size > 0 and b.told.size > 0:
            if beside(m, b) and not is_discard(m) and m.on["bios/issued-outside"]:
                return True
            if other_operation(m, b) and m.on["bios/issued-with-other-operation"]:
                return True
    if before == X or before == RQ_MERGE:
        if role == I or role == D or role == C or role == RQ_MERGE:
            if b.told.size > 0 and (m.size > 0 or before == RQ_MERGE):
                if beside(m, b) and not is_discard(m) and m.on["bios/served-outside"]:
                    return True
                if other_operation(m, b) and m.on["bios/served-with-other-operation"]:
                    return True
    if role != PARENT and request and b.among and request != b.among:
        return m.on["bios/other-request"] and not moved(m, b, role, slot)
    return False


def beside(m: Machine, b: Bio) -> bint:
    """Return whether the event and the one before have no sector in common."""
    return not (m.sector < end_of(cython.address(b.told)) and b.told.sector < m.end)


def other_operation(m: Machine, b: Bio) -> bint:
    """Return whether operations differ; the kernel may turn a zone append into a write."""
    op: int64 = m.opf & 0xFF
    told: int64 = b.told.opf & 0xFF
    return op != told and op != m.zone_append and told != m.zone_append


def moved(m: Machine, b: Bio, role: int64, slot: int64) -> bint:
    """Return whether a merge of requests, maybe one that was lost, took the bio along."""
    before: int64 = b.told.kind
    waited: bint = before == G or before == START or before == I
    if waited or before == M or before == F or before == RQ_MERGE:
        if b.among.merged.number >= 0:
            return True
    if not (role == D and slot > 0 and waited and b.among.issue.number < 0):
        return False
    if b.told.sector < m.sector or end_of(cython.address(b.told)) > m.end:
        return False
    return ((m.opf ^ b.told.opf) & 0xFF) == 0


def resubmitted(m: Machine, b: Bio) -> bint:
    """Return whether an A sends on the bio at its address: no clone, the bio itself goes below."""
    from_sector: uint64 = m.w5[m.row]
    from_dev: uint64 = m.w6[m.row] & LOW_32
    sent_on: bint = False
    if b.told.kind == Q or b.told.kind == A:
        part: uint64 = b.told_part
        here: bint = from_dev == b.told.dev or from_dev == part
        if not here and b.told.kind == A:  # by its disk: kernels before 5.12
            here = part == b.told.dev and m.dev == b.told.dev
            here = here and m.size == b.told.size and from_sector == b.told.sector
        offset: int64 = from_sector - b.told.sector
        sent_on = here or not m.on["resubmissions/from-its-device"]
        sent_on = sent_on and (offset >= 0 or not m.on["resubmissions/begins-inside"])
        inside: bint = offset * 512 + m.size <= b.told.size
        sent_on = sent_on and (inside or not m.on["resubmissions/ends-inside"])
        same: bint = ((m.opf ^ b.told.opf) & 0xFF) == 0
        sent_on = sent_on and (same or not m.on["resubmissions/same-operation"])
    if not sent_on:
        note_clone(m)
        return False
    # Where the bio above has clones, these do its work: this is a new bio at its address.
    return last_clone(m, from_dev, b.told.sector) <= b.told.number


def last_clone(m: Machine, dev: uint64, sector: uint64) -> int64:
    """Return the last A of a clone from this place; NEVER: none."""
    return entry_of(m, m.clones, dev + 1, sector).number


def note_clone(m: Machine) -> None:
    """Note an A that does not send on the bio at its address: it is of a clone."""
    entry_of(m, m.clones, (m.w6[m.row] & LOW_32) + 1, m.w5[m.row]).number = m.number


def queued_below(m: Machine, b: Bio) -> bint:
    """Return whether a Q is of the bio of the Q before, on a lower device; its A was lost."""
    if m.dev == b.told.dev or m.size != b.told.size:
        return False
    if ((m.opf ^ b.told.opf) & 0xFF) != 0:
        return False
    if device_of(m, b.told.dev).requests_since < m.number:
        return False
    if last_clone(m, b.told.dev, b.told.sector) > b.told.number:
        return False
    return leads_to(m, b.told.dev, b.told.sector)


def leads_to(m: Machine, upper: uint64, sector: uint64) -> bint:
    """Return whether what was queued at a sector of `upper` can be what the Q at hand queues."""
    part: Device = device_of(m, upper)
    if part.disk == m.dev and part.start >= 0:
        return sector + cython.cast(uint64, part.start) == m.sector
    return stands_on(part, m.dev)


def stands_on(device: Device, disk: uint64) -> bint:
    """Return whether a device stands on a disk directly."""
    at: int64
    for at in range(device.lower_count):
        if device.lower[at] == disk:
            return True
    return False
