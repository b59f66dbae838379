#!/usr/bin/env python3
"""Record the views that reference processors (transformers 5.24.0, torchvision, x86 with AVX2 or newer) make of pictures.

    OMP_NUM_THREADS=1 venv/bin/python tests/scripts/view_goldens.py            # writes tests/fixtures/media/tiles.txt
    OMP_NUM_THREADS=1 venv/bin/python tests/scripts/view_goldens.py --verify   # recompute and compare

Pictures follow from a formula that the tests of `src/views.rs` repeat. Rescaling and normalisation are off, so that all
values are bytes. The lines are

    tiles FIT BITS TILE MOST CELL LEFT RIGHT POOL_ROWS POOL_COLUMNS WHOLE WIDTH HEIGHT SEED COUNT HASH POOLING
    budgeted PATCH POOL MOST WIDTH HEIGHT SEED COUNT HASH

FIT is `inside` (Llama 3.2 Vision, bilinear), `stretch` (Cohere2 Vision, bicubic) or `plain` (Molmo2); WHOLE is 0 for none, 1
first, 2 last if many. COUNT is that of the views, HASH the FNV-1a-64 of all their bytes, rows of RGB pixels, view after
view; POOLING that of the pooling indices, four bytes each, little endian (0 where there are none).
"""
import argparse
import pathlib
import random

import numpy as np
import torch
from transformers import Cohere2VisionImageProcessor, Gemma4ImageProcessor, MllamaImageProcessor, Molmo2ImageProcessor

PATH = pathlib.Path(__file__).resolve().parent.parent / "fixtures/media/tiles.txt"
RAW = dict(do_rescale=False, do_normalize=False, return_tensors="pt", input_data_format="channels_last")


def picture(width, height, seed):
    """uint8 [height, width, 3]: noise for an even seed, gradients full of ties for an odd one."""
    y, x, z = np.mgrid[:height, :width, :3].astype(np.uint32)
    if seed % 2:
        return ((x + y // 2 + 40 * z + seed) & 255).astype(np.uint8)
    n = (y * np.uint32(width) + x) * np.uint32(3) + z
    n = n * np.uint32(2654435761) + np.uint32(seed * 40503 & 0xFFFFFFFF)
    n ^= n >> np.uint32(15)
    n *= np.uint32(2246822519)
    n ^= n >> np.uint32(13)
    return (n & 255).astype(np.uint8)


def fnv(data):
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{h:016x}"


def square(side):
    return {"height": side, "width": side}


def hashed(views):
    """Of [views, height, width, 3]."""
    return fnv(np.ascontiguousarray(views).astype(np.uint8).tobytes())


def inside(setting, image):
    _, tile, most = setting[:3]
    out = MllamaImageProcessor(size=square(tile), max_image_tiles=most)([[image]], **RAW)
    count = out["num_tiles"][0][0]
    return count, hashed(out["pixel_values"][0, 0, :count].numpy().transpose(0, 2, 3, 1)), "0"


def stretch(setting, image):
    _, tile, most = setting[:3]
    views = Cohere2VisionImageProcessor(size=square(tile), max_patches=most)([image], **RAW)["pixel_values"].numpy()
    return len(views), hashed(views.transpose(0, 2, 3, 1)), "0"


def plain(setting, image):
    _, tile, most, cell, left, right, pool_rows, pool_cols, _ = setting
    processor = Molmo2ImageProcessor(
        size=square(tile), max_crops=most, overlap_margins=[left, right], patch_size=cell, pooling_size=[pool_rows, pool_cols]
    )
    out = processor([image], **RAW)
    side = tile // cell
    views = out["pixel_values"].numpy().reshape(-1, side, side, cell, cell, 3).transpose(0, 1, 3, 2, 4, 5)
    return len(views), hashed(views), fnv(out["image_token_pooling"].numpy().astype("<i4").tobytes())


def budgeted(setting, image):
    patch, pool, most = setting
    out = Gemma4ImageProcessor(patch_size=patch, pooling_kernel_size=pool, max_soft_tokens=most)([image], **RAW)
    across, down = out["image_position_ids"][0].numpy().max(0) + 1
    rows = out["pixel_values"][0].numpy()[: across * down]
    return 1, hashed(rows.reshape(down, across, patch, patch, 3).transpose(0, 2, 1, 3, 4))


def sizes(dice, longest):
    yield from [(1, 1), (1, 7), (9, 1), (longest, 2), (3, longest), (longest // 2, longest // 2 + 1)]
    for _ in range(4):
        yield dice.randint(1, longest), dice.randint(1, longest)


def goldens():
    dice = random.Random(524)
    lines = []
    for fit, settings in [
        (inside, [(64, 24, 4, 24, 0, 0, 1, 1, 0), (64, 13, 7, 13, 0, 0, 1, 1, 0)]),
        (stretch, [(64, 20, 12, 20, 0, 0, 1, 1, 2), (64, 33, 3, 33, 0, 0, 1, 1, 2)]),
        (
            plain,
            [
                (32, 54, 8, 2, 4, 4, 2, 2, 1),
                (32, 35, 9, 5, 1, 2, 3, 2, 1),
                (32, 24, 6, 4, 0, 0, 2, 4, 1),
                (32, 30, 5, 3, 0, 3, 1, 3, 1),
            ],
        ),
    ]:
        for setting in settings:
            for width, height in sizes(dice, 150):
                seed = dice.randrange(1000)
                numbers = [*setting, width, height, seed, *fit(setting, picture(width, height, seed))]
                lines.append(" ".join(map(str, ["tiles", fit.__name__, *numbers])))
    for setting in [(2, 3, 70), (5, 1, 140), (1, 2, 280)]:
        for width, height in sizes(dice, 150):
            seed = dice.randrange(1000)
            numbers = [*setting, width, height, seed, *budgeted(setting, picture(width, height, seed))]
            lines.append(" ".join(map(str, ["budgeted", *numbers])))
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--verify", action="store_true")
    verify = parser.parse_args().verify
    torch.set_num_threads(1)
    text = goldens()
    if not verify:
        PATH.parent.mkdir(parents=True, exist_ok=True)
        PATH.write_text(text)
    elif PATH.read_text() != text:
        raise SystemExit("tests/fixtures/media/tiles.txt differs from the reference")


if __name__ == "__main__":
    main()
