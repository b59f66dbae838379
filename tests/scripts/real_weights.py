#!/usr/bin/env python3
"""Compare `spec` and the reference implementation on a checkpoint with real weights: text alone, in plain English.

    OMP_NUM_THREADS=1 venv/bin/python tests/scripts/real_weights.py CKPT [--spec target/release/spec]

For each prompt: 24 greedy tokens of `spec run --json` must equal those of the reference, and each log-probability of the
reference's own answer (or of a fixed text, where that is empty) in `spec score --json` must be within 1e-4 of the reference's. A checkpoint in bf16 or f16 is compared in
f32 on both sides. A step of the reference that is closer to a tie than 1e-3 may differ, and is said; what follows it is not
compared. With `--bf16` also `spec run --precision bf16` is asked, whose tokens must be the same up to where the reference's own run in
bf16 leaves its run in f32. Nothing is downloaded. The environment is that of make_goldens.py, and num2words for some processors.
"""
import argparse
import json
import os
import subprocess
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch  # noqa: E402
import transformers  # noqa: E402

TOKENS = 24
TOLERANCE = 1e-4   # on a log-probability, in nats
TIE = 1e-3         # between the two largest logits
PROMPTS = [
    "What is the capital of France?",
    "Write one sentence about a lighthouse in winter.",
    "Name three fruits that are red.",
    "Explain in simple words why the sky is blue.",
    "Count from 1 to 10.",
    "Translate into French: the book is on the table.",
    "Who wrote the play about the prince of Denmark?",
    "What is 17 plus 25?",
    "Finish the sentence: an apple a day",
    "List the steps to boil an egg,\nbriefly.",
]


def spec(program, *arguments):
    done = subprocess.run([program, *arguments, "--json"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"spec {' '.join(arguments[:2])} ended with {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout)


class Reference:
    def __init__(self, folder, dtype=torch.float32):
        config = json.load(open(os.path.join(folder, "config.json"), encoding="utf-8"))
        self.processor = transformers.AutoProcessor.from_pretrained(folder)
        self.model = getattr(transformers, config["architectures"][0]).from_pretrained(
            folder, dtype=dtype, attn_implementation="eager").eval()

    @torch.no_grad()
    def greedy(self, prompt):
        """(ids of the prompt, generated ids, margin of each step)"""
        messages = [{"role": "user", "content": [{"type": "text", "text": prompt}]}]
        inputs = self.processor.apply_chat_template(messages, tokenize=True, add_generation_prompt=True, return_dict=True,
                                                    return_tensors="pt")
        out = self.model.generate(**inputs, do_sample=False, max_new_tokens=TOKENS, output_logits=True,
                                  return_dict_in_generate=True)
        n = inputs["input_ids"].shape[1]
        best = [step[0].topk(2).values for step in out.logits]
        return inputs["input_ids"][0].tolist(), out.sequences[0, n:].tolist(), [float(b[0] - b[1]) for b in best]

    @torch.no_grad()
    def likelihoods(self, prompt_ids, tokens):
        """The log-probability of each of `tokens` behind the prompt."""
        ids = torch.tensor([prompt_ids + tokens])
        logits = self.model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0, len(prompt_ids) - 1:-1]
        return torch.log_softmax(logits.double(), -1)[torch.arange(len(tokens)), tokens].tolist()


def shared(one, other):
    """How many tokens two lists share from the start."""
    return next((k for k, (x, y) in enumerate(zip(one, other)) if x != y), min(len(one), len(other)))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("checkpoint")
    ap.add_argument("--spec", default="target/release/spec")
    ap.add_argument("--bf16", action="store_true")
    a = ap.parse_args()
    transformers.utils.logging.disable_progress_bar()
    ref = Reference(a.checkpoint)
    rounded = Reference(a.checkpoint, torch.bfloat16) if a.bf16 else None
    kept = 0
    failures, steps, scored, worst = 0, 0, 0, 0.0
    for prompt in PROMPTS:
        ids, wanted, margins = ref.greedy(prompt)
        ours = spec(a.spec, "run", a.checkpoint, prompt, "-n", str(TOKENS), "--precision", "f32")
        told = "same"
        if ours["prompt_tokens"] != len(ids):
            told = f"PROMPT of {ours['prompt_tokens']} tokens, not {len(ids)}"
            failures += 1
        elif ours["tokens"] != wanted:
            at = shared(ours["tokens"], wanted)
            close = at < len(margins) and margins[at] < TIE
            told = f"{'a tie' if close else 'OTHER'} at token {at} (margin {margins[min(at, len(margins) - 1)]:.1e})"
            failures += not close
            steps += at
        else:
            steps += len(wanted)
        answer = ref.processor.tokenizer.decode(wanted, skip_special_tokens=True)
        answer = answer if answer.strip() else " " + PROMPTS[4]  # the model had nothing to say
        tokens = ref.processor.tokenizer(answer, add_special_tokens=False).input_ids
        score = spec(a.spec, "score", a.checkpoint, prompt, "--continuation", answer)
        if [t["id"] for t in score["tokens"]] != tokens:
            told += ", OTHER TOKENS in the continuation"
            failures += 1
        else:
            pairs = zip(score["tokens"], ref.likelihoods(ids, tokens))
            largest = max(abs(t["log_probability"] - p) for t, p in pairs)
            scored, worst = scored + len(tokens), max(worst, largest)
            failures += largest > TOLERANCE
            told += f", {score['bits_per_character']:.4f} bits per character, largest difference {largest:.1e}"
        if rounded:
            ours = spec(a.spec, "run", a.checkpoint, prompt, "-n", str(TOKENS), "--precision", "bf16")["tokens"]
            theirs, ours = (shared(tokens, wanted) for tokens in (rounded.greedy(prompt)[1], ours))
            kept += min(theirs, ours)
            failures += ours < theirs
            told += f", bf16 keeps {ours} tokens of {len(wanted)} (the reference {theirs})"
        print(f"{prompt!r}\n  {answer!r}\n  {told}, smallest margin {min(margins):.1e}", flush=True)
    print(f"{len(PROMPTS)} prompts, {steps} tokens equal, {scored} log-probabilities, largest difference {worst:.1e}, "
          f"{f'{kept} tokens equal in bf16, ' if a.bf16 else ''}"
          f"{failures} failures")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
