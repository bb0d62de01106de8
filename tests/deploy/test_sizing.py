"""docs/sizing.md: measured figures are those of docs/benchmarks.md, and sums are sums."""

from __future__ import annotations

import re

import pytest
from compose_file import ROOT

SIZING = (ROOT / "docs" / "sizing.md").read_text()
MEASURED = (ROOT / "docs" / "benchmarks.md").read_text()


@pytest.mark.parametrize(
    "figure",
    [
        "42.8 s",
        "693 MiB",
        "3,859",
        "4,047",
        "1,110 MiB",
        "1.9 GB",
        "4,626",
        "2,613 MiB",
        "1,703 MiB",
        "67.0 s",
        "356,000",
    ],
)
def test_what_is_said_to_be_measured_is_in_the_benchmarks(figure: str) -> None:
    assert figure.replace(" MiB", "") in MEASURED.replace("**", "")
    assert figure in SIZING


def rows(title: str) -> list[list[str]]:
    part = SIZING.split(f"\n## {title}")[1].split("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")][2:]
    return [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines]


def test_times_of_a_million_are_by_the_rates() -> None:
    *stages, total = rows("Time, for a million nodes")
    seconds = [int(row[-1]) for row in stages]
    rates = [float(row[2].split()[0].replace(",", "")) for row in stages]
    assert seconds == [round(1e6 / rate) for rate in rates]
    assert abs(int(total[-1].split(":")[0]) - sum(seconds)) <= 1
    assert f"{sum(seconds) * 2 / 3600:.2f} core-hours" in total[-1]


def test_disk_is_the_sum_of_its_parts() -> None:
    *parts, peak, kept = rows("Disk")
    sizes = [int(row[3].removesuffix(" GB").replace(",", "")) for row in parts]
    passing = [size for row, size in zip(parts, sizes, strict=True) if row[0].startswith("while")]
    assert peak[3] == f"{sum(sizes) / 1000:.1f} TB"
    assert kept[3] == f"{(sum(sizes) - sum(passing)) / 1000:.1f} TB"
    for row, size in zip(parts, sizes, strict=True):
        summed = re.search(r"= ([\d,]+)", row[1])
        if summed:
            assert size == int(summed[1].replace(",", ""))
            assert eval(row[1].split("=")[0].replace("·", "*")) == size


def test_core_hours_of_a_billion_are_by_the_rates() -> None:
    *stages, total = rows("A billion nodes")
    hours = [float(row[2]) for row in stages if row[2] != "?"]
    expected = [100 * 42.8, 1e9 / (3859 / 1.8), 1e9 / (4626 / 1.28), 100 * 67.0]
    assert hours == [pytest.approx(2 * seconds / 3600, rel=0.02) for seconds in expected]
    assert int(total[2]) == pytest.approx(sum(hours), abs=1)
    assert "419 core-hours at 0.04 $ are 17 $" in SIZING
