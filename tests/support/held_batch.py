# SPDX-License-Identifier: Apache-2.0
"""Direct writes and page-cache reads submitted by one io_submit(2).

The kernel plugs a batch: requests wait until all of it is submitted. A read from the page cache
is copied right there, so what stands before it in the batch waits for that, too.
"""

import ctypes
import mmap
import os
import platform
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

BLOCK = 4096
COPIED = 64 << 20
"""Bytes of each read from the page cache."""
_GENERIC = (0, 1, 4, 2)
SYSCALLS = {"x86_64": (206, 207, 208, 209), "aarch64": _GENERIC, "riscv64": _GENERIC}
"""io_setup, io_destroy, io_getevents, io_submit."""
_IOCB = struct.Struct("<QIiHhIQQqQII")
"""struct iocb: data, key, flags, opcode, priority, file, buffer, bytes, offset, …"""
_IO_EVENT = struct.Struct("<QQqq")
PREAD, PWRITE = 0, 1

_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long


def held_writes(device: str, writes: int, cached: Path, reads: int) -> None:
    """Write so many adjacent blocks, and then read the cached file so often, in one batch.

    The file has COPIED bytes and is in memory. OSError where the kernel refuses.
    """
    with cached.open("rb", buffering=0) as file, mmap.mmap(-1, COPIED) as memory:
        file.readinto(memory)
        disk = os.open(device, os.O_WRONLY | os.O_DIRECT)
        try:
            where = ctypes.addressof(ctypes.c_char.from_buffer(memory))
            batch = [iocb(PWRITE, disk, where, BLOCK, n * BLOCK) for n in range(writes)]
            batch += [iocb(PREAD, file.fileno(), where + BLOCK, COPIED - BLOCK, 0)] * reads
            _submit(batch)
        finally:
            os.close(disk)


def write_blocks(device: str, blocks: Sequence[int]) -> None:
    """Write these blocks of a device, in this order, in one batch. OSError where it is refused."""
    with mmap.mmap(-1, BLOCK) as memory:
        disk = os.open(device, os.O_WRONLY | os.O_DIRECT)
        try:
            where = ctypes.addressof(ctypes.c_char.from_buffer(memory))
            _submit([iocb(PWRITE, disk, where, BLOCK, block * BLOCK) for block in blocks])
        finally:
            os.close(disk)


def iocb(opcode: int, file: int, where: int, size: int, offset: int) -> bytes:
    return _IOCB.pack(0, 0, 0, opcode, 0, file, where, size, offset, 0, 0, 0)


def _submit(batch: list[bytes]) -> None:
    """Submit it, and wait until all of it is done."""
    if platform.machine() not in SYSCALLS:
        pytest.skip(f"numbers of system calls are not known for {platform.machine()}")
    setup, destroy, getevents, submit = SYSCALLS[platform.machine()]
    number, context = ctypes.c_long(len(batch)), ctypes.c_ulong(0)
    blocks = [ctypes.create_string_buffer(block, _IOCB.size) for block in batch]
    pointers = (ctypes.c_void_p * len(blocks))(*map(ctypes.addressof, blocks))
    events = ctypes.create_string_buffer(_IO_EVENT.size * len(batch))
    checked(setup, number, ctypes.byref(context))
    try:
        assert checked(submit, context, number, pointers) == len(batch)
        assert checked(getevents, context, number, number, events, None) == len(batch)
    finally:
        checked(destroy, context)
    wrong = [result for _, _, result, _ in _IO_EVENT.iter_unpack(events.raw) if result < 0]
    assert not wrong, os.strerror(-wrong[0])


def checked(number: int, *arguments: object) -> int:
    done: int = _syscall(ctypes.c_long(number), *arguments)
    if done < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return done
