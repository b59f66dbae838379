#!/usr/bin/env python3
"""Record what the reference's `get_resize_output_image_size` of Pixtral (transformers 5.24.0) answers for sizes that follow
from a formula.

    venv/bin/python tests/scripts/fit_sweep.py            # writes tests/fixtures/layout/fit.txt
    venv/bin/python tests/scripts/fit_sweep.py --verify   # recompute and compare

For each setting 8192 sizes are drawn by `draw`, which the tests of `src/layout/fit.rs` repeat. The file holds for each:

    setting MOST_HEIGHT MOST_WIDTH CELL
    WIDTH HEIGHT WIDTH' HEIGHT'          the first 64 sizes with their answers
    HASH HASH HASH HASH                  of every 64 answers: FNV-1a-64 of the four bytes, little endian, of WIDTH' and HEIGHT'

An answer `0 0` stands for a size with a zero side, which the image processor cannot resize to.
"""
import argparse
import pathlib

import numpy as np
from transformers.models.pixtral.image_processing_pixtral import get_resize_output_image_size

SETTINGS = [
    (1024, 1024, 16),
    (1540, 1540, 28),
    (1540, 1540, 14),
    (1024, 1024, 28),
    (1540, 1540, 1),
    (49, 49, 3),
    (337, 337, 48),
    (100, 300, 10),
    (4097, 17, 16),
    (1, 1, 1),
    (7, 1000, 1),
    (65535, 65535, 255),
    (1000000000, 1000000000, 16),
    (449, 897, 64),
]
COUNT, BLOCK, LISTED = 8192, 64, 64
M64 = (1 << 64) - 1
PATH = pathlib.Path(__file__).resolve().parent.parent / "fixtures/layout/fit.txt"


class Dice:
    """SplitMix64, scaled."""

    def __init__(self, seed):
        self.state = seed

    def roll(self, sides):
        self.state = (self.state + 0x9E3779B97F4A7C15) & M64
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M64
        return ((z ^ (z >> 31)) * sides) >> 64


def draw(dice, height, width, cell, index):
    """A (width, height)."""
    roll = dice.roll

    def near(side):
        return side + roll(5) - 2

    kind = index % 8
    if kind == 0:  # any
        one, two = 1 + roll(65535), 1 + roll(65535)
    elif kind == 1:  # up to twice the limits
        one, two = 1 + roll(2 * height), 1 + roll(2 * width)
    elif kind == 2:  # of any magnitude
        bits, other = 1 + roll(16), 1 + roll(16)
        one, two = 1 + roll(1 << bits), 1 + roll(1 << other)
    elif kind == 3:  # around the limits
        one, two = near(height), near(width)
    elif kind == 4:  # around whole cells, not shrunk
        rows, cols = roll(height // cell + 2), roll(width // cell + 2)
        one, two = near(rows * cell), near(cols * cell)
    elif kind == 5:  # around the limits' ratio
        times = 1 + roll(64)
        one, two = near(height * times // 4), near(width * times // 4)
    elif kind == 6:  # shrunk to whole cells
        times, rows = 1 + roll(20), roll(height // cell + 2)
        one, two = near(rows * cell * times), width * times
    else:  # a side that just vanishes
        side = 1 + roll(6)
        one, two = near(height * side), side
    if roll(2) == 1:
        one, two = two, one
    return min(max(one, 1), 65535), min(max(two, 1), 65535)


def answer(width, height, most_height, most_width, cell):
    picture = np.broadcast_to(np.uint8(0), (3, height, width))
    down, across = get_resize_output_image_size(picture, (most_height, most_width), (cell, cell), "channels_first")
    return (across, down) if across > 0 and down > 0 else (0, 0)


def sweep():
    lines = []
    for seed, setting in enumerate(SETTINGS):
        lines.append("setting " + " ".join(map(str, setting)))
        dice = Dice(seed)
        hashes, digest = [], 0xCBF29CE484222325
        for index in range(COUNT):
            width, height = draw(dice, *setting, index)
            result = answer(width, height, *setting)
            if index < LISTED:
                lines.append(f"{width} {height} {result[0]} {result[1]}")
            for byte in result[0].to_bytes(4, "little") + result[1].to_bytes(4, "little"):
                digest = ((digest ^ byte) * 0x100000001B3) & M64
            if index % BLOCK == BLOCK - 1:
                hashes.append(f"{digest:016x}")
                digest = 0xCBF29CE484222325
        lines += [" ".join(hashes[at : at + 4]) for at in range(0, len(hashes), 4)]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--verify", action="store_true")
    verify = parser.parse_args().verify
    text = sweep()
    if not verify:
        PATH.parent.mkdir(parents=True, exist_ok=True)
        PATH.write_text(text)
    elif PATH.read_text() != text:
        raise SystemExit("tests/fixtures/layout/fit.txt differs from the reference")


if __name__ == "__main__":
    main()
