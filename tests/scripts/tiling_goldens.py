#!/usr/bin/env python3
"""Record the views that the reference's processors (transformers 5.24.0) make of pictures that follow from a formula.

    OMP_NUM_THREADS=1 venv/bin/python tests/scripts/tiling_goldens.py            # writes tests/fixtures/media/tilings.txt
    OMP_NUM_THREADS=1 venv/bin/python tests/scripts/tiling_goldens.py --verify   # recompute and compare

Needs a CPU with AVX2. A line is POLICY NUMBERS : WIDTH HEIGHT KIND SEED : FILTER : VIEWS HASH. The numbers are those of the
sweeps (closest_ratio_sweep.py and so on; for pan_and_scan the view's width and height and 1, or 0 where it is off, come
first). The picture is that of media_goldens.py. The hash is FNV-1a-64 of all bytes of all views; a refusal is 0 views.
"""
import argparse
import pathlib

import numpy as np
from PIL import Image
from transformers import Gemma3ImageProcessor, GotOcr2ImageProcessor, Idefics3ImageProcessor, SmolVLMImageProcessor

PATH = pathlib.Path(__file__).resolve().parent.parent / "fixtures/media/tilings.txt"
CODES = {"lanczos": 1, "bilinear": 2, "bicubic": 3}
# bytes come out as they are
PLAIN = dict(do_rescale=False, do_normalize=False)
FIXED = [(1, 1), (1, 2), (2, 1), (1, 60), (60, 1), (7, 7), (64, 48), (48, 64), (200, 3), (3, 200), (101, 100), (100, 101),
         (5, 1), (1, 5), (9, 2)]


def picture(width, height, kind, seed):
    """uint8 [height, width, 3]: 0 noise, 1 black and white, 2 gradients full of ties."""
    y, x, z = np.mgrid[:height, :width, :3].astype(np.uint32)
    if kind == 2:
        return ((x + y // 2 + 40 * z + seed) & 255).astype(np.uint8)
    n = (y * np.uint32(width) + x) * np.uint32(3) + z
    n = n * np.uint32(2654435761) + np.uint32(seed * 40503 & 0xFFFFFFFF)
    n ^= n >> np.uint32(15)
    n *= np.uint32(2246822519)
    n ^= n >> np.uint32(13)
    return ((n & 1) * 255 if kind == 1 else n & 255).astype(np.uint8)


def fnv(data):
    """FNV-1a with 64 bits as hexadecimal digits."""
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{h:016x}"


def closest_ratio(rng, index):
    width, height = int(rng.integers(1, 24)), int(rng.integers(2, 24))
    width = height if rng.integers(2) else width
    most = int(rng.integers(1, 13))
    least, cut = int(rng.integers(0, most + 2)), int(rng.integers(6) > 0)
    settings = dict(size={"height": height, "width": width}, min_patches=least, max_patches=most, crop_to_patches=bool(cut))
    return (width, height, least, most, cut), GotOcr2ImageProcessor, settings, "bicubic"


def ceil_grid(rng, index):
    tile = int(rng.integers(2, 20))
    longest = tile * int(rng.integers(1, 5)) if rng.integers(2) else int(rng.integers(2, 60))
    split = int(rng.integers(6) > 0)
    if FIXED[index:] and FIXED[index] == (1, 60):
        longest, tile, split = 49, 7, 1  # refused
    settings = dict(size={"longest_edge": longest}, max_image_size={"longest_edge": tile}, do_image_splitting=bool(split))
    return (longest, tile, split), (Idefics3ImageProcessor, SmolVLMImageProcessor)[int(rng.integers(2))], settings, "lanczos"


def pan_and_scan(rng, index):
    width, height, on = int(rng.integers(2, 30)), int(rng.integers(1, 30)), int(rng.integers(6) > 0)
    least, most, ratio = int(rng.integers(1, 30)), int(rng.integers(1, 7)), float((1.2, 1.0, 2.25)[int(rng.integers(3))])
    if FIXED[index:] and FIXED[index] in ((5, 1), (1, 5), (9, 2)):
        on, least, most, ratio = 1, 1, 4, 1.2  # refused
    settings = dict(size={"height": height, "width": width}, do_pan_and_scan=bool(on), pan_and_scan_min_crop_size=least,
                    pan_and_scan_max_num_crops=most, pan_and_scan_min_ratio_to_activate=ratio)
    return (width, height, on, least, most, ratio), Gemma3ImageProcessor, settings, "bilinear"


def side(rng):
    return int(np.exp(rng.uniform(0, np.log(220))))


def lines():
    rng = np.random.default_rng(524)
    for policy in (closest_ratio, ceil_grid, pan_and_scan):
        for index in range(60):
            width, height = FIXED[index] if index < len(FIXED) else (side(rng), side(rng))
            kind, seed = int(rng.integers(3)), int(rng.integers(1000))
            numbers, make, settings, name = policy(rng, index)
            if index % 4 == 3:
                name = list(CODES)[int(rng.integers(3))]
            image = Image.fromarray(picture(width, height, kind, seed))
            try:
                # a list for each prompt where the class wants it
                images = [[image]] if policy is ceil_grid else [image]
                views = make(**settings, **PLAIN, resample=CODES[name])(images, return_tensors="np")["pixel_values"]
                views = views.reshape(-1, *views.shape[-3:]).transpose(0, 2, 3, 1)
                assert (views == np.clip(np.rint(views), 0, 255)).all()
                result = f"{len(views)} {fnv(views.astype(np.uint8).tobytes())}"
            except (RuntimeError, ValueError):
                result = f"0 {fnv(b'')}"
            numbers = " ".join(map(str, numbers))
            yield f"{policy.__name__} {numbers} : {width} {height} {kind} {seed} : {name} : {result}\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--verify", action="store_true")
    verify = parser.parse_args().verify
    text = "".join(lines())
    if not verify:
        PATH.write_text(text)
    elif PATH.read_text() != text:
        raise SystemExit("tests/fixtures/media/tilings.txt differs from the reference")


if __name__ == "__main__":
    main()
