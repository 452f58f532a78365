# SPDX-License-Identifier: Apache-2.0
"""Requests and responses of HTTP/1.1, as far as a server of figures or of one file needs them."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import BinaryIO, NamedTuple

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FIELD = re.compile(rf"({_TOKEN.pattern}):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*?)[ \t]*")
_VERSION = re.compile(r"HTTP/\d\.\d")
_BODILESS = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)


class BadRequestError(Exception):
    """A request that is not answered as asked; `args`: the status and why."""

    def response(self) -> "Response":
        """Return the response that says so."""
        status, why = self.args
        return plain(status, why)


@dataclass(frozen=True)
class Request:
    """The head of a request; a body is not read."""

    method: str
    target: str
    """Path and query, as they were sent; begins with a slash."""
    fields: tuple[tuple[str, str], ...]
    """Header fields in order, names in small letters."""

    def values(self, name: str) -> list[str]:
        """Return each value of a header field; name: in small letters."""
        return [value for given, value in self.fields if given == name]

    def value(self, name: str) -> str:
        """Return all values of a header field as one list, as RFC 9110 joins them; "": none."""
        return ", ".join(self.values(name))


class File(NamedTuple):
    """A file as the body of a response, from its beginning."""

    stream: BinaryIO
    size: int
    """Bytes."""


@dataclass(frozen=True)
class Response:
    """What a request is answered with."""

    status: HTTPStatus
    fields: Sequence[tuple[str, str]] = ()
    body: bytes | File = b""
    taken: Callable[[], None] | None = None
    """Called once the peer has closed the connection after it got the whole body."""

    def head(self) -> bytes:
        """Return the status line and header fields, those of the connection included."""
        size = self.body.size if isinstance(self.body, File) else len(self.body)
        length = [] if self.status in _BODILESS else [("Content-Length", str(size))]
        fields = [("Date", formatdate(usegmt=True)), *self.fields, *length, ("Connection", "close")]
        lines = [f"HTTP/1.1 {self.status.value} {self.status.phrase}"]
        lines += [f"{name}: {value}" for name, value in fields]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


def plain(status: HTTPStatus, text: str) -> Response:
    """Return a response of one line of text."""
    body = f"{text}\n".encode(errors="replace")
    return Response(status, [("Content-Type", "text/plain; charset=utf-8")], body)


def parse(head: bytes) -> Request:
    """Return the request of its head, up to the empty line. Raises BadRequestError."""
    first, *rest = (line.removesuffix("\r") for line in head.decode("latin-1").split("\n"))
    words = first.split(" ")
    if len(words) != 3 or not _VERSION.fullmatch(words[2]):
        raise BadRequestError(HTTPStatus.BAD_REQUEST, "this is no request of HTTP/1.1")
    method, target, version = words
    if not version.startswith("HTTP/1."):
        raise BadRequestError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "HTTP/1.1 alone is served")
    if not _TOKEN.fullmatch(method) or not (target.startswith("/") and target.isprintable()):
        raise BadRequestError(HTTPStatus.BAD_REQUEST, "the method or the path is malformed")
    fields = []
    for line in rest:
        field = _FIELD.fullmatch(line)
        if field is None:
            raise BadRequestError(HTTPStatus.BAD_REQUEST, "a header field is malformed")
        fields.append((field[1].lower(), field[2]))
    return Request(method, target, tuple(fields))


def respond(request: Request, answer: Callable[[Request], Response]) -> Response:
    """Return what is sent for a request: what `answer` returns; of HEAD without its body.

    An error of `answer` is the text of a status 500: nobody but the peer could be told.
    """
    if request.method not in ("GET", "HEAD", "OPTIONS"):
        return plain(HTTPStatus.NOT_IMPLEMENTED, f"{request.method} is not served")
    try:
        return answer(request)
    except BadRequestError as error:
        return error.response()
    except Exception as error:
        return plain(HTTPStatus.INTERNAL_SERVER_ERROR, str(error) or type(error).__name__)
