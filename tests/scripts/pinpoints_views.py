#!/usr/bin/env python3
"""Record the views that the reference's processors (transformers 5.24.0) make of pictures that follow from a formula.

    venv/bin/python tests/scripts/pinpoints_views.py            # writes tests/fixtures/layout/pinpoints_views.txt
    venv/bin/python tests/scripts/pinpoints_views.py --verify   # recompute and compare

Nothing is rescaled or normalised, so the views are bytes. A line of the file is one picture:

    WIDTH HEIGHT SEED TILE SIZE_HEIGHT SIZE_WIDTH CROP MODE PINPOINTS VIEWS HASH

SIZE_WIDTH 0 stands for a shortest edge, CROP 0 for no centre crop. MODE is `tiles`; `once` without the second resize; or
`square`, where the picture was one of two in its prompt (LLaVA-OneVision). PINPOINTS are heights and widths. HASH is
FNV-1a-64 of the bytes of all views, pixels of three bytes, row after row. Seeds divisible by 3 take the bilinear filter,
others the bicubic one. x86 with AVX2 or newer is needed.
"""
import argparse
import pathlib
import random

import numpy as np
import torch
from transformers import LlavaNextImageProcessor, LlavaOnevisionImageProcessor

PATH = pathlib.Path(__file__).resolve().parent.parent / "fixtures/layout/pinpoints_views.txt"


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
    """Picture, tile, size, crop, mode and pinpoints of one case."""
    kinds = [(1, 1), (1, rng.randint(2, 60)), (rng.randint(2, 60), 1), (rng.randint(1, 9), rng.randint(60, 200))]
    size = kinds[index // 8 % 4] if index % 8 == 0 else (rng.randint(1, 70 * scale), rng.randint(1, 70 * scale))
    if index % 8 == 1:
        size = (rng.randint(60, 200), rng.randint(1, 9))
    tile = rng.randint(3, 14 * scale)
    pinpoints = [[tile * rng.randint(1, 4), tile * rng.randint(1, 4)] for _ in range(rng.randint(1, 7))]
    mode, crop = "tiles", 0
    kind = index % 6
    if kind == 0:  # LLaVA-NeXT
        to, crop = (tile, 0), tile
    elif kind == 1:  # Granite Vision
        to, crop = (tile, tile), tile
    elif kind == 2:  # LLaVA-OneVision
        to = (tile, tile)
    elif kind == 3:  # views are resized to another size and cut or padded to a tile
        to, crop = (rng.randint(2, 14), 0 if rng.random() < 0.5 else rng.randint(2, 14)), tile
    elif kind == 4:
        to, crop, mode = (tile, tile), rng.choice([0, tile]), "once"
    else:
        to, mode, crop = (tile, tile), "square", 0
    return size, tile, to, crop, mode, pinpoints


def settings(tile, to, crop, mode, pinpoints, seed):
    return dict(
        size={"height": to[0], "width": to[1]} if to[1] else {"shortest_edge": to[0]},
        crop_size={"height": crop, "width": crop} if crop else None,
        do_center_crop=bool(crop), do_resize=mode != "once", do_rescale=False, do_normalize=False,
        image_grid_pinpoints=pinpoints, resample=2 if seed % 3 == 0 else 3,
    )


def views(image, tile, to, crop, mode, pinpoints, seed, **changes):
    """The processor's pixel values of one picture."""
    kind = LlavaNextImageProcessor if crop and seed % 2 else LlavaOnevisionImageProcessor
    if kind is LlavaOnevisionImageProcessor and not crop and mode == "tiles" and to[1] == 0:
        kind = LlavaNextImageProcessor
    processor = kind(**{**settings(tile, to, crop, mode, pinpoints, seed), **changes})
    images = [[image, image]] if mode == "square" else [image]
    return processor(images, input_data_format="channels_last", return_tensors="pt")["pixel_values"][0]


def cases():
    rng = random.Random(20261)
    lines, seed = [], 0
    while len(lines) < 240:
        seed += 1
        (width, height), tile, to, crop, mode, pinpoints = draw(rng, seed)
        try:
            out = views(picture(width, height, seed), tile, to, crop, mode, pinpoints, seed)
        except RuntimeError:
            continue  # torch asserts when planes become 1 x 1
        assert out.dtype == torch.uint8 and tuple(out.shape[1:]) == (3, tile, tile), (out.shape, tile)
        flat = ",".join(str(side) for pinpoint in pinpoints for side in pinpoint)
        digest = fnv(out.permute(0, 2, 3, 1).contiguous().numpy().tobytes())
        lines.append(f"{width} {height} {seed} {tile} {to[0]} {to[1]} {crop} {mode} {flat} {len(out)} {digest}")
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
        raise SystemExit("tests/fixtures/layout/pinpoints_views.txt differs from the reference")


if __name__ == "__main__":
    main()
