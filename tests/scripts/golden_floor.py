"""The floors that a processor's own size function gives: `floor.json` of the folders whose cases say so."""
from PIL import Image

from golden_cases import image_array


def floor(ref):
    """The largest expansion that the processor reports over a range of sizes, confirmed by running it on the witness."""
    text = {"type": "text", "text": "What is this?"}
    dynamic = ref.family.views == "rows"

    def ids(size):
        parts = [{"type": "image"}, text] if size else [text]
        prompt = ref.prompt([{"role": "user", "content": parts}])
        return ref.inputs(prompt, [Image.fromarray(image_array(*size, 0))] if size else [])[0]["input_ids"][0].tolist()

    def count(w, h):
        if dynamic:
            return int(ref.processor._get_num_multimodal_tokens(image_sizes=[(h, w)]).num_image_tokens[0])
        return ids((w, h)).count(ref.placeholder)  # the size function of LLaVA's processor wants a crop_size

    def largest(sizes):
        best = 0, 0, 0
        for w, h in sizes:
            c = count(w, h)
            if c > best[0]:
                best = c, w, h
        return best

    def found(best, searched):
        return {"expansion": best[0], "width": best[1], "height": best[2], "searched": searched}

    ranges = []
    if dynamic:
        square = [(w, h) for w in range(1, 401) for h in range(1, 401) if max(w, h) <= 200 * min(w, h)]
        ranges.append(found(largest(square), "sides 1 to 400"))
        thin_sizes = [s for short in range(1, 13) for long in range(401, 200 * short + 1)
                      for s in ((long, short), (short, long))]
        ranges.append(found(largest(thin_sizes), "short side 1 to 12, long side 401 to 200 times the short"))
        samples = [(1, 1), (1, 200), (200, 1), (13, 9), (96, 40), (400, 400), (27, 27), (28, 28), (1000, 10), (7, 1400),
                   (4096, 4096), (65535, 400), (20, 20), (12, 12), (36, 60), (2560, 2560)]
    else:
        samples = [(1, 1), (13, 9), (96, 40), (400, 3), (300, 400)]
        ranges.append(found(largest(samples), "the samples"))
    best = max(ranges, key=lambda r: r["expansion"])
    witness = (best["width"], best["height"])
    ran = ids(witness)
    expansion = ran.count(ref.placeholder)
    assert expansion == best["expansion"], (expansion, ranges)
    return {"modality": "image", "expansion": expansion, "framing": len(ran) - len(ids(None)) - expansion,
            "framing_text": text["text"],
            "witness": {"width": witness[0], "height": witness[1]}, "ranges": ranges,
            "samples": [{"width": w, "height": h, "expansion": count(w, h)} for w, h in samples]}
