#!/usr/bin/env python3
"""Write a checkpoint of a published model's geometry with random bf16 weights, to measure memory and time with.

    python3 tests/scripts/big_checkpoint.py gemma3-4b /tmp/gemma3-4b        # 8.6 GB, a minute or two
    python3 tests/scripts/big_checkpoint.py qwen2-vl-2b /tmp/qwen2-vl-2b    # 4.4 GB
    python3 tests/scripts/big_checkpoint.py gemma3-4b /tmp/tower --layers 1 --image-size 384   # the tower alone counts, 2.3 GB

`--layers` cuts the decoder short, `--image-size` changes what the tower sees. Needs numpy. Names and shapes are those of tests/fixtures/layouts, config files those of tests/fixtures/checkpoints, the
tokenizer is the small one of tests/fixtures/witness: its ids of special tokens are written into the config. Weights are random, so
what the model says is noise.
"""
import argparse
import json
import os
import re
import shutil
import struct

import numpy as np

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures")
MODELS = {  # layout -> (published folder, witness folder, numbers of layers that a count does not tell, tensors that are not stored)
    "gemma3-4b": ("google__gemma-3-4b-it", "gemma3", {}, ("language_model.lm_head.weight",)),
    "qwen2-vl-2b": ("Qwen__Qwen2-VL-2B-Instruct", "qwen2vl", {"visual.merger.mlp.N": (0, 2)}, ("lm_head.weight",)),
}
LAYOUT = "4.51.3 saved"
SHARD = 2_000_000_000


def tensors(model, layers, patches):
    """(name, shape) of every tensor, in order; of a decoder's layers those below `layers`, positions for `patches`, if not None."""
    _, _, numbers, absent = MODELS[model]
    with open(os.path.join(FIXTURES, "layouts", model + ".json"), encoding="utf-8") as f:
        patterns = json.load(f)[LAYOUT]
    for pattern, (_, shapes) in patterns.items():
        if pattern in absent:
            continue
        flat = [json.loads(shape) for shape, count in shapes.items() for _ in range(count)]
        if patches is not None and pattern.endswith("position_embedding.weight"):
            flat[0][0] = patches
        if not re.search(r"\bN\b", pattern):
            yield pattern, flat[0]
            continue
        known = numbers.get(pattern.rpartition(".")[0], range(len(flat)))
        for number, shape in zip(known, flat):
            if layers is not None and number >= layers and re.search(r"(^|language_model\.)model\.layers\.N\.", pattern):
                continue
            yield re.sub(r"\bN\b", str(number), pattern), shape


def values(generator, name, shape, one):
    """Random bf16 values, as u16, that keep activations of order 1; weights of norms are around 1 if `one`."""
    count = int(np.prod(shape))
    if len(shape) == 1:
        scale, offset = 0.1, (1.0 if name.endswith("weight") and one else 0.0)
    else:
        fan_in = shape[0] if name.endswith("mm_input_projection_weight") else int(np.prod(shape[1:]))
        scale, offset = 1.0 / fan_in**0.5, 0.0
    values = generator.standard_normal(count, dtype=np.float32) * np.float32(scale) + np.float32(offset)
    return (values.view(np.uint32) >> 16).astype(np.uint16)  # truncated: these are random anyway


def write_shard(path, shard, generator, one):
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
            f.write(values(generator, name, shape, one).tobytes())


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("model", choices=MODELS)
    ap.add_argument("folder")
    ap.add_argument("--layers", type=int, help="of the decoder")
    ap.add_argument("--image-size", type=int, help="side of the square that the tower of gemma3-4b sees, in pixels")
    a = ap.parse_args()
    model, folder = a.model, a.folder
    published, witness, _, _ = MODELS[model]
    os.makedirs(folder, exist_ok=True)
    published, witness = os.path.join(FIXTURES, "checkpoints", published), os.path.join(FIXTURES, "witness", witness)
    for source, keep in ((published, lambda name: name.endswith("config.json")), (witness, lambda name: name != "config.json")):
        for name in os.listdir(source):
            if name.endswith(".json") and keep(name) and name != "reference.json":
                shutil.copyfile(os.path.join(source, name), os.path.join(folder, name))
    config, small = (json.load(open(os.path.join(d, "config.json"), encoding="utf-8")) for d in (published, witness))
    config.update({k: v for k, v in small.items() if k.endswith(("_token_id", "_token_index"))})
    if a.layers is not None:
        config.get("text_config", config)["num_hidden_layers"] = a.layers
    patches = None
    if a.image_size is not None:
        patches = (a.image_size // config["vision_config"]["patch_size"]) ** 2
        config["vision_config"]["image_size"] = a.image_size
        config["mm_tokens_per_image"] = patches  # nothing is pooled: the published pooling needs 64 patches a side
        for name in ("preprocessor_config.json", "processor_config.json"):
            path = os.path.join(folder, name)
            with open(path, encoding="utf-8") as f:
                settings = json.load(f)
            if "size" in settings:
                settings["size"] = {"height": a.image_size, "width": a.image_size}
            settings["image_seq_length"] = patches
            with open(path, "w", encoding="utf-8") as f:
                json.dump(settings, f, indent=2)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f, indent=2)
    generation = os.path.join(folder, "generation_config.json")
    if os.path.exists(generation):
        os.remove(generation)  # its ending tokens are not those of the small tokenizer
    shards, size = [[]], 0
    for name, shape in tensors(model, a.layers, patches):
        if size > SHARD:
            shards.append([])
            size = 0
        shards[-1].append((name, shape))
        size += 2 * int(np.prod(shape))
    generator, index = np.random.default_rng(0), {}
    for number, shard in enumerate(shards, 1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        write_shard(os.path.join(folder, name), shard, generator, "gemma" not in model)
        index.update({tensor: name for tensor, _ in shard})
        print(name, len(shard), "tensors", flush=True)
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as f:
        json.dump({"metadata": {}, "weight_map": index}, f)


if __name__ == "__main__":
    main()
