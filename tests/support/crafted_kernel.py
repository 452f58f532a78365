# SPDX-License-Identifier: Apache-2.0
"""A small made-up kernel's types, whose ids and offsets are known, and a module's on top."""

from dataclasses import dataclass

from biotrail.recorder.sites.btf import Kind
from biotrail.recorder.sites.types import TypeTable
from tests.support.btf_builder import BtfBuilder


@dataclass(frozen=True)
class Crafted:
    """The table, and ids of types that tests name."""

    table: TypeTable
    ids: dict[str, int]


def crafted() -> Crafted:
    """A kernel with struct request and what takes it, and the module `drv`."""
    b = BtfBuilder()
    ids = {
        "u8": b.int("unsigned char", 1),
        "u32": b.int("unsigned int", 4),
        "u64": b.int("long unsigned int", 8),
        "i32": b.int("int", 4, signed=True),
        "char": b.int("char", 1),
    }
    _structs(b, ids)
    _functions(b, ids)
    m = BtfBuilder(b)
    _module(m, ids)
    return Crafted(TypeTable(b.bytes(), {"drv": m.bytes, "gone": _gone}), ids)


def _structs(b: BtfBuilder, ids: dict[str, int]) -> None:
    """struct request, and what it holds and points to."""
    u32, u64, i32, char = (ids[name] for name in ("u32", "u64", "i32", "char"))
    disk = b.struct("gendisk", ("major", i32), ("minor", i32), ("disk_name", b.array(char, 32)))
    queue = b.struct("request_queue", ("limit", u32), ("id", i32), ("disk", b.pointer(disk)))
    iterator = b.struct("bvec_iter", ("bi_sector", u64), ("bi_size", u32), ("bi_idx", u32))
    dev = b.typedef("dev_t", u32)
    bio = b.struct("bio", ("bi_next", u64), ("bi_iter", iterator), ("dev", dev))
    bits = (("low", u32, 0, 3), ("mid", u32, 13, 5), ("wide", u64, 20, 40))
    request = b.struct(
        "request",
        ("q", b.pointer(b.const(queue))),
        ("bio", b.pointer(bio)),
        ("", b.struct("", ("tag", i32), ("__sector", u64))),
        ("", b.struct("", ("hash", u64), ("short", u32), union=True)),
        ("flags", b.bit_fields("flag_bits", 8, *bits)),
        ("state", b.enum("rq_state", IDLE=0, FLYING=1, DONE=2)),
        ("mood", b.enum("mood", signed=True, BAD=-1, GOOD=1)),
        ("counts", b.array(u32, 4)),
        ("short_name", b.array(char, 6)),
        ("secret", b.pointer(b.forward("secret"))),
        ("bios", b.pointer(b.pointer(bio))),
    )
    ids |= {"request": request, "queue": queue, "pointer": b.pointer(request)}


def _functions(b: BtfBuilder, ids: dict[str, int]) -> None:
    """Functions and tracepoints that take a request, and some that do not."""
    u8, u32, u64, pointer = (ids[name] for name in ("u8", "u32", "u64", "pointer"))
    hidden = b.typedef("rq_ptr", b.const(b.pointer(b.const(b.typedef("rq_t", ids["request"])))))
    wide = b.struct("pair_of_words", ("a", u64), ("b", u64))
    huge = b.struct("many_words", ("a", b.array(u64, 3)))
    both = (("rq", pointer), ("other", pointer))
    ids["start"] = b.function("blk_start", ("rq", pointer))
    ids["end"] = b.function("blk_end", ("how", u32), *both, static=True)
    b.function("blk_hidden", ("rq", hidden))
    b.function("blk_seventh", *((f"a{i}", u32) for i in range(6)), ("rq", pointer))
    b.function("blk_behind", ("pair", wide), ("rq", pointer))
    b.function("blk_stacked", ("many", huge), ("rq", pointer))
    b.function("queue_only", ("q", b.pointer(ids["queue"])))
    b.function("words_only", ("words", b.pointer(wide)))
    b.function("by_value", ("rq", ids["request"]))
    b.function("perf_trace_rq", ("rq", pointer))
    ids["issue"] = b.tracepoint("rq_issue", ("rq", pointer), ("bytes", u32), ("what", u8))
    ids["nameless"] = b.tracepoint("rq_nameless", ("", u32), ("", pointer), named=False)
    b.tracepoint("rq_merge", ("how", u32), ("rq", pointer), ("next", pointer))
    b.tracepoint("queue_event", ("q", b.pointer(ids["queue"])))


def _module(m: BtfBuilder, ids: dict[str, int]) -> None:
    """A module with a struct of its own; one function has a prototype of the kernel's."""
    own = m.struct("drv_cmd", ("rq", ids["pointer"]), ("tag", ids["u32"]))
    rq = m.const(ids["pointer"])
    ids["drv"] = m.function("drv_queue", ("cmd", m.pointer(own)), ("rq", rq))
    ids["shared"] = m.add(Kind.FUNC, "drv_shared", ids["start"] - 1, vlen=1)
    ids["drv_tp"] = m.tracepoint("drv_issue", ("cmd", m.pointer(own)), ("rq", ids["pointer"]))


def _gone() -> bytes:
    raise FileNotFoundError("unloaded meanwhile")
