# SPDX-License-Identifier: Apache-2.0
"""Loads copies of a program that differ in one constant: a program for each site, no compiler.

A template is a program of the BPF object. libbpf loads it once, which relocates its instructions
to the running kernel and puts in the maps' descriptors. A clone is the same instructions with the
cookie, a constant of 64 bits, replaced, loaded by bpf(2) for another place of the kernel.
"""

import ctypes
import os
import struct
from ctypes import c_char, c_uint32, c_uint64
from dataclasses import dataclass
from enum import IntEnum

from biotrail.recorder.probes.kernel.bpf_calls import bpf
from biotrail.recorder.probes.kernel.libbpf import BpfObject, RefusedError

COOKIE = 0x5566778811223344
"""The constant that a template has in place of its cookie (bpf/sites.h: BT_COOKIE)."""
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


class _LoadAttr(ctypes.Structure):
    """The members of `union bpf_attr` for BPF_PROG_LOAD, up to attach_btf_obj_fd."""

    _fields_ = (
        ("prog_type", c_uint32),
        ("insn_cnt", c_uint32),
        ("insns", c_uint64),
        ("license", c_uint64),
        ("log_level", c_uint32),
        ("log_size", c_uint32),
        ("log_buf", c_uint64),
        ("kern_version", c_uint32),
        ("prog_flags", c_uint32),
        ("prog_name", c_char * 16),
        ("prog_ifindex", c_uint32),
        ("expected_attach_type", c_uint32),
        ("prog_btf_fd", c_uint32),
        ("func_info_rec_size", c_uint32),
        ("func_info", c_uint64),
        ("func_info_cnt", c_uint32),
        ("line_info_rec_size", c_uint32),
        ("line_info", c_uint64),
        ("line_info_cnt", c_uint32),
        ("attach_btf_id", c_uint32),
        ("attach_btf_obj_fd", c_uint32),
        ("pad", c_uint32),
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
        """Return the template `name` of a loaded object; it may have no cookie.

        Raises RefusedError: there is no such program, or it was not loaded.
        """
        code = bpf_object.instructions(name)
        return cls(name, code, tuple(_loads_of(code, COOKIE)))

    def with_cookie(self, cookie: int) -> bytes:
        """Return the instructions with the cookie (0 to 2^64-1) in place of COOKIE."""
        code = bytearray(self.code)
        for at in self.cookie_at:
            struct.pack_into("<I", code, at + 4, cookie & 0xFFFFFFFF)
            struct.pack_into("<I", code, at + 12, cookie >> 32)
        return bytes(code)

    def calling(self, helper: int, kfunc: int) -> "Template":
        """Return a template that calls a kernel function where this one calls a helper.

        For kernel functions whose declaration differs between kernels, so that the object cannot
        name them. helper: its number (enum bpf_func_id). kfunc: BTF id of the function.
        """
        code = bytearray(self.code)
        for at in _calls_of(self.code, helper):
            struct.pack_into("<BBhi", code, at, _CALL, _PSEUDO_KFUNC_CALL << 4, 0, kfunc)
        return Template(self.name, bytes(code), self.cookie_at)

    def load(self, place: Place, cookie: int = 0) -> int:
        """Load a clone with this cookie for a place; return its descriptor, the caller's to close.

        Raises RefusedError: the kernel refuses; quotes the end of the verifier's log.
        """
        return load(self.name, self.with_cookie(cookie), place)


RETURN_0 = struct.pack("<BBhi", 0xB7, 0, 0, 0) + struct.pack("<BBhi", 0x95, 0, 0, 0)
"""The instructions of the smallest program, to try what the kernel accepts."""


def load(name: str, code: bytes, place: Place) -> int:
    """Load instructions as a program; return its descriptor, the caller's to close.

    name: of the program, cut to 15 bytes. Raises RefusedError: the kernel refuses. Only then the
    program is loaded again with the verifier's log, whose end is quoted.
    """
    try:
        return _load(name, code, place, None)
    except OSError as error:
        number = error.errno or 0
    log = ctypes.create_string_buffer(_LOG_BYTES)
    try:
        return _load(name, code, place, log)
    except OSError as error:
        lines = log.value.decode(errors="replace").splitlines()[-_QUOTED_LINES:]
        said = "".join(f"\n  {line}" for line in lines)
        reason = os.strerror(number)
        message = f"the kernel refused the program {name}: {reason}{said}"
        raise RefusedError(message, number) from error


def _load(name: str, code: bytes, place: Place, log: "ctypes.Array[ctypes.c_char] | None") -> int:
    """Load instructions, with the verifier's log if there is a buffer for it. Raises OSError."""
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
    if log is not None:
        attr.log_level, attr.log_size, attr.log_buf = 1, len(log), ctypes.addressof(log)
    return bpf(_PROG_LOAD, attr)


def _loads_of(code: bytes, constant: int) -> list[int]:
    """Return the byte offsets of the instructions that load a 64-bit constant."""
    low, high = constant & 0xFFFFFFFF, constant >> 32
    return [
        at
        for at in range(0, len(code) - 8, 8)
        if code[at] == _LOAD_IMMEDIATE
        and struct.unpack_from("<I", code, at + 4)[0] == low
        and struct.unpack_from("<I", code, at + 12)[0] == high
    ]


def _calls_of(code: bytes, helper: int) -> list[int]:
    """Return the byte offsets of the instructions that call a helper by its number."""
    return [
        at
        for at in range(0, len(code), 8)
        if code[at] == _CALL
        and code[at + 1] >> 4 == 0
        and struct.unpack_from("<i", code, at + 4)[0] == helper
    ]
