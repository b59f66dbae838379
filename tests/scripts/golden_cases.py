"""The prompts of the goldens, and the pictures and clips in them: all of it by formula."""
import os

import numpy as np
from PIL import Image

WIDE, TALL, SMALL, FIRST, SECOND, SQUARE = (96, 40, 0), (34, 90, 0), (13, 9, 0), (50, 37, 0), (21, 64, 1), (80, 80, 0)
RATE = 16000  # of every clip


def image_array(width, height, k):
    """Picture number k: u8 [height, width, 3]. Harsh on purpose: the values wrap around."""
    y, x = np.mgrid[0:height, 0:width].astype(np.int64)
    return np.stack([(5 * x + 3 * y + 40 * k) % 256, (x * y + 7 * k) % 256, (255 - 2 * x - 9 * y) % 256], -1).astype(np.uint8)


def image_name(width, height, k):
    return f"{width}x{height}_{k}.png"


def write_images(folder):
    os.makedirs(folder, exist_ok=True)
    for i in (WIDE, TALL, SMALL, FIRST, SECOND, SQUARE):
        path = os.path.join(folder, image_name(*i))
        if not os.path.exists(path):
            Image.fromarray(image_array(*i)).save(path, optimize=True)


def clip_array(samples, k):
    """Clip number k: i16 [samples]. A saw whose frequency rises, on noise; integers alone, so that every language agrees."""
    i = np.arange(samples, dtype=np.int64)
    return ((i * i // 64 * (3 + k) + i * 29) % 8192 - 4096 + (i * 7919 + k * 104729) % 4099 - 2049).astype(np.int16)


def clip_name(samples, k):
    return f"{samples}_{k}.wav"


def parse_clip(name):
    """The samples that a file of that name holds: f32 in [-1, 1)."""
    samples, k = name.removesuffix(".wav").split("_")
    return clip_array(int(samples), int(k)).astype(np.float32) / np.float32(32768)


def user(*parts):
    """A user message: strings are text, tuples of three are pictures, of two are clips."""
    def part(p):
        if isinstance(p, str):
            return {"type": "text", "text": p}
        return {"type": "image", "image": image_name(*p)} if len(p) == 3 else {"type": "audio", "audio": clip_name(*p)}
    return {"role": "user", "content": [part(p) for p in parts]}


def said(role, text):
    return {"role": role, "content": [{"type": "text", "text": text}]}


def image_cases(marker):
    """name -> messages, or (prompt without a template, its items)."""
    return {
        "wide": [user(WIDE, "What is in this picture?")],
        "tall": [user(TALL, "What is in this picture?")],
        "small": [user(SMALL, "What is in this picture?")],
        "two": [user(FIRST, SECOND, "Compare the two images.")],
        "between": [user("Look at ", FIRST, " first, then at ", SMALL, " and say which one is larger.")],
        "text": [user("Describe a small cat, naïve façade 猫 🐈.")],
        "system": [said("system", "Answer in one short sentence."), user(TALL, "What is this?"),
                   said("assistant", "A lazy dog."), user("Is it larger than the mat?")],
        "raw": (f"The first: {marker}\n\nand the second: {marker} are", [SECOND, FIRST]),
    }


def square_cases(marker):
    """And a picture with equal sides."""
    return {**image_cases(marker), "square": [user(SQUARE, "What is in this picture?")]}


def bare_cases(_marker):
    """Where there is no chat template: pictures, then a text."""
    return {
        "wide": [user(WIDE, "What is in this picture?")],
        "tall": [user(TALL, "What is in this picture?")],
        "small": [user(SMALL, "describe")],
        "two": [user(FIRST, SECOND, "Compare the two images.")],
        "words": [user(FIRST, "Describe a small cat, naïve façade 猫 🐈, and say which one is larger.")],
        "text": [user("Describe a small cat.")],
    }


def cross_cases(marker):
    """For items behind cross-attention: each text sees the latest picture only, a text before any sees none."""
    return {
        **image_cases(marker),
        "between": [user(FIRST, " first, then ", SMALL, " and say which one is larger.")],
        "before": [user("Look at this picture: ", WIDE)],
        "adjacent": [user("Look at the dog first: ", FIRST, SECOND, " and say which one is larger.")],
        "turns": [user(TALL, "What is this?"), said("assistant", "A lazy dog."), user(WIDE, "And this?")],
    }


def audio_cases(marker):
    """Clips; the limit of the tiny extractors is 2 seconds."""
    return {
        "short": [user((6560, 0), "What do you hear?")],
        "long": [user((27680, 1), "What do you hear in the audio?")],
        "two": [user((11200, 0), (17601, 1), "Compare the two.")],
        "between": [user("First ", (4801, 0), " then ", (9599, 1), " and which one is larger?")],
        "text": [user("Describe a small cat, naïve façade 猫 🐈.")],
        "alone": [user((1, 0), "What do you hear?")],
        "one": [user((1, 0), (4801, 1), "Compare the two.")],
        "none": [user((4801, 0), (0, 1), "Compare the two.")],
        "limit": [user((32000, 0), "What do you hear?")],
        "beyond": [user((40001, 0), "What do you hear?")],
        "system": [said("system", "Answer in one short sentence."), user((9921, 0), "What is this?"),
                   said("assistant", "A lazy dog."), user("Is it larger than the mat?")],
        "raw": (f"The first: {marker}\n\nand the second: {marker} are", [(1761, 1), (8000, 0)]),
    }


def name_of(item):
    return image_name(*item) if len(item) == 3 else clip_name(*item)


def items_of(messages, kind):
    return [p[kind] for m in messages if isinstance(m["content"], list) for p in m["content"] if p["type"] == kind]
