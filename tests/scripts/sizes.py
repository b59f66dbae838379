"""Image sizes that follow from a formula, and tables of what the reference makes of them; shared by the sweeps.

A table holds for each setting:

    setting NUMBERS
    WIDTH HEIGHT ANSWER          the first sizes with their answers
    HASH HASH HASH HASH          of every 64 answers: FNV-1a-64 of the four bytes, little endian, of each number

The tests repeat the sizes in integers (`src/layout/sweep.rs`).
"""
import argparse
import pathlib

COUNT, BLOCK, LISTED = 8192, 64, 48
M64 = (1 << 64) - 1
FOLDER = pathlib.Path(__file__).resolve().parent.parent / "fixtures/layout"


class Sizes:
    """The sizes of one setting: `seed` is its number, from 0; `width` and `height` are a tile or whatever size matters."""

    def __init__(self, seed, width, height):
        self.state, self.width, self.height = seed, width, height

    def roll(self, sides):
        """SplitMix64, scaled to 0 .. sides - 1."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & M64
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M64
        return ((z ^ (z >> 31)) * sides) >> 64

    def magnitude(self, bits):
        """Of any magnitude up to so many bits."""
        return 1 + self.roll(1 << (1 + self.roll(bits)))

    def pair(self, kind):
        if kind == 0:  # any
            return 1 + self.roll(65535), 1 + self.roll(65535)
        if kind == 1:  # a few tiles
            return 1 + self.roll(6 * self.width), 1 + self.roll(6 * self.height)
        if kind == 2:  # of any magnitude
            return self.magnitude(16), self.magnitude(16)
        if kind == 3:  # small ratios, exactly
            times = self.magnitude(13)
            return (1 + self.roll(12)) * times, (1 + self.roll(12)) * times
        if kind == 4:  # in the middle between two ratios
            times, columns, rows = self.magnitude(12), 1 + self.roll(12), 1 + self.roll(12)
            return (2 * columns + 1) * times, 2 * rows * times
        if kind == 5:  # half the pixels of some tiles
            long, tiles = self.magnitude(16), 1 + self.roll(16)
            return long, tiles * self.width * self.height // (2 * long) + self.roll(3) - 1
        if kind == 6:  # whole tiles, or one pixel off
            columns, rows = 1 + self.roll(12), 1 + self.roll(12)
            return columns * self.width + self.roll(3) - 1, rows * self.height + self.roll(3) - 1
        return 1 + self.roll(3), 1 + self.roll(65535)  # thin

    def draw(self, index):
        one, two = self.pair(index % 8)
        if self.roll(2) == 1:
            one, two = two, one
        return min(max(one, 1), 65535), min(max(two, 1), 65535)


def table(settings, tile, answer):
    """The text: `tile(setting)` gives (width, height), `answer(setting, width, height)` a list of numbers."""
    lines = []
    for seed, setting in enumerate(settings):
        lines.append("setting " + " ".join(map(str, setting)))
        sizes = Sizes(seed, *tile(setting))
        hashes, digest = [], 0xCBF29CE484222325
        for index in range(COUNT):
            width, height = sizes.draw(index)
            result = answer(setting, width, height)
            if index < LISTED:
                lines.append(" ".join(map(str, [width, height, *result])))
            for byte in b"".join(number.to_bytes(4, "little") for number in result):
                digest = ((digest ^ byte) * 0x100000001B3) & M64
            if index % BLOCK == BLOCK - 1:
                hashes.append(f"{digest:016x}")
                digest = 0xCBF29CE484222325
        lines += [" ".join(hashes[at : at + 4]) for at in range(0, len(hashes), 4)]
    return "\n".join(lines) + "\n"


def main(name, settings, tile, answer):
    """Writes the table, or compares it with the stored one if called with `--verify`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--verify", action="store_true")
    verify = parser.parse_args().verify
    path = FOLDER / name
    text = table(settings, tile, answer)
    if not verify:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    elif path.read_text() != text:
        raise SystemExit(f"{name} differs from the reference")
