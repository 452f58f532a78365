# SPDX-License-Identifier: Apache-2.0
"""Bugs seeded in the pass that settles plain I/O: what is replaced in its source.

Only such that something is wrong by: many checks of the pass stand beside others that alone would
do, or only make less of the I/O plain.
"""

from typing import NamedTuple


class Bug(NamedTuple):
    """A bug: each second text stands in place of where the first occurs first."""

    name: str
    replaced: tuple[tuple[str, str], ...]


BUGS = (
    Bug(
        "a failed C counts as a good one",
        (("or self.raw[5, row] >> 32 != 0\n", "or False\n"),),
    ),
    Bug(
        "a partial C counts as a whole one",
        (("or (self.raw[4, row] ^ self.raw[4, issue]) & LOW_40 != 0\n", "or False\n"),),
    ),
    Bug(
        "a request without its s is plain",
        (("if self.has_start and not flush:\n", "if False:\n"),),
    ),
    Bug(
        "the data of a flush sequence ends it",
        (("elif self.requests[request].sequence:\n", "elif False:\n"),),
    ),
    Bug(
        "FUA that the device lacks makes no sequence",
        (("self.bios[bio].opf & self.fua != 0 and opf & self.fua == 0\n", "False\n"),),
    ),
    Bug(
        "a flush sequence that fails is plain",
        (
            (
                "or self.raw[5, row] >> 32 != 0\n            or self.raw[5, row] & LOW_32 != self.requests[request].dev",
                "or self.raw[5, row] & LOW_32 != self.requests[request].dev",
            ),
        ),
    ),
    Bug(
        "nothing is behind the data",
        (("if self.requests[request].sequence and data != end:", "if False:"),),
    ),
    Bug(
        "a bio waits for the scheduler while it is flushed for",
        (("_PRE_FLUSH if held else _G2I, joined", "_G2I, joined"),),
    ),
    Bug(
        "flush requests are as others",
        (("out[9, at] = self.requests[i].flush", "out[9, at] = 0"),),
    ),
    Bug(
        "a bare flush is issued",
        (("out[10, at] = self.requests[i].issue >= 0", "out[10, at] = 1"),),
    ),
    Bug(
        "a life that a new Q ends is plain",
        (
            (
                "if self.bio_keys[at] != 0 and self.bios[self.bio_values[at]].state != ENDED:\n            self.bios[self.bio_values[at]].doubt = ODD",
                "if False:\n            pass",
            ),
            (
                "if self.bios[i].doubt == ODD or (self.bios[i].root == i and self.bios[i].pieces < 1):",
                "if self.bios[i].doubt == ODD:",
            ),
        ),
    ),
    Bug(
        "successors of odd lives are plain",
        (("        self.doubt_successors()\n", ""),),
    ),
    Bug(
        "what has events at the window's end is settled",
        (
            (
                "if self.requests[i].doubt == 0 and last >= 0 and times[last] >= settled:",
                "if False:",
            ),
        ),
    ),
    Bug(
        "s and bio need not have the same size",
        (
            (
                "or self.bios[bio].left != self.raw[4, row] & LOW_32\n        ):\n            doubt = ODD\n        if self.bios[bio].request",
                "):\n            doubt = ODD\n        if self.bios[bio].request",
            ),
        ),
    ),
    Bug(
        "G and bio need not have the same range",
        (
            (
                "or self.bios[bio].sector != self.raw[2, row]\n            or self.bios[bio].left != size\n",
                "",
            ),
        ),
    ),
    Bug(
        "an X of an odd bio is plain",
        (
            (
                "                    doubt = ODD\n                    self.bios[root].doubt = ODD",
                "                    pass",
            ),
        ),
    ),
    Bug(
        "the first piece counts as the last",
        (("elif bio > final:", "elif bio < final:"),),
    ),
    Bug(
        "merged bios keep the time of their G",
        (("if self.bios[final].joined >= 0:", "if self.bios[final].joined >= (1 << 60):"),),
    ),
    Bug(
        "the bytes of an edge are the whole bio's",
        (("out[3, at] = self.bios[i].left\n", "out[3, at] = self.bios[self.bios[i].root].left\n"),),
    ),
    Bug(
        "a Q need not be of the bio that A began",
        (("and self.raw[2, row] == self.raw[2, remap]\n", "and True\n"),),
    ),
    Bug(
        "A from any device begins a plain life",
        (("if self.partitions[0, i] == partition:", "if True:"),),
    ),
    Bug(
        "requeues are passed over",
        (
            (
                "            self.requests[request].doubt = ODD\n            self.requests[request].last = row\n            self.owner[row] = -2 - request\n\n    # --- Families",
                "            self.requests[request].last = row\n            self.owner[row] = -2 - request\n\n    # --- Families",
            ),
            (
                "elif self.requests[request].state >= ISSUED or self.shrinks(request, row):",
                "elif self.shrinks(request, row):",
            ),
        ),
    ),
    Bug(
        "a chain need not be whole",
        (("if named != count or total != size:", "if False:"),),
    ),
    Bug(
        "doubts do not spread to families",
        (
            (
                "        self.spread()\n        self.doubt_successors()\n        self.doubt_held(times, settled)\n        self.spread()\n",
                "        self.doubt_successors()\n",
            ),
        ),
    ),
    Bug(
        "a family's number is that of any bio",
        (
            (
                "first = self.top(self.requests[i].lowest)",
                "first = self.top(self.requests[i].first)",
            ),
        ),
    ),
    Bug(
        "one of several bios above is taken",
        (
            (
                "                self.need(upper)\n                self.need(other)\n                self.need(bio)\n            upper",
                "                pass\n            upper",
            ),
        ),
    ),
    Bug(
        "a bio above is over at the time of its c",
        (("and not self.at_once(self.bios[other].ended, row):", "and True:"),),
    ),
    Bug(
        "a bio above that is queued at the time of an A is passed over",
        (
            (
                "while before >= 0 and (before > begin or self.at_once(before, begin)):",
                "while False:",
            ),
        ),
    ),
    Bug(
        "clones may overlap",
        (("elif sector < self.bios[upper].reach:", "elif False:"),),
    ),
    Bug(
        "clones may have another operation",
        (("if (self.bios[upper].opf ^ opf) & 0xFF != 0 or", "if"),),
    ),
    Bug(
        "clones may be longer than the bio above",
        (
            (
                "if sector < self.raw[2, queue] or end >",
                "if sector < self.raw[2, queue] or end < 0 * ",
            ),
        ),
    ),
    Bug(
        "bios of which only c is known are passed over",
        (("self.unknown_count += 1", "pass"),),
    ),
    Bug(
        "another bio may be sent from the same place before a clone goes on",
        (("                alone = False", "                pass"),),
    ),
    Bug(
        "a bio-based bio that failed is plain",
        (
            ("            and (self.raw[4, row] >> 32 == 0 or", "            and (True or"),
            ("            if self.raw[4, row] >> 32 != 0:\n", "            if False:\n"),
        ),
    ),
    Bug(
        "a bio that failed without a request is plain",
        (("            if self.raw[4, row] >> 32 != 0:\n", "            if False:\n"),),
    ),
    Bug(
        "a clone's request is a family of its own",
        (
            (
                "first = self.top(self.requests[i].lowest)",
                "first = self.bios[self.requests[i].lowest].root",
            ),
        ),
    ),
    Bug(
        "doubts do not spread to clones",
        (
            ("if upper >= 0 and self.bios[upper].doubt > most:", "if False:"),
            ("if upper >= 0 and self.bios[upper].doubt != most:", "if False:"),
        ),
    ),
    Bug(
        "what is bio-based is settled though it ends at the window's end",
        (
            (
                "if self.bios[i].doubt == 0 and last >= 0 and times[last] >= settled:",
                "if False:",
            ),
        ),
    ),
    Bug(
        "what earlier windows know of reused addresses is passed over",
        (("                if end < 0 or numbers[end] > again[i]:", "                if False:"),),
    ),
    Bug(
        "bios that follow odd ones are held back, not the model's",
        (
            (
                "if after < 0 or self.bios[after].doubt >= NEEDED:",
                "if after < 0 or self.bios[after].doubt >= HELD:",
            ),
        ),
    ),
    Bug(
        "what is open is held back",
        (
            (
                "            ) and self.requests[i].doubt == 0:\n                self.requests[i].doubt = NEEDED",
                "            ) and self.requests[i].doubt == 0:\n                self.requests[i].doubt = late",
            ),
        ),
    ),
    Bug(
        "what is held back is settled as well",
        (
            (
                "            if self.bios[i].doubt != doubt or",
                "            if self.bios[i].doubt > HELD or",
            ),
        ),
    ),
)
