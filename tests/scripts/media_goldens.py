#!/usr/bin/env python3
"""Makes tests/fixtures/media from the reference implementation: expected results of tests/media.rs.

    OMP_NUM_THREADS=1 python tests/scripts/media_goldens.py

Needs torch, torchvision, transformers 5.24, Pillow with WebP, and a CPU with AVX2. Source pictures are made by a formula
that the test repeats (`picture`), and most results are kept as FNV-1a hashes, so that almost nothing is stored.
"""
import io
import json
import pathlib
import struct
import zlib

import numpy as np
import PIL
import torch
import torchvision
import transformers
from PIL import Image, ImageOps
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F
from transformers.image_transforms import convert_to_rgb

HERE = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "media"
FILES = HERE / "files"
MODES = {"bilinear": InterpolationMode.BILINEAR, "bicubic": InterpolationMode.BICUBIC, "lanczos": InterpolationMode.LANCZOS}
CODES = {"lanczos": 1, "bilinear": 2, "bicubic": 3}
NAMES = list(MODES)
CLIP = ([0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711])
IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
HALF = ([0.5] * 3, [0.5] * 3)
ODD = ([0.1, 0.0, 1.25], [3.0, 0.007, 1.0])


# ---------------------------------------------------------------- pictures and hashes, repeated in tests/media.rs
def picture(width, height, kind, seed):
    """uint8 [height, width, 3]: 0 noise, 1 black and white, 2 gradients full of ties, 3 the formula of the stored goldens."""
    y, x, z = np.mgrid[:height, :width, :3].astype(np.uint32)
    if kind == 2:
        return ((x + y // 2 + 40 * z + seed) & 255).astype(np.uint8)
    if kind == 3:
        k = np.uint32(seed)
        return np.choose(z, [5 * x + 3 * y + 40 * k, x * y + 7 * k, 255 - 2 * x - 9 * y]).astype(np.uint8)
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


def fnv_floats(array):
    return fnv(np.ascontiguousarray(array, "<f4").tobytes())


# ---------------------------------------------------------------- resizing
def side(rng, most):
    return int(rng.integers(1, 5)) if rng.random() < 0.15 else int(np.exp(rng.uniform(np.log(3), np.log(most))))


def resize_cases():
    rng = np.random.default_rng(20260)
    fixed = [(1, 1, 5, 3), (1, 1, 1, 7), (1, 40, 9, 9), (40, 1, 9, 9), (1, 40, 1, 7), (3, 2, 3, 50), (3, 2, 50, 2), (64, 64, 32, 32),
             (32, 32, 64, 64), (10, 6, 6, 10), (7, 7, 7, 7), (9, 5, 1, 4), (9, 5, 4, 1), (2, 2, 3, 3), (200, 3, 3, 5), (3, 500, 40, 2),
             (1500, 2, 9, 2), (2, 2600, 2, 5), (100, 20, 60, 12), (500, 4, 100, 4), (3, 3, 2, 2), (255, 17, 254, 18)]
    cases = []
    for name in NAMES:
        for index in range(110):
            if index < len(fixed):
                width, height, out_width, out_height = fixed[index]
            else:
                width, height, out_width, out_height = (side(rng, 90) for _ in range(4))
                if index % 9 == 0:
                    out_width = width
                if index % 11 == 0:
                    out_height = height
            kind, seed = int(rng.integers(4)), int(rng.integers(1000))
            tensor = torch.from_numpy(np.ascontiguousarray(picture(width, height, kind, seed).transpose(2, 0, 1)))
            try:
                out = F.resize(tensor, [out_height, out_width], interpolation=MODES[name], antialias=True)
            except RuntimeError:
                continue  # torch stops with an internal assertion where three planes become exactly 1 x 1
            out = np.ascontiguousarray(out.numpy().transpose(1, 2, 0)).tobytes()
            case = dict(size=[width, height], kind=kind, seed=seed, to=[out_width, out_height], filter=name, hash=fnv(out))
            if len(out) <= 75 and index < 25:
                case["out"] = out.hex()
            cases.append(case)
    return cases


# ---------------------------------------------------------------- processors
def call(processor, image):
    return processor([image], input_data_format="channels_last", return_tensors="np")


def plane_cases():
    """CLIP's processor with usual and odd settings, and LLaVA's with padding to a square."""
    rng = np.random.default_rng(20261)
    cases = []
    for index in range(120):
        width, height = side(rng, 70), side(rng, 70)
        if max(width, height) > 30 * min(width, height):
            height = width
        kind, seed, name = int(rng.integers(4)), int(rng.integers(1000)), NAMES[index % 3]
        image = picture(width, height, kind, seed)
        mean, std = (CLIP, IMAGENET, HALF, ODD)[index % 4]
        rescale = (1 / 255, 1 / 255, 1 / 255, 1 / 256, 0.5, None)[int(rng.integers(6))]
        normal = index % 5 != 0
        do_resize, do_crop, square = index % 7 != 0, index % 4 != 1, index % 6 == 5
        settings = dict(do_rescale=rescale is not None, do_normalize=normal, image_mean=mean, image_std=std, do_resize=do_resize,
                        resample=CODES[name], do_center_crop=do_crop)
        if rescale is not None:
            settings["rescale_factor"] = rescale
        case = dict(size=[width, height], kind=kind, seed=seed)
        at = [width, height]
        if square:
            at = [max(at)] * 2
            case["square"] = [int(255 * m) for m in mean] if index % 4 != 3 else [25, 0, 255]
            if index % 4 == 3:
                settings["image_mean"] = mean = [0.1, 0.0, 1.0]
            settings["do_pad"] = True
        if do_resize:
            if index % 2:
                edge = int(rng.integers(1, 40))
                settings["size"] = {"shortest_edge": edge}
                long = int(edge * max(at) / min(at))
                at = [edge, long] if at[0] <= at[1] else [long, edge]
            else:
                at = [int(rng.integers(2, 50)), int(rng.integers(2, 50))]
                settings["size"] = {"width": at[0], "height": at[1]}
            case.update(to=at, filter=name)
        if do_crop:
            at = [int(rng.integers(1, 50)), int(rng.integers(1, 50))]
            settings["crop_size"] = {"width": at[0], "height": at[1]}
            case["crop"] = at
        if rescale is not None:
            case["rescale"] = rescale
        if normal:
            case.update(mean=list(mean), std=list(std))
        processor = (transformers.LlavaImageProcessor if square else transformers.CLIPImageProcessor)(**settings)
        try:
            out = call(processor, image)["pixel_values"][0]
        except RuntimeError:
            continue  # the 1 x 1 assertion again
        assert list(out.shape) == [3, at[1], at[0]], (out.shape, case)
        case["hash"] = fnv_floats(out)
        cases.append(case)
    return cases


def normalise_cases():
    """All 768 values under the four arrangements of rescaling and normalising."""
    every = np.arange(256, dtype=np.uint8)[None, :, None].repeat(3, 2)
    cases = []
    for rescale in (1 / 255, 1 / 256, 0.5, 0.00392156862745098, 0.003921568859368563, None):
        for stats in (CLIP, IMAGENET, HALF, ODD, None):
            settings = dict(do_resize=False, do_center_crop=False, do_rescale=rescale is not None, do_normalize=stats is not None)
            case = {}
            if rescale is not None:
                settings["rescale_factor"] = case["rescale"] = rescale
            if stats is not None:
                settings["image_mean"], settings["image_std"] = case["mean"], case["std"] = stats
            out = call(transformers.CLIPImageProcessor(**settings), every)["pixel_values"][0]
            case["hash"] = fnv_floats(out)
            cases.append(case)
    return cases


def block_cases():
    """Patch rows in blocks, by Qwen2-VL's processor."""
    rng = np.random.default_rng(20262)
    cases = []
    for index in range(40):
        width, height = side(rng, 60), side(rng, 60)
        if max(width, height) > 100 * min(width, height):
            height = width
        patch, block, frames = ((4, 2, 2), (2, 1, 1), (3, 3, 2), (5, 2, 3), (4, 1, 2))[index % 5]
        kind, seed, name = int(rng.integers(4)), int(rng.integers(1000)), NAMES[index % 3]
        unit = (patch * block) ** 2
        mean, std = (CLIP, HALF)[index % 2]
        processor = transformers.Qwen2VLImageProcessor(patch_size=patch, merge_size=block, temporal_patch_size=frames, min_pixels=unit,
                                                       max_pixels=unit * int(rng.integers(2, 20)), resample=CODES[name], image_mean=mean,
                                                       image_std=std)
        out = call(processor, picture(width, height, kind, seed))
        _, rows, columns = (int(n) for n in out["image_grid_thw"][0])
        cases.append(dict(size=[width, height], kind=kind, seed=seed, to=[columns * patch, rows * patch], filter=name, rescale=1 / 255,
                          mean=mean, std=std, patch=[patch, patch], frames=frames, block=block,
                          shape=list(out["pixel_values"].shape), hash=fnv_floats(out["pixel_values"])))
    return cases


def raster_cases():
    """Patch rows in raster order, by torch's unfold."""
    cases = []
    for index, (patch, grid) in enumerate([((1, 1), (1, 1)), ((2, 3), (4, 5)), ((7, 1), (1, 6)), ((4, 4), (3, 3)), ((14, 14), (2, 1))]):
        height, width = patch[0] * grid[0], patch[1] * grid[1]
        x = torch.from_numpy(picture(width, height, 0, index).transpose(2, 0, 1).astype(np.float32))[None]
        for frames in (1, 2):
            rows = torch.nn.functional.unfold(x, patch, stride=patch)[0].T.reshape(grid[0] * grid[1], 3, 1, -1)
            rows = rows.repeat(1, 1, frames, 1).reshape(grid[0] * grid[1], -1)
            cases.append(dict(size=[width, height], kind=0, seed=index, patch=list(patch), frames=frames, block=1, shape=list(rows.shape),
                              hash=fnv_floats(rows.numpy())))
    return cases


# ---------------------------------------------------------------- files
def png(width, height, depth, colour, rows, *chunks, interlace=0):
    """A PNG file of packed `rows`; `chunks` are (name, data) before IDAT."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    data = b"".join(b"\0" + row for row in rows)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlace)) + \
        b"".join(chunk(*c) for c in chunks) + (chunk(b"IDAT", zlib.compress(data, 9)) if rows else b"") + chunk(b"IEND", b"")


def encoded(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def smooth(width, height):
    """A picture without sharp edges, so that JPEG decoders stay close."""
    y, x = np.mgrid[:height, :width]
    return np.stack([30 + 8 * x % 200, 20 + 10 * y, 240 - 5 * x - 4 * y], -1).clip(0, 255).astype(np.uint8)


def high_bytes(width, height, channels):
    """Big-endian 16-bit samples whose low byte is noise, and their high bytes."""
    wide = np.concatenate([picture(width, height, 0, 70 + c)[..., :2] for c in range(channels)], -1)
    return [wide[y].tobytes() for y in range(height)], wide[..., 0::2]


def by_pillow(data):
    """What the documented rules make of a file, by Pillow and transformers."""
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    return convert_to_rgb(image, return_numpy=True)


def media_files():
    for old in FILES.glob("*"):
        old.unlink()
    entries = []

    def add(name, data, expected=None, notes=(), lossy=False):
        assert len(data) < 4096, (name, len(data))
        FILES.joinpath(name).write_bytes(data)
        expected = by_pillow(data) if expected is None else expected
        height, width, _ = expected.shape
        entry = dict(file=name, size=[width, height], notes=list(notes))
        entry["near" if lossy else "hash"] = expected.tobytes().hex() if lossy else fnv(expected.tobytes())
        entries.append(entry)

    first, deep, white = "first frame of an animation", "16-bit samples reduced to their high byte", "transparent parts composited on white"
    rgb = picture(24, 16, 0, 1)
    image, soft = Image.fromarray(rgb), Image.fromarray(smooth(24, 16))
    for turn in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = turn
        small = Image.fromarray(picture(12, 8, 0, turn))
        add(f"exif_{turn}.jpg", encoded(Image.fromarray(smooth(24, 16)), "JPEG", quality=90, exif=exif), lossy=True)
        add(f"exif_{turn}.png", encoded(small, "PNG", exif=exif))
        if turn in (3, 6):
            add(f"exif_{turn}.webp", encoded(small, "WEBP", lossless=True, exif=exif))
    # EXIF in the other byte order, behind the pixels, damaged behind the orientation
    tiff = b"II*\0\x08\0\0\0\x02\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\x69\x87\x04\0\x01\0\0\0\xff\xff\xff\x7f\0\0\0\0"
    late = encoded(Image.fromarray(picture(12, 8, 0, 6)), "PNG")
    chunk = b"eXIf" + tiff
    late = late[:-12] + struct.pack(">I", len(tiff)) + chunk + struct.pack(">I", zlib.crc32(chunk)) + late[-12:]
    add("exif_6_late_and_damaged.png", late, np.rot90(picture(12, 8, 0, 6), -1))

    rgba = np.concatenate([rgb, picture(24, 16, 0, 2)[..., :1]], -1)
    add("rgb.png", encoded(image, "PNG"))
    add("rgba.png", encoded(Image.fromarray(rgba), "PNG"), notes=[white])
    add("rgba_opaque.png", encoded(image.convert("RGBA"), "PNG"))
    add("gray.png", encoded(Image.fromarray(rgb[..., 0]), "PNG"))
    add("gray_alpha.png", encoded(Image.merge("LA", [Image.fromarray(rgba[..., c]) for c in (0, 3)]), "PNG"), notes=[white])
    add("one_bit.png", encoded(Image.fromarray(rgb[..., 0]).convert("1"), "PNG"))
    bits = picture(16, 8, 0, 9)[..., 0]
    add("gray_2_bits.png", png(16, 8, 2, 0, [np.packbits(np.unpackbits((r & 3)[:, None], axis=1)[:, -2:]).tobytes() for r in bits]))
    add("gray_4_bits.png", png(16, 8, 4, 0, [np.packbits(np.unpackbits((r & 15)[:, None], axis=1)[:, -4:]).tobytes() for r in bits]))
    palette = picture(16, 1, 0, 11)[0]
    seen = bytes([0, 255, 17, 128, 200, 3])
    rows = [np.packbits(np.unpackbits((r & 15)[:, None], axis=1)[:, -4:]).tobytes() for r in bits]
    add("palette.png", png(16, 8, 4, 3, rows, (b"PLTE", palette.tobytes())))
    add("palette_alpha.png", png(16, 8, 4, 3, rows, (b"PLTE", palette.tobytes()), (b"tRNS", seen)), notes=[white])
    small = picture(16, 8, 0, 12)
    small[2, 3] = small[5, 1] = (9, 8, 7)
    add("colour_key.png", png(16, 8, 8, 2, [r.tobytes() for r in small], (b"tRNS", struct.pack(">HHH", 9, 8, 7))), notes=[white])
    gray = small[..., 0].copy()
    add("gray_key.png", png(16, 8, 8, 0, [r.tobytes() for r in gray], (b"tRNS", struct.pack(">H", int(gray[0, 0])))), notes=[white])
    rows, high = high_bytes(10, 7, 1)
    add("gray_16_bits.png", png(10, 7, 16, 0, rows), high.repeat(3, 2), [deep])
    rows, high = high_bytes(10, 7, 3)
    add("rgb_16_bits.png", png(10, 7, 16, 2, rows), notes=[deep])
    rows, high = high_bytes(10, 7, 4)
    add("rgba_16_bits.png", png(10, 7, 16, 6, rows), notes=[deep, white])
    rows, high = high_bytes(10, 7, 2)
    add("gray_alpha_16_bits.png", png(10, 7, 16, 4, rows), notes=[deep, white])
    frames = [Image.fromarray(picture(20, 10, 3, k)) for k in range(3)]
    add("animated.png", encoded(frames[0], "PNG", save_all=True, append_images=frames[1:]), notes=[first])
    add("animated.webp", encoded(frames[0], "WEBP", save_all=True, append_images=frames[1:], lossless=True), notes=[first])
    reduced = [frame.quantize(16) for frame in frames]
    add("animated.gif", encoded(reduced[0], "GIF", save_all=True, append_images=reduced[1:]), notes=[first])
    add("still.gif", encoded(reduced[1], "GIF"))
    add("interlaced.gif", encoded(Image.fromarray(picture(20, 19, 3, 4)).quantize(16), "GIF", interlace=True))
    add("transparent.gif", encoded(reduced[2], "GIF", transparency=3), notes=[white])
    # a frame of 2 x 1 pixels at (1, 1) on a screen of 4 x 3; Pillow paints the rest in colour 0, we leave it white
    part = b"GIF89a\x04\0\x03\0\x80\0\0\x0a\x14\x1e\x28\x32\x3c\x2c\x01\0\x01\0\x02\0\x01\0\0\x02\x02\x44\x0a\0;"
    expected = np.full((3, 4, 3), 255, np.uint8)
    expected[1, 1:3] = np.array(Image.open(io.BytesIO(part)).convert("RGB"))[1, 1:3]
    add("frame_on_screen.gif", part, expected, [white])
    add("lossless.webp", encoded(image, "WEBP", lossless=True))
    add("lossless_alpha.webp", encoded(Image.fromarray(rgba), "WEBP", lossless=True, exact=True), notes=[white])
    add("lossy.webp", encoded(soft, "WEBP", quality=90), lossy=True)
    blurred = Image.fromarray(np.concatenate([smooth(24, 16), (smooth(24, 16)[..., :1])], -1))
    add("lossy_alpha.webp", encoded(blurred, "WEBP", quality=90), notes=[white], lossy=True)

    for name, options in (("444", dict(subsampling=0)), ("422", dict(subsampling=1)), ("420", dict(subsampling=2)),
                          ("progressive", dict(progressive=True)), ("restarts", dict(restart_marker_blocks=1))):
        add(f"jpeg_{name}.jpg", encoded(soft, "JPEG", quality=90, **options), lossy=True)
    add("gray.jpg", encoded(soft.convert("L"), "JPEG", quality=90), lossy=True)
    cmyk = encoded(soft.convert("CMYK"), "JPEG", quality=95)
    at = cmyk.index(b"Adobe")
    add("cmyk.jpg", cmyk, lossy=True)
    add("cmyk_without_adobe.jpg", cmyk[:at - 4] + cmyk[at + 12:], lossy=True)
    add("ycck.jpg", cmyk[:at + 11] + b"\x02" + cmyk[at + 12:], lossy=True)
    for kind in ("png", "jpg", "gif", "webp"):
        dot = Image.fromarray(np.array([[[200, 100, 50]]], np.uint8))
        options = {"jpg": dict(subsampling=0, quality=95), "webp": dict(lossless=True)}.get(kind, {})
        add(f"dot.{kind}", encoded(dot, {"jpg": "JPEG"}.get(kind, kind), **options), lossy=kind == "jpg")

    refused = []

    def refuse(name, data, message, size=None):
        FILES.joinpath(name).write_bytes(data)
        refused.append(dict(file=name, message=message, size=size))

    for name, kind, whole in (("cut.png", "PNG", encoded(image, "PNG")), ("cut.jpg", "JPEG", encoded(soft, "JPEG")),
                              ("cut_progressive.jpg", "JPEG", encoded(soft, "JPEG", progressive=True)),
                              ("cut.gif", "GIF", encoded(Image.fromarray(rgb).quantize(64), "GIF")),
                              ("cut.webp", "WebP", encoded(soft, "WEBP", quality=90)),
                              ("cut_lossless.webp", "WebP", encoded(image, "WEBP", lossless=True))):
        share = 0.97 if kind == "JPEG" else 0.8
        refuse(name, whole[:int(share * len(whole))], f"is cut off: the {kind} data ends before the picture does", [24, 16])
    refuse("huge.png", png(40000, 40000, 8, 2, []), "announces `40000x40000` pixels, `1600000000` in all; the limit is `178956970`")
    refuse("zero.png", png(0, 5, 8, 2, []), "has an empty picture of `0x5` pixels")
    refuse("text.png", b"not a picture\n", "is not a PNG, JPEG, GIF or WebP file")
    refuse("empty.jpg", b"", "is empty")
    refuse("frameless.gif", b"GIF89a\x04\0\x03\0\0\0\0;", "is a GIF file without a picture", [4, 3])
    return entries, refused


def main():
    HERE.mkdir(parents=True, exist_ok=True)
    FILES.mkdir(exist_ok=True)
    assert torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
    decoded, refused = media_files()
    parts = dict(resize=resize_cases(), planes=plane_cases(), normalise=normalise_cases(), patches=block_cases() + raster_cases(),
                 decoded=decoded, refused=refused)
    made_by = dict(torch=torch.__version__, torchvision=torchvision.__version__, transformers=transformers.__version__,
                   pillow=PIL.__version__)
    lines = ['{"made_by": ' + json.dumps(made_by)]
    for name, cases in parts.items():
        lines.append(f'"{name}": [\n' + ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases) + "\n]")
        print(name, len(cases))
    HERE.joinpath("cases.json").write_text(",\n".join(lines) + "}\n")


if __name__ == "__main__":
    main()
