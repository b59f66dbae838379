#!/usr/bin/env python3
"""Record the crops of the reference's Gemma 3 processor (transformers 5.24.0), for sizes that follow from a formula (see sizes.py).

    venv/bin/python tests/scripts/pan_and_scan_sweep.py            # writes tests/fixtures/layout/pan_and_scan.txt
    venv/bin/python tests/scripts/pan_and_scan_sweep.py --verify   # recompute and compare

A setting is MIN_CROP MAX_CROPS RATIO, an answer the number of crops, then WIDTH HEIGHT of the first and of the last one (zeros
if there is none). A refusal is 1000000 and zeros: the reference cannot resize a crop without pixels.
"""
import torch
from transformers import Gemma3ImageProcessor

import sizes

SETTINGS = [
    (256, 4, 1.2),
    (256, 4, 1.0),
    (256, 16, 1.2),
    (100, 7, 2.5),
    (256, 1, 1.2),
    (256, 2, 3.999),
    (40, 1000000, 1.1),
    (1, 12, 0.0),
    (1, 400, 1.3333333333333333),
    (2, 300, 1.6666666666666667),
    (50, 5, 7.2),
    (40000, 4, 1.2),
]
PROCESSOR = Gemma3ImageProcessor()
PIXEL = torch.zeros(1, dtype=torch.uint8)


def answer(setting, width, height):
    crops = PROCESSOR.pan_and_scan_batched(PIXEL.expand(1, 3, height, width), *setting)
    if not crops:
        return [0] * 5
    if crops[-1].numel() == 0:
        return [1000000, 0, 0, 0, 0]
    return len(crops), *crops[0].shape[:1:-1], *crops[-1].shape[:1:-1]


if __name__ == "__main__":
    sizes.main("pan_and_scan.txt", SETTINGS, lambda setting: (setting[0], setting[0]), answer)
