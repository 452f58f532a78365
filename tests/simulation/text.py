# SPDX-License-Identifier: Apache-2.0
"""A history's recorded records as a scenario's text, to keep a counterexample as a test."""

from tests.simulation.model import NO_SECTOR, SECTOR, History, Rec
from tests.simulation.truth import Truth
from tests.support.captures import FLAG_BITS, OPS, device_text, opf_of

_LETTERS = {"READ": "R", "WRITE": "W", "FLUSH": "F", "DISCARD": "D", "ZONE_APPEND": "ZA"}
_LETTERS |= {"WRITE_ZEROES": "WZ", "DRV_IN": "N"}
_BY_NUMBER = {OPS[name]: letter for name, letter in _LETTERS.items()}
_AFTER = {"FUA": "F", "SYNC": "S", "NOMERGE": "i"}


def _rwbs(opf: int) -> str:
    before = "F" if opf >> FLAG_BITS["PREFLUSH"] & 1 else ""
    after = "".join(letter for name, letter in _AFTER.items() if opf >> FLAG_BITS[name] & 1)
    text = before + _BY_NUMBER[opf & 0xFF] + after
    return text if opf_of(text) == opf else f"{text} opf={opf:x}"


def scenario(history: History) -> str:
    """Lines for `scenario_tools`, times in ns from the first record."""
    order = Truth(history).order
    small = {0: 0}

    def short(pointer: int) -> int:
        return small.setdefault(pointer, len(small))

    lines = []
    for rec in order:
        if rec.letter not in "TPUb":
            lines.append(_line(rec, order, short))
    return "\n".join(lines)


def _line(rec: Rec, order: list[Rec], short: "object") -> str:
    f = rec.fields
    name = short  # type: ignore[assignment]
    words = [f"{rec.ts - order[0].ts} cpu{rec.cpu} {rec.letter} {device_text(f['dev'])}"]
    sector = f.get("sector", 0)
    size = f.get("bytes", 0)
    rwbs = _rwbs(f["opf"]) if "opf" in f else "R"
    extra = ""
    if " " in rwbs:
        rwbs, extra = rwbs.split(" ", 1)
    words.append(f"{rwbs} {sector if sector != NO_SECTOR else NO_SECTOR}+{size // SECTOR}")
    if f.get("bio"):
        words.append(f"bio={name(f['bio']):x}")
    if f.get("rq"):
        words.append(f"rq={name(f['rq']):x}")
    if rec.letter == "D":
        words.append("chain=" + ",".join(f"{name(b.pointer):x}" for b in rec.bios))
        if not rec.bios:
            words.pop()
    if rec.letter == "X":
        words.append(f"parent={name(f['parent']):x}")
    if "from_dev" in f:
        words.append(f"from={device_text(f['from_dev'])}+{f['from_sector']}")
    if rec.letter in "QA" and f["part"] != f["dev"]:
        words.append(f"part={device_text(f['part'])}")
    if rec.letter == "Q" and f.get("page"):
        words.append(f"page={f['page'] & 0xFFFFFF:x}")
    if f.get("status"):
        words.append(f"err={f['status']}")
    if f.get("tid"):
        words.append(f"pid={f['tid']}")
    return " ".join([*words, extra]).strip()
