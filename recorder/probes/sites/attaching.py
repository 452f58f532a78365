# SPDX-License-Identifier: Apache-2.0
"""Attaches loaded programs to sites by raw bpf(2) and perf_event_open(2).

Each function returns a descriptor, the caller's to close; closing it detaches. Nothing is pinned,
so the kernel detaches everything when the process ends, however it ends. All raise OSError where
the kernel refuses, and leave no descriptor open then.
"""

import ctypes
import os
from collections.abc import Sequence
from contextlib import suppress
from ctypes import c_uint32, c_uint64
from pathlib import Path
from types import TracebackType
from typing import Self

from biotrail.recorder.probes.kernel import bpf_calls
from biotrail.recorder.probes.kernel.bpf_calls import PerfEventAttr, bpf
from biotrail.recorder.probes.sites.loading import AttachType

_RAW_TRACEPOINT_OPEN, _LINK_CREATE = 17, 28
_BTF_GET_FD_BY_ID, _OBJ_GET_INFO_BY_FD, _BTF_GET_NEXT_ID = 19, 15, 23
_RETURNS = 1
"""BPF_F_KPROBE_MULTI_RETURN."""
_KPROBES = Path("/sys/bus/event_source/devices/kprobe")
_MODULE_NAME_BYTES = 64


class Descriptors:
    """Descriptors of programs and of their attachments, closed in the reverse order of adding.

    A context manager: leaving closes.
    """

    def __init__(self) -> None:
        self._open: list[int] = []

    def __enter__(self) -> Self:
        """Return this object."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close all; an exception passes."""
        self.close()

    def __len__(self) -> int:
        """Return how many are open."""
        return len(self._open)

    def add(self, descriptor: int) -> int:
        """Keep a descriptor to close, and return it."""
        self._open.append(descriptor)
        return descriptor

    def extend(self, descriptors: Sequence[int]) -> None:
        """Keep several descriptors to close."""
        self._open.extend(descriptors)

    def release(self) -> list[int]:
        """Return all descriptors, which are the caller's to close from now on."""
        released, self._open = self._open, []
        return released

    def close(self) -> None:
        """Close all descriptors. Closing again has no effect."""
        while self._open:
            with suppress(OSError):
                os.close(self._open.pop())


class _RawTracepoint(ctypes.Structure):
    """`union bpf_attr` for BPF_RAW_TRACEPOINT_OPEN."""

    _fields_ = (("name", c_uint64), ("prog_fd", c_uint32), ("pad", c_uint32))


class _PerfLink(ctypes.Structure):
    """`union bpf_attr` for BPF_LINK_CREATE on a perf event."""

    _fields_ = (
        ("prog_fd", c_uint32),
        ("target_fd", c_uint32),
        ("attach_type", c_uint32),
        ("flags", c_uint32),
        ("cookie", c_uint64),
    )


class _MultiLink(ctypes.Structure):
    """`union bpf_attr` for BPF_LINK_CREATE on many functions."""

    _fields_ = (
        ("prog_fd", c_uint32),
        ("target_fd", c_uint32),
        ("attach_type", c_uint32),
        ("flags", c_uint32),
        ("multi_flags", c_uint32),
        ("count", c_uint32),
        ("symbols", c_uint64),
        ("addresses", c_uint64),
        ("cookies", c_uint64),
    )


class _ById(ctypes.Structure):
    """`union bpf_attr` for BPF_BTF_GET_NEXT_ID and BPF_BTF_GET_FD_BY_ID."""

    _fields_ = (("id", c_uint32), ("next_id", c_uint32), ("open_flags", c_uint32))


class _BtfInfo(ctypes.Structure):
    """`struct bpf_btf_info`."""

    _fields_ = (
        ("btf", c_uint64),
        ("btf_size", c_uint32),
        ("id", c_uint32),
        ("name", c_uint64),
        ("name_len", c_uint32),
        ("kernel_btf", c_uint32),
    )


class _InfoByFd(ctypes.Structure):
    """`union bpf_attr` for BPF_OBJ_GET_INFO_BY_FD."""

    _fields_ = (("fd", c_uint32), ("length", c_uint32), ("info", c_uint64))


def typed(program: int) -> int:
    """Attach a program of type TRACING to the tracepoint or function that it was loaded for."""
    return bpf(_RAW_TRACEPOINT_OPEN, _RawTracepoint(0, program, 0))


def tracepoint(program: int, number: int) -> int:
    """Attach a program of type TRACEPOINT to a tracepoint by its number (tracefs.Format.number)."""
    return bpf_calls.attach_tracepoint(program, number)


def functions(
    program: int,
    addresses: Sequence[int],
    cookies: Sequence[int],
    attach_type: AttachType,
    *,
    returns: bool = False,
) -> int:
    """Attach a program of type KPROBE to many functions at once, all or none.

    addresses: of the functions. cookies: for bpf_get_attach_cookie(), one for each. attach_type:
    KPROBE_MULTI or KPROBE_SESSION, the one that the program was loaded with. returns: to the
    functions' returns instead of their entries (KPROBE_MULTI only).
    """
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


def kprobe_event(function: str, *, returns: bool = False) -> int:
    """Return the descriptor of a perf event at a function's entry, or at its return.

    function: its name; "MODULE:NAME" for a module's, as in the kernel's kprobe events.
    """
    name = ctypes.create_string_buffer(function.encode())
    attr = PerfEventAttr(
        type=int((_KPROBES / "type").read_text()),
        sample_period=1,
        wakeup_events=1,
        config=_return_bit() if returns else 0,
        config1=ctypes.addressof(name),
    )
    return bpf_calls.perf_event_open(attr)


def link_event(event: int, program: int, cookie: int) -> int:
    """Attach a program to a perf event with a cookie for bpf_get_attach_cookie() (5.15)."""
    attr = _PerfLink(program, event, AttachType.PERF_EVENT, 0, cookie)
    return bpf(_LINK_CREATE, attr)


def _return_bit() -> int:
    """Return the bit of `config` that makes a kprobe one of returns; raises OSError."""
    text = (_KPROBES / "format" / "retprobe").read_text()  # "config:0"
    return 1 << int(text.strip().removeprefix("config:"))


def module_btf(module: str) -> int:
    """Return a descriptor of a loaded module's BTF. Raises OSError: none, or no right to look."""
    attr = _ById()
    while True:
        attr.id = _next_btf(attr.id)
        descriptor = bpf(_BTF_GET_FD_BY_ID, _ById(attr.id))
        try:
            found = _btf_name(descriptor)
        except OSError:
            os.close(descriptor)
            raise
        if found == module:
            return descriptor
        os.close(descriptor)


def _next_btf(number: int) -> int:
    """Return the id of the first BTF object above `number`. Raises OSError: there is none."""
    attr = _ById(number)
    bpf(_BTF_GET_NEXT_ID, attr)
    return int(attr.next_id)


def _btf_name(descriptor: int) -> str:
    """Return the module of a BTF object: "vmlinux" for the kernel's, "" for a program's."""
    name = ctypes.create_string_buffer(_MODULE_NAME_BYTES)
    info = _BtfInfo(name=ctypes.addressof(name), name_len=len(name))
    bpf(_OBJ_GET_INFO_BY_FD, _InfoByFd(descriptor, ctypes.sizeof(info), ctypes.addressof(info)))
    return name.value.decode() if info.kernel_btf else ""
