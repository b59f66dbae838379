#!/usr/bin/env python3
"""Record what the reference's `smart_resize` (transformers 5.24.0) answers for sizes that follow from a formula.

    venv/bin/python tests/scripts/area_sweep.py            # writes tests/fixtures/layout/area.txt
    venv/bin/python tests/scripts/area_sweep.py --verify   # recompute and compare

For each setting (step, least, most, frames, enlarge; the aspect limit is the reference's 200) 8192 sizes are drawn by `Sizes`,
which the tests of `src/layout/area.rs` repeat in integers. The file holds for each setting:

    setting STEP LEAST MOST FRAMES ENLARGE
    WIDTH HEIGHT WIDTH' HEIGHT'          the first 128 sizes with their answers
    HASH HASH HASH HASH                  of every 64 answers: FNV-1a-64 of the four bytes, little endian, of WIDTH' and HEIGHT'

An answer `0 0` stands for a refusal (ValueError: aspect), `0 1` for a size with a zero side.
Settings with frames or with ENLARGE 1 are put to GLM-4V's `smart_resize`; it enlarges sides below a step first, so without
ENLARGE there are none.
"""
import argparse
import pathlib

from transformers.models.glm4v.image_processing_glm4v import smart_resize as smart_resize_frames
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

SETTINGS = [
    (28, 3136, 12845056, 1, 0),
    (28, 3136, 1003520, 1, 0),
    (32, 65536, 16777216, 1, 0),
    (28, 3136, 6 * 784, 1, 0),
    (28, 256 * 784, 256 * 784, 1, 0),
    (28, 4 * 784, 64 * 784, 1, 0),
    (28, 78000, 79000, 1, 0),
    (28, 1, 700, 1, 0),  # less than one cell
    (28, 0, 100000, 1, 0),  # zero sides survive
    (28, 50000, 20000, 1, 0),  # contradictory
    (14, 196, 50000, 1, 0),
    (1, 1, 10007, 1, 0),
    (1, 4286043049, 4286043049, 1, 0),
    (3, 1000, 1009, 1, 0),
    (7, 49, 49, 1, 0),
    (13, 169 * 97, 169 * 97 + 5, 1, 0),
    (28, 3136, 4294836225, 1, 0),
    (28, 112 * 112, 9633792, 2, 0),
    (16, 4096, 4096 * 3, 2, 0),
    (28, 112 * 112, 9633792, 2, 1),
    (28, 112 * 112, 28 * 28 * 15000, 2, 1),
    (48, 48 * 48, 48 * 48 * 150, 1, 1),  # 47 px become 47
    (49, 1, 49 * 49 * 60, 2, 1),  # 11, 22, 44 and 45 px become 48
    (61, 61 * 61 * 50, 61 * 61 * 300, 1, 1),
    (124, 124 * 124 * 30, 124 * 124 * 20, 1, 1),  # contradictory
    (28, 0, 100000, 2, 1),
    (700, 1, 700 * 700 * 250, 2, 1),  # enlarged beyond the longest side
    (5, 25 * 40, 25 * 40, 3, 1),
]
COUNT, BLOCK, LISTED = 8192, 64, 128
M64 = (1 << 64) - 1
PATH = pathlib.Path(__file__).resolve().parent.parent / "fixtures/layout/area.txt"


class Sizes:
    """The sizes of one setting; `seed` is the setting's number, from 0."""

    def __init__(self, seed, step, least, most, frames, enlarge):
        self.state = seed
        self.step, self.least, self.most, self.frames, self.enlarge = step, least, most, frames, enlarge

    def roll(self, sides):
        """SplitMix64, scaled to 0 .. sides - 1."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & M64
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M64
        return ((z ^ (z >> 31)) * sides) >> 64

    def pair(self, kind):
        step = self.step
        if kind == 0:  # any
            return 1 + self.roll(65535), 1 + self.roll(65535)
        if kind == 1:  # a few steps
            return 1 + self.roll(6 * step), 1 + self.roll(6 * step)
        if kind == 2:  # of any magnitude
            bits, other = 1 + self.roll(16), 1 + self.roll(16)
            return 1 + self.roll(1 << bits), 1 + self.roll(1 << other)
        if kind == 3:  # around the aspect limit
            short = 1 + self.roll(327)
            return short, 200 * short + self.roll(5) - 2
        if kind == 4:  # around half steps
            one, two = self.roll(1 + 4000 // step), self.roll(1 + 4000 // step)
            return (2 * one + 1) * step // 2 + self.roll(3) - 1, (2 * two + 1) * step // 2 + self.roll(3) - 1
        limit = self.least if self.roll(2) == 0 else self.most
        if kind in (5, 6):  # around a limit
            long = 1 + self.roll(1 << (4 + self.roll(13)))
            return long, limit // (self.frames * long) + self.roll(3) - 1
        # multiples of a grid that fills a limit exactly
        rows = 1 + self.roll(40)
        columns = limit // (self.frames * step * step * rows)
        times = 1 + self.roll(16 * step)
        return rows * times, columns * times

    def draw(self, index):
        one, two = self.pair(index % 8)
        if self.roll(2) == 1:
            one, two = two, one
        least = self.step if self.frames > 1 and not self.enlarge else 1
        return min(max(one, least), 65535), min(max(two, least), 65535)


def answer(width, height, step, least, most, frames, enlarge):
    try:
        if frames == 1 and not enlarge:
            rows, columns = smart_resize(height, width, factor=step, min_pixels=least, max_pixels=most)
        else:
            rows, columns = smart_resize_frames(
                frames, height, width, temporal_factor=frames, factor=step, min_pixels=least, max_pixels=most
            )
    except ValueError:
        return 0, 0
    return (0, 1) if rows == 0 or columns == 0 else (columns, rows)


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
        raise SystemExit("tests/fixtures/layout/area.txt differs from the reference")


if __name__ == "__main__":
    main()
