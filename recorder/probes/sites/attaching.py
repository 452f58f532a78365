# SPDX-License-Identifier: Apache-2.0
"""Loads copies of a program that differ in one constant, one for each site, and attaches them.

A template is a program of the BPF object. libbpf loads it once, which relocates its instructions
to the running kernel and puts in the maps' descriptors. A clone is the same instructions with the
cookie, a constant of 64 bits, replaced, loaded by bpf(2) for another place of the kernel.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Sequence
from contextlib import ExitStack
from ctypes import c_char, c_uint64
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any

from biotrail.recorder.probes.kernel import bpf_calls
from biotrail.recorder.probes.kernel.bpf_calls import (
    OBJ_GET_INFO_BY_FD,
    InfoByFd,
    PerfEventAttr,
    bpf,
    u32,
    u64,
)
from biotrail.recorder.probes.kernel.btf import KernelBtf
from biotrail.recorder.probes.kernel.libbpf import BpfObject, RefusedError
from biotrail.recorder.probes.sites.follow_options import FUNCTION_WAYS
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.limits import COOKIE
from biotrail.recorder.symbols.kallsyms import address_of

LICENSE = b"Dual BSD/GPL"
_PROG_LOAD = 5
_LOAD_IMMEDIATE = 0x18
"""BPF_LD | BPF_IMM | BPF_DW: an instruction of 16 bytes, the halves of its constant at 4 and 12."""
_CALL, _PSEUDO_KFUNC_CALL = 0x85, 2
_LOG_BYTES = 1 << 20
_QUOTED_LINES = 12
_NAME_BYTES = 15


class ProgramType(IntEnum):
    """`enum bpf_prog_type` (include/uapi/linux/bpf.h)."""

    KPROBE = 2
    TRACEPOINT = 5
    TRACING = 26


class AttachType(IntEnum):
    """`enum bpf_attach_type` (include/uapi/linux/bpf.h); NONE for programs without one."""

    NONE = 0
    RAW_TP = 23
    FENTRY = 24
    FEXIT = 25
    PERF_EVENT = 41
    KPROBE_MULTI = 42
    KPROBE_SESSION = 56


@dataclass(frozen=True)
class Place:
    """What a program is loaded for.

    btf_id: of the function or of the tracepoint's typedef, for ProgramType.TRACING. btf_fd: a
    descriptor of the module's BTF that it is from; 0: the kernel's own.
    """

    program_type: ProgramType
    attach_type: AttachType = AttachType.NONE
    btf_id: int = 0
    btf_fd: int = 0


def _attr(*fields: tuple[str, Any]) -> type[ctypes.Structure]:
    """Return the members of `union bpf_attr` for a command, or another struct of bpf(2)."""
    return type("attr", (ctypes.Structure,), {"_fields_": fields})


_LoadAttr = _attr(  # BPF_PROG_LOAD, up to attach_btf_obj_fd
    *u32("prog_type", "insn_cnt"),
    *u64("insns", "license"),
    *u32("log_level", "log_size"),
    *u64("log_buf"),
    *u32("kern_version", "prog_flags"),
    ("prog_name", c_char * 16),
    *u32("prog_ifindex", "expected_attach_type", "prog_btf_fd", "func_info_rec_size"),
    *u64("func_info"),
    *u32("func_info_cnt", "line_info_rec_size"),
    *u64("line_info"),
    *u32("line_info_cnt", "attach_btf_id", "attach_btf_obj_fd", "pad"),
)


@dataclass(frozen=True)
class Template:
    """The instructions of a loaded program, valid while its BPF object is open."""

    name: str
    code: bytes
    cookie_at: tuple[int, ...]
    """Where instructions load the cookie: byte offsets in `code`."""

    @classmethod
    def of(cls, bpf_object: BpfObject, name: str) -> "Template":
        """Raises RefusedError: there is no such program, or it was not loaded."""
        code = bpf_object.instructions(name)
        low, high = struct.pack("<I", COOKIE & 0xFFFFFFFF), struct.pack("<I", COOKIE >> 32)
        loads = [
            at
            for at in range(0, len(code) - 8, 8)
            if code[at] == _LOAD_IMMEDIATE
            and (code[at + 4 : at + 8], code[at + 12 : at + 16]) == (low, high)
        ]
        return cls(name, code, tuple(loads))

    def calling(self, helper: int, kfunc: int) -> "Template":
        """Return a template that calls a kernel function where this one calls a helper.

        For kernel functions whose declaration differs between kernels, so that the object cannot
        name them. helper: its number (enum bpf_func_id). kfunc: BTF id of the function.
        """
        code = bytearray(self.code)
        for at in range(0, len(code), 8):
            operation, source, _, number = struct.unpack_from("<BBhi", code, at)
            if (operation, source >> 4, number) == (_CALL, 0, helper):
                struct.pack_into("<BBhi", code, at, _CALL, _PSEUDO_KFUNC_CALL << 4, 0, kfunc)
        return Template(self.name, bytes(code), self.cookie_at)

    def with_cookie(self, cookie: int) -> bytes:
        code = bytearray(self.code)
        for at in self.cookie_at:
            struct.pack_into("<I", code, at + 4, cookie & 0xFFFFFFFF)
            struct.pack_into("<I", code, at + 12, cookie >> 32)
        return bytes(code)

    def load(self, place: Place, cookie: int = 0) -> int:
        """Load a clone; return its descriptor, the caller's to close. Raises RefusedError."""
        return load(self.name, self.with_cookie(cookie), place)


RETURN_0 = struct.pack("<BBhi", 0xB7, 0, 0, 0) + struct.pack("<BBhi", 0x95, 0, 0, 0)
"""The instructions of the smallest program, to try what the kernel accepts."""


def load(name: str, code: bytes, place: Place) -> int:
    """Return the descriptor of a loaded program, the caller's to close. Raises RefusedError."""
    instructions = ctypes.create_string_buffer(code, len(code))
    licence = ctypes.create_string_buffer(LICENSE)
    attr = _LoadAttr(
        prog_type=place.program_type,
        insn_cnt=len(code) // 8,
        insns=ctypes.addressof(instructions),
        license=ctypes.addressof(licence),
        prog_name=name.encode()[:_NAME_BYTES],
        expected_attach_type=place.attach_type,
        attach_btf_id=place.btf_id,
        attach_btf_obj_fd=place.btf_fd,
    )
    try:
        return bpf(_PROG_LOAD, attr)
    except OSError as error:
        number = error.errno or 0
    # Once more, for what the verifier says.
    log = ctypes.create_string_buffer(_LOG_BYTES)
    attr.log_level, attr.log_size, attr.log_buf = 1, len(log), ctypes.addressof(log)
    try:
        return bpf(_PROG_LOAD, attr)
    except OSError as error:
        lines = log.value.decode(errors="replace").splitlines()[-_QUOTED_LINES:]
        said = "".join(f"\n  {line}" for line in lines)
        reason = os.strerror(number)
        message = f"the kernel refused the program {name}: {reason}{said}"
        raise RefusedError(message, number) from error


_RAW_TRACEPOINT_OPEN, _LINK_CREATE = 17, 28
_BTF_GET_FD_BY_ID, _BTF_GET_NEXT_ID = 19, 23
_RETURNS = 1
"""BPF_F_KPROBE_MULTI_RETURN."""
_KPROBES = Path("/sys/bus/event_source/devices/kprobe")
_MODULE_NAME_BYTES = 64


class Descriptors(ExitStack):
    """Descriptors of programs and of their attachments, closed in the reverse order of adding."""

    def __init__(self) -> None:
        super().__init__()
        self._modules = {"": 0}

    def add(self, descriptor: int) -> int:
        self.callback(os.close, descriptor)
        return descriptor

    def module_btf(self, module: str) -> int:
        """Return a descriptor of a loaded module's BTF, kept by these; 0 for the kernel's own.

        Raises OSError: the module has none, or there is no right to look.
        """
        attr = _ById()
        name = ctypes.create_string_buffer(_MODULE_NAME_BYTES)
        while module not in self._modules:
            bpf(_BTF_GET_NEXT_ID, attr)
            attr.id = attr.next_id
            info = _BtfInfo(name=ctypes.addressof(name), name_len=len(name))
            with Descriptors() as kept:
                descriptor = kept.add(bpf(_BTF_GET_FD_BY_ID, _ById(attr.id)))
                place = InfoByFd(descriptor, ctypes.sizeof(info), ctypes.addressof(info))
                bpf(OBJ_GET_INFO_BY_FD, place)
                # A program's BTF has no name; the kernel's is called vmlinux.
                if info.kernel_btf and name.value.decode() == module:
                    self.enter_context(kept.pop_all())
                    self._modules[module] = descriptor
        return self._modules[module]


_RawTracepoint = _attr(*u64("name"), *u32("prog_fd", "pad"))  # BPF_RAW_TRACEPOINT_OPEN
_PerfLink = _attr(  # BPF_LINK_CREATE on a perf event
    *u32("prog_fd", "target_fd", "attach_type", "flags"), *u64("cookie")
)
_MultiLink = _attr(  # BPF_LINK_CREATE on many functions
    *u32("prog_fd", "target_fd", "attach_type", "flags", "multi_flags", "count"),
    *u64("symbols", "addresses", "cookies"),
)
_ById = _attr(*u32("id", "next_id", "open_flags"))  # BPF_BTF_GET_NEXT_ID, BPF_BTF_GET_FD_BY_ID
_BtfInfo = _attr(  # struct bpf_btf_info
    *u64("btf"), *u32("btf_size", "id"), *u64("name"), *u32("name_len", "kernel_btf")
)


def typed(program: int) -> int:
    """Attach a program of type TRACING to the tracepoint or function that it was loaded for."""
    return bpf(_RAW_TRACEPOINT_OPEN, _RawTracepoint(0, program, 0))


def functions(
    program: int,
    addresses: Sequence[int],
    cookies: Sequence[int],
    attach_type: AttachType,
    *,
    returns: bool = False,
) -> int:
    """Attach a program of type KPROBE to many functions, or to their returns, all or none."""
    count = len(addresses)
    places = (c_uint64 * count)(*addresses)
    values = (c_uint64 * count)(*cookies)
    attr = _MultiLink(
        prog_fd=program,
        attach_type=attach_type,
        multi_flags=_RETURNS if returns else 0,
        count=count,
        addresses=ctypes.addressof(places),
        cookies=ctypes.addressof(values),
    )
    return bpf(_LINK_CREATE, attr)


def kprobe(
    kept: Descriptors,
    function: str,
    program: int,
    *,
    returns: bool = False,
    cookie: int | None = None,
) -> None:
    """Attach a program of type KPROBE to a function or its return; `kept` gets the descriptors.

    function: "MODULE:NAME" for a module's. cookie: for bpf_get_attach_cookie() (5.15).
    """
    name = ctypes.create_string_buffer(function.encode())
    retprobe = (_KPROBES / "format" / "retprobe").read_text() if returns else ""  # "config:0"
    attr = PerfEventAttr(
        type=int((_KPROBES / "type").read_text()),
        sample_period=1,
        wakeup_events=1,
        config=1 << int(retprobe.strip().removeprefix("config:")) if returns else 0,
        config1=ctypes.addressof(name),
    )
    event = kept.add(bpf_calls.perf_event_open(attr))
    if cookie is None:
        bpf_calls.set_program(event, program)
    else:
        link = _PerfLink(program, event, AttachType.PERF_EVENT, 0, cookie)
        kept.add(bpf(_LINK_CREATE, link))


_TRIED_ON = "bpf_fentry_test1"
_COOKIES = "cookies"
"""What is tried beside the ways: a kprobe with a cookie."""
SESSION_CALL = "bpf_session_is_return"
"""The kernel function that says whether a session's program runs at an entry or a return."""


@dataclass(frozen=True)
class Way:
    """A way to attach to functions, or "typed". reason: why it does not work here; "" if it does.

    cookies: of kprobe: one program serves all functions, told apart by their cookies (5.15).
    """

    name: str
    reason: str = ""
    cookies: bool = False


@cache
def all_ways() -> tuple[Way, ...]:
    """Try every way on this kernel, which takes some milliseconds. Raises ProbeError: no BTF."""
    with KernelBtf() as btf:
        function, session = btf.function_id(_TRIED_ON), btf.function_id(SESSION_CALL)
    reasons = {}
    for way in (*FUNCTION_WAYS, _COOKIES):
        reasons[way] = ""
        try:
            with Descriptors() as kept:
                _try(way, function, session, kept)
        except RefusedError as error:
            reasons[way] = os.strerror(error.number)
        except ProbeError as error:
            reasons[way] = str(error)
        except OSError as error:
            reasons[way] = os.strerror(error.errno) if error.errno else str(error)
            if error.errno == errno.EOPNOTSUPP:
                reasons[way] = "this kernel was built without it"
            elif error.errno == errno.ENOENT and error.filename:
                reasons[way] = f"this kernel has no {error.filename}"
    no_cookies = reasons.pop(_COOKIES)
    return tuple(
        Way(name, reason, name == "kprobe" and not (reason or no_cookies))
        for name, reason in reasons.items()
    )


def _try(way: str, function: int | None, session: int | None, kept: Descriptors) -> None:
    """Attach the smallest program in one way. function, session: BTF ids; None: not there."""
    if way == "fentry":
        if function is None:
            raise ProbeError(f"this kernel has no {_TRIED_ON}() to try it on")
        for kind in (AttachType.FENTRY, AttachType.FEXIT):
            place = Place(ProgramType.TRACING, kind, function)
            kept.add(typed(kept.add(load("trial", RETURN_0, place))))
        return
    if way == "session" and session is None:
        raise ProbeError(f"this kernel has no {SESSION_CALL}()")
    many = {"session": AttachType.KPROBE_SESSION, "multi": AttachType.KPROBE_MULTI}
    kind = many.get(way, AttachType.NONE)
    program = kept.add(load("trial", RETURN_0, Place(ProgramType.KPROBE, kind)))
    for returns in (False, True) if way in ("multi", "kprobe") else (False,):
        if way in many:
            places = [address_of(_TRIED_ON)]
            kept.add(functions(program, places, [0], kind, returns=returns))
            continue
        cookie = 1 if way == _COOKIES else None
        kprobe(kept, _TRIED_ON, program, returns=returns, cookie=cookie)
