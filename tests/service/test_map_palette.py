"""The map's colours: people of any colour vision tell them apart, and from the ground they lie on."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

PALETTE = Path(__file__).parents[2] / "service" / "page" / "src" / "map" / "palette.ts"
# Without one kind of cone (Machado, Oliveira and Fernandes 2009, severity 1), on linear RGB.
VISIONS = {
    "all cones": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
# OKLab (Ottosson 2020).
TO_LMS = [[0.41222, 0.53633, 0.05145], [0.2119, 0.6807, 0.1074], [0.0883, 0.28172, 0.62998]]
TO_LAB = [[0.21045, 0.79362, -0.00407], [1.978, -2.42859, 0.45059], [0.0259, 0.78277, -0.80868]]


def linear(colors: list[int]) -> np.ndarray:
    parts = np.array([[color >> 16, (color >> 8) & 255, color & 255] for color in colors]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def oklab(rgb: np.ndarray) -> np.ndarray:
    return np.cbrt(np.clip(rgb, 0, 1) @ np.array(TO_LMS).T) @ np.array(TO_LAB).T


def said(name: str) -> str:
    """The value of a constant of the palette."""
    text = PALETTE.read_text(encoding="utf-8")
    return text[text.index("=", text.index(f"export const {name}:")) :].split(";")[0]


def pairs(name: str, dark: bool) -> list[int]:
    return [int(pair[dark], 16) for pair in re.findall(r"\[0x(\w{6}), 0x(\w{6})\]", said(name))]


def luminance(colors: list[int]) -> np.ndarray:
    return np.asarray(linear(colors) @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("vision", VISIONS)
def test_kinds_are_told_apart(vision: str, dark: bool) -> None:
    colors = pairs("KINDS", dark) + pairs("OTHER", dark)
    assert len(colors) == 13
    seen = oklab(linear(colors) @ np.array(VISIONS[vision]).T)
    apart = np.linalg.norm(seen[:, None] - seen[None], axis=2) + np.eye(len(colors))
    assert apart.min() > 0.09


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_kinds_stand_out_from_the_ground(dark: bool) -> None:
    ground = luminance(pairs("GROUND", dark))[0]
    kinds = luminance(pairs("KINDS", dark) + pairs("OTHER", dark))
    contrast = (np.maximum(kinds, ground) + 0.05) / (np.minimum(kinds, ground) + 0.05)
    assert contrast.min() >= 3


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_scale_goes_one_way_in_lightness(dark: bool) -> None:
    lists = re.findall(r"\[((?:0x\w{6}(?:, )?)+)\]", said("STEPS"))
    stops = luminance([int(color, 16) for color in lists[dark].split(", ")])
    steps = np.diff(stops)
    assert len(stops) == 4
    assert (steps > 0.03).all() if dark else (steps < -0.03).all()
