#!/usr/bin/env python3
"""Record which canvas and feature grid the reference (transformers 5.24.0) gives to sizes that follow from a formula.

    venv/bin/python tests/scripts/pinpoints_sweep.py            # writes tests/fixtures/layout/pinpoints.txt
    venv/bin/python tests/scripts/pinpoints_sweep.py --verify   # recompute and compare

For each setting 8192 sizes are drawn by `draw`, which the tests of `src/layout/pinpoints.rs` repeat. The canvas is that of
`select_best_resolution`, the grid that of the model's `unpad_image`; both are held against the count of the processors'
`_get_unpadded_features`, which also shrinks. The file holds for each setting:

    setting TILE CELL CROP SHRINK HEIGHT WIDTH HEIGHT WIDTH ...
    WIDTH HEIGHT CANVAS_WIDTH CANVAS_HEIGHT ROWS COLS           the first 64 sizes with their answers
    HASH HASH HASH HASH                                         of every 64 answers: FNV-1a-64 of the four numbers, each
                                                                as four bytes, little endian

An answer of four zeros is a refusal: the model fails on a canvas that is not made of whole tiles, and on a grid that
shrinks to nothing.
"""
import argparse
import pathlib
import types

import torch
from transformers.image_processing_utils import select_best_resolution
from transformers.models.llava_next.modeling_llava_next import unpad_image
from transformers.models.llava_next.processing_llava_next import LlavaNextProcessor
from transformers.models.llava_onevision.processing_llava_onevision import LlavaOnevisionProcessor

FIVE = [(336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008)]
GRANITE = [(384 * r, 384 * c) for r, most in ((1, 10), (2, 5), (3, 3), (4, 2), (5, 2), (6, 1), (7, 1), (8, 1), (9, 1), (10, 1))
           for c in range(1, most + 1)]
SETTINGS = [  # tile, cell, shrink, pinpoints
    (336, 14, 0, FIVE),
    (384, 14, 0, GRANITE),
    (384, 14, 9, [(384 * r, 384 * c) for r in range(1, 7) for c in range(1, 7)]),
    (384, 14, 4, [(384 * r, 384 * c) for r in range(1, 7) for c in range(1, 7)]),
    (384, 14, 1, [(384 * r, 384 * c) for c in range(6, 0, -1) for r in range(1, 7)]),
    (8, 2, 0, [(8, 16), (16, 8), (16, 16), (24, 8)]),
    (3, 1, 2, [(3 * r, 3 * c) for r in range(1, 8) for c in range(1, 8) if r * c < 12]),
    (8, 3, 2, [(12, 16), (8, 8), (16, 12), (20, 8), (16, 24), (4, 40), (17, 17), (24, 24), (33, 16)]),  # not whole tiles
    (16, 5, 7, [(16 * r, 16 * c) for r in range(1, 17) for c in range(1, 17)]),
    (20, 4, 3, [(40, 40), (20, 60), (40, 40), (60, 20), (20, 60), (60, 60), (20, 20), (40, 40)]),  # twice and thrice
    (1, 1, 0, [(r, c) for r in range(1, 61, 3) for c in range(2, 60, 7)]),
    (224, 14, 12, [(224 * r, 224 * c) for r in range(1, 9) for c in range(1, 9)]),
    (336, 14, 0, [(336, 336)]),
    (8, 2, 1, [(8, 160), (80, 8), (64, 64)]),  # shrinks to nothing
]
COUNT, BLOCK, LISTED = 8192, 64, 64
M64 = (1 << 64) - 1
PATH = pathlib.Path(__file__).resolve().parent.parent / "fixtures/layout/pinpoints.txt"


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


def draw(dice, tile, cells, pinpoints, index):
    """A (width, height)."""
    roll = dice.roll
    height, width = pinpoints[roll(len(pinpoints))]
    kind = index % 8
    if kind == 0:  # any
        one, two = 1 + roll(65535), 1 + roll(65535)
    elif kind == 1:  # a few tiles
        one, two = 1 + roll(4 * tile), 1 + roll(4 * tile)
    elif kind == 2:  # of any magnitude
        bits, other = 1 + roll(16), 1 + roll(16)
        one, two = 1 + roll(1 << bits), 1 + roll(1 << other)
    elif kind == 3:  # the pinpoint itself, or a pixel off
        one, two = height + roll(3) - 1, width + roll(3) - 1
    elif kind == 4:  # its ratio
        times = 1 + roll(64)
        one, two = height * times // 8, width * times // 8
    elif kind == 5:  # a pixel off its ratio
        times = 1 + roll(16)
        one, two = height * times + roll(3) - 1, width * times + roll(3) - 1
    elif kind == 6:  # a whole number of cells on the canvas, up to a pixel
        rows = roll(height * cells // tile + 1)
        times = 1 + roll(8)
        one, two = rows * tile * times // cells + roll(3) - 1, width * times
    else:  # between two pinpoints
        other = pinpoints[roll(len(pinpoints))]
        one, two = (height + other[0]) // 2, (width + other[1]) // 2
    if roll(2) == 0:
        one, two = two, one
    return min(max(one, 1), 65535), min(max(two, 1), 65535)


def answer(width, height, tile, cells, shrink, pinpoints):
    down, across = select_best_resolution((height, width), pinpoints)
    if down % tile or across % tile:
        return 0, 0, 0, 0
    rows, cols = unpad_image(torch.empty(1, down // tile * cells, across // tile * cells), (height, width)).shape[1:]
    arguments = height, width, cells, cells, down // tile, across // tile
    if shrink:
        settings = types.SimpleNamespace(vision_aspect_ratio=f"anyres_max_{shrink}")
        features, newlines = LlavaOnevisionProcessor._get_unpadded_features(settings, *arguments)
    else:
        features, newlines = LlavaNextProcessor._get_unpadded_features(None, *arguments)
    if (newlines == 0 and rows) or (features == 0 and rows and cols):
        return 0, 0, 0, 0
    if (features, newlines) != (rows * cols, rows):  # shrunk
        assert shrink and newlines <= rows and features % newlines == 0
        rows, cols = newlines, features // newlines
    return across, down, rows, cols


def sweep():
    lines = []
    for seed, (tile, cell, shrink, pinpoints) in enumerate(SETTINGS):
        sides = [side for pinpoint in pinpoints for side in pinpoint]
        lines.append("setting " + " ".join(map(str, [tile, cell, 1, shrink, *sides])))
        dice = Dice(seed)
        hashes, digest = [], 0xCBF29CE484222325
        for index in range(COUNT):
            width, height = draw(dice, tile, tile // cell, pinpoints, index)
            result = answer(width, height, tile, tile // cell, shrink, pinpoints)
            if index < LISTED:
                lines.append(" ".join(map(str, (width, height, *result))))
            for byte in b"".join(number.to_bytes(4, "little") for number in result):
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
        raise SystemExit("tests/fixtures/layout/pinpoints.txt differs from the reference")


if __name__ == "__main__":
    main()
