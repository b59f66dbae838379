#!/usr/bin/env python3
"""Record which grids the reference (transformers 5.24.0) chooses, for sizes that follow from a formula (see sizes.py).

    venv/bin/python tests/scripts/closest_ratio_sweep.py            # writes tests/fixtures/layout/closest_ratio.txt
    venv/bin/python tests/scripts/closest_ratio_sweep.py --verify   # recompute and compare

A setting is TILE_WIDTH TILE_HEIGHT LEAST MOST CUT, an answer COLUMNS ROWS VIEWS; the views are those that the processor's
own `get_number_of_image_patches` counts.
"""
from transformers import GotOcr2ImageProcessor
from transformers.models.got_ocr2.image_processing_got_ocr2 import get_optimal_tiled_canvas

import sizes

SETTINGS = [
    (448, 448, 1, 12, 1),
    (364, 364, 1, 12, 1),
    (384, 384, 1, 12, 1),
    (448, 448, 1, 12, 0),
    (448, 448, 1, 40, 1),
    (336, 448, 1, 6, 1),
    (448, 448, 12, 12, 1),
    (28, 28, 2, 7, 1),
    (1, 2, 1, 9, 1),
    (5, 7, 3, 64, 1),
    (448, 448, 5, 3, 1),  # no grid at all
    (448, 448, 0, 1, 1),
    (65535, 65535, 1, 12, 1),
    (9000, 20000, 1, 30, 1),
]
PROCESSORS = {}


def answer(setting, width, height):
    tile_width, tile_height, least, most, cut = setting
    if setting not in PROCESSORS:
        PROCESSORS[setting] = GotOcr2ImageProcessor(
            size={"height": tile_height, "width": tile_width}, min_patches=least, max_patches=most, crop_to_patches=bool(cut)
        )
    columns, rows = 1, 1
    if cut:
        columns, rows = get_optimal_tiled_canvas((height, width), (tile_height, tile_width), least, most)
    return columns, rows, PROCESSORS[setting].get_number_of_image_patches(height, width)


if __name__ == "__main__":
    sizes.main("closest_ratio.txt", SETTINGS, lambda setting: setting[:2], answer)
