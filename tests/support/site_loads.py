# SPDX-License-Identifier: Apache-2.0
"""Loads for followed packets and pages: run as a program, under a task name of its own.

site_loads.py COMM echo MESSAGES
site_loads.py COMM map PAGES FILE
"""

import mmap
import os
import socket
import sys
import threading
from pathlib import Path

PAGE = mmap.PAGESIZE


def echo(messages: int) -> None:
    """Send messages over TCP on the loopback device, each answered before the next."""
    listening = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        _rename()
        client, _ = listening.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := client.recv(1 << 16):
            client.sendall(data)

    thread = threading.Thread(target=answer)
    thread.start()
    with socket.create_connection(listening.getsockname()) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(messages):
            client.sendall(b"x" * 100)
            assert len(client.recv(1 << 16)) == 100
    thread.join()


def write_mapped(pages: int, path: str) -> None:
    """Map a file of holes, write to each of its pages, sync and delete it."""
    with open(path, "w+b") as file:
        file.truncate(pages * PAGE)
        with mmap.mmap(file.fileno(), pages * PAGE) as mapped:
            for page in range(pages):
                mapped[page * PAGE] = 1
            mapped.flush()
    os.unlink(path)


def _rename() -> None:
    """Set the running thread's name."""
    Path("/proc/thread-self/comm").write_text(sys.argv[1])


if __name__ == "__main__":
    _rename()
    if sys.argv[2] == "echo":
        echo(int(sys.argv[3]))
    else:
        write_mapped(int(sys.argv[3]), sys.argv[4])
