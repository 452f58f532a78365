# SPDX-License-Identifier: Apache-2.0
"""Archives in object storage: URLs as (file system, path), their files, and what went wrong.

pyarrow has the file systems of S3, Google's and Azure's storage and HDFS inside, and takes their
credentials and endpoints from where each one's own tools do (AWS_ACCESS_KEY_ID, AWS_PROFILE,
AWS_ENDPOINT_URL, an instance's role). URLs of other schemes are opened by fsspec, where it is
installed.
"""

import errno
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import BinaryIO, NamedTuple, cast

import pyarrow as pa
from pyarrow import fs

from biotrail.converters.inputs.beginning import is_url as is_url  # noqa: PLC0414 - for users of this module
from biotrail.recorder.schema.errors import LogFormatError, LogNotFoundError, TraceError
from biotrail.recorder.schema.strings import characters

SUFFIX = ".parquet"
_URL = re.compile(r"(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]+)://(?P<rest>[^?]*(?:\?(?![\w.]+=)[^?]*)*)")
_OPTIONS = re.compile(r"\?[\w.]+=.*$")
_WILD = re.compile(r"[*?[]")
_NATIVE = frozenset({"s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs"})
_REASONS = (
    ("NO_SUCH_BUCKET", "there is no such bucket: make it, or give another one"),
    ("ACCESS_DENIED", "access denied: check the credentials and what they may do"),
    ("INVALID_ACCESS_KEY_ID", "the access key is not known: check the credentials"),
    ("SIGNATURE_DOES_NOT_MATCH", "the secret key is wrong: check the credentials"),
    ("INVALID_SIGNATURE", "the secret key is wrong: check the credentials"),
    ("EXPIRED_TOKEN", "the credentials have expired: renew them"),
    ("HTTP status 403", "access denied: check the credentials and what they may do"),
    ("HTTP status 401", "access denied: check the credentials"),
    ("HTTP status 301", "the bucket is in another region: set AWS_DEFAULT_REGION"),
    ("NETWORK_CONNECTION", "the storage cannot be reached: check the network and the endpoint"),
    (
        "authenticate the request",
        "no credentials of Google's storage are found: run gcloud auth application-default login, "
        "or set GOOGLE_APPLICATION_CREDENTIALS; a public bucket is gs://anonymous@BUCKET",
    ),
    (
        "DefaultAzureCredential",
        "no credentials of Azure's storage are found: run az login, or set AZURE_TENANT_ID, "
        "AZURE_CLIENT_ID and AZURE_CLIENT_SECRET",
    ),
    ("libjvm", "HDFS needs Java and Hadoop: install them, and set JAVA_HOME and HADOOP_HOME"),
    ("No response body", "access denied or no such bucket: check both"),
)


_GOOGLE = frozenset({"gs", "gcs"})
_ANONYMOUS = "anonymous"
_GOOGLE_PATIENCE = "retry_limit_seconds"
_GOOGLE_SECONDS = 30
"""Until Google's storage counts as out of reach; its own client goes on for minutes."""


class LocationError(TraceError):
    """A URL that is none, or of a storage that cannot be reached or has no rights for us."""


class Location(NamedTuple):
    """A file or folder of a file system. url: as the user would write it; path: as pyarrow does."""

    filesystem: fs.FileSystem
    path: str
    url: str

    def child(self, name: str) -> "Location":
        before, options = _split_options(self.url)
        path, url = (text.rstrip("/") for text in (self.path, before))
        return Location(self.filesystem, f"{path}/{name}", f"{url}/{name}{options}")


def locate(url: str) -> Location:
    """Return the file system and path of a URL.

    url: `s3://bucket/key`, `gs://…`, `file:///…` and so on; the key as it is, without % escapes,
    as in other tools. Options of the file system may follow, as in
    `s3://bucket/key?endpoint_override=127.0.0.1:9000&scheme=http`. Raises LocationError: of no
    scheme that is known, or with a password in it.
    """
    before, options = _split_options(url)
    found = _URL.fullmatch(before)
    if found is None or characters(url) != url:
        raise LocationError(f"{url}: is no URL; give one such as s3://bucket/folder")
    scheme, rest = found["scheme"].lower(), found["rest"]
    if scheme == "file":
        return Location(fs.LocalFileSystem(), rest, url)
    user, at, _ = rest.partition("/")[0].partition("@")
    if at and not scheme.startswith("abfs") and not (scheme in _GOOGLE and user == _ANONYMOUS):
        raise LocationError(
            "a URL with a password shows in every list of processes: leave it out, and set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use ~/.aws/credentials"
        )
    if scheme not in _NATIVE:
        return _by_fsspec(url)
    bucket = rest.partition("/")[0]
    if scheme in _GOOGLE and _GOOGLE_PATIENCE not in options:
        options += f"{'&' if options else '?'}{_GOOGLE_PATIENCE}={_GOOGLE_SECONDS}"
    if not bucket:
        raise LocationError(f"{url}: names no bucket; give {scheme}://BUCKET/FOLDER")
    # Made from the bucket alone: pyarrow would take a key's % and spaces for escapes and errors.
    filesystem = _filesystem(f"{scheme}://{bucket}{options}")
    if scheme in ("hdfs", "viewfs"):
        return Location(filesystem, "/" + rest.partition("/")[2], url)
    if scheme.startswith("abfs"):
        container = bucket.partition("@")[0]
        return Location(filesystem, f"{container}/{rest.partition('/')[2]}".rstrip("/"), url)
    return Location(filesystem, rest.removeprefix(f"{_ANONYMOUS}@").rstrip("/"), url)


@lru_cache(64)
def _filesystem(root: str) -> fs.FileSystem:
    try:
        return fs.FileSystem.from_uri(root)[0]
    except (pa.ArrowException, OSError, ValueError) as error:
        raise LocationError(f"{root}: {reason(error)}") from error


def _by_fsspec(url: str) -> Location:
    scheme = url.partition(":")[0]
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise LocationError(
            f"{url}: {scheme}:// is not known; use s3://, gs://, abfs:// or hdfs://, or install "
            "fsspec"
        ) from None
    try:
        filesystem, path = url_to_fs(url)
    except (ValueError, ImportError, OSError) as error:
        raise LocationError(f"{url}: fsspec cannot open it: {error}") from error
    return Location(fs.PyFileSystem(fs.FSSpecHandler(filesystem)), path, url)


def _split_options(url: str) -> tuple[str, str]:
    """Split a URL into what is before its options, and these with their `?`, or ""."""
    found = _OPTIONS.search(url)
    return (url, "") if found is None else (url[: found.start()], found[0])


def open_url(url: str) -> BinaryIO:
    """Return a file at a URL, open for reading and seekable."""
    place = locate(url)
    try:
        return cast(BinaryIO, place.filesystem.open_input_file(place.path))
    except FileNotFoundError as error:
        raise LogNotFoundError(url) from error
    except (OSError, pa.ArrowException) as error:
        raise LogFormatError(f"{url}: cannot be read: {reason(error)}") from error


def expand(url: str) -> list[str]:
    """Return the URLs of the files that a URL means, sorted.

    url: with wildcards (`*`, `?`, `[…]` within a folder's or file's name, `**` for any folders) all
    that match; a folder: all files below it with the ending SUFFIX; else `url` itself, whether
    there is such a file or not. Raises LocationError: the storage cannot be listed.
    """
    before, options = _split_options(url)
    parts = before.split("/")
    wild = next((i for i, part in enumerate(parts) if i > 2 and _WILD.search(part)), None)
    try:
        if wild is not None:
            base = locate("/".join(parts[:wild]) + options)
            patterns = parts[wild:]
            found = _below(base, len(patterns) > 1 or "**" in patterns)
            wanted = [name for name in found if _matches(name.split("/"), patterns)]
        else:
            base = locate(url)
            if base.filesystem.get_file_info(base.path).type != fs.FileType.Directory:
                return [url]
            wanted = [name for name in _below(base, True) if name.endswith(SUFFIX)]
    except (OSError, pa.ArrowException) as error:
        raise LocationError(f"{url}: cannot be listed: {reason(error)}") from error
    return sorted(base.child(name).url for name in wanted)


def _below(base: Location, recursive: bool) -> list[str]:
    selector = fs.FileSelector(base.path, recursive=recursive, allow_not_found=True)
    start = len(base.path.rstrip("/")) + 1
    infos = base.filesystem.get_file_info(selector)
    return [info.path[start:] for info in infos if info.type == fs.FileType.File]


def _matches(parts: Sequence[str], patterns: Sequence[str]) -> bool:
    if not patterns:
        return not parts
    if patterns[0] == "**":
        return any(_matches(parts[i:], patterns[1:]) for i in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], patterns[0]) and _matches(parts[1:], patterns[1:])


def reason(error: BaseException) -> str:
    """Return in a few words why a file system failed, and what to do about it if known."""
    text = str(error)
    for sign, meaning in _REASONS:
        if sign in text:
            return meaning
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "no space left on the device: free some, or give another place"
    if isinstance(error, OSError) and error.strerror and error.errno:
        return error.strerror
    return text.partition("\n")[0].partition(" (Request ID")[0].rstrip(".") or type(error).__name__
