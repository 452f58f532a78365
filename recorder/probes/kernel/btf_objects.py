# SPDX-License-Identifier: Apache-2.0
"""Finds the kernel's BTF objects of modules: what BPF_PROG_LOAD's attach_btf_obj_fd has to be."""

import ctypes
import os

from biotrail.recorder.probes.kernel.libbpf import load_library
from biotrail.recorder.schema.errors import ProbeError

_NAME_BYTES = 64


class _BtfInfo(ctypes.Structure):
    """`struct bpf_btf_info` (include/uapi/linux/bpf.h)."""

    _fields_ = (
        ("btf", ctypes.c_uint64),
        ("btf_size", ctypes.c_uint32),
        ("id", ctypes.c_uint32),
        ("name", ctypes.c_uint64),
        ("name_len", ctypes.c_uint32),
        ("kernel_btf", ctypes.c_uint32),
    )


def module_descriptor(module: str) -> int:
    """Return a descriptor of a loaded module's BTF object; the caller closes it.

    For the kernel's own types none is needed: attach_btf_obj_fd is 0. Raises ProbeError: the
    module is not loaded, has no BTF, or this user may not ask (CAP_SYS_ADMIN).
    """
    number = 0
    while (number := _next(number)) != 0:
        descriptor = _open(number)
        if descriptor < 0:
            continue  # gone by now, as BTF of programs may be at any time
        if _is_of(descriptor, module):
            return descriptor
        os.close(descriptor)
    raise ProbeError(
        f"the kernel has no type information (BTF) of module {module} that programs can be "
        "attached by: load the module, and record as root"
    )


def _next(number: int) -> int:
    """Return the id of the BTF object after `number`; 0: there is none, or it must not be asked."""
    found = ctypes.c_uint32(0)
    failed = load_library().get("bpf_btf_get_next_id")(ctypes.c_uint32(number), ctypes.byref(found))
    return 0 if failed else found.value


def _open(number: int) -> int:
    return int(load_library().get("bpf_btf_get_fd_by_id")(ctypes.c_uint32(number)))


def _is_of(descriptor: int, module: str) -> bool:
    """Return whether a BTF object is the kernel's description of `module`."""
    name = ctypes.create_string_buffer(_NAME_BYTES)
    info = _BtfInfo(name=ctypes.addressof(name), name_len=_NAME_BYTES)
    length = ctypes.c_uint32(ctypes.sizeof(info))
    failed = load_library().get("bpf_obj_get_info_by_fd")(
        ctypes.c_int(descriptor), ctypes.byref(info), ctypes.byref(length)
    )
    return not failed and bool(info.kernel_btf) and name.value.decode() == module
