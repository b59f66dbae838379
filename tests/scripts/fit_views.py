#!/usr/bin/env python3
"""Record the pixels that Pixtral's image processor (transformers 5.24.0) makes of pictures that follow from a formula.

    venv/bin/python tests/scripts/fit_views.py            # writes tests/fixtures/layout/fit_views.txt
    venv/bin/python tests/scripts/fit_views.py --verify   # recompute and compare

A line of the file is one call, with one or two pictures:

    MOST_HEIGHT MOST_WIDTH CELL SEED WIDTH,HEIGHT[,WIDTH,HEIGHT] WIDTH',HEIGHT'[,WIDTH',HEIGHT'] HASH

HASH is FNV-1a-64 of the padded and normalised f32 planes. The second picture has the next seed. Seeds divisible by 3 take
the bilinear filter, others the bicubic one. x86 with AVX2 or newer is needed.
"""
import argparse
import pathlib
import random

import numpy as np
import torch
from transformers import PixtralImageProcessor

PATH = pathlib.Path(__file__).resolve().parent.parent / "fixtures/layout/fit_views.txt"


def picture(width, height, seed):
    """uint8 [height, width, 3]: noise, or the formula of the stored goldens."""
    y, x, z = np.mgrid[:height, :width, :3].astype(np.uint32)
    if seed % 2 == 0:
        k = np.uint32(seed)
        return np.choose(z, [5 * x + 3 * y + 40 * k, x * y + 7 * k, 255 - 2 * x - 9 * y]).astype(np.uint8)
    n = (y * np.uint32(width) + x) * np.uint32(3) + z
    n = n * np.uint32(2654435761) + np.uint32(seed * 40503 & 0xFFFFFFFF)
    n ^= n >> np.uint32(15)
    n *= np.uint32(2246822519)
    n ^= n >> np.uint32(13)
    return (n & 255).astype(np.uint8)


def fnv(data):
    digest = 0xCBF29CE484222325
    for byte in data:
        digest = (digest ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{digest:016x}"


def draw(rng, index, scale=1):
    """Limits, cell and sizes of one call."""
    longest = rng.randint(4, 60 * scale)
    limits = (longest, longest) if index % 4 else (longest, rng.randint(4, 60 * scale))
    sizes = []
    for _ in range(1 + index % 2):
        size = [rng.randint(1, 90 * scale), rng.randint(1, 90 * scale)]
        if index % 5 == 0:
            size[rng.randint(0, 1)] = rng.randint(1, 3)
        if index % 7 == 0:
            size = [limits[1] + rng.randint(-1, 1), limits[0] + rng.randint(-1, 1)]
        sizes.append(size)
    return limits, rng.randint(1, 12), sizes


def pixels(limits, cell, sizes, seed, **changes):
    size = {"longest_edge": limits[0]} if limits[0] == limits[1] else {"height": limits[0], "width": limits[1]}
    settings = dict(size=size, patch_size={"height": cell, "width": cell}, resample=2 if seed % 3 == 0 else 3)
    images = [picture(*size, seed + k) for k, size in enumerate(sizes)]
    return PixtralImageProcessor(**{**settings, **changes})(images, input_data_format="channels_last", return_tensors="pt")


def cases():
    rng = random.Random(20262)
    lines, seed = [], 0
    while len(lines) < 120:
        seed += 1
        limits, cell, sizes = draw(rng, seed)
        try:
            out = pixels(limits, cell, sizes, seed)
        except (RuntimeError, ValueError):
            continue  # a side vanishes, or torch asserts when planes become 1 x 1
        resized = ",".join(f"{int(across)},{int(down)}" for down, across in out["image_sizes"])
        flat = ",".join(str(side) for size in sizes for side in size)
        digest = fnv(np.ascontiguousarray(out["pixel_values"].numpy(), "<f4").tobytes())
        lines.append(f"{limits[0]} {limits[1]} {cell} {seed} {flat} {resized} {digest}")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--verify", action="store_true")
    verify = parser.parse_args().verify
    assert torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
    text = cases()
    if not verify:
        PATH.parent.mkdir(parents=True, exist_ok=True)
        PATH.write_text(text)
    elif PATH.read_text() != text:
        raise SystemExit("tests/fixtures/layout/fit_views.txt differs from the reference")


if __name__ == "__main__":
    main()
