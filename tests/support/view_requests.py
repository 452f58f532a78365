# SPDX-License-Identifier: Apache-2.0
"""A trace for `biotrail view` to serve, and requests to its server as the UI sends them."""

import http.client

UI = "https://ui.perfetto.dev"
TRACE = b"\x0a\x02\x68\x01" * 100_000


def ask(server, method="GET", path=None, *, host=None, origin=UI, **headers):
    """(response, body) of one request; an empty origin: none."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.putrequest(method, path or server.path, skip_host=True)
    connection.putheader("Host", host or f"127.0.0.1:{server.port}")
    if origin:
        connection.putheader("Origin", origin)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body
