# SPDX-License-Identifier: Apache-2.0
"""bpf(2) and perf_event_open(2): for programs that bcc loaded, and what libbpf has no call for.

What libbpf offers is called by libbpf.py.
"""

import ctypes
import errno
import fcntl
import os
import platform
from ctypes import byref, c_char, c_int, c_int32, c_uint32, c_uint64
from typing import Any

from biotrail.recorder.schema.errors import ProbeError


def u32(*names: str) -> list[tuple[str, type[c_uint32]]]:
    return [(name, c_uint32) for name in names]


def u64(*names: str) -> list[tuple[str, type[c_uint64]]]:
    return [(name, c_uint64) for name in names]


class ProgInfo(ctypes.Structure):
    """`struct bpf_prog_info` (include/uapi/linux/bpf.h); what the kernel does not know stays 0."""

    _fields_ = (
        *u32("type", "id"),
        ("tag", c_char * 8),
        *u32("jited_prog_len", "xlated_prog_len"),
        *u64("jited_prog_insns", "xlated_prog_insns", "load_time"),
        *u32("created_by_uid", "nr_map_ids"),
        *u64("map_ids"),
        ("name", c_char * 16),
        *u32("ifindex", "gpl_compatible"),
        *u64("netns_dev", "netns_ino"),
        *u32("nr_jited_ksyms", "nr_jited_func_lens"),
        *u64("jited_ksyms", "jited_func_lens"),
        *u32("btf_id", "func_info_rec_size"),
        *u64("func_info"),
        *u32("nr_func_info", "nr_line_info"),
        *u64("line_info", "jited_line_info"),
        *u32("nr_jited_line_info", "line_info_rec_size"),
        *u32("jited_line_info_rec_size", "nr_prog_tags"),
        *u64("prog_tags", "run_time_ns", "run_cnt", "recursion_misses"),
        *u32("verified_insns", "attach_btf_obj_id", "attach_btf_id"),
    )


_NUMBERS = {
    "x86_64": (321, 298),
    "aarch64": (280, 241),
    "riscv64": (280, 241),
    "ppc64le": (361, 319),
    "s390x": (351, 331),
}
"""Numbers of the system calls bpf and perf_event_open by machine."""

OBJ_GET_INFO_BY_FD = 15
_NO_COMMAND = 0x7FFF  # -1 has BPF_COMMON_ATTRS (7.0), with which more arguments are read
_PERF_TYPE_TRACEPOINT = 2
_PERF_FLAG_FD_CLOEXEC = 8
_DISABLED = 1
# PERF_EVENT_IOC_SET_BPF; powerpc encodes the direction in other bits.
_IOC_SET_BPF = 0x80042408 if platform.machine() == "ppc64le" else 0x40042408


class PerfEventAttr(ctypes.Structure):
    """The first 72 bytes of `struct perf_event_attr` (PERF_ATTR_SIZE_VER1)."""

    _fields_ = (
        *u32("type", "size"),
        *u64("config", "sample_period", "sample_type", "read_format", "flags"),
        *u32("wakeup_events", "bp_type"),
        *u64("config1", "config2"),
    )


class InfoByFd(ctypes.Structure):
    """The member `info` of `union bpf_attr`, for BPF_OBJ_GET_INFO_BY_FD."""

    _fields_ = (("fd", c_uint32), ("length", c_uint32), ("info", c_uint64))


def _call(which: int, *arguments: Any) -> int:
    """Call bpf(2) (0) or perf_event_open(2) (1). Raises OSError; ProbeError: unknown machine."""
    numbers = _NUMBERS.get(platform.machine())
    if numbers is None:
        raise ProbeError(
            f"the numbers of bpf(2) and perf_event_open(2) on {platform.machine()} are not known: "
            "`biotrail record` with --backend core needs none of them"
        )
    result = ctypes.CDLL(None, use_errno=True).syscall(numbers[which], *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result)


def bpf(command: int, attr: ctypes.Structure) -> int:
    """Execute a command; `attr`: what the kernel reads of `union bpf_attr`. Raises as `_call`."""
    return _call(0, c_int(command), byref(attr), c_int(ctypes.sizeof(attr)))


def refused() -> int | None:
    """Return the errno with which bpf(2) is refused to a process with CAP_BPF; None: it is not.

    The kernel itself answers a command that does not exist with EINVAL.
    """
    try:
        bpf(_NO_COMMAND, InfoByFd())
    except ProbeError:
        return None
    except OSError as error:
        return None if error.errno == errno.EINVAL else error.errno
    return None


def perf_event_open(attr: PerfEventAttr) -> int:
    """Return the descriptor of a new perf event of this process, on any CPU.

    So no certain CPU has to be online: for tracepoints and kprobes the kernel runs an event's
    programs for every task, whether the event is enabled or not. Raises OSError, and ProbeError.
    """
    attr.size = ctypes.sizeof(attr)
    return _call(1, byref(attr), c_int32(0), c_int(-1), c_int(-1), _PERF_FLAG_FD_CLOEXEC)


def set_program(event: int, program: int) -> None:
    """Have the kernel run a program at each occurrence of a perf event, until that is closed."""
    fcntl.ioctl(event, _IOC_SET_BPF, program)


def attach_tracepoint(program: int, number: int) -> int:
    """Attach a program to a tracepoint's ID; return a perf event, whose closing detaches it."""
    attr = PerfEventAttr(type=_PERF_TYPE_TRACEPOINT, config=number, flags=_DISABLED)
    event = perf_event_open(attr)
    try:
        set_program(event, program)
    except OSError:
        os.close(event)
        raise
    return event


def program_info(program: int) -> ProgInfo:
    info = ProgInfo()
    bpf(OBJ_GET_INFO_BY_FD, InfoByFd(program, ctypes.sizeof(info), ctypes.addressof(info)))
    return info
