#!/usr/bin/env python3
"""Record how likely the reference implementation finds a fixed text behind the prompts of golden checkpoints.

    OMP_NUM_THREADS=1 venv/bin/python tests/scripts/make_scores.py              # every folder below tests/fixtures/goldens
    OMP_NUM_THREADS=1 venv/bin/python tests/scripts/make_scores.py llava        # some
    OMP_NUM_THREADS=1 venv/bin/python tests/scripts/make_scores.py --verify     # recompute, compare with what is stored

The environment is that of make_goldens.py. Writes `score.json` beside `golden.json`: prompts of its cases, each with its
pictures and with their parts taken out of the messages, and for every token of the text, which is tokenised by itself, the
natural logarithm of its probability: log-softmax in f64 of the f32 logits.

The tokens are forced through the reference's own `generate`, so that whatever a family carries from step to step
(positions, masks over media) is as in generation.
"""
import argparse
import json
import os
import tempfile

from make_goldens import GOLDENS, dump, materialise, versions

import torch  # noqa: E402  (make_goldens sets the environment)
import transformers  # noqa: E402
from PIL import Image  # noqa: E402

TEXT = "A small cat, naïve 猫 🐈, and 12 mats.\n"
CASES = ("wide", "two", "system", "text")


class Reference:
    """The reference processor and model of one checkpoint folder."""

    def __init__(self, folder):
        torch.set_num_threads(1)
        config = json.load(open(os.path.join(folder, "config.json"), encoding="utf-8"))
        self.processor = transformers.AutoProcessor.from_pretrained(folder)
        self.model, info = getattr(transformers, config["architectures"][0]).from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
        for k in ("missing_keys", "unexpected_keys", "mismatched_keys"):
            assert not info.get(k), (k, info[k])
        self.model.eval()

    def inputs(self, messages, images):
        prompt = self.processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        bos = self.processor.tokenizer.bos_token
        kwargs = {"add_special_tokens": False} if bos and prompt.startswith(bos) else {}
        if images:
            kwargs["images"] = [images]
        return self.processor(text=prompt, return_tensors="pt", **kwargs)


class Forced(transformers.LogitsProcessor):
    """Makes the next token of a list the only possible one."""

    def __init__(self, start, tokens):
        self.start, self.tokens = start, tokens

    def __call__(self, input_ids, scores):
        forced = torch.full_like(scores, -torch.inf)
        forced[:, self.tokens[input_ids.shape[1] - self.start]] = 0
        return forced


@torch.no_grad()
def likelihoods(ref, inputs, tokens):
    """The log-probability of each of `tokens` behind the prompt of `inputs`."""
    n = inputs["input_ids"].shape[1]
    ref.model.generation_config.eos_token_id = None
    out = ref.model.generate(**inputs, do_sample=False, max_new_tokens=len(tokens), output_logits=True,
                             return_dict_in_generate=True, logits_processor=[Forced(n, tokens)])
    assert out.sequences[0, n:].tolist() == tokens
    assert len(out.logits) == len(tokens) and all(step.dtype == torch.float32 for step in out.logits)
    return [float(torch.log_softmax(step[0].double(), -1)[token]) for step, token in zip(out.logits, tokens)]


def parts(message):
    return message["content"] if isinstance(message["content"], list) else []


def without_media(messages):
    return [dict(m, content=[p for p in parts(m) if p["type"] == "text"]) if parts(m) else m for m in messages]


def pictures(messages):
    return [p["image"] for m in messages for p in parts(m) if p["type"] == "image"]


def scores(folder):
    """The content of `score.json` for a golden folder."""
    golden = json.load(open(os.path.join(folder, "golden.json"), encoding="utf-8"))
    with tempfile.TemporaryDirectory() as tmp:
        materialise(folder, tmp)
        ref = Reference(tmp)
    tokens = ref.processor.tokenizer(TEXT, add_special_tokens=False).input_ids
    cases = []
    for name in CASES:
        messages = golden["cases"].get(name, {}).get("messages")
        if messages is None or any(p["type"] not in ("text", "image") for m in messages for p in parts(m)):
            continue
        for used in [messages, without_media(messages)]:
            if any(used == case["messages"] for case in cases):
                continue
            images = [Image.open(os.path.join(folder, "..", "images", f)) for f in pictures(used)]
            inputs = ref.inputs(used, images)
            cases.append({
                "name": name if used is messages else f"{name}, without media", "messages": used,
                "prompt_tokens": inputs["input_ids"].shape[1],
                "log_probabilities": [round(p, 7) for p in likelihoods(ref, inputs, tokens)]})
    return {"versions": versions(), "continuation": TEXT, "tokens": tokens, "cases": cases}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("names", nargs="*", metavar="CHECKPOINT")
    ap.add_argument("--verify", action="store_true")
    a = ap.parse_args()
    transformers.utils.logging.disable_progress_bar()
    own = [d for d in sorted(os.listdir(GOLDENS)) if os.path.exists(os.path.join(GOLDENS, d, "golden.safetensors"))]
    for name in a.names or own:
        folder = os.path.join(GOLDENS, name)
        found = scores(folder)
        if a.verify:
            stored = json.load(open(os.path.join(folder, "score.json"), encoding="utf-8"))
            worst = max(abs(p - q) for c, d in zip(found["cases"], stored["cases"], strict=True)
                        for p, q in zip(c["log_probabilities"], d["log_probabilities"], strict=True))
            assert worst <= 1e-5 and stored["tokens"] == found["tokens"], (name, worst)
            print(f"{name}: verified, largest difference {worst:.1e}", flush=True)
            continue
        dump(folder, "score.json", found)
        nats = [p for c in found["cases"] for p in c["log_probabilities"]]
        print(f"{name}: {len(found['cases'])} prompts, {len(found['tokens'])} tokens, log-probabilities "
              f"{min(nats):.2f} to {max(nats):.2f}", flush=True)


if __name__ == "__main__":
    main()
