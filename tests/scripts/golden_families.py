"""What the script has to know of a family to record its goldens; everything else is in the checkpoint's own files.

`marker` stands for one item in a prompt without a template, `placeholder` is the token that rows replace. `damped` are tokens
that greedy decoding must not choose. `views` says how the processor hands over pictures, `connector` which module receives
the tower's rows. `special` are rules of weights, `rename` patterns from saved to published tensor names.
"""
import dataclasses
from typing import Callable

import golden_cases

VISION_MODEL = (r"^vision_tower\.(?!vision_model\.)", "vision_tower.vision_model.")
QWEN_DAMPED = ("<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>")
# Weights w that are applied as 1 + w; the last norm gets random signs, since with tied embeddings a token would otherwise
# predict itself, and embeddings that a factor of the root of the width then makes of order 1.
GEMMA = ((r"language_model\.model\.norm\.weight$", -1.0, 4.5), (r"language_model\..*norm\.weight$", 0.0, 0.17),
         (r"mm_soft_emb_norm\.weight$", 0.0, 0.17), (r"embed_tokens\.weight$", 0.0, 0.22))

SIGNS = ((r"language_model\.(model\.)?norm\.weight$", 0.0, 1.7),)  # random signs where embeddings are tied
NO_TEXT = {"text": "the processor wants a picture"}
IDEFICS = ("<fake_token_around_image>", "<image>", "<global-img>",
           *(f"<row_{r}_col_{c}>" for r in range(1, 7) for c in range(1, 7)))
PIXTRAL = ("[IMG]", "[IMG_BREAK]", "[IMG_END]", "<pad>")


@dataclasses.dataclass
class Family:
    about: str
    matches: tuple                 # model types of config.json, each alternative the outer one first, then those inside
    marker: str
    placeholder: str
    damped: tuple
    views: str = "plain"
    connector: str = "multi_modal_projector"
    tower: str = ""                # where the connector's input is not the tower's rows: the module that gives them
    drop: int = 0                  # and how many rows of each of its views are left out
    decoder: str = "language_model"
    splice: str = "replace"        # or "add": rows are added to the embeddings of their placeholders
    cases: Callable = golden_cases.image_cases
    special: tuple = ()
    rename: tuple = ()
    full: str = "two"              # the case that is stored whole
    rounded: tuple = ()            # types that `wide` is recorded in, too
    prompt: str = "chat"           # or a pattern with {media} and {text} where there is no template
    seed: int = 1
    shapes: Callable = lambda config: {}  # of tensors that the library splits otherwise than the published files
    swapped: str = ""              # of tensors whose last two axes the published files have the other way round
    refused: dict = dataclasses.field(default_factory=dict)  # cases that the reference cannot take, and why


FAMILIES = {
    "llavanext": Family(
        "LLaVA-NeXT: CLIP tower, tiles of the best canvas, learned newlines, Mistral decoder",
        (("llava_next",),), "<image>", "<image>", ("<image>", "<pad>"), views="tiles", rename=(VISION_MODEL,),
        cases=golden_cases.square_cases, seed=3),
    "gemma3": Family(
        "Gemma 3: pooled SigLIP rows seen both ways, local layers with a window shorter than a picture, linear rope scaling",
        (("gemma3",),), "<start_of_image>", "<image_soft_token>", ("<start_of_image>", "<end_of_image>", "<image_soft_token>", "<pad>"),
        rename=(VISION_MODEL,), special=GEMMA, rounded=("bf16",)),
    "qwen25vl": Family(
        "Qwen2.5-VL: windows of the tower with ragged edges, rms norms, gated mlps",
        (("qwen2_5_vl",),), "<|vision_start|><|image_pad|><|vision_end|>", "<|image_pad|>", QWEN_DAMPED, views="rows", connector="visual.merger",
        rounded=("f16",)),
    "internvl": Family(
        "InternVL: tiles in the grid of the nearest ratio, a thumbnail, layer scales, pixel shuffle, Qwen2 decoder",
        (("internvl",),), "<IMG_CONTEXT>", "<IMG_CONTEXT>", ("<IMG_CONTEXT>", "<img>", "</img>", "<video>"), views="stacked",
        tower="vision_tower", drop=1),
    "mllama": Family(
        "Llama 3.2 Vision: tiles behind cross-attention, tile embeddings, gates, llama3 rope scaling",
        (("mllama",),), "<|image|>", "<|image|>", ("<|image|>", "<|python_tag|>"), views="cross", cases=golden_cases.cross_cases),
    "qwen2audio": Family(
        "Qwen2-Audio: clips, a Whisper tower, averaged pairs of rows, Qwen2 decoder",
        (("qwen2_audio",),), "<|audio_bos|><|AUDIO|><|audio_eos|>", "<|AUDIO|>", ("<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>"), views="clips",
        cases=golden_cases.audio_cases, rounded=("bf16",), full="one",
        refused={"alone": "no two placeholders are adjacent: the merging of older processors is tried, which fails in generate"}),
    "paligemma": Family(
        "PaliGemma: one row a patch before the first token, a prompt seen both ways, positions from 1, one key-value head",
        (("paligemma", "gemma"),), "<image>", "<image>", ("<image>", "<pad>"), rename=(VISION_MODEL,), special=GEMMA,
        cases=golden_cases.bare_cases, prompt="{media}{text}", refused=NO_TEXT),
    "paligemma2": Family(
        "PaliGemma 2: Gemma 2 decoder with soft caps, norms around its halves, and windows in every other layer",
        (("paligemma", "gemma2"),), "<image>", "<image>", ("<image>", "<pad>"), rename=(VISION_MODEL,), special=GEMMA,
        cases=golden_cases.bare_cases, prompt="{media}{text}", refused=NO_TEXT),
    "qwen3vl": Family(
        "Qwen3-VL: interpolated table of positions, rows added in the first layers, interleaved axes, tied",
        (("qwen3_vl",),), "<|vision_start|><|image_pad|><|vision_end|>", "<|image_pad|>", QWEN_DAMPED, views="rows",
        connector="visual.merger", special=SIGNS),
    "llavaonevision": Family(
        "LLaVA-OneVision: tiles of the best canvas shrunk to a bound, one view each where there are several, tied",
        (("llava_onevision",),), "<image>", "<image>", ("<image>", "<video>"), views="tiles", rename=(VISION_MODEL,),
        special=SIGNS, cases=golden_cases.square_cases),
    "idefics3": Family(
        "Idefics3: a picture scaled to its long side, cut into tiles, pixel shuffle without a bias",
        (("idefics3",),), "<image>", "<image>", IDEFICS, views="rows_of_views", connector="connector", decoder="text_model"),
    "smolvlm": Family(
        "SmolVLM: Idefics3 with other widths, two rows of tiles at most",
        (("smolvlm",),), "<image>", "<image>", IDEFICS, views="rows_of_views", connector="connector", decoder="text_model",
        seed=12),
    "pixtral": Family(
        "Pixtral: pictures at their own size, rotary on two axes, a break after each row",
        (("llava", "pixtral"),), "[IMG]", "[IMG]", PIXTRAL, views="own_size"),
    "mistral3": Family(
        "Mistral 3: Pixtral's tower, a norm and merged cells before the projector",
        (("mistral3",),), "[IMG]", "[IMG]", PIXTRAL, views="own_size", seed=4),
    "blip2": Family(
        "BLIP-2: queries that read the tower through a stack of their own, OPT decoder with learned positions",
        (("blip-2",),), "<image>", "<image>", ("<image>", "<pad>"), connector="language_projection", tower="vision_model",
        cases=golden_cases.bare_cases, prompt="{text}", special=((r"decoder\.final_layer_norm\.weight$", 0.0, 1.7),),
        full="wide", refused={**NO_TEXT, "two": "the processor writes the placeholders of one picture"}),
    "molmo2": Family(
        "Molmo2: overlapping crops, two taps side by side, rows pooled by attention and added to the embeddings",
        (("molmo2",),), "<|image|>", "<im_patch>",
        ("<im_patch>", "<im_start>", "<im_end>", "<im_col>", "<low_res_im_start>", "<|image|>"), views="crops",
        splice="add", seed=9, shapes=lambda config: {
            "model.transformer.wte.embedding": [config["text_config"]["vocab_size"], config["text_config"]["hidden_size"]],
            "model.transformer.wte.new_embedding": [
                config["text_config"]["additional_vocab_size"], config["text_config"]["hidden_size"]]}),
    "granitevision": Family(
        "Granite Vision: LLaVA-NeXT with four taps of a SigLIP tower side by side, long canvases, Granite's multipliers, tied",
        (("llava_next", "granite"),), "<image>", "<image>", ("<image>",), views="tiles", rename=(VISION_MODEL,),
        special=((r"language_model\.model\.norm\.weight$", 0.0, 3.0), (r"embed_tokens\.weight$", 0.0, 0.5))),
    "ayavision": Family(
        "Aya Vision: tiles and a thumbnail, pixel shuffle, a gate in the projector, Cohere 2 decoder",
        (("aya_vision",),), "<image>", "<|IMG_PATCH|>",
        ("<|IMG_PATCH|>", "<image>", "<|START_OF_IMG|>", "<|END_OF_IMG|>", "TILE", "TILE_GLOBAL",
         *(f"TILE_{k}" for k in range(1, 13))), views="stacked", rename=(VISION_MODEL,), special=SIGNS,
        seed=2),
    "glm4v": Family(
        "GLM-4V: a table of positions sampled bicubically, cells merged by a convolution, axes of three sections",
        (("glm4v",),), "<|begin_of_image|><|image|><|end_of_image|>", "<|image|>",
        ("<|image|>", "<|begin_of_image|>", "<|end_of_image|>", "<|begin_of_video|>", "<|end_of_video|>", "<|video|>"),
        views="rows", connector="visual.merger", tower="visual.post_layernorm"),
    "qwen3vlmoe": Family(
        "Qwen3-VL with a mixture of experts in all layers but one",
        (("qwen3_vl_moe",),), "<|vision_start|><|image_pad|><|vision_end|>", "<|image_pad|>", QWEN_DAMPED, views="rows",
        connector="visual.merger", special=((r"experts\.\w+_proj$", 0.0, 0.25),),
        swapped=r"experts\.\w+_proj$"),
}
# What tiny_checkpoints.py makes.
BASES = {
    "llava": Family(
        "LLaVA", (("llava", "clip_vision_model"), ("llava", "siglip_vision_model")), "<image>", "<image>", ("<image>",)),
    "qwen2vl": Family(
        "Qwen2-VL", (("qwen2_vl",),), "<|vision_start|><|image_pad|><|vision_end|>", "<|image_pad|>", QWEN_DAMPED,
        views="rows", connector="visual.merger"),
}


def family_of(config):
    """The family of a checkpoint with this config.json, for recording checkpoints that are not ours."""
    tower = (config.get("vision_config") or {}).get("model_type", "")
    text = (config.get("text_config") or {}).get("model_type", "")
    kinds = (config["model_type"], tower, text)
    fits = [f for f in [*FAMILIES.values(), *BASES.values()] for m in f.matches if m[0] == kinds[0] and all(x in kinds for x in m)]
    assert fits, f"no family for {kinds}"
    return max(fits, key=lambda f: max(len(m) for m in f.matches))
