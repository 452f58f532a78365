# SPDX-License-Identifier: Apache-2.0
"""In the virtual machine: loads of a few objects each, to be followed. Arguments: LOAD, its own."""

import ctypes
import fcntl
import mmap
import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

BLOCK = 4096
READS = 8
"""SCSI commands that `passthrough` sends."""
ECHOES = 20
"""Messages that `echo` sends and gets back."""
MESSAGE = b"m" * 700
WAKEUPS = 100
TOUCHED = 4
"""Pages of a file that `mapped` writes."""
MERGED = [(first, first + 2, first + 1) for first in range(0, 64, 8)]
"""Blocks of a batch: the third joins the two before it to one request."""
_SG_IO = 0x2285
_FROM_DEVICE = -3


class _SgIo(ctypes.Structure):
    """struct sg_io_hdr."""

    _fields_ = [
        ("interface_id", ctypes.c_int),
        ("dxfer_direction", ctypes.c_int),
        ("cmd_len", ctypes.c_ubyte),
        ("mx_sb_len", ctypes.c_ubyte),
        ("iovec_count", ctypes.c_ushort),
        ("dxfer_len", ctypes.c_uint),
        ("dxferp", ctypes.c_void_p),
        ("cmdp", ctypes.c_void_p),
        ("sbp", ctypes.c_void_p),
        ("timeout", ctypes.c_uint),
        ("flags", ctypes.c_uint),
        ("pack_id", ctypes.c_int),
        ("usr_ptr", ctypes.c_void_p),
        ("status", ctypes.c_ubyte),
        ("masked_status", ctypes.c_ubyte),
        ("msg_status", ctypes.c_ubyte),
        ("sb_len_wr", ctypes.c_ubyte),
        ("host_status", ctypes.c_ushort),
        ("driver_status", ctypes.c_ushort),
        ("resid", ctypes.c_int),
        ("duration", ctypes.c_uint),
        ("info", ctypes.c_uint),
    ]


def passthrough(device: str) -> None:
    """READ(10) of a block each, by SG_IO."""
    with open(device, "rb", buffering=0) as disk:
        for number in range(READS):
            place = (8 * number).to_bytes(4, "big")
            command = ctypes.create_string_buffer(b"\x28\0" + place + b"\0\0\x08\0", 10)
            data = ctypes.create_string_buffer(BLOCK)
            asked = _SgIo(
                interface_id=ord("S"),
                dxfer_direction=_FROM_DEVICE,
                cmd_len=10,
                dxfer_len=BLOCK,
                dxferp=ctypes.addressof(data),
                cmdp=ctypes.addressof(command),
                timeout=60_000,
            )
            fcntl.ioctl(disk, _SG_IO, asked)
            assert asked.status == 0, asked.status


def batches(device: str) -> None:
    """Batches of writes that the scheduler merges to one request each."""
    from tests.support.held_batch import write_blocks  # takes seconds in emulation

    for blocks in MERGED:
        write_blocks(device, blocks)


def echo() -> None:
    """Messages over TCP on loopback, and back."""
    server = socket.create_server(("127.0.0.1", 0))
    with server, socket.create_connection(server.getsockname()) as mine:
        theirs, _ = server.accept()
        thread = threading.Thread(target=_answer, args=(theirs,))
        thread.start()
        mine.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(ECHOES):
            mine.sendall(MESSAGE)
            assert mine.recv(len(MESSAGE), socket.MSG_WAITALL) == MESSAGE
        mine.shutdown(socket.SHUT_WR)
        thread.join()


def _answer(connection: socket.socket) -> None:
    with connection:
        while message := connection.recv(len(MESSAGE), socket.MSG_WAITALL):
            connection.sendall(message)


def wakeups() -> None:
    """Two threads that wake each other by turns."""
    mine, theirs = socket.socketpair()
    with mine, theirs:
        thread = threading.Thread(target=_turns, args=(theirs,), name="turns")
        thread.start()
        _turns(mine, first=True)
        thread.join()


def _turns(end: socket.socket, first: bool = False) -> None:
    for _ in range(WAKEUPS):
        if first:
            end.send(b"x")
        end.recv(1)
        if not first:
            end.send(b"x")


def mapped(path: str) -> None:
    """Pages of a file are written by memory, one fault each, and written back."""
    Path(path).write_bytes(bytes(TOUCHED * BLOCK))
    with open(path, "r+b") as file:
        os.fsync(file.fileno())
        with mmap.mmap(file.fileno(), TOUCHED * BLOCK) as memory:
            for page in range(TOUCHED):
                memory[page * BLOCK] = 7
            memory.flush()


LOADS: dict[str, Callable[..., None]] = {
    load.__name__: load for load in (passthrough, batches, echo, wakeups, mapped)
}

if __name__ == "__main__":
    LOADS[sys.argv[1]](*sys.argv[2:])
