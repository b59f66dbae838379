#!/usr/bin/env python3
"""Measure `spec` beside PyTorch and candle: same geometry, same weights, same threads, in turns.

    python3 benches/peers/run.py                 # everything, into FOLDER (default /tmp/vlm-spec-peers): some 20 GB, half an hour
    python3 benches/peers/run.py 384 896 --rounds 7
    python3 benches/peers/run.py decoder floor --folder /data/peers

Works: `384` and `896` (one picture of so many pixels through the tower of Gemma 3, SigLIP So400m), `decoder` (Qwen2-VL 2B: a prompt of 1024
tokens, then single tokens), `memory` (the most that encoding at 896 holds), `floor` (`spec floor` as a whole process). PyTorch, transformers
and candle are installed below FOLDER by pip and cargo; the project itself does not need them. Checkpoints have random bf16 weights
(tests/scripts/big_checkpoint.py); f32 columns compute with the same weights in f32.

Every peer is one process that loads first and then waits. Each round asks all of them one after the other, so that a load which comes and
goes meets all; the first round warms up and is not counted. Printed are medians, the spread (largest / smallest), and the ratio of `spec`
to each peer: the median of the ratios of rounds.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
PACKAGES = ["torch==2.15.0", "transformers==5.24.0", "safetensors==0.8.0", "numpy==2.4.6", "pillow==13.0.0"]
WORKS = ("384", "896", "decoder", "memory", "floor")
TOKENS, STEPS = 1024, 8


def call(*arguments, **options):
    subprocess.run(arguments, check=True, **options)


class Tools:
    """What is installed and built where it is first needed."""

    def __init__(self, folder, python):
        self.folder, self.given = folder, python
        os.makedirs(folder, exist_ok=True)

    def python(self):
        if self.given:
            return self.given
        python = os.path.join(self.folder, "venv", "bin", "python")
        if not os.path.exists(python):
            call(sys.executable, "-m", "venv", os.path.join(self.folder, "venv"))
            call(python, "-m", "pip", "install", "--quiet", *PACKAGES)
        return python

    def candle(self):
        target = os.path.join(self.folder, "candle")
        call("cargo", "build", "--quiet", "--release", "--manifest-path", os.path.join(HERE, "candle", "Cargo.toml"), "--target-dir", target,
             env={**os.environ, "RUSTFLAGS": "-C target-cpu=native"})
        return os.path.join(target, "release", "candle-peer")

    def bench(self):
        """The program of benches/forward.rs."""
        call("cargo", "build", "--quiet", "--release", cwd=ROOT)
        lines = subprocess.run(["cargo", "bench", "--no-run", "--bench", "forward", "--message-format", "json"], cwd=ROOT, check=True,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.splitlines()
        found = [m["executable"] for m in map(json.loads, lines) if m.get("executable") and m["target"]["name"] == "forward"]
        return found[-1]

    def spec(self):
        call("cargo", "build", "--quiet", "--release", cwd=ROOT)
        about = subprocess.run(["cargo", "metadata", "--format-version", "1", "--no-deps"], cwd=ROOT, check=True, stdout=subprocess.PIPE)
        return os.path.join(json.loads(about.stdout)["target_directory"], "release", "spec")

    def checkpoint(self, name, *arguments):
        folder = os.path.join(self.folder, name)
        if not os.path.exists(os.path.join(folder, "model.safetensors.index.json")):
            call(self.python(), os.path.join(ROOT, "tests", "scripts", "big_checkpoint.py"), *arguments[:1], folder, *arguments[1:],
                 stdout=subprocess.DEVNULL)
        return folder

    def picture(self, side):
        path = os.path.join(self.folder, f"{side}.png")
        code = ("import sys, numpy as np; from PIL import Image; n = int(sys.argv[1]);"
                "Image.fromarray(np.random.default_rng(0).integers(0, 256, (n, n, 3), np.uint8)).save(sys.argv[2])")
        call(self.python(), "-c", code, str(side), path)
        return path


class Peer:
    """A program that answers every line with a line of JSON."""

    def __init__(self, name, *arguments):
        self.name = name
        self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout.readline().strip() == "ready", f"{name} did not start"

    def ask(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"{self.name} ended"
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def in_turns(peers, rounds):
    """The answers of every peer, round by round."""
    answers = {peer.name: [] for peer in peers}
    for turn in range(rounds + 1):
        for peer in peers:
            answer = peer.ask()
            if turn:
                answers[peer.name].append(answer)
    for peer in peers:
        peer.close()
    return answers


def table(title, answers, key):
    """Medians, spreads, and what `spec` takes of each peer's time at the same precision."""
    print(f"\n{title}")
    for name, rounds in answers.items():
        times = [answer[key] for answer in rounds]
        told = f"  {name:<14} {statistics.median(times):8.3f} s   spread {max(times) / min(times):.2f}"
        ours = f"spec {name.split()[1]}"
        if ours != name and ours in answers:
            ratios = [a[key] / b[key] for a, b in zip(answers[ours], rounds)]
            told += f"   spec takes {statistics.median(ratios):.2f} of it"
        print(told, flush=True)


def tower(tools, side, rounds):
    folder = tools.checkpoint(f"tower-{side}", "gemma3-4b", "--layers", "1", "--image-size", str(side))
    picture, bench, python = tools.picture(side), tools.bench(), tools.python()
    script = os.path.join(HERE, "torch_peer.py")
    peers = []
    for precision in ("bf16", "f32"):
        peers.append(Peer(f"spec {precision}", bench, folder, "--image", picture, "--precision", precision, "--on-request"))
        peers.append(Peer(f"torch {precision}", python, script, folder, "tower", precision))
    if side <= 384:  # at 896 its scores alone take a gigabyte a layer
        peers.append(Peer("candle f32", tools.candle(), folder))
    table(f"one picture of {side} x {side}, encoded", in_turns(peers, rounds), "encode")


def decoder(tools, rounds):
    folder, bench, python = tools.checkpoint("decoder", "qwen2-vl-2b"), tools.bench(), tools.python()
    peers = [
        Peer("spec bf16", bench, folder, "--tokens", str(TOKENS), "--generate", str(STEPS), "--precision", "bf16", "--on-request"),
        Peer("torch bf16", python, os.path.join(HERE, "torch_peer.py"), folder, "decoder", "bf16", str(TOKENS), str(STEPS)),
    ]
    answers = in_turns(peers, rounds)
    table(f"a prompt of {TOKENS} tokens", answers, "prefill")
    table("one token", answers, "decode")
    ours = answers["spec bf16"]
    rate = statistics.median(a["bytes"] / a["read"] for a in ours)
    part = statistics.median(a["read"] / a["decode"] for a in ours)
    print(f"  a token reads {ours[0]['bytes'] / 1e9:.2f} GB, which a plain read does at {rate / 1e9:.1f} GB/s: decode reaches {100 * part:.0f} % of that")


def memory(tools):
    folder = tools.checkpoint("tower-896", "gemma3-4b", "--layers", "1", "--image-size", "896")
    for precision in ("bf16", "f32"):
        out = subprocess.run([tools.spec(), "run", folder, "--image", tools.picture(896), "What is this?", "-n", "1", "--json", "--precision", precision],
                             check=True, stdout=subprocess.PIPE).stdout
        peak = json.loads(out)["peak_rss_bytes"]
        weights = sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder) if f.endswith(".safetensors"))
        print(f"\n896 x 896, {precision}: the whole process holds {peak / 1e6:.0f} MB at most, {(peak - weights) / 1e6:.0f} MB beside {weights / 1e6:.0f} MB of weights")


def floor(tools, rounds):
    spec, folder = tools.spec(), os.path.join(ROOT, "tests", "fixtures", "checkpoints")
    for name in ("Qwen__Qwen2-VL-2B-Instruct", "google__gemma-3-4b-it", "HuggingFaceTB__SmolVLM-256M-Instruct"):
        times = []
        for _ in range(10 * rounds):
            start = time.perf_counter()
            call(spec, "floor", os.path.join(folder, name), stdout=subprocess.DEVNULL)
            times.append(time.perf_counter() - start)
        print(f"\nspec floor {name}: {1e3 * statistics.median(times):.1f} ms, spread {max(times) / min(times):.2f}")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("works", nargs="*", metavar="WORK", help=f"of {', '.join(WORKS)}")
    ap.add_argument("--folder", default="/tmp/vlm-spec-peers")
    ap.add_argument("--python", help="one that has the packages already")
    ap.add_argument("--rounds", type=int, default=5)
    a = ap.parse_args()
    unknown = set(a.works) - set(WORKS)
    if unknown:
        ap.error(f"there is no work {', '.join(sorted(unknown))}")
    tools = Tools(os.path.abspath(a.folder), a.python)
    for work in a.works or WORKS:
        if work in ("384", "896"):
            tower(tools, int(work), a.rounds)
        elif work == "decoder":
            decoder(tools, a.rounds)
        elif work == "memory":
            memory(tools)
        else:
            floor(tools, a.rounds)


if __name__ == "__main__":
    main()
