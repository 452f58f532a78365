# SPDX-License-Identifier: Apache-2.0
"""Tracepoints by name, in a tracefs made of files."""

from pathlib import Path

import pytest

from biotrail.recorder.probes.sites.tracepoints import FORMAT, Tracepoints
from biotrail.recorder.schema.errors import SiteError
from tests.support.crafted_kernel import crafted

FORMAT_TEXT = """name: {name}
ID: {number}
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;

\tfield:unsigned int vec;\toffset:8;\tsize:4;\tsigned:0;

print fmt: "vec=%u", REC->vec
"""
KNOWN = ("irq/softirq_entry", "irq/softirq_exit", "smmu/fault", "other/fault")


@pytest.fixture
def known(tmp_path: Path) -> Tracepoints:
    for number, name in enumerate(KNOWN):
        directory = tmp_path / "events" / name
        directory.mkdir(parents=True)
        text = FORMAT_TEXT.format(name=directory.name, number=number + 100)
        (directory / "format").write_text(text)
    return Tracepoints(crafted().table, tmp_path)


@pytest.mark.parametrize("text", ["irq:softirq_exit", "softirq_exit", " softirq_exit "])
def test_a_system_may_be_left_out(known: Tracepoints, text: str) -> None:
    # GIVEN a tracepoint of a name that is its alone WHEN it is named THEN it is found
    found = known.find(text)
    assert (found.full_name, found.format.number) == ("irq:softirq_exit", 101)


def test_without_types_the_format_is_known(known: Tracepoints) -> None:
    # GIVEN a tracepoint without BTF, as of a module built apart WHEN it is asked what names mean
    scopes = known.scopes("irq:softirq_entry")
    # THEN it is by its format alone
    assert list(scopes) == [FORMAT]
    assert scopes[FORMAT].value("vec").at == (8,)


def test_several_of_one_name_need_their_system(known: Tracepoints) -> None:
    # GIVEN two systems with a tracepoint of one name WHEN it is named alone THEN both are named
    with pytest.raises(SiteError, match="other:fault, smmu:fault"):
        known.find("fault")
    assert known.find("smmu:fault").system == "smmu"


@pytest.mark.parametrize("text", ["irq:softirq_entri", "softirq_entri", "iqr:softirq_entry"])
def test_an_unknown_one_has_near_names(known: Tracepoints, text: str) -> None:
    # GIVEN a misspelt name WHEN it is looked for THEN the message has what is near
    with pytest.raises(SiteError, match=rf"no tracepoint {text}; near: .*irq:softirq_entry"):
        known.find(text)
