#!/usr/bin/env python3
"""Record how many frames and rows the reference's feature extractors (transformers 5.24.0) make of clips.

    OMP_NUM_THREADS=1 venv/bin/python tests/scripts/clip_sweep.py            # writes tests/fixtures/layout/clip.txt
    OMP_NUM_THREADS=1 venv/bin/python tests/scripts/clip_sweep.py --verify   # recompute and compare

For each setting 4096 lengths in samples are drawn by `Lengths`, which the test of `src/layout/clip.rs` repeats in integers. The
file holds for each setting:

    setting KIND LIMIT LEAD HOP SPAN     KIND 0: Whisper's extractor as Qwen2AudioProcessor counts; 1: Gemma 4's
    SAMPLES FRAMES ROWS                  the first 64 lengths with their answers
    HASH HASH HASH HASH                  of every 64 answers: FNV-1a-64 of the four bytes, little endian, of FRAMES and ROWS

Spectra are not computed: only padding and masks decide, and these are the reference's own.
"""
import argparse
import pathlib

import numpy as np
from transformers import WhisperFeatureExtractor
from transformers.models.gemma4 import feature_extraction_gemma4
from transformers.models.gemma4.feature_extraction_gemma4 import Gemma4AudioFeatureExtractor
from transformers.models.gemma4.processing_gemma4 import Gemma4Processor

# kind, limit, lead, hop, span, then what the extractor is made with
SETTINGS = [
    (0, 480000, 0, 160, 1, {}),
    (0, 160000, 0, 160, 1, {"chunk_length": 10}),
    (0, 480000, 0, 200, 1, {"hop_length": 200}),
    (1, 480000, 160, 160, 321, {"feature_size": 128}),
    (1, 480000, 256, 160, 513, {"feature_size": 128, "frame_length_ms": 32.0}),
    (1, 480000, 160, 320, 321, {"feature_size": 128, "hop_length_ms": 20.0}),
]
COUNT, BLOCK, LISTED = 4096, 64, 64
M64 = (1 << 64) - 1
PATH = pathlib.Path(__file__).resolve().parent.parent / "fixtures/layout/clip.txt"


class Lengths:
    """The lengths of one setting; `seed` is the setting's number, from 0."""

    def __init__(self, seed, limit, hop, span):
        self.state, self.limit, self.hop, self.span = seed, limit, hop, span

    def roll(self, sides):
        """SplitMix64, scaled to 0 .. sides - 1."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & M64
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M64
        return ((z ^ (z >> 31)) * sides) >> 64

    def draw(self, index):
        kind = index % 4
        if kind == 0:  # short
            return 1 + self.roll(4 * self.span + 2 * self.hop)
        if kind == 1:  # around the edge of a frame
            frames = self.roll(self.limit // self.hop + 2)
            return max(1, frames * self.hop + self.span + self.roll(5) - 3)
        if kind == 2:  # around the limit
            return self.limit + self.roll(2 * self.span + 5) - self.span - 2
        return 1 + self.roll(self.limit + self.limit // 4)


class Tokens:
    boa_token = eoa_token = ""
    audio_token = "x"


def whisper(settings):
    extractor = WhisperFeatureExtractor(return_attention_mask=True, **settings)
    frames = lambda self, wave, *rest, **more: np.zeros((wave.shape[0], 1, wave.shape[1] // self.hop_length), np.float32)  # noqa: E731
    WhisperFeatureExtractor._torch_extract_fbank_features = frames
    WhisperFeatureExtractor._np_extract_fbank_features = frames

    def answer(samples):
        made = extractor([np.zeros(samples, np.float32)], sampling_rate=16000, padding="max_length", return_attention_mask=True)
        length = int(np.asarray(made["attention_mask"])[0].sum())
        return length, max(0, (((length - 1) // 2 + 1) - 2) // 2 + 1)  # Qwen2AudioProcessor._process_audio

    return answer


def gemma(settings):
    extractor = Gemma4AudioFeatureExtractor(**settings)
    feature_extraction_gemma4.np.fft.rfft = lambda frames, n, axis: np.zeros((*frames.shape[:-1], n // 2 + 1), np.complex64)

    def answer(samples):
        made = extractor([np.zeros(samples, np.float32)])
        frames = int(np.asarray(made["input_features_mask"][0]).sum())
        return frames, len(Gemma4Processor.replace_audio_token(Tokens, made, 0))

    return answer


def sweep():
    lines = []
    for seed, (kind, limit, lead, hop, span, settings) in enumerate(SETTINGS):
        lines.append(f"setting {kind} {limit} {lead} {hop} {span}")
        answer = (whisper, gemma)[kind](settings)
        lengths = Lengths(seed, limit, hop, span)
        hashes, digest = [], 0xCBF29CE484222325
        for index in range(COUNT):
            samples = lengths.draw(index)
            frames, rows = answer(samples)
            if index < LISTED:
                lines.append(f"{samples} {frames} {rows}")
            for byte in frames.to_bytes(4, "little") + rows.to_bytes(4, "little"):
                digest = ((digest ^ byte) * 0x100000001B3) & M64
            if index % BLOCK == BLOCK - 1:
                hashes.append(f"{digest:016x}")
                digest = 0xCBF29CE484222325
        lines += [" ".join(hashes[at : at + 4]) for at in range(0, len(hashes), 4)]
        print(lines[-1], flush=True)
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--verify", action="store_true")
    verify = parser.parse_args().verify
    text = sweep()
    if not verify:
        PATH.write_text(text)
    elif PATH.read_text() != text:
        raise SystemExit("tests/fixtures/layout/clip.txt differs from the reference")


if __name__ == "__main__":
    main()
