#!/usr/bin/env python3
"""Record which tiles the reference (transformers 5.24.0) cuts images into, for sizes that follow from a formula.

    venv/bin/python tests/scripts/least_upscale_sweep.py            # writes tests/fixtures/layout/least_upscale.txt
    venv/bin/python tests/scripts/least_upscale_sweep.py --verify   # recompute and compare

For each setting 8192 sizes are drawn by `Sizes`, which the tests of `src/layout/least_upscale.rs` repeat in integers. The
file holds for each setting:

    setting BITS TILE MOST CELL LEFT RIGHT POOL_ROWS POOL_COLUMNS
    WIDTH HEIGHT ANSWER                  the first 80 sizes with their answers
    HASH HASH HASH HASH                  of every 64 answers: FNV-1a-64 of their numbers, four bytes each, little endian

An answer is eight numbers: grid rows and columns, merged rows and columns, canvas width and height, and the width and height
of the image fitted inside the canvas. With 64 bits the grid is Llama 3.2 Vision's, and Cohere2 Vision's must be the same;
with 32 bits it is Molmo2's, which fits nothing inside (0 0).
"""
import argparse
import pathlib

from transformers.models.cohere2_vision.image_processing_cohere2_vision import get_optimal_tiled_canvas as cohere2_canvas
from transformers.models.mllama.image_processing_mllama import get_image_size_fit_to_canvas
from transformers.models.mllama.image_processing_mllama import get_optimal_tiled_canvas as mllama_canvas
from transformers.models.molmo2.image_processing_molmo2 import Molmo2ImageProcessor, compute_crop_geometry

SETTINGS = [
    (64, 560, 4, 560, 0, 0, 1, 1),
    (64, 512, 12, 512, 0, 0, 1, 1),
    (64, 448, 6, 448, 0, 0, 1, 1),
    (64, 336, 36, 14, 0, 0, 2, 2),
    (64, 14, 60, 14, 0, 0, 1, 1),
    (64, 1, 7, 1, 0, 0, 1, 1),
    (64, 3, 13, 3, 0, 0, 1, 1),
    (64, 40000, 5, 40000, 0, 0, 1, 1),
    (32, 378, 8, 14, 4, 4, 2, 2),
    (32, 378, 24, 14, 4, 4, 2, 2),
    (32, 378, 8, 14, 0, 0, 2, 2),
    (32, 378, 9, 14, 3, 5, 3, 2),
    (32, 30, 9, 5, 1, 2, 2, 4),
    (32, 560, 4, 560, 0, 0, 1, 1),
    (32, 16, 50, 1, 7, 8, 2, 3),  # a window of 1 px
    (32, 7, 20, 1, 0, 3, 3, 2),
    (32, 65535, 3, 1, 30000, 30000, 5, 7),  # most images are less than a margin
]
COUNT, BLOCK, LISTED = 8192, 64, 80
M64 = (1 << 64) - 1
MOLMO2 = Molmo2ImageProcessor()
PATH = pathlib.Path(__file__).resolve().parent.parent / "fixtures/layout/least_upscale.txt"


class Sizes:
    """The sizes of one setting; `seed` is the setting's number, from 0."""

    def __init__(self, seed, window, margin, most):
        self.state = seed
        self.window, self.margin, self.most = window, margin, most

    def roll(self, sides):
        """SplitMix64, scaled to 0 .. sides - 1."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & M64
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M64
        return ((z ^ (z >> 31)) * sides) >> 64

    def pair(self, kind):
        window, margin = self.window, self.margin
        if kind == 0:  # any
            return 1 + self.roll(65535), 1 + self.roll(65535)
        if kind == 1:  # a few tiles
            return 1 + self.roll(margin + 4 * window), 1 + self.roll(margin + 4 * window)
        if kind == 2:  # of any magnitude
            bits, other = 1 + self.roll(16), 1 + self.roll(16)
            return 1 + self.roll(1 << bits), 1 + self.roll(1 << other)
        if kind == 3:  # around whole tiles
            one, two = self.roll(self.most + 2), self.roll(self.most + 2)
            return margin + one * window + self.roll(3) - 1, margin + two * window + self.roll(3) - 1
        if kind == 4:  # around the margin
            return margin + self.roll(5) - 2, 1 + self.roll(margin + 6 * window)
        rows = 1 + self.roll(self.most)
        cols = 1 + self.roll(self.most // rows)
        times = 1 + self.roll(1 << (1 + self.roll(13)))
        if kind == 5:  # the proportions of a grid
            return margin + rows * times, margin + cols * times
        if kind == 6:  # the proportions of two grids crossed: both limit alike
            other = 1 + self.roll(self.most)
            return margin + rows * times, margin + other * times
        # nearly a square
        return margin + rows * times, margin + rows * times + self.roll(3) - 1

    def draw(self, index):
        one, two = self.pair(index % 8)
        if self.roll(2) == 1:
            one, two = two, one
        return min(max(one, 1), 65535), min(max(two, 1), 65535)


def grid(width, height, setting):
    bits, tile, most, cell, left, right, pool_rows, pool_cols = setting
    if bits == 64:
        canvas_height, canvas_width = mllama_canvas(height, width, most, tile)
        rows, cols = int(canvas_height) // tile, int(canvas_width) // tile
        assert cohere2_canvas((height, width), (tile, tile), 1, most) == (cols, rows), (width, height, setting)
        fitted_height, fitted_width = get_image_size_fit_to_canvas(height, width, canvas_height, canvas_width, tile)
        merged = [-(-(side // cell) // pool) for side, pool in ((int(canvas_height), pool_rows), (int(canvas_width), pool_cols))]
        return [rows, cols, *merged, int(canvas_width), int(canvas_height), int(fitted_width), int(fitted_height)]
    settings = dict(
        max_crops=most, overlap_margins=[left, right], patch_size=cell, pooling_size=[pool_rows, pool_cols],
        size={"height": tile, "width": tile},
    )
    merged, _ = MOLMO2.get_image_grid_and_crops(height, width, settings)
    rows, cols, canvas_height, canvas_width = compute_crop_geometry(height, width, most, [left, right], tile, cell)
    return [rows, cols, *merged[2:], canvas_width, canvas_height, 0, 0]


def sweep():
    lines = []
    for seed, setting in enumerate(SETTINGS):
        lines.append("setting " + " ".join(map(str, setting)))
        _, tile, most, cell, left, right, _, _ = setting
        margin = (left + right) * cell
        sizes = Sizes(seed, tile - margin, margin, most)
        hashes, digest = [], 0xCBF29CE484222325
        for index in range(COUNT):
            width, height = sizes.draw(index)
            answer = grid(width, height, setting)
            if index < LISTED:
                lines.append(" ".join(map(str, [width, height, *answer])))
            for byte in b"".join(number.to_bytes(4, "little") for number in answer):
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
        raise SystemExit("tests/fixtures/layout/least_upscale.txt differs from the reference")


if __name__ == "__main__":
    main()
