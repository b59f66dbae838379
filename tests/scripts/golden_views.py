"""From the tensors of a whole prompt to those of its items: how each kind of processor lays out pictures and clips."""
import torch

from golden_cases import RATE


def tower_rows(ref, out):
    """What a tower gives, where the connector's input is made of it: without the class token, if that is dropped."""
    rows = getattr(out, "last_hidden_state", out)
    return rows[:, ref.family.drop:] if ref.family.drop else rows


def alone(ref, image):
    """One picture through the image processor, as the processor calls it."""
    more = {"crop_to_patches": True} if ref.family.views == "stacked" else {}
    return ref.processor.image_processor(images=[[image]], return_tensors="pt", **more)


def pixels_plain(ref, inputs, images):
    return [p[None] for p in inputs["pixel_values"]]


def pixels_tiles(ref, inputs, images):
    """[pictures, most views of a picture, 3, side, side]: views of zeros fill up."""
    out = []
    for padded, image in zip(inputs["pixel_values"], images):
        views = alone(ref, image)["pixel_values"][0]
        if len(padded) == 1 and len(views) > 1:  # LLaVA-OneVision makes one square of each where there are several pictures
            views = padded
        assert torch.equal(padded[:len(views)], views) and not padded[len(views):].any()
        out.append(views)
    return out


def pixels_stacked(ref, inputs, images):
    """[views of all pictures, 3, height, width]"""
    counts = [len(alone(ref, image)["pixel_values"]) for image in images]
    return list(torch.split(inputs["pixel_values"], counts))


def pixels_cross(ref, inputs, images):
    """[1, pictures, most tiles, 3, side, side], with the number of tiles in a mask"""
    mask = inputs["aspect_ratio_mask"][0]
    for tiles, real in zip(inputs["pixel_values"][0], mask.sum(-1).tolist()):
        assert not tiles[real:].any()
    return [tiles[:real] for tiles, real in zip(inputs["pixel_values"][0], mask.sum(-1).tolist())]


def pixels_rows_of_views(ref, inputs, images):
    """[1, views of all pictures, 3, side, side]"""
    views = [alone(ref, image)["pixel_values"][0] for image in images]
    assert torch.equal(torch.cat(views), inputs["pixel_values"][0])
    return views


def pixels_own_size(ref, inputs, images):
    """[pictures, 3, most rows, most columns], padded below and to the right"""
    return [p[None, :, :h, :w] for p, (h, w) in zip(inputs["pixel_values"], inputs["image_sizes"].tolist())]


def pixels_crops(ref, inputs, images):
    """[crops of all pictures, patches, values of a patch] by rows of patches"""
    ip = ref.processor.image_processor
    p = ip.patch_size
    counts = [len(alone(ref, image)["pixel_values"]) for image in images]
    side = ip.size["height"] // p
    pixels = inputs["pixel_values"].reshape(-1, side, side, p, p, 3).permute(0, 5, 1, 3, 2, 4)
    return list(torch.split(pixels.reshape(-1, 3, side * p, side * p), counts))


def pixels_rows(ref, inputs, images):
    """Rows of patches in the order of merged cells."""
    ip = ref.processor.image_processor
    p, m, t = ip.patch_size, ip.merge_size, ip.temporal_patch_size
    out, start = [], 0
    for _, rows, cols in inputs["image_grid_thw"].tolist():
        patches = inputs["pixel_values"][start:start + rows * cols]
        start += rows * cols
        parts = patches.reshape(rows // m, cols // m, m, m, 3, t, p, p)
        assert all(torch.equal(parts[:, :, :, :, :, 0], parts[:, :, :, :, :, k]) for k in range(t))
        picture = parts[:, :, :, :, :, 0].permute(4, 0, 2, 5, 1, 3, 6).reshape(1, 3, rows * p, cols * p)
        again, _, _ = ip.patchify(picture, p, m, t)
        assert torch.equal(again[0], patches)
        out.append(picture)
    return out


PIXELS = {"plain": pixels_plain, "tiles": pixels_tiles, "stacked": pixels_stacked, "cross": pixels_cross,
          "rows": pixels_rows, "rows_of_views": pixels_rows_of_views, "own_size": pixels_own_size, "crops": pixels_crops}


def unwindowed(ref, tower, grid):
    """Rows that the tower sorted by window, back in the order of the patches."""
    visual = ref.inner.visual
    if not hasattr(visual, "window_size"):
        return tower
    from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import get_vision_window_index
    index, _ = get_vision_window_index(grid, spatial_merge_size=visual.spatial_merge_size, window_size=visual.window_size,
                                       patch_size=visual.patch_size, kwargs={})
    unit = visual.spatial_merge_size**2
    return tower.reshape(-1, unit, tower.shape[-1])[torch.argsort(index)].reshape(tower.shape)


def expansions(ref, ids, images):
    """How many placeholders each picture has."""
    total = int((ids == ref.placeholder).sum())
    counts = [int((ref.inputs(ref.family.marker, [image])[0]["input_ids"] == ref.placeholder).sum()) for image in images]
    if sum(counts) != total:  # counted otherwise where there are several
        assert total % len(images) == 0
        counts = [total // len(images)] * len(images)
    return counts


def stages(ref, inputs, seen, images, clips, embeds):
    """({stage: tensor}, rows of embeddings an item)"""
    ids = inputs["input_ids"][0]
    if clips:
        return audio_stages(ref, inputs, seen, clips, embeds)
    if not images:
        return {}, []
    views = ref.family.views
    pixels = PIXELS[views](ref, inputs, images)
    tower, connector = torch.cat(seen["tower"]), torch.cat(seen["connector"])
    out = {}
    if views == "rows":
        tower = unwindowed(ref, tower, inputs["image_grid_thw"])
        towers = torch.split(tower, inputs["image_grid_thw"].prod(-1).tolist())
    elif views == "cross":
        towers = tower[0]
    elif views == "own_size":
        step = ref.model.config.vision_config.patch_size
        sizes = [(h // step) * (w // step) for h, w in inputs["image_sizes"].tolist()]
        towers = torch.split(tower.reshape(-1, tower.shape[-1]), sizes)
    else:
        towers = torch.split(tower, [len(p) for p in pixels])
    if views == "cross":
        features = connector.reshape(len(images), -1, connector.shape[-1])
        counts = [0] * len(images)
    else:
        counts = expansions(ref, ids, images)
        features = ref.features(ids, embeds, counts)
        if ref.family.splice == "add":
            features = torch.split(connector.reshape(-1, connector.shape[-1]), counts)
            rows = seen["looked_up"][0][ids == ref.placeholder] + torch.cat(features)
            assert torch.equal(rows, embeds[ids == ref.placeholder])
        elif connector[..., 0].numel() == sum(counts) and views != "rows":
            assert torch.equal(connector.reshape(-1, connector.shape[-1]), torch.cat(features))
    for k in range(len(images)):
        out.update({f"image.{k}.pixels": pixels[k], f"image.{k}.tower": towers[k], f"image.{k}.features": features[k]})
    for level, rows in enumerate(seen.get("deepstack_visual_embeds") or []):
        for k, part in enumerate(torch.split(rows, counts)):
            out[f"image.{k}.features.deepstack.{level}"] = part
    return out, counts


def audio_stages(ref, inputs, seen, clips, embeds):
    """Clips fill a window of fixed length; the rows of the part that is there are kept."""
    ids = inputs["input_ids"][0]
    tower = torch.cat(seen["tower"])
    counts = []
    for clip in clips:
        got, _ = ref.inputs(ref.family.marker, [], [clip])
        counts.append(int((got["input_ids"] == ref.placeholder).sum()))
    features = ref.features(ids, embeds, counts)
    out = {}
    for k, count in enumerate(counts):
        out.update({f"audio.{k}.mel": inputs["input_features"][k], f"audio.{k}.tower": tower[k, :count],
                    f"audio.{k}.features": features[k]})
    return out, counts
