#!/usr/bin/env python3
"""Writes the sound files of this folder with libsndfile: python make.py (needs numpy and soundfile).

A name ends in the number of samples that libsndfile reads back, or in a word where the file is to be refused.
"""
import os

import numpy as np
import soundfile

HERE = os.path.dirname(os.path.abspath(__file__))
RATE = 8000


def tone(samples):
    return 0.3 * np.sin(np.arange(samples) * 0.3)


def write(name, samples, **how):
    path = os.path.join(HERE, name)
    soundfile.write(path, tone(samples), RATE, **how)
    return path


def cut(path, name, keep):
    with open(path, "rb") as whole, open(os.path.join(HERE, name), "wb") as part:
        part.write(whole.read()[:keep])


write("flac_701.flac", 701, format="FLAC", subtype="PCM_16")
vorbis = write("vorbis_1701.ogg", 1701, format="OGG", subtype="VORBIS")
write("mpeg_1701.mp3", 1701, format="MP3", subtype="MPEG_LAYER_III")
write("opus_refused.ogg", 100, format="OGG", subtype="OPUS")
write("adpcm_505.wav", 505, format="WAV", subtype="IMA_ADPCM")
write("long_300.wav", 300, format="RF64", subtype="PCM_16")
write("mulaw_301.wav", 301, format="WAVEX", subtype="ULAW")
with open(os.path.join(HERE, "text_refused.wav"), "wb") as file:
    file.write(b"RIFF, but no sound at all")
