#!/usr/bin/env python3
"""Record what the reference implementation (transformers) computes for tiny checkpoints of every family.

    python3.11 -m venv venv
    venv/bin/pip install torch==2.15.0 torchvision==0.29.2 transformers==5.24.0 tokenizers==0.23.3 safetensors==0.8.0 \\
        numpy==2.4.6 pillow==13.0.0 jinja2==3.1.6 num2words==0.5.14
    OMP_NUM_THREADS=1 venv/bin/python tests/scripts/make_goldens.py                 # all, into tests/fixtures/goldens (5 min)
    OMP_NUM_THREADS=1 venv/bin/python tests/scripts/make_goldens.py llava qwen2vl   # some
    OMP_NUM_THREADS=1 venv/bin/python tests/scripts/make_goldens.py gemma3 --seed 9 --out DIR   # other weights, elsewhere
    OMP_NUM_THREADS=1 venv/bin/python tests/scripts/make_goldens.py --verify        # recompute, compare with what is stored
    OMP_NUM_THREADS=1 venv/bin/python tests/scripts/make_goldens.py --find-seed llava   # a seed that keeps clear of ties
    OMP_NUM_THREADS=1 venv/bin/python tests/scripts/make_goldens.py --record DIR OUT    # any checkpoint folder with weights

Nothing is downloaded. Everything runs on the CPU in f32 with eager attention and one thread. Weights are not stored: they
are a formula of `weights.json` (see formula.py). Config files of LLaVA and Qwen2-VL are made by tiny_checkpoints.py; those of
the other families (golden_families.py) are read from their folders. What the folders hold: tests/fixtures/README.md.
"""
import argparse
import dataclasses
import json
import os
import re
import shutil
import tempfile
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
warnings.filterwarnings("ignore")

import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from PIL import Image  # noqa: E402
from safetensors.numpy import load_file, save_file  # noqa: E402

import formula  # noqa: E402
from golden_cases import items_of, name_of, parse_clip, write_images  # noqa: E402
from golden_families import BASES, FAMILIES, Family, family_of  # noqa: E402
from golden_floor import floor  # noqa: E402
from golden_reference import Reference  # noqa: E402
from tiny_checkpoints import CHECKPOINTS  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDENS = os.path.join(HERE, "..", "fixtures", "goldens")
TAIL = 4          # rows of `logits.tail`; 8 of LLaVA and Qwen2-VL, 2 where the vocabulary is over 1000
ENDS = 4          # rows at either end in `NAME.rows`
LARGEST = 24 << 10  # bytes of a tensor in a case that is stored whole; larger ones are cut, pixels aside
CLOSEST = 2e-3    # no greedy step may be closer to a tie than this
SEEDS = {"llava": 3, "llava_full": 6, "llava_taps": 4, "llava_siglip": 7, "qwen2vl": 2, "qwen2vl_odd": 1}
# The same weights, files as this transformers saves them.
RESAVED = {f"{name}_resaved": name for name in (
    "qwen2vl", "llava", "llavanext", "gemma3", "qwen25vl", "internvl", "mllama", "qwen2audio", "idefics3", "mistral3")}
ROUNDED = {"llava": ("bf16", "f16"), "qwen2vl": ("bf16", "f16")}    # `wide` also with the weights rounded to these
FULL = {"llava": ("wide", "two", "text"), "qwen2vl": ("wide", "two", "text")}  # cases of which every tensor is stored whole
FULL_ELSE = ("two",)
PIXELS = ("wide", "tall", "small")  # cases of which at least the pixels are
OURS = ("weights.json", "golden.json", "floor.json")
FILES = (".json", ".jinja", ".txt", ".model")


# -------------------------------------------------------------------------------------------------------------- checkpoints
def dump(folder, name, value):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
        if name == "tokenizer.json":
            json.dump(value, f, ensure_ascii=False, separators=(",", ":"))
        else:
            json.dump(value, f, ensure_ascii=False, indent=2)
        f.write("\n")


def read(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8") as f:
        return json.load(f)


def copy_files(source, target):
    """The config files of a checkpoint; folders (a second tokenizer) as well."""
    os.makedirs(target, exist_ok=True)
    for name in os.listdir(source):
        path, there = os.path.join(source, name), os.path.join(target, name)
        if os.path.abspath(path) == os.path.abspath(there):
            continue
        if os.path.isdir(path):
            shutil.copytree(path, there, dirs_exist_ok=True)
        elif name.endswith(FILES) and name not in OURS:
            shutil.copy(path, target)


@dataclasses.dataclass
class Plan:
    """What is needed to write the weights of a checkpoint and to record it."""
    family: Family
    model_class: str
    seed: int
    damped: list
    raised: list
    tied: bool | None = None  # None: where the saved model has no head

    @classmethod
    def of_tiny(cls, name, seed):
        """LLaVA and Qwen2-VL."""
        ckpt = CHECKPOINTS[name](SEEDS[name] if seed is None else seed)
        family = dataclasses.replace(
            BASES["qwen2vl" if name.startswith("qwen2vl") else "llava"], about=" ".join(CHECKPOINTS[name].__doc__.split()),
            rename=tuple((f"^{re.escape(saved)}(?!{re.escape(published[len(saved):])})", published)
                         for saved, published in ckpt.rename),
            rounded=ROUNDED.get(name, ()))
        return cls(family, ckpt.model_class, ckpt.seed, ckpt.damped, ckpt.raised, ckpt.tied), ckpt.files

    @classmethod
    def of_folder(cls, folder, family, seed):
        ids = {t["content"]: t["id"] for t in read(folder, "tokenizer.json")["added_tokens"]}
        eos = read(folder, "generation_config.json")["eos_token_id"]
        return cls(family, read(folder, "config.json")["architectures"][0], family.seed if seed is None else seed,
                   [ids[t] for t in family.damped], eos if isinstance(eos, list) else [eos])


def write_weights(plan, folder):
    """weights.json for the config files of `folder`."""
    config = transformers.AutoConfig.from_pretrained(folder)
    model = getattr(transformers, plan.model_class)._from_config(config, dtype=torch.float32)
    with tempfile.TemporaryDirectory() as tmp:  # saving applies the published tensor names, but for a prefix
        model.save_pretrained(tmp)
        shapes = {k: list(v.shape) for k, v in load_file(os.path.join(tmp, "model.safetensors")).items()}
    shapes.update(plan.family.shapes(read(folder, "config.json")))
    if plan.family.swapped:
        shapes = {k: [*v[:-2], v[-1], v[-2]] if re.search(plan.family.swapped, k) else v for k, v in shapes.items()}
    tied = plan.tied if plan.tied is not None else not any(k.endswith("lm_head.weight") for k in shapes)
    entries = []
    for name, shape in shapes.items():
        for saved, published in plan.family.rename:
            name = re.sub(saved, published, name)
        entries.append(formula.rule(name, shape, tied, plan.damped, plan.raised, plan.family.special))
    formula.write_table(os.path.join(folder, "weights.json"), plan.seed, entries)


def materialise(folder, target, rounded=None):
    """Copy a checkpoint's files to `target` and write its model.safetensors by the formula."""
    copy_files(folder, target)
    table = read(folder, "weights.json")
    if "same_as" in table:
        table = read(os.path.join(folder, table["same_as"]), "weights.json")
    tensors = {e["name"]: formula.tensor(table["seed"], e) for e in table["tensors"]}
    if rounded:
        dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[rounded]
        tensors = {k: torch.from_numpy(v).to(dtype).float().numpy() for k, v in tensors.items()}
    save_file(tensors, os.path.join(target, "model.safetensors"), metadata={"format": "pt"})


# ------------------------------------------------------------------------------------------------------------------ storing
def ends(x):
    rows = x.reshape(-1, x.shape[-1])
    return rows if len(rows) <= 2 * ENDS else np.concatenate([rows[:ENDS], rows[-ENDS:]])


def thin(tensors, pixels, whole=-1, tail=TAIL):
    """A case without its bulk: tensors of more than `whole` bytes are cut."""
    out = {}
    for k, v in tensors.items():
        if v.nbytes <= whole or v.dtype == np.int64 or (pixels and k.endswith(".pixels")):
            out[k] = v
        elif k == "logits":
            out["logits.tail"] = v[-(tail if v.shape[-1] <= 1000 else 2):]
        else:
            out[k + ".rows"] = ends(v)
    return out


def record(name, images_folder, checkpoint_folder, family, avoid=(), only=None):
    """All cases of one checkpoint: (reference, tensors, facts, cases that the reference refuses)."""
    ref = Reference(checkpoint_folder, family)
    full = FULL.get(name, FULL_ELSE if name in CHECKPOINTS else (family.full,))
    pixels, tail = (PIXELS, 8) if name in CHECKPOINTS else ((), TAIL)
    tensors, facts, refused = {}, {}, {}
    for case, what in family.cases(family.marker).items():
        if only and case not in only:
            continue
        raw = isinstance(what, tuple)
        messages = None if raw else what
        if case == "system" and name == "qwen2vl_odd":  # the template takes plain strings too
            messages = [m if m["role"] == "user" else {"role": m["role"], "content": m["content"][0]["text"]}
                        for m in messages]
        if case in family.refused:
            refused[case] = family.refused[case]
            continue
        prompt = what[0] if raw else ref.prompt(messages)
        files = [name_of(i) for i in what[1]] if raw else items_of(messages, "image") + items_of(messages, "audio")
        pictures = [f for f in files if f.endswith(".png")]
        sounds = [f for f in files if f.endswith(".wav")]
        images = [Image.open(os.path.join(images_folder, f)).convert("RGB") for f in pictures]
        clips = [parse_clip(f) for f in sounds]
        try:
            got, fact, counts = ref.trace(prompt, images, clips)
            if not raw:
                ref.check_prompt(messages, images, clips, got["input_ids"])
        except Exception:
            print(f"{name}, {case}:", flush=True)
            raise
        assert not set(avoid) & set(got["generated_ignoring_eos"].tolist()), (case, "greedy hits a placeholder")
        listed = {"images": [{"file": f, "width": i.width, "height": i.height, "embeds": n}
                             for f, i, n in zip(pictures, images, counts)]}
        if sounds or family.views == "clips":
            listed["clips"] = [{"file": f, "samples": len(c), "embeds": n}
                               for f, c, n in zip(sounds, clips, counts[len(images):])]
        facts[case] = {"raw": raw, **({} if raw else {"messages": messages}), "prompt": prompt, **listed,
                       "stored": "full" if case in full else "rows", **fact}
        if case in full:
            kept = got if name in CHECKPOINTS else thin(got, pixels=True, whole=LARGEST)
        else:
            kept = thin(got, pixels=case in pixels, tail=tail)
        tensors.update({f"{case}/{k}": v for k, v in kept.items()})
    return ref, tensors, facts, refused


def versions():
    import tokenizers
    return {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0],
            "tokenizers": tokenizers.__version__, "numpy": np.__version__}


def settle(tensors, facts):
    """Takes out the tokens of cases in which a greedy step is close to a tie: rounding may decide otherwise there."""
    for case in [c for c, fact in facts.items() if fact["min_margin"] < CLOSEST]:
        for stage in ("generated", "generated_ignoring_eos"):
            tensors.pop(f"{case}/{stage}")


def make(name, root, seed=None, measure_floor=True, strict=True):
    """One checkpoint folder below `root`. `strict`: no greedy step may be close to a tie or choose a placeholder."""
    images = os.path.join(root, "images")
    folder = os.path.join(root, name)
    if name in CHECKPOINTS:
        plan, files = Plan.of_tiny(name, seed)
        os.makedirs(folder, exist_ok=True)
        for file, value in files.items():
            dump(folder, file, value)
    else:
        copy_files(os.path.join(GOLDENS, name), folder)
        plan = Plan.of_folder(folder, FAMILIES[name], seed)
    write_weights(plan, folder)
    family = plan.family
    with tempfile.TemporaryDirectory() as tmp:
        materialise(folder, tmp)
        ref, tensors, facts, refused = record(name, images, tmp, family, plan.damped if strict else ())
    first = "wide" if "wide" in facts else next(iter(facts))
    for dtype in family.rounded:
        with tempfile.TemporaryDirectory() as tmp:
            materialise(folder, tmp, rounded=dtype)
            _, t, f, _ = record(name, images, tmp, family, plan.damped if strict else (), only=(first,))
        start = len(first) + 1
        thinned = {k[start:]: v for k, v in t.items()}
        if f[first]["stored"] == "full":
            thinned = thin(thinned, pixels=False, tail=8 if name in CHECKPOINTS else TAIL)
        tensors.update({f"{first}.{dtype}/{k}": v for k, v in thinned.items()})
        facts[f"{first}.{dtype}"] = dict(f[first], stored="rows", weights=f"rounded to {dtype}, computed in f32")
    if not strict:
        settle(tensors, facts)
    for case, fact in facts.items():
        assert not strict or fact["min_margin"] >= CLOSEST, (case, fact["min_margin"])
    path = os.path.join(folder, "golden.safetensors")
    save_file(tensors, path)
    os.chmod(path, 0o644)
    dump(folder, "golden.json", {
        "checkpoint": name, "model_class": plan.model_class, "about": family.about, "versions": versions(),
        "ending": ref.ending, "placeholder_id": ref.placeholder, **({"refused": refused} if refused else {}),
        "cases": facts})
    if measure_floor and name in CHECKPOINTS:
        dump(folder, "floor.json", floor(ref))
    return facts


def make_resaved(name, root):
    """The files that this transformers writes for a checkpoint that it loaded; its goldens are those of the original."""
    source, folder = os.path.join(root, RESAVED[name]), os.path.join(root, name)
    original = RESAVED[name]
    family = Plan.of_tiny(original, None)[0].family if original in CHECKPOINTS else FAMILIES[original]
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory() as tmp, tempfile.TemporaryDirectory() as saved:
        materialise(source, tmp)
        ref = Reference(tmp, family)
        ref.model.save_pretrained(saved)
        ref.processor.save_pretrained(saved)
        for f in sorted(os.listdir(saved)):
            if f == "tokenizer.json":
                dump(folder, f, read(saved, f))
            elif not f.endswith(".safetensors"):
                shutil.copyfile(os.path.join(saved, f), os.path.join(folder, f))
        names = sorted(load_file(os.path.join(saved, "model.safetensors")))
    table = read(source, "weights.json")
    assert names == sorted(e["name"] for e in table["tensors"]), set(names) ^ {e["name"] for e in table["tensors"]}
    shared = [f for f in OURS if os.path.exists(os.path.join(source, f))]
    for f in shared:
        dump(folder, f, {"same_as": "../" + original})
    with tempfile.TemporaryDirectory() as tmp:
        materialise(folder, tmp)
        _, tensors, facts, _ = record(original, os.path.join(root, "images"), tmp, family)
    stored = load_file(os.path.join(source, "golden.safetensors"))
    for k, v in tensors.items():
        assert np.array_equal(v, stored[k]), k
    return facts


def summary(name, facts):
    margins = [f["min_margin"] for f in facts.values()]
    ended = [c for c, f in facts.items() if f["ended"]]
    print(f"{name}: prompts of {[f['prompt_tokens'] for f in facts.values()]} tokens, margin {min(margins):.4f}, "
          f"max |logit| {max(f['max_abs_logit'] for f in facts.values())}, ended early: {ended}", flush=True)


def find_seed(name):
    """The first seed whose greedy steps all keep clear of ties and of placeholders, with some text ending early and some not
    (after twelve seeds: without regard to that)."""
    for seed in range(1, 400):
        with tempfile.TemporaryDirectory() as root:
            write_images(os.path.join(root, "images"))
            try:
                facts = make(name, root, seed, False)
            except AssertionError as e:
                print(seed, str(e)[:200], flush=True)
                continue
            golden = load_file(os.path.join(root, name, "golden.safetensors"))
        distinct = [len(set(golden[f"{c}/generated_ignoring_eos"].tolist())) for c in facts]
        ended = [c for c, f in facts.items() if f["ended"] and f["generated_tokens"] > 1]
        lively = 1 <= len(ended) <= len(facts) - 3 and all(f["generated_tokens"] > 1 for f in facts.values())
        if min(distinct) >= 4 and (lively or seed > 12):
            print("seed", seed, "distinct tokens", distinct)
            summary(name, facts)
            return
        print(seed, "ended", ended, "distinct", distinct, flush=True)


def verify(names):
    """Recompute into a scratch folder and compare: integers and texts equal, floats within 1e-5."""
    with tempfile.TemporaryDirectory() as root:
        write_images(os.path.join(root, "images"))
        for name in names:
            if name in RESAVED:
                continue
            make(name, root, measure_floor=False)
            new, old = (load_file(os.path.join(r, name, "golden.safetensors")) for r in (root, GOLDENS))
            assert new.keys() == old.keys()
            worst = max(float(np.abs(new[k].astype(np.float64) - old[k]).max()) if old[k].size else 0.0 for k in old)
            a, b = (read(os.path.join(r, name), "golden.json")["cases"] for r in (root, GOLDENS))
            same = all(a[c][k] == b[c][k] for c in b for k in ("prompt", "images", "generated_text_with_special"))
            tables = [open(os.path.join(r, name, "weights.json"), encoding="utf-8").read() for r in (root, GOLDENS)]
            assert worst <= 1e-5 and same and tables[0] == tables[1], (name, worst, same)
            print(f"{name}: verified, largest difference {worst:.1e}", flush=True)


def record_folder(folder, out):
    """The goldens of a checkpoint folder that has weights: its files, a link to its weights, golden.json and .safetensors."""
    os.makedirs(out, exist_ok=True)
    images = os.path.join(os.path.dirname(os.path.abspath(out)), "images")
    write_images(images)
    family = family_of(read(folder, "config.json"))
    copy_files(folder, out)
    weights = os.path.join(out, "model.safetensors")
    if not os.path.exists(weights):
        os.symlink(os.path.abspath(os.path.join(folder, "model.safetensors")), weights)
    ref, tensors, facts, refused = record(os.path.basename(os.path.abspath(out)), images, folder, family)
    settle(tensors, facts)
    save_file(tensors, os.path.join(out, "golden.safetensors"))
    dump(out, "golden.json", {"checkpoint": folder, "about": family.about, "versions": versions(), "ending": ref.ending,
                              "placeholder_id": ref.placeholder, "refused": refused, "cases": facts})
    summary(folder, facts)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = [*CHECKPOINTS, *FAMILIES, *RESAVED]
    ap.add_argument("names", nargs="*", metavar="CHECKPOINT", help=f"of {', '.join(known)}")
    ap.add_argument("--out", default=GOLDENS, help="where to write (default: tests/fixtures/goldens)")
    ap.add_argument("--seed", type=int, help="of the weights (default: the one of the stored goldens)")
    ap.add_argument("--verify", action="store_true")
    ap.add_argument("--find-seed", metavar="CHECKPOINT")
    ap.add_argument("--record", nargs=2, metavar=("DIR", "OUT"))
    a = ap.parse_args()
    transformers.utils.logging.disable_progress_bar()
    names = a.names or known
    if a.find_seed:
        find_seed(a.find_seed)
    elif a.verify:
        verify(names)
    elif a.record:
        record_folder(*a.record)
    else:
        write_images(os.path.join(a.out, "images"))
        for name in names:
            summary(name, make_resaved(name, a.out) if name in RESAVED else
                    make(name, a.out, a.seed, strict=a.seed is None))


if __name__ == "__main__":
    main()
