# SPDX-License-Identifier: Apache-2.0
"""What a log's header says of arm64 hosts: processors by number, the device tree's model."""

from pathlib import Path

import pytest

from biotrail.recorder.host import host
from biotrail.recorder.host.host import processors


def cpu(number: int, implementer: str, part: str) -> str:
    """Lines of one CPU as arm64's /proc/cpuinfo has them."""
    return (
        f"processor\t: {number}\nBogoMIPS\t: 125.00\nFeatures\t: fp asimd\n"
        f"CPU implementer\t: {implementer}\nCPU architecture: 8\nCPU variant\t: 0x0\n"
        f"CPU part\t: {part}\nCPU revision\t: 3\n\n"
    )


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        ([("0x41", "0xd08")] * 2, "Arm Cortex-A72"),
        ([("0x41", "0xd05")] * 4 + [("0x41", "0xd0b")] * 4, "Arm Cortex-A55 + Arm Cortex-A76"),
        ([("0xc0", "0xac3")], "Ampere AmpereOne"),
        ([("0x41", "0xfff")], "Arm part 0xfff"),
        ([("0x50", "0x000")], "APM X-Gene"),
        ([("0x12", "0x03")], "implementer 0x12 part 0x003"),
        ([], None),
    ],
)
def test_processors_by_number(parts: list[tuple[str, str]], name: str | None) -> None:
    # GIVEN cpuinfo of arm64, which names no model
    text = "".join(cpu(number, *part) for number, part in enumerate(parts))
    # WHEN its processors are named  THEN each kind is there once, in hexadecimal if not known
    assert processors(text) == name


def test_odd_cpuinfo() -> None:
    # GIVEN lines that are cut or no numbers  WHEN they are read  THEN no processor is made up
    assert processors("CPU part\t: 0xd08\nCPU implementer\t: 0x41\n") is None
    assert processors("CPU implementer\t: arm\nCPU part\t: 0xd08\n") is None


def test_facts_of_an_arm64_board(tmp_path: Path) -> None:
    # GIVEN a board without DMI, whose device tree names it, and whose cpuinfo has both
    text = cpu(0, "0x41", "0xd08") + "Model\t\t: Raspberry Pi 4 Model B Rev 1.4\n"
    (tmp_path / "proc/device-tree").mkdir(parents=True)
    (tmp_path / "proc/cpuinfo").write_text(text)
    (tmp_path / "proc/device-tree/model").write_bytes(b"Raspberry Pi 4 Model B Rev 1.4\0")
    # WHEN its facts are taken
    facts = host.facts(tmp_path)
    # THEN the processor is the core's name, and the product the board's
    assert facts["cpu_model"] == "Arm Cortex-A72"
    assert facts["product"] == "Raspberry Pi 4 Model B Rev 1.4"


def test_dmi_comes_first(tmp_path: Path) -> None:
    # GIVEN a server with both DMI and a device tree
    for name, text in {
        "sys/class/dmi/id/product_name": "c7g.metal\n",
        "proc/device-tree/model": "linux,dummy-virt\0",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    # WHEN its facts are taken  THEN the product is DMI's
    assert host.facts(tmp_path)["product"] == "c7g.metal"
