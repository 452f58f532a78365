# SPDX-License-Identifier: Apache-2.0
"""Uploads in parts that broke off: found in S3's list of those under way, and aborted.

An answer that is lost, or a shipper that is killed, leaves an upload open: nobody sees its parts,
and they cost money. pyarrow has no call for that, so two requests are made here.
"""

import configparser
import hashlib
import hmac
import os
import urllib.error
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from biotrail.converters.inputs.parquet.locations import Location

_SECONDS = 10
_MOST_ANSWER = 4 << 20
_NOTHING = hashlib.sha256(b"").hexdigest()


class _Credentials(NamedTuple):
    """Of an account. token: "" unless they are for a time."""

    key: str
    secret: str
    token: str = ""


def abort_uploads(place: Location) -> int:
    """Abort the uploads to an object that are under way; return their number.

    0 as well where there are none of that kind (another storage), where no credentials are found,
    or they do not permit it. To be called by who alone writes the object.
    """
    found = credentials() if place.url.startswith("s3://") else None
    if found is None:
        return 0
    aborted = 0
    bucket, _, key = place.path.partition("/")
    with suppress(OSError, ET.ParseError, ValueError):
        root = _Bucket(place, bucket, found)
        for upload in root.uploads(key):
            root.ask("DELETE", key, {"uploadId": upload})
            aborted += 1
    return aborted


def credentials() -> _Credentials | None:
    """Return the credentials that S3's tools would use; None: none are found.

    From the environment; the shared file, with AWS_PROFILE; where botocore is installed, from all
    that it knows, as an instance's role.
    """
    env = os.environ
    if env.get("AWS_ACCESS_KEY_ID") and env.get("AWS_SECRET_ACCESS_KEY"):
        return _Credentials(
            env["AWS_ACCESS_KEY_ID"], env["AWS_SECRET_ACCESS_KEY"], env.get("AWS_SESSION_TOKEN", "")
        )
    shared = env.get("AWS_SHARED_CREDENTIALS_FILE") or Path.home() / ".aws" / "credentials"
    with suppress(OSError, configparser.Error, KeyError, UnicodeDecodeError):
        parser = configparser.ConfigParser(interpolation=None)
        parser.read_string(Path(shared).read_text(encoding="utf-8"))
        profile = parser[env.get("AWS_PROFILE", "default")]
        return _Credentials(
            profile["aws_access_key_id"],
            profile["aws_secret_access_key"],
            profile.get("aws_session_token", ""),
        )
    try:
        from botocore.exceptions import BotoCoreError
        from botocore.session import get_session
    except ImportError:
        return None
    with suppress(BotoCoreError, OSError):
        if (made := get_session().get_credentials()) is not None:
            frozen = made.get_frozen_credentials()
            return _Credentials(frozen.access_key, frozen.secret_key, frozen.token or "")
    return None


class _Bucket:
    """A bucket of S3, for requests without a body."""

    def __init__(self, place: Location, bucket: str, found: _Credentials) -> None:
        """place: in the bucket; its file system knows the region, its URL may name the endpoint."""
        self._found = found
        self._region = str(getattr(place.filesystem, "region", "") or "us-east-1")
        options = dict(urllib.parse.parse_qsl(place.url.partition("?")[2]))
        endpoint = options.get("endpoint_override", "")
        if endpoint and "://" not in endpoint:
            endpoint = f"{options.get('scheme', 'https')}://{endpoint}"
        endpoint = (
            endpoint
            or os.environ.get("AWS_ENDPOINT_URL_S3", "")
            or os.environ.get("AWS_ENDPOINT_URL", "")
            or f"https://s3.{self._region}.amazonaws.com"
        )
        self._url = urllib.parse.urlsplit(endpoint.rstrip("/"))
        self._bucket = bucket

    def uploads(self, key: str) -> Iterator[str]:
        """Yield the ids of the uploads to an object that are under way.

        Raises OSError, ValueError; ET.ParseError: the answer is no list.
        """
        answer = self.ask("GET", "", {"uploads": "", "prefix": key})
        if b"<!DOCTYPE" in answer or b"<!ENTITY" in answer:
            raise ValueError("a list of uploads has no entities")
        for upload in ET.fromstring(answer).iterfind("{*}Upload"):
            if upload.findtext("{*}Key") == key:
                yield upload.findtext("{*}UploadId") or ""

    def ask(self, method: str, key: str, query: dict[str, str]) -> bytes:
        """Make a request, signed by AWS's signature version 4; return the answer. OSError."""
        path = urllib.parse.quote(f"{self._url.path}/{self._bucket}/{key}".rstrip("/"), safe="/~")
        asked = "&".join(f"{_quoted(k)}={_quoted(v)}" for k, v in sorted(query.items()))
        headers = self._signed(method, path, asked)
        url = f"{self._url.scheme}://{self._url.netloc}{path}?{asked}"
        if self._url.scheme not in ("http", "https"):
            raise ValueError(f"{url}: is no address of a storage")
        request = urllib.request.Request(url, method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            return bytes(answer.read(_MOST_ANSWER))

    def _signed(self, method: str, path: str, query: str) -> dict[str, str]:
        """Return the headers of a request without a body, with its signature."""
        now = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
        headers = {
            "host": self._url.netloc,
            "x-amz-content-sha256": _NOTHING,
            "x-amz-date": now,
            **({"x-amz-security-token": self._found.token} if self._found.token else {}),
        }
        names = ";".join(sorted(headers))
        lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        canonical = f"{method}\n{path}\n{query}\n{lines}\n{names}\n{_NOTHING}"
        scope = f"{now[:8]}/{self._region}/s3/aws4_request"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        key = f"AWS4{self._found.secret}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{digest}"
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        credential = f"{self._found.key}/{scope}"
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, "
            f"Signature={signature}"
        )
        return headers


def _quoted(text: str) -> str:
    """Return a part of a query as the signature wants it."""
    return urllib.parse.quote(text, safe="-_.~")
