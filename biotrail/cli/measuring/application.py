# SPDX-License-Identifier: Apache-2.0
"""The application that answers scrapes, in the format that each asks for."""

import gzip
from collections.abc import Iterator
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from biotrail.cli.measuring.protobuf_format import CONTENT_TYPE, MEDIA_TYPE, generate
from biotrail.cli.measuring.protobuf_messages import FAMILY
from biotrail.cli.measuring.server import Application
from biotrail.cli.serving.exchange import Request, Response

_METHODS = [("Allow", "GET, HEAD, OPTIONS")]


def application(registry: CollectorRegistry) -> Application:
    """Return what answers with the registry's figures, whatever the path.

    A request with a query, which chooses families, is answered in text.
    """

    def answer(request: Request) -> Response:
        if request.method == "OPTIONS":
            return Response(HTTPStatus.OK, _METHODS)
        query, accept = urlsplit(request.target).query, request.value("accept")
        if not query and wants_protobuf(accept):
            body = generate(registry.collect())
            return Response(HTTPStatus.OK, [("Content-Type", CONTENT_TYPE)], body)
        kind, body = _in_text(registry, query, accept)
        fields = [("Content-Type", kind)]
        if _takes_gzip(request.value("accept-encoding")):
            body = gzip.compress(body)
            fields.append(("Content-Encoding", "gzip"))
        return Response(HTTPStatus.OK, fields, body)

    return answer


def _in_text(registry: CollectorRegistry, query: str, accept: str) -> tuple[str, bytes]:
    """Return the content type and figures, in OpenMetrics or Prometheus' text.

    query: its `name[]` choose families; none: all. accept: a header that is malformed asks for
    nothing.
    """
    try:
        encoder, kind = choose_encoder(accept)
    except (TypeError, ValueError):  # by its release
        encoder, kind = choose_encoder("")
    names = parse_qs(query).get("name[]")
    return kind, encoder(_Chosen(registry, names) if names else registry)


class _Chosen(Collector):
    """The samples of these names; a registry's own choice needs families that are told before."""

    def __init__(self, registry: CollectorRegistry, names: list[str]) -> None:
        self._registry, self._names = registry, frozenset(names)

    def collect(self) -> Iterator[Metric]:
        """Yield the families that have such samples, with these alone."""
        for family in self._registry.collect():
            family.samples = [one for one in family.samples if one.name in self._names]
            if family.samples:
                yield family


def _takes_gzip(accept_encoding: str) -> bool:
    """Tell whether a request's header Accept-Encoding names gzip."""
    return any(
        part.partition(";")[0].strip().lower() == "gzip" for part in accept_encoding.split(",")
    )


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
