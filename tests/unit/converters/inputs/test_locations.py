# SPDX-License-Identifier: Apache-2.0
"""URLs as file systems and paths, and errors in few words."""

from pathlib import Path

import pytest

from biotrail.converters.inputs.parquet.locations import (
    LocationError,
    expand,
    is_url,
    locate,
    open_url,
    reason,
)
from biotrail.recorder.schema.errors import LogNotFoundError


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("s3://bucket/key", True),
        ("file:///tmp/x", True),
        ("a/b.parquet", False),
        ("c:x", False),
        ("-", False),
        (Path("s3://x"), False),
        (b"s3://x", False),
    ],
)
def test_what_is_a_url(given: object, wanted: bool) -> None:
    # GIVEN / WHEN / THEN
    assert is_url(given) is wanted


def test_files_of_a_folder_and_by_wildcards(tmp_path: Path) -> None:
    # GIVEN folders with archives, and names that URLs would escape
    for name in ("a/x 1.parquet", "a/b/y%20.parquet", "a/z.txt", "c/x2.parquet"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    root = f"file://{tmp_path}"
    # WHEN folders and wildcards are expanded
    # THEN a folder is all archives below it, a wildcard stays in its part, ** does not
    for given, wanted in {
        "": ["a/b/y%20.parquet", "a/x 1.parquet", "c/x2.parquet"],
        "/a": ["a/b/y%20.parquet", "a/x 1.parquet"],
        "/*/x*.parquet": ["a/x 1.parquet", "c/x2.parquet"],
        "/**/[xy]*.parquet": ["a/b/y%20.parquet", "a/x 1.parquet", "c/x2.parquet"],
        "/a/*": ["a/x 1.parquet", "a/z.txt"],
        "/a/q*": [],
        "/nowhere.parquet": ["nowhere.parquet"],
    }.items():
        assert expand(root + given) == [f"{root}/{name}" for name in wanted]
    # AND what is found can be opened
    with open_url(expand(root)[0]) as stream:
        assert stream.read() == b"a/b/y%20.parquet"


def test_a_child_keeps_the_options() -> None:
    # GIVEN a URL with options and a slash at its end
    place = locate("s3://bucket/folder/?endpoint_override=127.0.0.1:1&scheme=http&region=x")
    # WHEN a child is asked for
    child = place.child("a/b.parquet")
    # THEN its URL opens the same storage
    assert child.path == "bucket/folder/a/b.parquet"
    options = "endpoint_override=127.0.0.1:1&scheme=http&region=x"
    assert child.url == f"s3://bucket/folder/a/b.parquet?{options}"


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    # GIVEN a URL at which there is nothing, and one of no storage
    # WHEN they are opened THEN the errors say which
    with pytest.raises(LogNotFoundError, match="nothing"):
        open_url(f"file://{tmp_path}/nothing.parquet")
    with pytest.raises(LocationError, match="names no bucket"):
        locate("s3:///x")


def test_a_public_bucket_needs_no_user_and_others_no_password() -> None:
    # GIVEN a bucket that anyone may read  WHEN it is opened  THEN its path has no user
    assert locate("gs://anonymous@bucket/a/b.parquet").path == "bucket/a/b.parquet"
    # AND another user, or a password, is refused
    for url in ("gs://someone@bucket/a", "s3://key:secret@bucket/a", "s3://anonymous@bucket/a"):
        with pytest.raises(LocationError, match="password"):
            locate(url)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            "google::cloud::Status(UNAVAILABLE: Retry policy exhausted, with a last message of "
            "Could not create a OAuth2 access token to authenticate the request.",
            "no credentials of Google's storage",
        ),
        (
            "Check failed: AuthenticationException: Failed to get token from "
            "DefaultAzureCredential",
            "no credentials of Azure's storage",
        ),
        ("Unable to load libjvm", "HDFS needs Java"),
    ],
)
def test_missing_credentials_are_named(message: str, words: str) -> None:
    # GIVEN a message of a storage WHEN it is explained THEN it says what to set
    assert reason(OSError(message)).startswith(words)


def test_long_errors_become_short() -> None:
    # GIVEN messages as pyarrow has them
    # WHEN they are shortened THEN a known one says what to do, another loses its request's id
    known = "When x for key 'k' in bucket 'b': AWS Error NO_SUCH_BUCKET during PutObject: gone"
    assert reason(OSError(known)) == "there is no such bucket: make it, or give another one"
    assert (
        reason(OSError("When y: AWS Error SLOW (Request ID: 12)\nmore")) == "When y: AWS Error SLOW"
    )
    assert reason(OSError(28, "No space left")).startswith("no space left on the device")
    assert reason(OSError(5, "Input/output error")) == "Input/output error"
