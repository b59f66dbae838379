#!/usr/bin/env python3
"""PyTorch on the weights of a checkpoint: a round for every line that comes in. `torch_peer.py CKPT tower|decoder bf16|f32 [TOKENS STEPS]`"""
import json
import os
import sys
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch  # noqa: E402
import transformers  # noqa: E402
from safetensors import safe_open  # noqa: E402


def tensors(folder, prefix, cut):
    """The tensors below `prefix`, named without `cut`."""
    with open(os.path.join(folder, "model.safetensors.index.json"), encoding="utf-8") as f:
        names = json.load(f)["weight_map"]
    found = {}
    for file in sorted(set(names.values())):
        with safe_open(os.path.join(folder, file), "pt") as f:
            found.update({name[len(cut):]: f.get_tensor(name) for name in f.keys() if name.startswith(prefix)})
    return found


def build(cls, config, weights, dtype):
    with torch.device("meta"):
        model = cls(config)
    model.to_empty(device="cpu").to(dtype)
    missing, unexpected = model.load_state_dict(weights, strict=False)
    missing = [name for name in missing if not name.endswith(("position_ids", "inv_freq")) and name != "lm_head.weight"]
    assert not missing and not unexpected, (missing, unexpected)
    return model.eval()


def tower(folder, config, dtype):
    config = transformers.SiglipVisionConfig(**config["vision_config"])
    config._attn_implementation = "sdpa"
    weights = tensors(folder, "vision_tower.", "vision_tower.vision_model.")
    cls = transformers.SiglipVisionModel
    if any(name.startswith("vision_model.") for name in cls(transformers.SiglipVisionConfig(
            hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, image_size=14, patch_size=14)).state_dict()):
        weights = {"vision_model." + name: value for name, value in weights.items()}
    model = build(cls, config, weights, dtype)
    for module in model.modules():
        if hasattr(module, "position_ids"):
            module.position_ids = torch.arange(module.num_positions)[None]
    pixels = torch.rand(1, 3, config.image_size, config.image_size, dtype=dtype) * 2 - 1

    def run():
        start = time.perf_counter()
        rows = model(pixels).last_hidden_state
        return {"encode": time.perf_counter() - start, "rows": list(rows.shape)}
    return run


def decoder(folder, config, dtype, tokens, steps):
    keys = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
            "rms_norm_eps", "max_position_embeddings")
    config = transformers.Qwen2Config(**{k: config[k] for k in keys}, tie_word_embeddings=True)
    config._attn_implementation = "sdpa"
    model = build(transformers.Qwen2ForCausalLM, config, tensors(folder, "model.", ""), dtype)
    model.tie_weights()
    # what `to_empty` left undefined
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    ids = torch.randint(0, 1000, (1, tokens))

    def run():
        start = time.perf_counter()
        out = model(ids, use_cache=True, logits_to_keep=1)
        prefill = time.perf_counter() - start
        cache, token = out.past_key_values, out.logits[:, -1].argmax(-1, keepdim=True)
        start = time.perf_counter()
        for _ in range(steps):
            out = model(token, past_key_values=cache, use_cache=True)
            token = out.logits[:, -1].argmax(-1, keepdim=True)
        return {"prefill": prefill, "decode": (time.perf_counter() - start) / max(steps, 1)}
    return run


def main():
    folder, what, dtype = sys.argv[1:4]
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(0)
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    dtype = {"bf16": torch.bfloat16, "f32": torch.float32}[dtype]
    run = tower(folder, config, dtype) if what == "tower" else decoder(folder, config, dtype, *map(int, sys.argv[4:6]))
    print("ready", flush=True)
    with torch.inference_mode():
        for _ in sys.stdin:
            print(json.dumps(run()), flush=True)


if __name__ == "__main__":
    main()
