# SPDX-License-Identifier: Apache-2.0
"""Association bugs, seeded on purpose: what stands in the model, and what stands there instead.

The text is looked for in all files of the model (`mutants.MODEL`) and must be there exactly once,
so that a change of the model that moves it to another file does not touch this list.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One bug: `right` is replaced by `wrong`."""

    name: str
    right: str
    wrong: str


MUTANTS = (
    # By identity: where a pointer's generations begin.
    Mutant(
        "a request's generation ends at C alone, not at s",
        "begins |= (kind == Kind.START) & ~is_in(before, Kind.G, Kind.RQ_REMAP)",
        "begins |= (kind == Kind.START) & is_in(before, Kind.C)",
    ),
    Mutant(
        "a request that was issued, then issued elsewhere, is still the same",
        "other |= moved | _another_operation(events, this, prev)",
        "other |= _another_operation(events, this, prev)",
    ),
    Mutant(
        "an absorbed request's address is not free at once",
        "begins |= (before == Kind.RQ_MERGE) & ~is_in(kind, Kind.E, Kind.DONE)",
        "pass",
    ),
    Mutant(
        "every C after a C is the same request's",
        "result[at] = another | (last_c < start)",
        "result[at] = last_c < start",
    ),
    Mutant(
        "a partial completion is the end of the request",
        "full = (sized >= start) & (done[at - 1] - done[sized_row] >= size[sized_row])",
        "full = sized >= start",
    ),
    Mutant(
        "the C of no bytes of a flush sequence is another request's",
        "another = np.where(empty, other | (size[old] == 0), full | elsewhere)",
        "another = np.where(empty, True, full | elsewhere)",
    ),
    Mutant(
        "a zone append's C is another request's, for it has another sector",
        "(events.bytes[prev] > 0) & "
        "((events.opf[this] & 0xFF) != np.uint32(ops.zone_append % 256))",
        "events.bytes[prev] > 0",
    ),
    Mutant(
        "a bio's generation ends at its request's C alone, not at Q",
        "begins = (role == Kind.X) | ((role == Kind.Q) & (before != Kind.A))",
        "begins = (role == Kind.X) | ((role == Kind.Q) & is_in(before, *served))",
    ),
    Mutant(
        "a bio stays with the request that was absorbed",
        "differs & ~moved & (role != PARENT)",
        "differs & (role != PARENT)",
    ),
    # By identity: who belongs to whom.
    Mutant(
        "X: front and parent are taken for each other",
        "root[front] = parent",
        "root[parent] = front",
    ),
    Mutant(
        "dm's X for the rest is read as one for the front",
        'result[rows] = events.fields(Kind.X, rows)["new_sector"] == events.sector[rows] & _LOW',
        "result[rows] = False",
    ),
    Mutant(
        "m: the absorbed request's bios stay with it",
        "a.request = np.where(taken >= 0, taken, a.request)",
        "pass",
    ),
    Mutant(
        "m: of a chain of merges, only the first is followed",
        "a.absorbed_by[moved] = further[moved]",
        "break",
    ),
    Mutant(
        "a bio that the whole chain leaves out stays with the request",
        "a.request[held] = -1\n    a.gone[held] = True",
        "pass",
    ),
    Mutant(
        "the chain's order is not that of the bytes",
        "self._order = named + [bio for bio in here if bio not in named]",
        "self._order = [bio for bio in here if bio not in named] + named[::-1]",
    ),
    Mutant(
        "bytes are counted since the first issue, not since the last",
        "_done_since(r, size, last_issue)",
        "_done_since(r, size, issue)",
    ),
    Mutant(
        "a flush sequence ends with its data",
        "finished &= ~sequence | ended_empty",
        "pass",
    ),
    Mutant(
        "a split bio ends with its first piece",
        "order = np.lexsort((a.bios.birth[piece], ends.end[piece], late))",
        "order = np.lexsort((a.bios.birth[piece], ends.end[piece], late))[::-1]",
    ),
    Mutant(
        "a remap's device is not looked at",
        "sent_on = on_it & (begin >= 0) & inside",
        "sent_on = inside",
    ),
    Mutant(
        "an upper bio's operation is not looked at",
        "others = [c for c in found if c != bio and a.root[c] == c and _same_op(a, c, bio)]",
        "others = [c for c in found if c != bio and a.root[c] == c]",
    ),
    Mutant(
        "a loop's lower bio: the page alone tells, not when",
        "live = (request >= 0) & (issue >= 0) & (issue < asked) & ((end < 0) | (end > asked))",
        "live = (request >= 0) & (issue >= 0)",
    ),
    Mutant(
        "of several candidates, by identity, none is ambiguous",
        "        a.certainty[bio] = Certainty.AMBIGUOUS\n    return -1",
        "        return candidates[0]\n    return -1",
    ),
    Mutant(
        "who covers a range: one sector too few is enough",
        "return [i.data for i in self._tree.at(sector) if i.end >= end]",
        "return [i.data for i in self._tree.at(sector) if i.end >= end - 8]",
    ),
    Mutant(
        "what was in flight while records were lost is not marked",
        "table.certainty[doubted & _touched(begin, end, loss)] = Certainty.LOST",
        "pass",
    ),
    Mutant(
        "an address that lives again does not close what it was",
        "again[:-1] = np.where(first[follows], -1, events.number[event[follows]])",
        "pass",
    ),
    Mutant(
        "what lives again is forgotten by the next window",
        "generations.again[reused] = self.again[at[reused]]",
        "pass",
    ),
    Mutant(
        "R to D counts as device time",
        "turn = Stage.R2D if kind == Kind.R else Stage.D2C if kind == Kind.D else state",
        "turn = state",
    ),
    # By intervals.
    Mutant(
        "of several candidates, by intervals, none is ambiguous",
        "            event.doubt = Certainty.AMBIGUOUS\n"
        "            for io in candidates:\n"
        "                io.doubt = Certainty.AMBIGUOUS",
        "            pass",
    ),
    Mutant(
        "front merges are looked for behind",
        "self._merge(event, device, device.allocated.starting(event.end, event.op))",
        "self._merge(event, device, device.allocated.ending(event.sector, event.op))",
    ),
    Mutant(
        "a merge does not make the request larger",
        "sector, end = min(taker.sector, event.sector), max(taker.end, event.end)",
        "sector, end = taker.sector, taker.end",
    ),
    Mutant(
        "an issue of unknown allocation takes one sector more",
        "inside = (h for h in found if h.op == op and h.sector >= sector and h.end <= end)",
        "inside = (h for h in found if h.op == op and h.sector >= sector and h.end <= end + 8)",
    ),
    Mutant(
        "a requeued request stays issued",
        "            device.issued.remove(request)\n            if device.overlaps_partial",
        "            if device.overlaps_partial",
    ),
    Mutant(
        "a partial completion leaves the request where it was",
        "device.issued.move(request, event.end, request.end)",
        "pass",
    ),
    Mutant(
        "FUA of a device without it is not a flush sequence",
        "request.flags & self._find.preflush or request.flags & self._find.fua & ~kept",
        "request.flags & self._find.preflush",
    ),
    Mutant(
        "a flush ends what came after its issue",
        "empty = [h for h in empty if h.origin < device.flush_issued]",
        "pass",
    ),
    Mutant(
        "a split's parent keeps the front's sectors",
        "device.waiting.move(parent, event.end, parent.end)",
        "pass",
    ),
    Mutant(
        "who queued a bio is not looked at",
        "    return own or found",
        "    return found",
    ),
)
