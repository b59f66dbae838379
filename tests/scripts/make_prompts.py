#!/usr/bin/env python3
"""Record the ids that reference processors (transformers 5.24.0) make of conversations.

    venv/bin/pip install torch==2.15.0 torchvision==0.29.2 transformers==5.24.0 numpy==2.4.6 pillow==13.0.0 jinja2==3.1.6 \\
        num2words timm
    venv/bin/python tests/scripts/make_prompts.py                     # write tests/fixtures/prompts/reference.json
    venv/bin/python tests/scripts/make_prompts.py --verify            # recompute and compare
    venv/bin/python tests/scripts/make_prompts.py --many 500 FILE     # more of them, for a comparison that is not kept

The folders are those of tests/fixtures/witness, and the published ones that come with their tokenizer. Conversations are drawn
at random, the same ones every time: several turns, system messages, plain strings and typed parts, pictures and clips between
texts whose edges hold spaces, line breaks and digits. Each goes through `apply_chat_template(tokenize=True)` with a generation
prompt; where there is no template, the texts of the first message and its pictures go to the processor itself.

A case holds the `messages`, the sizes of pictures (`image`: [width, height]) and clips (`audio`: samples) in order, and `ids`:
an id, or [id, how many in a row]. Where the reference fails there is `refused`, the name of its exception.
"""
import argparse
import copy
import json
import os
import random
import sys
import warnings

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["HF_HUB_OFFLINE"] = "1"
warnings.filterwarnings("ignore")

import numpy as np  # noqa: E402
from PIL import Image  # noqa: E402

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures")
RECORD = os.path.join(FIXTURES, "prompts", "reference.json")
PUBLISHED = ["HuggingFaceTB__SmolVLM-256M-Instruct", "llava-hf__llava-1.5-7b-hf"]
CASES = 12  # of every folder
MORE = 3  # times as many with a published tokenizer

TEXTS = [
    "What is this?", "Compare the two images.", "1", "a", "", " ", "\n", "\n\n", " x", "x ", "\nfoo", "foo\n", "\n x", "x \n",
    "  two  spaces ", "12345 and 678", "a  12", "x   3 \n1", "\n\n  7", "3.14159", "Grüße, 世界 😀", "a\n\nb", "a\n\n\nb",
    "don't \"quote\"", "{{ 7*7 }}", "tab\there", "\ttab", "trailing\n\n", "A:", "<b>html</b>", "▁x", "line\r\nend", "\u00a0nbsp",
]
SIZES = [(64, 48), (30, 200), (500, 40), (336, 336), (700, 500), (97, 131), (256, 768)]
LENGTHS = [1600, 5003, 16000, 20000, 48000]

# what the call of a processor sets, and what it is called in a family file
SET = {"gemma3crops": ({"do_pan_and_scan": True}, {"image.pan_and_scan": True})}

# these lay out one picture, and these none without a picture
ONE = ("blip2", "instructblip")
ALWAYS = ("paligemma",)


def text(draw):
    return draw.choice(TEXTS) + (draw.choice(TEXTS) if draw.random() < 0.25 else "")


def said(draw):
    words = text(draw)
    return words if draw.random() < 0.5 else [{"type": "text", "text": words}]


def conversation(draw, kinds, most):
    messages = []
    left = most
    if draw.random() < 0.3:
        messages.append({"role": "system", "content": said(draw)})
    turns = draw.choice([1, 1, 1, 2, 3])
    for turn in range(turns):
        if draw.random() < 0.12:
            content = text(draw)
        else:
            content = []
            for _ in range(draw.choice([1, 1, 2, 2, 3, 4])):
                if left and draw.random() < 0.5:
                    content.append({"type": draw.choice(kinds)})
                    left -= 1
                else:
                    content.append({"type": "text", "text": text(draw)})
            if left and draw.random() < 0.5 and all(part["type"] == "text" for part in content):
                content.insert(0, {"type": draw.choice(kinds)})
                left -= 1
        messages.append({"role": "user", "content": content})
        if turn < turns - 1 or draw.random() < 0.05:
            messages.append({"role": "assistant", "content": said(draw)})
    return messages


def parts(messages):
    return [part for message in messages if isinstance(message["content"], list) for part in message["content"]]


def runs(ids):
    """Ids, those in a row as [id, how many]."""
    found = []
    for token in ids:
        if found and found[-1][0] == token:
            found[-1][1] += 1
        else:
            found.append([token, 1])
    return [token if count == 1 else [token, count] for token, count in found]


def ids_of(name, processor, messages):
    if getattr(processor, "chat_template", None):
        more = {"processor_kwargs": dict(SET[name][0])} if name in SET else {}
        out = processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=True,
                                            return_tensors="np", **more)
    else:
        content = messages[0]["content"]
        content = [{"type": "text", "text": content}] if isinstance(content, str) else content
        words = "".join(part["text"] for part in content if part["type"] == "text")
        pictures = [part["image"] for part in content if part["type"] == "image"]
        if name == "paligemma":
            out = processor(text="<image>" * len(pictures) + words, images=[pictures], return_tensors="np")
        else:
            out = processor(text=words, images=pictures or None, return_tensors="np")
    return np.asarray(out["input_ids"])[0].tolist()


def record(name, folder, count):
    from transformers import AutoProcessor

    processor = AutoProcessor.from_pretrained(folder)
    kinds = [kind for kind, part in (("image", "image_processor"), ("audio", "feature_extractor")) if hasattr(processor, part)]
    draw = random.Random(name)
    cases = []
    while len(cases) < count:
        messages = conversation(draw, kinds, 1 if name in ONE else 4)
        if not getattr(processor, "chat_template", None):
            messages = [message for message in messages if message["role"] == "user"][:1]
        if name in ALWAYS and all(part["type"] == "text" for part in parts(messages)):
            continue
        case = {"messages": messages, "image": [], "audio": []}
        given = copy.deepcopy(messages)
        for part in parts(given):
            if part["type"] == "image":
                size = draw.choice(SIZES)
                case["image"].append(list(size))
                part["image"] = Image.new("RGB", size, (90, 50, 99))
            elif part["type"] == "audio":
                samples = draw.choice(LENGTHS)
                case["audio"].append(samples)
                part["audio"] = np.sin(np.arange(samples) / 9).astype(np.float32)
        try:
            case["ids"] = runs(ids_of(name, processor, given))
        except Exception as error:  # noqa: BLE001
            case["refused"] = type(error).__name__
        cases.append({key: value for key, value in case.items() if value != []})
    refused = sum("refused" in case for case in cases)
    print(f"{name}: {len(cases)} conversations, {refused} refused", flush=True)
    return {"folder": os.path.relpath(folder, FIXTURES), **({"set": SET[name][1]} if name in SET else {}), "cases": cases}


def save(path, records):
    """One line a conversation."""
    found = []
    for name, entry in records.items():
        lines = ",\n".join(json.dumps(case, ensure_ascii=False, separators=(",", ":")) for case in entry["cases"])
        head = json.dumps({key: value for key, value in entry.items() if key != "cases"})
        found.append(f'"{name}": {head[:-1]}, "cases": [\n{lines}\n]}}')
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write("{\n" + ",\n".join(found) + "\n}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verify", action="store_true", help="compare with what is stored, change nothing")
    parser.add_argument("--many", nargs=2, metavar=("N", "FILE"), help="write N conversations of every folder to FILE")
    options = parser.parse_args()
    witness = os.path.join(FIXTURES, "witness")
    folders = {name: os.path.join(witness, name) for name in sorted(os.listdir(witness)) if "." not in name}
    folders |= {name: os.path.join(FIXTURES, "checkpoints", name) for name in PUBLISHED}
    count, path = (int(options.many[0]), options.many[1]) if options.many else (CASES, RECORD)
    records = {name: record(name, folder, count * (MORE if name in PUBLISHED else 1)) for name, folder in folders.items()}
    if options.verify:
        with open(path, encoding="utf-8") as file:
            same = json.load(file) == json.loads(json.dumps(records))
        sys.exit(not same)
    save(path, records)


if __name__ == "__main__":
    main()
