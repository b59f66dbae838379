#!/usr/bin/env python3
"""Record what the reference's `get_aspect_ratio_preserving_size` (transformers 5.24.0) answers for sizes that follow from a
formula.

    venv/bin/python tests/scripts/patch_budget_sweep.py            # writes tests/fixtures/layout/patch_budget.txt
    venv/bin/python tests/scripts/patch_budget_sweep.py --verify   # recompute and compare

For each setting 8192 sizes are drawn by `Sizes`, which the tests of `src/layout/patch_budget.rs` repeat in integers. The
file holds for each setting:

    setting PATCH POOL MOST
    WIDTH HEIGHT WIDTH' HEIGHT'          the first 96 sizes with their answers
    HASH HASH HASH HASH                  of every 64 answers: FNV-1a-64 of the four bytes, little endian, of WIDTH' and HEIGHT'

An answer `0 0` stands for a refusal (ValueError).
"""
import argparse
import pathlib

from transformers.models.gemma4.image_processing_gemma4 import get_aspect_ratio_preserving_size

SETTINGS = [
    (16, 3, 70),
    (16, 3, 140),
    (16, 3, 280),
    (16, 3, 560),
    (16, 3, 1120),
    (14, 2, 256),  # a square, tied for each square image
    (1, 1, 1),  # some squares vanish
    (7, 1, 2),
    (5, 7, 36),
    (13, 11, 4096),
    (3, 1, 3600),
    (16, 3, 13),
]
COUNT, BLOCK, LISTED = 8192, 64, 96
M64 = (1 << 64) - 1
PATH = pathlib.Path(__file__).resolve().parent.parent / "fixtures/layout/patch_budget.txt"


class Sizes:
    """The sizes of one setting; `seed` is the setting's number, from 0."""

    def __init__(self, seed, patch, pool, most):
        self.state = seed
        self.unit, self.most = patch * pool, most

    def roll(self, sides):
        """SplitMix64, scaled to 0 .. sides - 1."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & M64
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M64
        return ((z ^ (z >> 31)) * sides) >> 64

    def pair(self, kind):
        if kind == 0:  # any
            return 1 + self.roll(65535), 1 + self.roll(65535)
        if kind == 1:  # a few units
            return 1 + self.roll(6 * self.unit), 1 + self.roll(6 * self.unit)
        if kind == 2:  # of any magnitude
            bits, other = 1 + self.roll(16), 1 + self.roll(16)
            return 1 + self.roll(1 << bits), 1 + self.roll(1 << other)
        if kind == 3:  # around the thin branch
            short = 1 + self.roll(65535 // self.most)
            return short, self.most * short + self.roll(5) - 2
        rows = 1 + self.roll(64)
        cols = max(1, self.most // rows)
        times = 1 + self.roll(1 << (1 + self.roll(15)))
        if kind == 4:  # the proportions of a grid that fills the budget, or nearly
            return rows * times, cols * times
        if kind == 5:  # one side of them a little off
            return rows * times, cols * times + self.roll(3) - 1
        if kind == 6:  # squares, nearly
            return times, times + self.roll(3) - 1
        # a whole square on one side only: budget times one side is a square times the other
        return rows * rows * times, self.most * times

    def draw(self, index):
        one, two = self.pair(index % 8)
        if self.roll(2) == 1:
            one, two = two, one
        return min(max(one, 1), 65535), min(max(two, 1), 65535)


def answer(width, height, patch, pool, most):
    try:
        rows, columns = get_aspect_ratio_preserving_size(height, width, patch, most * pool**2, pool)
    except ValueError:
        return 0, 0
    return columns, rows


def sweep():
    lines = []
    for seed, setting in enumerate(SETTINGS):
        lines.append("setting " + " ".join(map(str, setting)))
        sizes = Sizes(seed, *setting)
        hashes, digest = [], 0xCBF29CE484222325
        for index in range(COUNT):
            width, height = sizes.draw(index)
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
        raise SystemExit("tests/fixtures/layout/patch_budget.txt differs from the reference")


if __name__ == "__main__":
    main()
