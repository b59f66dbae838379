"""Weights as a formula: every element of every tensor follows from the checkpoint's seed, the tensor's published name and
the element's index, so that no weights need to be stored. `tests/common/formula.rs` computes the same bits.

All arithmetic is on unsigned 64-bit integers, wrapping, until the last two steps:

    h    = FNV-1a-64 of the UTF-8 bytes of "{seed}:{name}"            (offset basis 0xcbf29ce484222325, prime 0x100000001b3)
    z    = mix(h + (i + 1) * 0x9e3779b97f4a7c15)                      (i: index of the element in row-major order, from 0;
                                                                       this is output i of SplitMix64 started at h)
    mix(z): z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;  z ^ (z >> 31)
    x    = ((z >> 40) - 2^23) / 2^23                                  (24 bits: exact in f32, in [-1, 1))
    value = x * scale + offset                                        (f32: one rounded product, one rounded sum, not fused)

`weights.json` of a fixture states `seed` and, for each tensor in file order, `name`, `shape`, `offset` and `scale` (decimal
numbers, read as f64 and rounded to f32). `rows`, where present, lists rows of a matrix that use another scale. `fnv` is the
FNV-1a-64 of the little-endian bytes of all values in that order: whoever fills the tensors can check themselves.

Three test vectors (x, before scale and offset; the bits of the f32 in hexadecimal):

    seed 1,  name "lm_head.weight",                       i = 0      0.861790657043457 = 0x3f5c9e50
    seed 1,  name "lm_head.weight",                       i = 1000   -0.7660398483276367 = 0xbf441b30
    seed 42, name "visual.patch_embed.proj.weight",       i = 77     -0.40177416801452637 = 0xbecdb558
"""
import json
import re

import numpy as np

M64 = (1 << 64) - 1


def fnv1a(data, h=0xCBF29CE484222325):
    for b in data:
        h = ((h ^ b) * 0x100000001B3) & M64
    return h


def uniform(seed, name, count):
    """The first `count` values of x for one tensor: f32 in [-1, 1)."""
    h = np.uint64(fnv1a(f"{seed}:{name}".encode()))
    z = h + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    u = (z >> np.uint64(40)).astype(np.int64)
    return (u - (1 << 23)).astype(np.float32) / np.float32(1 << 23)


def tensor(seed, entry):
    """The values of one entry of weights.json, as an f32 array of its shape."""
    shape = entry["shape"]
    x = uniform(seed, entry["name"], int(np.prod(shape))).reshape(shape)
    value = x * np.float32(entry["scale"]) + np.float32(entry["offset"])
    for group in entry.get("rows", []):
        i = group["index"]
        value[i] = x[i] * np.float32(group["scale"]) + np.float32(entry["offset"])
    assert value.dtype == np.float32
    return value


# What learned vectors, tables and gates are called; first fit. Gates must not be 0, or what they gate would not be seen.
KINDS = (
    (r"(^|[._])(lambda_\d|\w*gate|gate_attn|gate_ffn|layer_scale\w*|gamma)$", 0.6, 0.17),
    (r"(cls_token|class_embedding|image_newline|view_separator|query_tokens|latents)$", 0.0, 0.9),
    (r"(position_embedding|pos_embed|positional_embedding|embed_positions|tile_embedding)", 0.0, 0.5),
)


def rule(name, shape, tied, damped, raised, special=()):
    """One entry of weights.json: offset and scale that keep activations of order 1. `damped` are the rows of tokens that
    greedy decoding must not choose (placeholders), `raised` those it should choose now and then (the ending tokens).
    `special` are a family's own rules: (pattern of names, offset, scale)."""
    leaf = name.rpartition(".")[2]
    fan_in = int(np.prod(shape[1:]))
    offset, scale, rows = 0.0, 1.9 / fan_in**0.5, []
    vocabulary = name.endswith(("embed_tokens.weight", "lm_head.weight", "wte.embedding"))
    own = next((r for r in special if re.search(r[0], name)), None)
    kind = next((r for r in KINDS if re.search(r[0], name)), None)
    if own:
        offset, scale = own[1:]
    elif name.endswith(("embed_tokens.weight", "wte.embedding", "wte.new_embedding")):
        scale = 1.2
    elif name.endswith("lm_head.weight"):
        scale *= 2
    elif kind and not (kind is KINDS[0] and fan_in > 1):
        offset, scale = kind[1:]
    elif leaf == "bias" or leaf.endswith("_bias"):
        scale = 0.17
    elif len(shape) == 1:
        offset, scale = 1.0, 0.17
        if tied and name in ("model.norm.weight", "language_model.model.norm.weight"):
            offset, scale = 0.0, 1.7  # random signs: with tied embeddings a token would otherwise predict itself
    elif name.endswith("_projection_weight"):  # applied from the right
        scale = 1.9 / shape[0] ** 0.5
    scale = round(scale, 4)
    if vocabulary:
        rows = [{"index": sorted(i for i in damped if i < shape[0]), "scale": round(scale * 0.05, 4)}]
        if raised and (tied or name.endswith("lm_head.weight")):
            rows.append({"index": sorted(raised), "scale": round(scale * 1.5, 4)})
    return {"name": name, "shape": list(shape), "offset": offset, "scale": scale, **({"rows": rows} if rows else {})}


def write_table(path, seed, entries):
    """weights.json: one line a tensor."""
    h = fnv1a(b"")
    for e in entries:
        h = fnv1a(tensor(seed, e).astype("<f4").tobytes(), h)
    with open(path, "w", encoding="utf-8") as f:
        f.write('{"seed": %d, "dtype": "F32", "fnv": "%016x", "tensors": [\n' % (seed, h))
        f.write(",\n".join("  " + json.dumps(e) for e in entries))
        f.write("\n]}\n")
