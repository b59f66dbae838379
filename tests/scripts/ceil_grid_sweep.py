#!/usr/bin/env python3
"""Record the grids of the reference's Idefics3 processor (transformers 5.24.0), for sizes that follow from a formula (see sizes.py).

    venv/bin/python tests/scripts/ceil_grid_sweep.py            # writes tests/fixtures/layout/ceil_grid.txt
    venv/bin/python tests/scripts/ceil_grid_sweep.py --verify   # recompute and compare

A setting is LONGEST TILE SPLIT, an answer ROWS COLUMNS VIEWS and, as WIDTH HEIGHT each, the sizes after the first and the
second resize. The processor's own methods compute the sizes, of images that hold no pixels of their own: only the
innermost resize is replaced. A refusal is seven zeros.
"""
import math

import torch
from transformers import Idefics3ImageProcessor
from transformers.image_processing_backends import TorchvisionBackend
from transformers.image_utils import SizeDict

import sizes

SETTINGS = [
    (1456, 364, 1),
    (2048, 512, 1),
    (1456, 364, 0),
    (1536, 384, 1),
    (512, 512, 1),
    (365, 365, 1),  # odd, and whole tiles: squares are 2 x 2
    (1095, 365, 1),
    (1000, 364, 1),
    (999, 364, 1),
    (49, 7, 1),  # one column of pixels vanishes
    (206, 103, 1),
    (4096, 512, 1),
    (5000, 300, 1),
    (4097, 1024, 1),
    (1 << 30, 448, 1),
    (100, 7, 1),
    (200, 500, 1),
    (3, 2, 1),
    (2, 2, 1),
]
PIXEL = torch.zeros(1, dtype=torch.uint8)


def image(height, width):
    return PIXEL.expand(1, 3, height, width)


def resize(self, image_, size, **kwargs):
    if not (size.height and size.width):
        raise ValueError("no size")
    return image(size.height, size.width)


TorchvisionBackend.resize = resize
PROCESSOR = Idefics3ImageProcessor()


def answer(setting, width, height):
    longest, tile, split = setting
    fitted = PROCESSOR.resize(image(height, width), SizeDict(longest_edge=longest))
    if split:
        try:
            canvas = PROCESSOR.resize_for_vision_encoder(fitted, tile)
        except ValueError:
            return [0] * 7
    else:
        canvas = PROCESSOR.resize(fitted, SizeDict(height=tile, width=tile))
    height, width = canvas.shape[-2:]
    rows = columns = 0
    # as `split_images` has it
    if split and (height > tile or width > tile):
        rows, columns = math.ceil(height / tile), math.ceil(width / tile)
    return rows, columns, rows * columns + 1, *fitted.shape[:1:-1], *canvas.shape[:1:-1]


if __name__ == "__main__":
    sizes.main("ceil_grid.txt", SETTINGS, lambda setting: (setting[1], setting[1]), answer)
