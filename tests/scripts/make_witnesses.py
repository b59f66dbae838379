#!/usr/bin/env python3
"""Record what reference processors (transformers 5.24.0) make of pictures and clips of the sizes that floors name as witnesses.

    venv/bin/pip install torch==2.15.0 torchvision==0.29.2 transformers==5.24.0 numpy==2.4.6 pillow==13.0.0 jinja2==3.1.6 \\
        num2words timm
    cargo build
    venv/bin/python tests/scripts/make_witnesses.py target/debug/spec            # all of tests/fixtures/witness (5 min)
    venv/bin/python tests/scripts/make_witnesses.py target/debug/spec llava      # some
    venv/bin/python tests/scripts/make_witnesses.py target/debug/spec --verify   # recompute and compare
    venv/bin/python tests/scripts/make_witnesses.py target/debug/spec --oracle DIR   # make the folders again before

Every folder of tests/fixtures/witness is a checkpoint without weights: the preprocessing settings of a published checkpoint, a
small tokenizer with the family's true special tokens, and a config.json that is small but agrees with these settings on sizes.
`--oracle DIR` needs the makers of small checkpoints, `make_tiny.py`, and the list of settings, `floors.json`; the folders are
stored, so nobody needs it to record or to verify.

`spec floor` is asked for the witnesses, files of those sizes are written (PNG; WAV of 16 kHz), read, and given to
`AutoProcessor` with the marker as the whole text. Pixel (x, y) is R = 5x + 3y, G = xy, B = 255 - 2x - 9y, modulo 256; sample i
is (i * 7919) mod 65536 - 32768.

reference.json: for every folder the entry of floors.json that its `settings` are from, whether they were compared with
`published` files (else they are as remembered, or class defaults) and what was `set` over them, and for every item the `size`, why it is there (`of`: the maxima that it is the witness of, or `other`), and

* `tokens`: how many tokens the processor puts in place of the marker, and `ids`, the FNV-1a-64 of these ids, 4 bytes each,
  little endian;
* `soft`: how many of them take a row or a learned vector (for cross-attention, none);
* `views`: [height, width, how many] of what the tower receives, without padding; `patches` in them, class rows left out;
* `pixels`: a checksum of their float32 values, channels before rows before columns, view after view: see `checksum`;
* `message`: the number of tokens of a user message of the item and "What is this?" as the chat template lays it out (without
  one, as the processor does), `message_ids` their hash, `text` their number without the item; of witnesses of `expansion`;
* `refused`: the processor raised this class of exception.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
import wave

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ["OMP_NUM_THREADS"] = "1"  # with two, a plain resize in floats (Molmo2) rounds some ties to the other side
warnings.filterwarnings("ignore")

import numpy as np  # noqa: E402
from PIL import Image  # noqa: E402

Image.MAX_IMAGE_PIXELS = None
HOME = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures", "witness")
RECORD = os.path.join(HOME, "reference.json")

SIZES = [(1, 1), (3, 2), (13, 9), (17, 200), (1000, 20), (333, 334), (640, 480), (1023, 1025), (2000, 500), (700, 2100),
         (2560, 1440), (97, 3001), (4500, 3300)]
LENGTHS = [1, 159, 160, 321, 400, 1600, 15999, 16001, 100000, 240000, 479000, 479839, 479841, 480001, 640000]


# ---------------------------------------------------------------------------------------------------------------- folders
def vision(key="vision_config", **values):
    return lambda config: config[key].update(values)


def top(**values):
    return lambda config: config.update(values)


def pinned(settings):
    return lambda config: config.update(image_grid_pinpoints=settings["image_grid_pinpoints"])


def experts(config):
    config.update(architectures=["Qwen3VLMoeForConditionalGeneration"], model_type="qwen3_vl_moe")
    config["text_config"].update(model_type="qwen3_vl_moe_text", num_experts=4, num_experts_per_tok=2,
                                 moe_intermediate_size=24, decoder_sparse_step=1, mlp_only_layers=[])
    config["vision_config"].update(model_type="qwen3_vl_moe")


# name: (maker, settings, whether a published file of these settings was at hand, edits of config.json, more)
CLIP_336 = [vision(image_size=336, patch_size=14)]
SIGLIP_384 = [vision(image_size=384, patch_size=14), pinned]
FOLDERS = {
    "llava": ("llava", "llava", True, CLIP_336, {}),
    "llavanext": ("llava_next", "llava_next", True, [*CLIP_336, pinned], {}),
    "granitevision": ("granite_vision", "granite_vision", True, SIGLIP_384, {}),
    "llavaonevision": ("llava_onevision", "llava_onevision", True,
                       [*SIGLIP_384, top(vision_aspect_ratio="anyres_max_9")], {}),
    "qwen2vl": ("qwen2_vl", "qwen2_vl", True, [vision(patch_size=14, spatial_patch_size=14)], {}),
    "qwen25vl": ("qwen2_5_vl", "qwen2_5_vl", True, [vision(patch_size=14, spatial_patch_size=14, window_size=112)], {}),
    "qwen3vl": ("qwen3_vl", "qwen3_vl", True, [vision(patch_size=16)], {}),
    "qwen3vlmoe": ("qwen3_vl", "qwen3_vl", False, [vision(patch_size=16), experts], {}),
    "glm4v": ("glm4v", "glm4v", True, [vision(patch_size=14, image_size=336)], {}),
    "gemma3": ("gemma3", "gemma3", True, [vision(image_size=896, patch_size=14), top(mm_tokens_per_image=256)], {}),
    "gemma3crops": ("gemma3", "gemma3", True, [vision(image_size=896, patch_size=14), top(mm_tokens_per_image=256)],
                    {"set": {"image.pan_and_scan": True}, "call": {"do_pan_and_scan": True}}),
    "paligemma": ("paligemma", "paligemma_224", True, [vision(image_size=224, patch_size=14, num_image_tokens=256)], {}),
    "molmo2": ("molmo2", "molmo2", True,
               [vision("vit_config", image_default_input_size=[378, 378], image_num_pos=729, image_patch_size=14)], {}),
    "molmo2columns": ("molmo2", "molmo2_all_columns", False,
                      [vision("vit_config", image_default_input_size=[378, 378], image_num_pos=729, image_patch_size=14)], {}),
    "mllama": ("mllama", "mllama", True, [vision(image_size=560, patch_size=14)], {}),
    "blip2": ("blip2", "blip2", False, [vision(image_size=224, patch_size=14), top(num_query_tokens=32)], {}),
    "instructblip": ("instructblip", "instructblip", False,
                     [vision(image_size=224, patch_size=14), top(num_query_tokens=32)], {"text": "blip2"}),
    "idefics3": ("idefics3", "idefics3", False,
                 [vision(image_size=364, patch_size=14, max_image_size={"longest_edge": 364}, size={"longest_edge": 1456}),
                  top(scale_factor=2)], {}),
    "smolvlm": ("smolvlm", "smolvlm_256m", True,
                [vision(image_size=512, patch_size=16, max_image_size={"longest_edge": 512}, size={"longest_edge": 2048}),
                 top(scale_factor=4)], {}),
    "internvl": ("internvl", "internvl3", False,
                 [vision(image_size=[448, 448], patch_size=[14, 14]), top(image_seq_length=256)], {}),
    "ayavision": ("aya_vision", "aya_vision", False, [vision(image_size=364, patch_size=14)], {}),
    "pixtral": ("pixtral", "pixtral", False, [vision(image_size=1024, patch_size=16)], {}),
    "mistral3": ("mistral3", "mistral3", False, [vision(image_size=1540, patch_size=14)], {}),
    "gemma4": ("gemma4", "gemma4_280", True, [vision(patch_size=16, pooling_kernel_size=3, default_output_length=280),
                                              top(vision_soft_tokens_per_image=280)], {}),
    "gemma3n": ("gemma3n", "gemma3n", False,
                [top(vision_soft_tokens_per_image=256, audio_soft_tokens_per_image=188),
                 vision("audio_config", input_feat_size=128)], {}),
    "qwen2audio": ("qwen2_audio", "qwen2_audio", True,
                   [vision("audio_config", num_mel_bins=128, max_source_positions=1500)], {}),
}


def make(name, oracle):
    """Writes the checkpoint folder `name`."""
    sys.path.insert(0, oracle)
    import make_tiny

    maker, entry, _, edits, more = FOLDERS[name]
    with open(os.path.join(oracle, "floors.json"), encoding="utf-8") as file:
        floors = json.load(file)
    spec = make_tiny.FAMILIES[maker](0)
    files = {name: value for name, value in spec.files.items() if not name.startswith("video")}
    processor = dict(files.get("processor_config.json", {}))
    if entry in floors["image"]:
        pictures = floors["image"][entry]["preprocessor_config"]
        of_processor = floors["image"][entry]["processor_config"]
        sound = {"feature_size": 128} if name in ("gemma3n", "gemma4") else {}
    else:
        pictures, of_processor = floors["audio"][entry]["config"], None
        sound = {}
    if "image_processor" in processor:
        processor["image_processor"].update(pictures)
        processor["feature_extractor"].update(sound)
        files["processor_config.json"] = {**processor, **(of_processor or {})}
    else:
        own = files["preprocessor_config.json"]
        types = {key: own[key] for key in ("image_processor_type", "feature_extractor_type", "processor_class") if key in own}
        settings_of_sound = own if "feature_extractor_type" in own else {}  # they stand beside those of pictures
        files["preprocessor_config.json"] = {**settings_of_sound, **pictures, **sound, **types}
        if of_processor is not None:
            files["processor_config.json"] = {**of_processor, "processor_class": spec.processor_class}
    if "text" in more:  # the decoder of another maker
        spec.config["text_config"] = make_tiny.FAMILIES[more["text"]](0).config["text_config"]
    for edit in edits:
        edit(pictures)(spec.config) if edit is pinned else edit(spec.config)
    folder = os.path.join(HOME, name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    with tempfile.TemporaryDirectory() as scratch:
        spec.tok.write(scratch, spec.processor_class)
        for file in ("tokenizer.json", "tokenizer_config.json"):
            with open(os.path.join(scratch, file), encoding="utf-8") as source:
                write(os.path.join(folder, file), json.load(source), separators=(",", ":"))
    for file, value in {"config.json": spec.config, **files}.items():
        if isinstance(value, str):
            with open(os.path.join(folder, file), "w", encoding="utf-8") as target:
                target.write(value)
        elif isinstance(value, dict):
            write(os.path.join(folder, file), value, indent=1)
        else:  # a second tokenizer
            inner = os.path.join(folder, file)
            os.makedirs(inner, exist_ok=True)
            value.write(inner, spec.processor_class)


def write(path, value, **how):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False, **how)
        file.write("\n")


# ------------------------------------------------------------------------------------------------------------------ items
def picture(scratch, width, height):
    y, x = np.mgrid[:height, :width]
    pixels = np.stack([5 * x + 3 * y, x * y, 255 - 2 * x - 9 * y], -1) & 255
    path = os.path.join(scratch, "picture.png")
    Image.fromarray(pixels.astype(np.uint8)).save(path, compress_level=1)
    return Image.open(path).convert("RGB")


def clip(scratch, samples):
    path = os.path.join(scratch, "clip.wav")
    i = np.arange(samples, dtype=np.int64)
    with wave.open(path, "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes(((i * 7919) % 65536 - 32768).astype("<i2").tobytes())
    with wave.open(path, "rb") as file:
        return np.frombuffer(file.readframes(samples), "<i2").astype(np.float32) / 32768


def fnv(ids):
    h = 0xCBF29CE484222325
    for byte in np.asarray(ids, "<u4").tobytes():
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{h:016x}"


def checksum(views):
    """The sum over all values of z ^ (z >> 31), where z = (bits + i * 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9."""
    total, start = 0, 0
    for view in views:
        for plane in view:
            bits = np.ascontiguousarray(plane, np.float32).view(np.uint32).ravel().astype(np.uint64)
            z = np.arange(start, start + bits.size, dtype=np.uint64)
            z *= np.uint64(0x9E3779B97F4A7C15)
            z += bits
            z *= np.uint64(0xBF58476D1CE4E5B9)
            z ^= z >> np.uint64(31)
            total = (total + int(z.sum(dtype=np.uint64))) & 0xFFFFFFFFFFFFFFFF
            start += bits.size
    return f"{total:016x}"


def cells(rows, down, across, patch, last):
    """Planes of patch rows in reading order; `last`: channels stand last in a row."""
    if last:
        return rows.reshape(down, across, patch, patch, 3).transpose(4, 0, 2, 1, 3).reshape(3, down * patch, across * patch)
    return rows.reshape(down, across, 3, patch, patch).transpose(2, 0, 3, 1, 4).reshape(3, down * patch, across * patch)


def views_of(out, processor):
    """The planes that the tower receives, padding removed, and the side of a patch where rows of patches arrive."""
    values = np.asarray(out["pixel_values"])
    if "image_grid_thw" in out:
        frames, down, across = (int(n) for n in np.asarray(out["image_grid_thw"])[0])
        ip = processor.image_processor
        patch, merge, repeat = ip.patch_size, ip.merge_size, ip.temporal_patch_size
        assert frames == 1 and len(values) == down * across
        grid = values.reshape(down // merge, across // merge, merge, merge, 3, repeat, patch, patch)
        assert (grid[:, :, :, :, :, 0] == grid[:, :, :, :, :, -1]).all()
        grid = grid[:, :, :, :, :, 0].transpose(4, 0, 2, 5, 1, 3, 6)
        return [grid.reshape(3, down * patch, across * patch)]
    if "image_position_ids" in out:
        at = np.asarray(out["image_position_ids"])[0]
        real = at[:, 0] >= 0
        across, down = (int(n) + 1 for n in at[real].max(0))
        assert real.sum() == down * across and real[:down * across].all()
        return [cells(values[0][real], down, across, processor.image_processor.patch_size, True)]
    if "image_token_pooling" in out:
        patch = processor.image_processor.patch_size
        side = int(round(values.shape[1] ** 0.5))
        return [cells(crop, side, side, patch, True) for crop in values]
    if "aspect_ratio_mask" in out:
        return list(values[0][0][:int(np.asarray(out["aspect_ratio_mask"]).sum())])
    if values.ndim == 5:
        assert values.shape[0] == 1
        values = values[0]
        if "pixel_attention_mask" in out:
            assert np.asarray(out["pixel_attention_mask"]).all()
    return list(values)


# the tokens that take rows, where they are not the marker; and what the reference writes around a marker that is all the text
SOFT = {"gemma3": "<image_soft_token>", "molmo2": "<im_patch>", "ayavision": "<|IMG_PATCH|>", "internvl": "<IMG_CONTEXT>"}
MARKERS = {"paligemma": "<image>", "blip2": "", "instructblip": "", "molmo2": "<|image|>", "mllama": "<|image|>"}


def marker(name, processor, modality):
    known = MARKERS.get(name.removesuffix("columns"))
    if known is not None:
        return known
    if modality == "audio":
        return processor.audio_token
    token = getattr(processor, "boi_token", None) if name.startswith("gemma3") and name != "gemma3n" else None
    token = token or processor.image_token
    return getattr(token, "content", token)


def between(name, ids, processor):
    """The ids in place of the marker: what the processor writes before and behind all text is left out."""
    tokenizer = processor.tokenizer
    if name == "paligemma":
        tail = [tokenizer.bos_token_id, *tokenizer("\n", add_special_tokens=False)["input_ids"]]
        assert ids[-len(tail):] == tail
        return ids[:-len(tail)]
    if name == "mllama":  # the beginning of the text comes behind pictures that come first
        assert ids[-1] == tokenizer.bos_token_id
        return ids[:-1]
    if name in ("molmo2", "molmo2columns"):
        assert ids[0] == tokenizer.bos_token_id
        return ids[1:]
    return ids


def message(name, processor, modality, media, call):
    """The ids of one user message with an item and a text, and their number without the item."""
    text, kind = "What is this?", {"type": modality}
    tokenizer = processor.tokenizer
    if processor.chat_template is None:
        marked = f"<image>{text}" if name == "paligemma" else text
        ids = processor(text=marked, **media, return_tensors="np", **call)["input_ids"]
        # PaliGemma's processor refuses a text alone: the first token, the text and a line break
        alone = 1 + len(tokenizer(text + "\n")["input_ids"]) if name == "paligemma" else len(tokenizer(text)["input_ids"])
    else:
        contents = [[kind, {"type": "text", "text": text}], [{"type": "text", "text": text}]]
        with_item, without = (processor.apply_chat_template([{"role": "user", "content": content}],
                                                            add_generation_prompt=True, tokenize=False)
                              for content in contents)
        bos = tokenizer.bos_token
        adds = [not (bos and rendered.startswith(bos)) for rendered in (with_item, without)]
        ids = processor(text=with_item, **media, return_tensors="np", **{**call, "add_special_tokens": adds[0]})["input_ids"]
        alone = processor(text=without, return_tensors="np", add_special_tokens=adds[1])["input_ids"]
        alone = len(np.asarray(alone)[0])
    ids = np.asarray(ids)[0].tolist()
    return {"message": len(ids), "message_ids": fnv(ids), "text": alone}


def item(name, processor, modality, size, scratch, of):
    """What the processor makes of one picture or clip."""
    witness = of != ["other"]
    call = dict(FOLDERS[name][4].get("call", {}))
    plain = dict(call)
    if name != "paligemma":
        call["add_special_tokens"] = False
    text = marker(name, processor, modality)
    if modality == "image":
        media = {"images": [picture(scratch, *size)]}
    else:
        media = {"audio": [clip(scratch, size)]}
    try:
        out = processor(text=text, **media, return_tensors="np", **call)
    except Exception as error:  # noqa: BLE001
        if witness:
            raise
        return {"refused": type(error).__name__}
    ids = between(name, np.asarray(out["input_ids"])[0].tolist(), processor)
    soft = text if modality == "audio" else SOFT.get(name.removesuffix("columns").removesuffix("crops"), None)
    if soft is None:
        soft = "<image>" if name in ("blip2", "instructblip") else getattr(processor.image_token, "content", processor.image_token)
    found = {"tokens": len(ids), "ids": fnv(ids)}
    if "expansion" in of:
        found.update(message(name, processor, modality, media, plain))
    found["soft"] = 0 if name == "mllama" else ids.count(processor.tokenizer.convert_tokens_to_ids(soft))
    if modality == "image":
        views = views_of(out, processor)
        shapes = {view.shape[1:] for view in views}
        assert len(shapes) == 1, shapes
        high, wide = (int(side) for side in shapes.pop())
        patch = patch_side(name)
        found["views"] = [high, wide, len(views)]
        if patch:
            found["patches"] = (high // patch) * (wide // patch) * len(views)
        found["pixels"] = checksum(views)
    return found


def patch_side(name):
    with open(os.path.join(HOME, name, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    tower = config.get("vision_config") or config.get("vit_config")
    side = tower.get("patch_size", tower.get("image_patch_size"))  # a convolutional tower has none
    return side[0] if isinstance(side, list) else side


def record(name, binary, scratch):
    from transformers import AutoProcessor

    folder = os.path.join(HOME, name)
    maker, entry, published, _, more = FOLDERS[name]
    settings = [f"--set={key}={json.dumps(value)}" for key, value in more.get("set", {}).items()]
    floor = subprocess.run([binary, "floor", folder, "--json", *settings], capture_output=True, text=True)
    if floor.returncode:
        raise SystemExit(f"{name}: {floor.stdout}{floor.stderr}")
    processor = AutoProcessor.from_pretrained(folder)
    items = []
    for budget in json.loads(floor.stdout)["items"]:
        modality = budget["modality"]
        wanted = {}
        for of, key in (("expansion", "witness"), ("embeds", "embeds_witness"), ("patches", "patches_witness")):
            size = budget.get(key)
            if size:
                wanted.setdefault(size.get("samples") or (size["width"], size["height"]), []).append(of)
        for size in SIZES if modality == "image" else LENGTHS:
            wanted.setdefault(size, ["other"])
        for size, of in wanted.items():
            found = item(name, processor, modality, size, scratch, of)
            items.append({"modality": modality, "size": size if modality == "audio" else list(size), "of": of, **found})
        top_of = max(entry.get("tokens", 0) for entry in items if entry["modality"] == modality)
        print(f"{name} {modality}: {budget['expansion']} in {budget['witness']}, the reference at most {top_of}", flush=True)
    return {"settings": entry, "published": published, **{key: more[key] for key in ("set",) if key in more}, "items": items}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spec", help="the program")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--oracle", help="the folder of make_tiny.py and floors.json: make the checkpoint folders again")
    parser.add_argument("--verify", action="store_true", help="compare with what is stored, change nothing")
    options = parser.parse_intermixed_args()
    stored = {}
    if os.path.exists(RECORD):
        with open(RECORD, encoding="utf-8") as file:
            stored = json.load(file)
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name in options.names or FOLDERS:
            if options.oracle:
                make(name, options.oracle)
            found = record(name, options.spec, scratch)
            if options.verify and found != stored.get(name):
                wrong += 1
                print(f"{name}: differs", flush=True)
            elif not options.verify:
                stored[name] = found
                save({name: stored[name] for name in FOLDERS if name in stored})
    sys.exit(bool(wrong))


def save(records):
    """One line an item."""
    parts = []
    for name, found in records.items():
        head = {key: value for key, value in found.items() if key != "items"}
        lines = ",\n".join("  " + json.dumps(entry) for entry in found["items"])
        parts.append(f'"{name}": {json.dumps(head)[:-1]}, "items": [\n{lines}\n]}}')
    with open(RECORD, "w", encoding="utf-8") as file:
        file.write("{\n" + ",\n".join(parts) + "\n}\n")


if __name__ == "__main__":
    main()
