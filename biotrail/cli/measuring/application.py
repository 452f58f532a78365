# SPDX-License-Identifier: Apache-2.0
"""The web application that answers scrapes, in the format that each asks for."""

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any, cast

from prometheus_client import CollectorRegistry, make_wsgi_app

from biotrail.cli.measuring.protobuf_format import CONTENT_TYPE, MEDIA_TYPE, generate
from biotrail.cli.measuring.protobuf_messages import FAMILY
from biotrail.cli.measuring.server import Application


def application(registry: CollectorRegistry) -> Application:
    """Return prometheus_client's application, with the protobuf format beside its text formats.

    A request with a query, which chooses families, is answered in text.
    """
    in_text = cast(Application, make_wsgi_app(registry))

    def answer(environ: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        plain = environ["REQUEST_METHOD"] == "GET" and not environ.get("QUERY_STRING")
        if not (plain and wants_protobuf(environ.get("HTTP_ACCEPT", ""))):
            return in_text(environ, respond)
        body = generate(registry.collect())
        headers = [("Content-Type", CONTENT_TYPE), ("Content-Length", str(len(body)))]
        respond(f"{HTTPStatus.OK.value} {HTTPStatus.OK.phrase}", headers)
        return [body]

    return answer


def wants_protobuf(accept: str) -> bool:
    """Tell whether a request's header Accept has no format before the protobuf one."""
    shares = dict[bool, float]()
    for part in accept.split(","):
        media, *parameters = (word.strip() for word in part.split(";"))
        given = dict(word.partition("=")[::2] for word in parameters)
        known = media == MEDIA_TYPE
        if known and given.get("proto", FAMILY) != FAMILY:
            continue
        shares[known] = max(shares.get(known, 0.0), _share(given.get("q", "1")))
    return shares.get(True, 0.0) > 0 and shares[True] >= shares.get(False, 0.0)


def _share(text: str) -> float:
    """Return the weight of a media type; 0 if it is no number."""
    try:
        return float(text)
    except ValueError:
        return 0.0
