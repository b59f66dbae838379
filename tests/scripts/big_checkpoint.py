#!/usr/bin/env python3
"""Write a checkpoint of a published model's geometry with random bf16 weights, to measure memory and time with.

    python3 tests/scripts/big_checkpoint.py gemma3-4b /tmp/gemma3-4b        # 8.6 GB, a minute or two
    python3 tests/scripts/big_checkpoint.py qwen2-vl-2b /tmp/qwen2-vl-2b    # 4.4 GB

Needs numpy. Names and shapes are those of tests/fixtures/layouts, config files those of tests/fixtures/checkpoints, the
tokenizer is the small one of tests/fixtures/witness: its ids of special tokens are written into the config. Weights are random, so
what the model says is noise.
"""
import json
import os
import re
import shutil
import struct
import sys

import numpy as np

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures")
MODELS = {  # layout -> (published folder, witness folder, numbers of layers that a count does not tell, tensors that are not stored)
    "gemma3-4b": ("google__gemma-3-4b-it", "gemma3", {}, ("language_model.lm_head.weight",)),
    "qwen2-vl-2b": ("Qwen__Qwen2-VL-2B-Instruct", "qwen2vl", {"visual.merger.mlp.N": (0, 2)}, ("lm_head.weight",)),
}
LAYOUT = "4.51.3 saved"
SHARD = 2_000_000_000


def tensors(model):
    """(name, shape) of every tensor, in order."""
    _, _, numbers, absent = MODELS[model]
    with open(os.path.join(FIXTURES, "layouts", model + ".json"), encoding="utf-8") as f:
        patterns = json.load(f)[LAYOUT]
    for pattern, (_, shapes) in patterns.items():
        if pattern in absent:
            continue
        flat = [json.loads(shape) for shape, count in shapes.items() for _ in range(count)]
        if not re.search(r"\bN\b", pattern):
            yield pattern, flat[0]
            continue
        known = numbers.get(pattern.rpartition(".")[0], range(len(flat)))
        for number, shape in zip(known, flat):
            yield re.sub(r"\bN\b", str(number), pattern), shape


def values(generator, name, shape):
    """Random bf16 values, as u16, that keep activations of order 1."""
    count = int(np.prod(shape))
    if len(shape) == 1:
        scale, offset = 0.1, (1.0 if name.endswith("weight") and "gemma" not in sys.argv[1] else 0.0)
    else:
        fan_in = shape[0] if name.endswith("mm_input_projection_weight") else int(np.prod(shape[1:]))
        scale, offset = 1.0 / fan_in**0.5, 0.0
    values = generator.standard_normal(count, dtype=np.float32) * np.float32(scale) + np.float32(offset)
    return (values.view(np.uint32) >> 16).astype(np.uint16)  # truncated: these are random anyway


def write_shard(path, shard, generator):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shard:
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name, shape in shard:
            f.write(values(generator, name, shape).tobytes())


def main():
    model, folder = sys.argv[1:3]
    published, witness, _, _ = MODELS[model]
    os.makedirs(folder, exist_ok=True)
    published, witness = os.path.join(FIXTURES, "checkpoints", published), os.path.join(FIXTURES, "witness", witness)
    for source, keep in ((published, lambda name: name.endswith("config.json")), (witness, lambda name: name != "config.json")):
        for name in os.listdir(source):
            if name.endswith(".json") and keep(name) and name != "reference.json":
                shutil.copyfile(os.path.join(source, name), os.path.join(folder, name))
    config, small = (json.load(open(os.path.join(d, "config.json"), encoding="utf-8")) for d in (published, witness))
    config.update({k: v for k, v in small.items() if k.endswith(("_token_id", "_token_index"))})
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f, indent=2)
    generation = os.path.join(folder, "generation_config.json")
    if os.path.exists(generation):
        os.remove(generation)  # its ending tokens are not those of the small tokenizer
    shards, size = [[]], 0
    for name, shape in tensors(model):
        if size > SHARD:
            shards.append([])
            size = 0
        shards[-1].append((name, shape))
        size += 2 * int(np.prod(shape))
    generator, index = np.random.default_rng(0), {}
    for number, shard in enumerate(shards, 1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        write_shard(os.path.join(folder, name), shard, generator)
        index.update({tensor: name for tensor, _ in shard})
        print(name, len(shard), "tensors", flush=True)
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as f:
        json.dump({"metadata": {}, "weight_map": index}, f)


if __name__ == "__main__":
    main()
