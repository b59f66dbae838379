#!/usr/bin/env python3
"""Record which token the reference implementation finds likeliest when it computes in bf16, and when it computes in f32.

    OMP_NUM_THREADS=1 venv/bin/python tests/scripts/make_precision.py              # every folder below tests/fixtures/goldens
    OMP_NUM_THREADS=1 venv/bin/python tests/scripts/make_precision.py llava        # some
    OMP_NUM_THREADS=1 venv/bin/python tests/scripts/make_precision.py --verify     # recompute, compare with what is stored

The environment is that of make_goldens.py. The weights are those of the golden, rounded to bf16. Writes `precision.json`: for every
case of `golden.json` and every position of its prompt the likeliest next token of the run in f32, or -1 where the run of the same
weights in bf16 (everything in bf16, as `dtype="bfloat16"` computes) finds another; and in `moved` how far the logit that bf16 moved
most is from its value in f32, rounded up.
"""
import argparse
import json
import math
import os
import tempfile

from make_goldens import BASES, CHECKPOINTS, FAMILIES, GOLDENS, dump, materialise, parse_clip, versions

import torch  # noqa: E402  (make_goldens sets the environment)
import transformers  # noqa: E402
from PIL import Image  # noqa: E402

from golden_reference import Reference  # noqa: E402


@torch.no_grad()
def logits(ref, facts, dtype):
    """The logits of every position of a case's prompt, [positions, vocabulary], widened to f32."""
    images = [Image.open(os.path.join(GOLDENS, "images", i["file"])).convert("RGB") for i in facts["images"]]
    clips = [parse_clip(c["file"]) for c in facts.get("clips", [])]
    inputs, _ = ref.inputs(facts["prompt"], images, clips)
    inputs = {k: v.to(dtype) if v.is_floating_point() else v for k, v in inputs.items()}
    return ref.model(**inputs).logits[0].float()


def answers(name):
    """The content of `precision.json` for a golden folder."""
    folder = os.path.join(GOLDENS, name)
    golden = json.load(open(os.path.join(folder, "golden.json"), encoding="utf-8"))
    family = FAMILIES.get(name) or BASES["qwen2vl" if name.startswith("qwen2vl") else "llava"]
    with tempfile.TemporaryDirectory() as tmp:
        materialise(folder, tmp, rounded="bf16")
        exact, rounded = (Reference(tmp, family, dtype) for dtype in (torch.float32, torch.bfloat16))
    cases = {}
    for case, facts in golden["cases"].items():
        if "." in case:  # the same prompt with rounded weights
            continue
        one, other = logits(exact, facts, torch.float32), logits(rounded, facts, torch.bfloat16)
        agree = one.argmax(-1) == other.argmax(-1)
        cases[case] = {"apart": round(float((one - other).norm() / one.norm()), 5),
                       "likeliest": torch.where(agree, one.argmax(-1), -1).tolist(),
                       "moved": [math.ceil(1e3 * m) / 1e3 for m in (one - other).abs().amax(-1).tolist()]}
    return {"versions": versions(), "cases": cases}


def write(name, found):
    """One line for each case: the lists are long."""
    lines = ",\n".join(f"    {json.dumps(case)}: {json.dumps(facts)}" for case, facts in found["cases"].items())
    with open(os.path.join(GOLDENS, name, "precision.json"), "w", encoding="utf-8") as f:
        f.write(f'{{\n  "versions": {json.dumps(found["versions"])},\n  "cases": {{\n{lines}\n  }}\n}}\n')


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("names", nargs="*", metavar="CHECKPOINT")
    ap.add_argument("--verify", action="store_true")
    a = ap.parse_args()
    transformers.utils.logging.disable_progress_bar()
    own = [d for d in sorted(os.listdir(GOLDENS)) if os.path.exists(os.path.join(GOLDENS, d, "golden.safetensors"))]
    assert all(name in FAMILIES or name in CHECKPOINTS for name in own)
    for name in a.names or own:
        found = answers(name)
        if a.verify:
            with open(os.path.join(GOLDENS, name, "precision.json"), encoding="utf-8") as f:
                assert json.load(f)["cases"] == found["cases"], name
            print(f"{name}: verified", flush=True)
            continue
        write(name, found)
        tokens = [t for facts in found["cases"].values() for t in facts["likeliest"]]
        print(f"{name}: {len(tokens)} positions, bf16 agrees at {sum(t >= 0 for t in tokens)}, logits apart by up to "
              f"{max(f['apart'] for f in found['cases'].values())}", flush=True)


if __name__ == "__main__":
    main()
