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
    cases: Callable = golden_cases.image_cases
    special: tuple = ()
    rename: tuple = ()
    full: str = "two"              # the case that is stored whole
    rounded: tuple = ()            # types that `wide` is recorded in, too
    prompt: str = "chat"           # or a pattern with {media} and {text} where there is no template
    seed: int = 1
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
        tower="vision_tower"),
    "mllama": Family(
        "Llama 3.2 Vision: tiles behind cross-attention, tile embeddings, gates, llama3 rope scaling",
        (("mllama",),), "<|image|>", "<|image|>", ("<|image|>", "<|python_tag|>"), views="cross", cases=golden_cases.cross_cases),
    "qwen2audio": Family(
        "Qwen2-Audio: clips, a Whisper tower, averaged pairs of rows, Qwen2 decoder",
        (("qwen2_audio",),), "<|audio_bos|><|AUDIO|><|audio_eos|>", "<|AUDIO|>", ("<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>"), views="clips",
        cases=golden_cases.audio_cases, rounded=("bf16",), full="one",
        refused={"alone": "no two placeholders are adjacent: the merging of older processors is tried, which fails in generate"}),
}


def family_of(config):
    """The family of a checkpoint with this config.json, for recording checkpoints that are not ours."""
    tower = (config.get("vision_config") or {}).get("model_type", "")
    text = (config.get("text_config") or {}).get("model_type", "")
    kinds = (config["model_type"], tower, text)
    fits = [f for f in FAMILIES.values() for m in f.matches if m[0] == kinds[0] and all(x in kinds for x in m)]
    assert fits, f"no family for {kinds}"
    return max(fits, key=lambda f: max(len(m) for m in f.matches))
