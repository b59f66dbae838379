#!/usr/bin/env python3
"""Record what the reference (transformers 5.24, soundfile 0.14, soxr 1.1) makes of sound files and clips.

    OMP_NUM_THREADS=1 venv/bin/python tests/scripts/sound_goldens.py            # writes tests/fixtures/sound/goldens
    OMP_NUM_THREADS=1 venv/bin/python tests/scripts/sound_goldens.py --verify   # recompute from the stored files and compare

`files`: small files of every format, written by libsndfile; of each, at its own rate and at 16 kHz: how many samples
`load_audio` gives, their sum of squares, and every 29th of them.
`clips`: clips that `clip` states by formula, which the test repeats in integers, as 16-bit samples at a rate; `mask` is the number
of frames under the attention mask, `mean` and `square` are those of all mel values, `rows` every 9th band of some frames.
`settings`: the same for other settings of the feature extractor, on one clip.
"""
import argparse
import json
import pathlib

import numpy as np
import soundfile
import transformers.audio_utils
from transformers import WhisperFeatureExtractor

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "fixtures/sound/goldens"
FILES = [
    ("byte_8000_1.wav", 8000, 1, 400, "WAV", "PCM_U8"),
    ("short_44100_2.wav", 44100, 2, 1100, "WAV", "PCM_16"),
    ("three_48000_2.wav", 48000, 2, 700, "WAV", "PCM_24"),
    ("four_16000_1.wav", 16000, 1, 300, "WAV", "PCM_32"),
    ("single_22050_3.wav", 22050, 3, 600, "WAV", "FLOAT"),
    ("double_96000_1.wav", 96000, 1, 900, "WAV", "DOUBLE"),
    ("alaw_8000_1.wav", 8000, 1, 400, "WAV", "ALAW"),
    ("mulaw_12000_1.wav", 12000, 1, 400, "WAV", "ULAW"),
    ("short_24000_2.flac", 24000, 2, 900, "FLAC", "PCM_16"),
    ("three_11025_1.flac", 11025, 1, 500, "FLAC", "PCM_24"),
    ("vorbis_32000_2.ogg", 32000, 2, 2000, "OGG", "VORBIS"),
    ("layer3_44100_2.mp3", 44100, 2, 3000, "MP3", "MPEG_LAYER_III"),
    ("layer3_16000_1.mp3", 16000, 1, 2000, "MP3", "MPEG_LAYER_III"),
]
CLIPS = [
    ("noise", 0, 16000), ("noise", 1, 16000), ("noise", 160, 16000), ("noise", 201, 16000), ("wave", 16001, 16000),
    ("steps", 40000, 16000), ("noise", 479999, 16000), ("wave", 480000, 16000), ("wave", 496000, 16000), ("wave", 24000, 48000),
    ("wave", 16000, 8000), ("wave", 44100, 44100),
]  # fmt: skip
SETTINGS = [
    {"feature_size": 80},
    {"feature_size": 64, "n_fft": 512, "hop_length": 170, "chunk_length": 2},
    {"feature_size": 40, "sampling_rate": 8000, "n_fft": 200, "hop_length": 80, "chunk_length": 3, "padding_value": 0.25},
]


def triangle(i, period):
    return np.abs(i % period * 2 - period) - period // 2


def clip(kind, samples):
    """16-bit samples."""
    i = np.arange(samples, dtype=np.int64)
    if kind == "noise":
        n = (i * 2654435761 + 40503) & 0xFFFFFFFF
        n ^= n >> 15
        n = (n * 2246822519) & 0xFFFFFFFF
        return ((n >> 16) - 32768) // 4
    if kind == "wave":
        return (triangle(i, 131) * 5 + triangle(i, 29) * 7 + triangle(i, 7)) * (triangle(i, 9000) + 4500) // 400
    return np.where(i // 6000 % 2 == 0, np.where(i // 40 % 2 == 0, 30000, -30000), i % 3 - 1)


def numbers(values):
    return [float(f"{value:.9g}") for value in np.asarray(values, np.float64).ravel()]


def moments(values):
    values = values.astype(np.float64)
    return {"mean": float(values.mean()), "square": float((values**2).mean())}


def mel(extractor, samples):
    made = extractor(
        [samples.astype(np.float32)], sampling_rate=extractor.sampling_rate, padding="max_length", return_attention_mask=True
    )
    values, mask = np.asarray(made["input_features"])[0], int(np.asarray(made["attention_mask"])[0].sum())
    last = values.shape[1] - 1
    frames = sorted({0, 1, 2, 3, last // 3, max(0, mask - 3), max(0, mask - 1), min(mask, last), last})
    rows = [{"frame": frame, "values": numbers(values[::9, frame])} for frame in frames]
    return {"bands": values.shape[0], "frames": values.shape[1], "mask": mask, **moments(values), "rows": rows}


def written(name, rate, channels, samples, form, subtype):
    steps = clip("wave", samples + 300)[300:] / 40000 + clip("noise", samples) / 90000
    sound = np.stack([steps * (1 - channel / 4) for channel in range(channels)], 1)
    soundfile.write(FOLDER / name, sound, rate, format=form, subtype=subtype)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--verify", action="store_true")
    verify = parser.parse_args().verify
    FOLDER.mkdir(exist_ok=True)
    load = transformers.audio_utils._load_audio_soundfile
    made = {"files": [], "clips": [], "settings": []}
    for name, rate, *how in FILES:
        if not verify:
            written(name, rate, *how)
        for to in dict.fromkeys([rate, 16000]):
            sound = load(str(FOLDER / name), to)
            square = float((sound.astype(np.float64) ** 2).sum())
            made["files"].append(
                {"file": name, "from": rate, "rate": to, "samples": len(sound), "squares": square, "every": numbers(sound[::29])}
            )
    extractor = WhisperFeatureExtractor(feature_size=128)
    scratch = FOLDER / "scratch.wav"
    for kind, samples, rate in CLIPS:
        soundfile.write(scratch, clip(kind, samples).astype(np.int16), rate, subtype="PCM_16")
        sound = load(str(scratch), 16000)
        made["clips"].append({"kind": kind, "samples": samples, "rate": rate, **mel(extractor, sound)})
    scratch.unlink()
    for settings in SETTINGS:
        sound = clip("wave", 20000) / 32768
        made["settings"].append({"settings": settings, **mel(WhisperFeatureExtractor(**settings), sound)})
    text = json.dumps(made).replace('{"file"', '\n{"file"').replace('{"kind"', '\n{"kind"').replace('{"settings"', '\n{"settings"') + "\n"
    path = FOLDER / "goldens.json"
    if not verify:
        path.write_text(text)
    elif path.read_text() != text:
        raise SystemExit("the reference answers otherwise")


if __name__ == "__main__":
    main()
