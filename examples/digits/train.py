#!/usr/bin/env python3
"""Train a small Qwen2-VL that reads handwritten numbers, and write it down as a published checkpoint is laid out.

    pip install torch torchvision transformers==5.24.0 scikit-learn pillow safetensors
    python train.py train         # weights, config, tokenizer, preprocessor settings -> this folder
    python train.py pictures      # 500 held-out pictures -> pictures/
    python train.py evaluate      # the reference processor and model read them -> pictures/labels.tsv

The digits are real: scikit-learn's `load_digits`, 1 797 samples of 8 x 8 pixels. The last 400 samples are in the
held-out pictures only; every 20th of the other 1 397 picks the best weights; the rest are trained on. A training
picture is one to six samples in a row, each scaled, turned, sheared and bent a little, with uneven gaps, on noisy
paper. Everything random comes from SEED. See README.md for the accuracy and for how long this took.
"""
import argparse
import collections
import copy
import json
import math
import os
import pathlib
import tempfile
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
SEED = 20
HELD_OUT = 400                 # the last samples of load_digits, never trained on
VALIDATION_STEP = 20           # every 20th training sample is kept for choosing the weights
PICTURES = 500
BATCH = 64
RATES = (0, 300, 4550, 7000, 7750), (0, 1e-3, 1e-3, 5.1e-4, 1e-5)     # learning rate at these steps; linear between
STEPS = RATES[0][-1]

HEIGHT, PATCH, MERGE = 24, 6, 2
UNIT = PATCH * MERGE           # both sides of a picture reach the model as a multiple of this
MAX_DIGITS = 6
MEAN = [0.48145466, 0.4578275, 0.40821073]
STD = [0.26862954, 0.26130258, 0.27577711]

PROMPT = "Read the number."
PROMPTS = [PROMPT, PROMPT, PROMPT, "What number is this?", "Which digits do you see?", "What is in this picture?"]
SYSTEM = "You are a helpful assistant."
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>",
            "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>",
            "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}<|im_start|>system\n"
    "You are a helpful assistant.<|im_end|>\n{% endif %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}<|im_end|>\n{% else %}"
    "{% for content in message['content'] %}{% if content['type'] == 'image' or 'image' in content %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% elif content['type'] == 'video' or 'video' in content %}"
    "<|vision_start|><|video_pad|><|vision_end|>{% elif 'text' in content %}{{ content['text'] }}{% endif %}"
    "{% endfor %}<|im_end|>\n{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


# ------------------------------------------------------------------------------------------------ pictures
def load_samples():
    """The samples as ink in 0..1 [n, 8, 8], their labels, and the indices to train on, to validate with, held out."""
    from sklearn.datasets import load_digits

    data = load_digits()
    ink = torch.from_numpy(data.images.astype(np.float32) / 16)
    seen = np.arange(len(ink) - HELD_OUT)
    keep = seen % VALIDATION_STEP == VALIDATION_STEP // 2
    return ink, data.target, seen[~keep], seen[keep], np.arange(len(ink) - HELD_OUT, len(ink))


class Writer:
    """Draws numbers. `strength` scales the distortion: 1 for training, 0.5 for the validation and held-out pictures."""

    def __init__(self, ink, labels, indices, strength, rng):
        self.ink, self.labels, self.indices, self.strength, self.rng = ink, labels, indices, strength, rng
        self.by_digit = [indices[labels[indices] == d] for d in range(10)]
        column = (ink.amax(1) > 0.2).numpy()
        self.left = column.argmax(1) - 4.0                       # ink bounds, in source pixels from the centre
        self.right = 4.0 - column[:, ::-1].argmax(1)

    def plan(self, samples):
        """Choose size, place and distortion of a row of samples; the free width of the picture follows from them."""
        k, s, u = len(samples), self.strength, self.rng.uniform
        scale = u(1.85, 2.6) * (1 + s * u(-0.1, 0.1, k))         # picture pixels per source pixel
        aspect = 1 + s * u(-0.22, 0.22, k) + u(-0.08, 0.08)
        angle = s * u(-0.18, 0.18, k) + s * u(-0.08, 0.08)
        shear = s * u(-0.2, 0.2, k) + s * u(-0.12, 0.12)
        wide = scale * aspect
        gaps = u(1.0, 2.5) + u(0.0, 4.0, k + 1)                  # uneven gaps; the outer two are the margins
        x, centres = gaps[0] + 1, []
        for i, n in enumerate(samples):
            centres.append(x - self.left[n] * wide[i])
            x += (self.right[n] - self.left[n]) * wide[i] + gaps[i + 1]
        room = (HEIGHT - 8 * scale) / 2
        return {"samples": np.asarray(samples), "width": int(max(UNIT, round(x + 1))), "scale": scale, "wide": wide,
                "angle": angle, "shear": shear, "x": np.asarray(centres),
                "y": HEIGHT / 2 + room * u(-0.6, 0.6) + s * u(-1.2, 1.2, k)}

    def draw(self, plans, width):
        """The pictures of all `plans`, stretched to one width: uint8 [n, HEIGHT, width]."""
        rng, s, cell, pad = self.rng, self.strength, 32, 32
        stretch = np.array([width / p["width"] for p in plans])
        slot = np.concatenate([np.arange(len(p["samples"])) for p in plans])
        row = np.concatenate([np.full(len(p["samples"]), i) for i, p in enumerate(plans)])
        g = {k: np.concatenate([p[k] for p in plans]) for k in ("samples", "scale", "wide", "angle", "shear", "x", "y")}
        n = len(row)

        ink = self.ink[g["samples"]]
        if s >= 1:  # sometimes blend with another sample of the same digit
            other = np.array([rng.choice(self.by_digit[d]) for d in self.labels[g["samples"]]])
            share = np.where(rng.random(n) < 0.3, rng.uniform(0, 0.5, n), 0)
            ink = ink + torch.from_numpy(share).float()[:, None, None] * (self.ink[other] - ink)

        # where each pixel of a glyph's cell comes from in the 8 x 8 sample
        x = g["x"] * stretch[row]
        x0 = np.floor(x).astype(int) - cell // 2
        px = (np.arange(cell) + 0.5)[None, None, :] + (x0 - x)[:, None, None]
        py = (np.arange(HEIGHT) + 0.5)[None, :, None] - g["y"][:, None, None]
        px = px / (g["wide"] * stretch[row])[:, None, None]
        py = py / g["scale"][:, None, None]
        px = px + g["shear"][:, None, None] * py
        c, d = np.cos(g["angle"])[:, None, None], np.sin(g["angle"])[:, None, None]
        grid = torch.from_numpy(np.stack([c * px + d * py, c * py - d * px], -1) / 4).float()
        bend = torch.from_numpy(rng.normal(0, 0.1 * s, (n, 2, 4, 4))).float()
        grid = grid + F.interpolate(bend, (HEIGHT, cell), mode="bicubic", align_corners=True).permute(0, 2, 3, 1)
        ink = F.grid_sample(ink[:, None], grid, mode="bicubic", align_corners=False)[:, 0].clamp(0, 1)
        ink = ink ** torch.from_numpy(np.exp(s * rng.uniform(-0.5, 0.5, n))).float()[:, None, None]

        canvas = torch.zeros(len(plans), HEIGHT, width + 2 * pad)
        for k in range(slot.max() + 1):
            here = np.flatnonzero(slot == k)
            at = torch.from_numpy(np.clip(x0[here] + pad, 0, width + 2 * pad - cell))[:, None, None]
            at = (at + torch.arange(cell)).expand(-1, HEIGHT, -1)
            part = canvas[row[here]]
            canvas[row[here]] = part.scatter_reduce(2, at, ink[here], "amax")
        canvas = canvas[:, :, pad:pad + width].numpy()

        paper, pen = rng.uniform(200, 255, (len(plans), 1, 1)), rng.uniform(0, 90, (len(plans), 1, 1))
        noise = rng.standard_normal(canvas.shape, dtype=np.float32) * rng.uniform(0, 6, (len(plans), 1, 1))
        return np.clip(paper + (pen - paper) * canvas + noise, 0, 255).round().astype(np.uint8)

    def number(self, digits):
        return self.plan(self.rng.choice(self.indices, digits))


def to_patches(pictures):
    """What Qwen2VLImageProcessor makes of gray pictures [n, h, w] whose sides are multiples of UNIT."""
    n, h, w = pictures.shape
    x = (torch.from_numpy(pictures).float() / 255).view(n, 1, h // UNIT, MERGE, PATCH, w // UNIT, MERGE, PATCH)
    x = x.permute(0, 2, 5, 3, 6, 1, 4, 7).unsqueeze(6)           # n, rows, columns, merge, merge, channel, 1, p, p
    mean, std = (torch.tensor(v).view(3, 1, 1, 1) for v in (MEAN, STD))
    x = ((x - mean) / std).expand(*x.shape[:5], 3, 2, PATCH, PATCH)
    return x.reshape(n * (h // PATCH) * (w // PATCH), -1)


# ---------------------------------------------------------------------------------------------- checkpoint
def write_json(path, value):
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_settings(out):
    """Everything of the checkpoint but the weights. Returns the tokenizer."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.NFC()
    words = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
             r"|\s+(?!\S)|\s+")
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(words), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator([SYSTEM, *PROMPTS, "system", "user", "assistant"], trainers.BpeTrainer(
        vocab_size=1000, min_frequency=1, show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIALS])
    tok.save(str(out / "tokenizer.json"))
    t = tok.token_to_id
    tokens = {"bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "unk_token": None}
    write_json(out / "tokenizer_config.json", {
        "added_tokens_decoder": {str(t(s)): {"content": s, "lstrip": False, "normalized": False, "rstrip": False,
                                             "single_word": False, "special": True} for s in SPECIALS},
        **tokens, "clean_up_tokenization_spaces": False, "model_max_length": 32768, "padding_side": "left",
        "processor_class": "Qwen2VLProcessor", "tokenizer_class": "PreTrainedTokenizerFast"})
    write_json(out / "special_tokens_map.json", {k: v for k, v in tokens.items() if v})
    write_json(out / "chat_template.json", {"chat_template": CHAT_TEMPLATE})
    write_json(out / "generation_config.json", {
        "bos_token_id": t("<|endoftext|>"), "do_sample": False, "eos_token_id": [t("<|im_end|>"), t("<|endoftext|>")],
        "pad_token_id": t("<|endoftext|>"), "transformers_version": "4.57.0"})
    write_json(out / "preprocessor_config.json", {
        "min_pixels": UNIT * UNIT, "max_pixels": 64 * UNIT * UNIT, "patch_size": PATCH, "temporal_patch_size": 2,
        "merge_size": MERGE, "image_mean": MEAN, "image_std": STD, "image_processor_type": "Qwen2VLImageProcessor",
        "processor_class": "Qwen2VLProcessor"})
    write_json(out / "config.json", {
        "architectures": ["Qwen2VLForConditionalGeneration"], "attention_dropout": 0.0,
        "bos_token_id": t("<|endoftext|>"), "eos_token_id": t("<|im_end|>"),
        "vision_start_token_id": t("<|vision_start|>"), "vision_end_token_id": t("<|vision_end|>"),
        "vision_token_id": t("<|vision_pad|>"), "image_token_id": t("<|image_pad|>"),
        "video_token_id": t("<|video_pad|>"), "hidden_act": "silu", "hidden_size": 128, "initializer_range": 0.06,
        "intermediate_size": 320, "max_position_embeddings": 2048, "max_window_layers": 4, "model_type": "qwen2_vl",
        "num_attention_heads": 4, "num_hidden_layers": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
        # a row of digits is told apart along its width: most of the rotary channels, and a short period, go there
        "rope_theta": 100.0, "rope_scaling": {"type": "mrope", "mrope_section": [3, 3, 10]},
        "sliding_window": 2048, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
        "transformers_version": "4.57.0", "use_cache": True, "use_sliding_window": False,
        "vision_config": {"depth": 4, "embed_dim": 128, "mlp_ratio": 4, "num_heads": 4, "in_chans": 3,
                          "hidden_size": 128, "patch_size": PATCH, "spatial_merge_size": MERGE,
                          "spatial_patch_size": PATCH, "temporal_patch_size": 2},
        "vocab_size": -(-tok.get_vocab_size(with_added_tokens=True) // 8) * 8})
    return tok


def published_name(name):
    """transformers 5 names the two halves `model.visual` and `model.language_model`; a published file does not."""
    return name.replace("model.visual.", "visual.").replace("model.language_model.", "model.")


def write_weights(out, state):
    from safetensors.torch import save_file

    tensors = {published_name(k): v.to(torch.bfloat16).contiguous() for k, v in state.items() if k != "lm_head.weight"}
    save_file(tensors, out / "model.safetensors.part", metadata={"format": "pt"})
    os.chmod(out / "model.safetensors.part", 0o644)
    os.replace(out / "model.safetensors.part", out / "model.safetensors")


# ------------------------------------------------------------------------------------------------ training
def attend_within_pictures(self, hidden_states, cu_seqlens, position_embeddings, **_):
    """VisionAttention.forward for pictures of one size: the reference loops over them, this takes them at once."""
    from transformers.models.qwen2_vl.modeling_qwen2_vl import apply_rotary_pos_emb_vision

    n, dim = len(cu_seqlens) - 1, hidden_states.shape[-1]
    q, k, v = self.qkv(hidden_states).view(len(hidden_states), 3, self.num_heads, -1).unbind(1)
    q, k = apply_rotary_pos_emb_vision(q, k, *position_embeddings)
    q, k, v = (x.reshape(n, -1, *x.shape[1:]).transpose(1, 2) for x in (q, k, v))
    x = (q @ k.transpose(2, 3) * self.scaling).softmax(-1) @ v
    return self.proj(x.transpose(1, 2).reshape(-1, dim))


class Trainee:
    """The reference model, fed with batches of pictures of one width (same grid, same prompt, answers padded right)."""

    def __init__(self, model, tok):
        self.model, self.tok, self.prompts = model, tok, {}

    def prompt(self, text, columns):
        """Ids of the rendered prompt and the M-RoPE positions of prompt and answer, as the reference computes them."""
        if (text, columns) not in self.prompts:
            t = self.tok.token_to_id
            rendered = (f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n<|vision_start|><|image_pad|>"
                        f"<|vision_end|>{text}<|im_end|>\n<|im_start|>assistant\n")
            rows = HEIGHT // UNIT
            ids = self.tok.encode(rendered.replace("<|image_pad|>", "<|image_pad|>" * rows * columns)).ids
            full = torch.tensor([ids + [t("0")] * (MAX_DIGITS + 1)])
            kind = (full == t("<|image_pad|>")).int()
            grid = torch.tensor([[1, rows * MERGE, columns * MERGE]])
            where = self.model.model.get_rope_index(full, mm_token_type_ids=kind, image_grid_thw=grid)[0]
            self.prompts[text, columns] = ids, where, ids.index(t("<|image_pad|>"))
        return self.prompts[text, columns]

    def hidden(self, pictures, text, answers):
        """Final hidden states from the prompt's last token on, for `answers` [n, k] following the prompt."""
        n, h, w = pictures.shape
        inner, lm = self.model.model, self.model.model.language_model
        ids, where, start = self.prompt(text, w // UNIT)
        grid = torch.tensor([[1, h // PATCH, w // PATCH]]).expand(n, 3)
        seen = inner.visual(to_patches(pictures), grid_thw=grid).pooler_output
        seen = seen.view(n, -1, seen.shape[-1])
        # what comes before the picture is the same in all rows: one row's keys and values do for all
        shared = lm.embed_tokens(torch.tensor([ids[:start]]))
        cache = lm(inputs_embeds=shared, position_ids=where[:, :, :start], use_cache=True).cache
        for layer in cache.layers:
            layer.keys, layer.values = (x.expand(n, -1, -1, -1) for x in (layer.keys, layer.values))
        embeds = lm.embed_tokens(torch.cat([torch.tensor([ids[start + seen.shape[1]:]]).expand(n, -1), answers], 1))
        embeds = torch.cat([seen.to(embeds.dtype), embeds], 1)
        where = where[:, :, start:start + embeds.shape[1]].expand(3, n, -1)
        out = lm(inputs_embeds=embeds, position_ids=where, cache=cache, use_cache=True).last_hidden_state
        return out[:, len(ids) - 1 - start:]

    def loss(self, pictures, text, labels):
        """Cross entropy over the answers alone; `labels` [n, k] are padded with -100."""
        hidden = self.hidden(pictures, text, labels[:, :-1].clamp(min=0))
        logits = self.model.lm_head(hidden).float()
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)


def answer_ids(tok, labels, plans):
    """Digits, <|im_end|>, padding: [n, longest + 1]."""
    longest = max(len(p["samples"]) for p in plans)
    out = torch.full((len(plans), longest + 1), -100)
    for row, p in zip(out, plans):
        ids = [tok.token_to_id(str(d)) for d in labels[p["samples"]]] + [tok.token_to_id("<|im_end|>")]
        row[:len(ids)] = torch.tensor(ids)
    return out


def rounded(width):
    """The width the reference resizes to."""
    return max(1, round(width / UNIT)) * UNIT


def next_batch(writer, waiting, size, longest):
    """Plan numbers until `size` of them, one batch, come out equally wide; the others wait for a later call."""
    while True:
        plan = writer.number(writer.rng.integers(1, longest + 1))
        width = rounded(plan["width"])
        waiting.setdefault(width, []).append(plan)
        if len(waiting[width]) == size:
            return width, waiting.pop(width)


@torch.no_grad()
def validate(trainee, tok, labels, sets):
    """Teacher-forced (right digits, right numbers) over pictures grouped by width, and the mean loss."""
    digits = total = numbers = count = 0
    losses = []
    for pictures, plans in sets:
        want = answer_ids(tok, labels, plans)
        logits = trainee.model.lm_head(trainee.hidden(pictures, PROMPT, want[:, :-1].clamp(min=0))).float()
        losses.append(F.cross_entropy(logits.flatten(0, 1), want.flatten(), ignore_index=-100, reduction="none").sum())
        right = (logits.argmax(-1) == want) | (want < 0)
        digits, total = digits + int((right & (want >= 0)).sum()), total + int((want >= 0).sum())
        numbers, count = numbers + int(right.all(1).sum()), count + len(want)
    return digits / total, numbers / count, float(sum(losses)) / total


def train(a):
    a.out.mkdir(parents=True, exist_ok=True)
    write_settings(a.out)
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (a, f"file://{folder}/meet"), a.workers)


def work(rank, a, meeting):
    """One of a.workers processes, each with its share of every batch on one thread: for matrices this small that is
    twice as fast as two threads. All of them plan the same pictures and take the same steps."""
    from tokenizers import Tokenizer
    from transformers import AutoConfig, Qwen2VLForConditionalGeneration
    from transformers.models.qwen2_vl.modeling_qwen2_vl import VisionAttention

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=a.workers)
    VisionAttention.forward = attend_within_pictures
    torch.manual_seed(SEED)
    tok = Tokenizer.from_file(str(a.out / "tokenizer.json"))
    config = AutoConfig.from_pretrained(a.out)
    model = Qwen2VLForConditionalGeneration._from_config(config, dtype=torch.float32, attn_implementation="eager")
    average = copy.deepcopy(model).eval()
    trainee, judge = Trainee(model, tok), Trainee(average, tok)
    if rank == 0:
        print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)

    ink, labels, seen, kept, _ = load_samples()
    writer = Writer(ink, labels, seen, 1.0, np.random.default_rng(SEED))
    hand = Writer(ink, labels, seen, 1.0, np.random.default_rng([SEED, rank]))
    proof = Writer(ink, labels, kept, 0.5, np.random.default_rng(SEED + 1))
    groups = collections.defaultdict(list)
    for i in range(600):
        plan = proof.number(1 + i % MAX_DIGITS)
        groups[rounded(plan["width"])].append(plan)
    sets = [(proof.draw(plans, width), plans) for width, plans in sorted(groups.items())]

    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW([
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0}], betas=(0.9, 0.98))
    waiting, start, best = {}, 0, math.inf
    state = a.state / f"{rank}.pt" if a.state else None
    if state and state.exists():              # go on where an interrupted run was; nothing else changes
        old = torch.load(state, weights_only=False)
        start, best, waiting, writer.rng, hand.rng = old["step"], old["best"], old["waiting"], *old["rngs"]
        model.load_state_dict(old["model"])
        average.load_state_dict(old["average"])
        optimizer.load_state_dict(old["optimizer"])

    began, recent = time.time(), []
    for step in range(start + 1, STEPS + 1):
        for g in optimizer.param_groups:
            g["lr"] = np.interp(step, *RATES)
        longest = min(MAX_DIGITS, 1 + max(0, step - 500) // 150)
        width, plans = next_batch(writer, waiting, BATCH, longest)
        text = PROMPTS[writer.rng.integers(len(PROMPTS))]
        plans = plans[rank::a.workers]
        with torch.autocast("cpu", torch.bfloat16):
            loss = trainee.loss(hand.draw(plans, width), text, answer_ids(tok, labels, plans))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        grads = torch.cat([p.grad.flatten() for p in parameters])
        torch.distributed.all_reduce(grads)
        grads = (grads / a.workers).split([p.numel() for p in parameters])
        torch._foreach_copy_([p.grad.view(-1) for p in parameters], list(grads))
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(average.parameters()), parameters, max(0.001, 10 / (step + 10)))
        recent.append(float(loss.detach()))
        if step % 250 == 0 or step == STEPS:
            if rank == 0:
                digits, numbers, proof_loss = validate(judge, tok, labels, sets)
                better = proof_loss < best and longest == MAX_DIGITS
                if better:
                    best = proof_loss
                    write_weights(a.out, average.state_dict())
                print(f"{step:6d} {time.time() - began:6.0f} s  loss {np.mean(recent):.4f}  "
                      f"validation {proof_loss:.4f} {100 * digits:.2f} % of tokens {100 * numbers:.2f} % of numbers"
                      + " *" * better, flush=True)
            recent = []
            if state:
                torch.save({"step": step, "best": best, "waiting": waiting, "rngs": (writer.rng, hand.rng),
                            "model": model.state_dict(), "average": average.state_dict(),
                            "optimizer": optimizer.state_dict()}, state.with_suffix(".part"))
                os.replace(state.with_suffix(".part"), state)


# ---------------------------------------------------------------------------------- pictures and accuracy
def pictures(a):
    """Held-out numbers, every held-out sample used about equally often, at widths the processor has to round."""
    from PIL import Image

    ink, labels, _, _, held = load_samples()
    rng = np.random.default_rng(SEED + 2)
    writer = Writer(ink, labels, held, 0.5, rng)
    deck, rows = [], []
    (a.out / "pictures").mkdir(exist_ok=True)
    for i in range(PICTURES):
        k = 1 + i % MAX_DIGITS
        if len(deck) < k:
            deck = rng.permutation(held).tolist() + deck
        plan = writer.plan([deck.pop() for _ in range(k)])
        file = f"{i:03d}.png"
        Image.fromarray(writer.draw([plan], plan["width"])[0]).save(a.out / "pictures" / file, optimize=True)
        rows.append((file, "".join(map(str, labels[plan["samples"]])), k))
    write_labels(a.out, rows)


def write_labels(out, rows):
    head = ("file", "number", "digits", "reference")[:len(rows[0])]
    text = "".join("\t".join(map(str, row)) + "\n" for row in [head, *rows])
    (out / "pictures" / "labels.tsv").write_text(text)


def evaluate(a):
    """Read every held-out picture with the reference's processor and model, greedily, as anyone would load them."""
    from PIL import Image
    from transformers import AutoProcessor, Qwen2VLForConditionalGeneration

    torch.set_num_threads(1)
    processor = AutoProcessor.from_pretrained(a.out)
    model = Qwen2VLForConditionalGeneration.from_pretrained(a.out, dtype=torch.float32).eval()
    message = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": a.prompt}]}]
    prompt = processor.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
    rows, right, total, whole = [], 0, 0, collections.Counter()
    for line in (a.out / "pictures" / "labels.tsv").read_text().splitlines()[1:]:
        file, number, k = line.split("\t")[:3]
        picture = Image.open(a.out / "pictures" / file)
        inputs = processor(text=[prompt], images=[picture], return_tensors="pt")
        ids = model.generate(**inputs, max_new_tokens=16, do_sample=False)[0, inputs["input_ids"].shape[1]:]
        read = processor.decode(ids, skip_special_tokens=True)
        rows.append((file, number, k, read))
        right += sum(x == y for x, y in zip(number, read))       # place by place, out of the true digits
        total += len(number)
        whole[k] += number == read
    print("numbers right:", ", ".join(f"{n} of {sum(r[2] == k for r in rows)} with {k}" for k, n in whole.items()))
    print(f"{right} of {total} digits ({100 * right / total:.2f} %), "
          f"{whole.total()} of {len(rows)} numbers ({100 * whole.total() / len(rows):.2f} %)")
    if a.prompt == PROMPT:
        write_labels(a.out, rows)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("task", choices=["train", "pictures", "evaluate"])
    ap.add_argument("--out", type=pathlib.Path, default=HERE)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--state", type=pathlib.Path, help="folder to keep the state of an unfinished run in")
    ap.add_argument("--prompt", default=PROMPT, help="what to ask when evaluating")
    a = ap.parse_args()
    {"train": train, "pictures": pictures, "evaluate": evaluate}[a.task](a)


if __name__ == "__main__":
    main()
