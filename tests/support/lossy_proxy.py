# SPDX-License-Identifier: Apache-2.0
"""A proxy before an HTTP server that passes requests on and loses some of the answers."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Loses = Callable[[str], bool]
"""Request line, as "GET /path?query HTTP/1.1" → whether its answer is lost."""
_METHODS = (b"GET ", b"PUT ", b"POST ", b"HEAD ", b"DELETE ")


@contextmanager
def lossy_proxy(port: int, loses: Loses) -> Iterator[int]:
    """Yield the port of a proxy before the server at `port` of this machine.

    A request begins where a client's bytes arrive; a connection with a lost answer is reset.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_accept, args=(listening, port, loses), daemon=True).start()
        yield int(listening.getsockname()[1])


def _accept(listening: socket.socket, port: int, loses: Loses) -> None:
    with suppress(OSError):  # closed: the test is over
        while True:
            client, _ = listening.accept()
            server = socket.create_connection(("127.0.0.1", port))
            lost = threading.Event()
            for target in (_ask, _answer):
                threading.Thread(
                    target=target, args=(client, server, lost, loses), daemon=True
                ).start()


def _ask(client: socket.socket, server: socket.socket, lost: threading.Event, loses: Loses) -> None:
    """Pass a client's bytes on; note if the answer to them is lost."""
    with suppress(OSError):
        while data := client.recv(1 << 20):
            if data.startswith(_METHODS) and loses(data.partition(b"\r\n")[0].decode()):
                lost.set()
            server.sendall(data)
        server.shutdown(socket.SHUT_WR)


def _answer(
    client: socket.socket, server: socket.socket, lost: threading.Event, _loses: Loses
) -> None:
    """Pass the server's bytes back, up to an answer that is lost."""
    with suppress(OSError):
        while (data := server.recv(1 << 20)) and not lost.is_set():
            client.sendall(data)
    for one in (client, server):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
