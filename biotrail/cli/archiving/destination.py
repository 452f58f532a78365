# SPDX-License-Identifier: Apache-2.0
"""Where shipped archives go: a directory, or a folder of object storage.

Either has an archive whole or not at all: a directory by a temporary name and a rename, object
storage because an object appears when its last part has arrived. An answer that is lost, or a
shipper that is killed, leaves an upload in parts open: nobody sees them, and they cost money.
pyarrow has no call to abort it, so two requests of S3 are made here.
"""

import configparser
import errno
import hashlib
import hmac
import os
import urllib.error
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import pyarrow as pa
from pyarrow import fs

from biotrail.converters.inputs.beginning import is_url
from biotrail.converters.inputs.parquet.locations import Location, LocationError, locate, reason
from biotrail.recorder.output import folders, output
from biotrail.recorder.output.folders import explain
from biotrail.recorder.schema.errors import OutputError, TraceError

_SECONDS = 10
_MOST_ANSWER = 4 << 20
_NOTHING = hashlib.sha256(b"").hexdigest()


class _Credentials(NamedTuple):
    """Of an account. token: "" unless they are for a time."""

    key: str
    secret: str
    token: str = ""


def abort_uploads(place: Location) -> int:
    """Abort the uploads in parts to an object, which nobody else writes; return their number."""
    found = credentials() if place.url.startswith("s3://") else None
    if found is None:
        return 0
    aborted = 0
    key = place.path.partition("/")[2]
    with suppress(OSError, ET.ParseError, ValueError):
        answer = _ask_s3(place, found, "GET", "", {"uploads": "", "prefix": key})
        if b"<!DOCTYPE" in answer or b"<!ENTITY" in answer:
            raise ValueError("a list of uploads has no entities")
        for upload in ET.fromstring(answer).iterfind("{*}Upload"):
            if upload.findtext("{*}Key") == key:
                upload_id = upload.findtext("{*}UploadId") or ""
                _ask_s3(place, found, "DELETE", key, {"uploadId": upload_id})
                aborted += 1
    return aborted


def credentials() -> _Credentials | None:
    """Return what S3's tools would use: environment, shared file, botocore if installed."""
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


def _ask_s3(
    place: Location, found: _Credentials, method: str, key: str, query: dict[str, str]
) -> bytes:
    """Return the answer to a request, signed by AWS's version 4. Raises OSError.

    place: in the bucket; its file system knows the region, its URL may name the endpoint.
    """
    region = str(getattr(place.filesystem, "region", "") or "us-east-1")
    options = dict(urllib.parse.parse_qsl(place.url.partition("?")[2]))
    endpoint = options.get("endpoint_override", "")
    if endpoint and "://" not in endpoint:
        endpoint = f"{options.get('scheme', 'https')}://{endpoint}"
    endpoint = (
        endpoint
        or os.environ.get("AWS_ENDPOINT_URL_S3", "")
        or os.environ.get("AWS_ENDPOINT_URL", "")
        or f"https://s3.{region}.amazonaws.com"
    )
    root = urllib.parse.urlsplit(endpoint.rstrip("/"))
    bucket = place.path.partition("/")[0]
    path = urllib.parse.quote(f"{root.path}/{bucket}/{key}".rstrip("/"), safe="/~")
    asked = urllib.parse.urlencode(sorted(query.items()), safe="-_.~", quote_via=urllib.parse.quote)
    url = f"{root.scheme}://{root.netloc}{path}?{asked}"
    if root.scheme not in ("http", "https"):
        raise ValueError(f"{url}: is no address of a storage")
    now = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    headers = {
        "host": root.netloc,
        "x-amz-content-sha256": _NOTHING,
        "x-amz-date": now,
        **({"x-amz-security-token": found.token} if found.token else {}),
    }
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    canonical = f"{method}\n{path}\n{asked}\n{lines}\n{names}\n{_NOTHING}"
    scope = f"{now[:8]}/{region}/s3/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    signing_key = f"AWS4{found.secret}".encode()
    for part in scope.split("/"):
        signing_key = hmac.digest(signing_key, part.encode(), "sha256")
    text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{digest}"
    signature = hmac.digest(signing_key, text.encode(), "sha256").hex()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={found.key}/{scope}, SignedHeaders={names}, "
        f"Signature={signature}"
    )
    request = urllib.request.Request(url, method=method, headers=headers)
    with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
        return bytes(answer.read(_MOST_ANSWER))


_PIECE = 8 << 20
"""Bytes read at once; a part of a multi-part upload, which S3 wants to be 5 MiB at least."""
_FAILURES = (OSError, pa.ArrowException)
_OF_THE_NAME = (errno.ENAMETOOLONG, errno.EILSEQ)
"""Errors that a name has, whatever else works."""
_MOST_KEY_BYTES = 1024
"""Bytes of an object's key, in S3 and all that are like it."""
_SHOWN = 40
"""Characters of such a name in a message."""
_BY_HAND = (
    "its host's and its own name make that: give the log a shorter one, or archive it by hand "
    "(biotrail archive LOG -o FILE.parquet)"
)


class NotShippedError(TraceError):
    """A log that cannot be shipped, whatever the destination: the others go on."""


def destination(to: str) -> "Destination":
    return _Bucket(to) if is_url(to) and not to.startswith("file://") else _Directory(to)


def _digest(stream: BinaryIO) -> str:
    found = hashlib.sha256()
    while piece := stream.read(_PIECE):  # storage is asked for each piece
        found.update(piece)
    return found.hexdigest()


def ensure_same(place: "Destination", staged: Path, name: str) -> None:
    found = place.open(name)
    if found is None:
        raise OutputError(f"{place.shown(name)}: is not there after it was written: written again")
    try:
        with found, staged.open("rb") as wanted:
            size = found.seek(0, os.SEEK_END)
            found.seek(0)
            same = size == staged.stat().st_size and _digest(found) == _digest(wanted)
    except _FAILURES as error:
        raise OutputError(f"{place.shown(name)}: cannot be read back: {reason(error)}") from error
    if not same:
        raise OutputError(f"{place.shown(name)}: is not what was written: its checksum differs")


class _Directory:
    """A directory that exists: of a disk that is not mounted no other place is filled.

    It is opened anew each time, as a disk may be mounted there; no link below it is followed.
    """

    def __init__(self, to: str) -> None:
        self._root = to.removeprefix("file://") or "."
        with self._opened():
            pass

    @contextmanager
    def _opened(self) -> Iterator[int]:
        try:
            fd = folders.open_named(self._root)
        except OSError as error:
            raise OutputError(
                f"{self._root}: is no directory: make or mount it, or give another"
            ) from error
        try:
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def _folders(self, name: str, *, make: bool = False) -> Iterator[list[int]]:
        """Yield descriptors of the directory and of the folders of an archive in it."""
        try:
            with (
                self._opened() as root,
                folders.descend(root, name.split("/")[:-1], self._root, make=make) as chain,
            ):
                yield chain
        except (OSError, OutputError) as error:
            number = getattr(error if isinstance(error, OSError) else error.__cause__, "errno", 0)
            if number in _OF_THE_NAME:
                part = max(name.split("/"), key=lambda one: len(os.fsencode(one)))
                raise NotShippedError(
                    f"not shipped: {os.strerror(number)} at the destination: {part[:_SHOWN]}… "
                    f"({len(os.fsencode(part))} bytes); {_BY_HAND}"
                ) from error
            raise

    def shown(self, name: str) -> str:
        return os.path.join(self._root, name)

    def open(self, name: str) -> BinaryIO | None:
        shown = self.shown(name)
        try:
            with self._folders(name) as chain:
                return folders.open_regular(chain[-1], os.path.basename(name), shown)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise OutputError(f"{shown}: cannot be read: {error.strerror}") from error

    def put(self, staged: Path, name: str) -> None:
        final, shown = os.path.basename(name), self.shown(name)
        try:
            with self._folders(name, make=True) as chain:
                target = folders.path_in(chain[-1], final)
                with (
                    output.replacing(target, force=True, shown=shown) as stream,
                    staged.open("rb") as source,
                ):
                    while piece := source.read(_PIECE):
                        stream.write(piece)
                    stream.flush()
                    os.fsync(stream.fileno())
                for folder in reversed(chain):
                    with folders.readable(folder) as fd:
                        os.fsync(fd)
        except OSError as error:
            raise explain(error, shown) from error

    def clear(self, name: str) -> None:
        final = os.path.basename(name)
        with suppress(OSError, OutputError, NotShippedError), self._folders(name) as chain:
            for entry in folders.entries(chain[-1]):
                if entry.startswith(output.hidden_prefix(final)) and entry.endswith(".part"):
                    os.unlink(entry, dir_fd=chain[-1])


class _Bucket:
    def __init__(self, url: str) -> None:
        self._root = locate(url)

    def shown(self, name: str) -> str:
        return self._root.child(name).url

    def _place(self, name: str) -> Location:
        place = self._root.child(name)
        length = len(os.fsencode(place.path.partition("/")[2]))
        if length > _MOST_KEY_BYTES:
            raise NotShippedError(
                f"not shipped: its key would have {length} bytes, and object storage takes "
                f"{_MOST_KEY_BYTES}; {_BY_HAND}"
            )
        return place

    def open(self, name: str) -> BinaryIO | None:
        place = self._place(name)
        try:
            if place.filesystem.get_file_info(place.path).type != fs.FileType.File:
                return None
            return cast(BinaryIO, place.filesystem.open_input_file(place.path))
        except FileNotFoundError:
            return None
        except _FAILURES as error:
            raise LocationError(f"{place.url}: cannot be read: {reason(error)}") from error

    def put(self, staged: Path, name: str) -> None:
        place = self._place(name)
        try:
            with (
                staged.open("rb") as source,
                place.filesystem.open_output_stream(place.path) as out,
            ):
                while piece := source.read(_PIECE):
                    out.write(piece)
        except BaseException as error:
            # Closing completes an upload, also one of which a part is missing.
            with suppress(*_FAILURES):
                if place.filesystem.get_file_info(place.path).size != staged.stat().st_size:
                    place.filesystem.delete_file(place.path)
            if isinstance(error, _FAILURES):
                raise LocationError(f"{place.url}: cannot be written: {reason(error)}") from error
            raise

    def clear(self, name: str) -> None:
        with suppress(TraceError):
            abort_uploads(self._place(name))


Destination = _Directory | _Bucket
"""A place for archives by name: `events/host=…/date=…/NAME.parquet`.

Methods raise OutputError or LocationError where the place fails, and NotShippedError where it can
have no archive of that name. `clear` removes what tries that broke off have left.
"""
