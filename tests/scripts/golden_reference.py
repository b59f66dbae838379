"""The reference processor and model of one checkpoint folder, and what passes through the model's joints."""
import copy
import json
import os

import torch
import transformers

import golden_views
from golden_cases import RATE

NEW_TOKENS = 16


def module_of(model, path):
    for name in path.split("."):
        model = getattr(model, name)
    return model


class Reference:
    def __init__(self, folder, family, dtype=torch.float32):
        torch.manual_seed(0)
        torch.set_num_threads(1)
        config = json.load(open(os.path.join(folder, "config.json"), encoding="utf-8"))
        cls = getattr(transformers, config["architectures"][0])
        self.family = family
        self.processor = transformers.AutoProcessor.from_pretrained(folder)
        # grouped products of bf16 need rows of a multiple of 16 bytes, which tiny experts do not have
        experts = {} if dtype == torch.float32 else {"experts_implementation": "eager"}
        self.model, info = cls.from_pretrained(folder, dtype=dtype, attn_implementation="eager", **experts,
                                               output_loading_info=True)
        for k in ("missing_keys", "unexpected_keys", "mismatched_keys"):
            assert not info.get(k), (k, info[k])
        self.model.eval()
        self.tokenizer = self.processor.tokenizer
        eos = self.model.generation_config.eos_token_id
        self.ending = eos if isinstance(eos, list) else [eos]
        self.placeholder = self.tokenizer.convert_tokens_to_ids(family.placeholder)
        self.seen = {}
        inner = self.model.model if hasattr(self.model, "model") else self.model
        self.inner = inner
        module_of(inner, family.connector).register_forward_hook(self.connector_hook)
        if family.tower:
            module_of(inner, family.tower).register_forward_hook(self.tower_hook)
        decoder = module_of(inner, family.decoder)
        for name in ("model", "decoder"):  # a decoder with its head, as BLIP-2 holds it
            decoder = getattr(decoder, name, decoder)
        decoder.register_forward_pre_hook(self.decoder_hook, with_kwargs=True)
        decoder.get_input_embeddings().register_forward_hook(self.embedding_hook)

    def connector_hook(self, _module, args, out):
        if not self.family.tower:
            self.seen.setdefault("tower", []).append(args[0].detach().clone())
        out = getattr(out, "last_hidden_state", out)
        self.seen.setdefault("connector", []).append(out.detach().clone())

    def tower_hook(self, _module, _args, out):
        self.seen.setdefault("tower", []).append(golden_views.tower_rows(self, out).detach().clone())

    def decoder_hook(self, _module, _args, kwargs):
        for k in ("inputs_embeds", "position_ids", "deepstack_visual_embeds"):
            v = kwargs.get(k)
            self.seen[k] = [t.detach().clone() for t in v] if isinstance(v, list) else \
                v.detach().clone() if v is not None else None

    def embedding_hook(self, _module, _args, out):
        self.seen["looked_up"] = out.detach().clone()

    # ---- one prompt
    def inputs(self, prompt, images, clips=()):
        kwargs = {"return_tensors": "pt"}
        bos = self.tokenizer.bos_token
        if bos and prompt.startswith(bos):
            kwargs["add_special_tokens"] = False
        if images:
            # nested, one list per prompt, as apply_chat_template passes them
            kwargs["images"] = [list(images)]
        if clips:
            kwargs.update(audio=list(clips), sampling_rate=RATE)
        got = self.processor(text=prompt, **kwargs)
        tensors = {k: v for k, v in got.items() if torch.is_tensor(v) and k != "labels"}
        return tensors, kwargs.get("add_special_tokens", True)

    def features(self, ids, embeds, counts):
        """The rows that replace placeholders, per item."""
        rows = embeds[ids == self.placeholder]
        assert len(rows) == sum(counts), (len(rows), counts)
        return list(torch.split(rows, counts))

    @torch.no_grad()
    def trace(self, prompt, images, clips=()):
        """The tensors of one prompt by their names in a trace file, and facts about it."""
        inputs, special = self.inputs(prompt, images, clips)
        ids = inputs["input_ids"]
        n = ids.shape[1]
        self.seen.clear()
        logits = self.model(**inputs).logits[0]
        seen = dict(self.seen)
        out = {"input_ids": ids[0]}
        positions = seen.get("position_ids")
        if positions is None:  # left to the decoder: counting from 0
            positions = torch.arange(n).expand(3 if hasattr(self.inner, "rope_deltas") else 1, 1, n)
        elif positions.ndim == 2:
            positions = positions[None]
        elif positions.shape[0] == 4:  # text positions for masks, then three axes
            positions = positions[1:]
        assert positions.shape[0] in (1, 3) and positions.shape[1:] == (1, n), positions.shape
        out["positions"] = positions[:, 0]
        embeds = seen["inputs_embeds"] if seen.get("inputs_embeds") is not None else seen["looked_up"]
        assert embeds.shape[:2] == (1, n), embeds.shape
        stages, counts = golden_views.stages(self, inputs, seen, images, clips, embeds[0])
        out.update(stages)
        out["embeds"] = embeds[0]
        out["logits"] = logits

        def generate(eos):
            for model in (self.model, self.inner.language_model if hasattr(self.inner, "language_model") else None):
                if getattr(model, "generation_config", None) is not None:  # BLIP-2 lets its decoder generate
                    model.generation_config.eos_token_id = eos
            got = self.model.generate(**inputs, do_sample=False, max_new_tokens=NEW_TOKENS)[0]
            if len(got) > NEW_TOKENS or torch.equal(got[:n], ids[0]):
                assert torch.equal(got[:n], ids[0])
                got = got[n:]
            return got

        out["generated_ignoring_eos"] = whole = generate(None)
        out["generated"] = generate(self.ending)
        assert len(whole) == NEW_TOKENS and torch.equal(whole[:len(out["generated"])], out["generated"])
        # the same tokens without a cache, and how close to a tie each step was
        steps = self.model(**self.longer(inputs, whole)).logits[0, n - 1:-1]
        best = torch.topk(steps, 2).values
        assert torch.equal(steps.argmax(-1), whole), (steps.argmax(-1).tolist(), whole.tolist())
        decode = self.tokenizer.decode
        fact = {"add_special_tokens": special, "prompt_tokens": n, "positions_end": int(positions.max()) + 1,
                "generated_tokens": len(out["generated"]), "ended": len(out["generated"]) < NEW_TOKENS or
                int(out["generated"][-1]) in self.ending,
                "generated_text": decode(out["generated"], skip_special_tokens=True),
                "generated_text_with_special": decode(out["generated"], skip_special_tokens=False),
                "min_margin": round(float((best[:, 0] - best[:, 1]).min()), 6),
                "max_abs_logit": round(float(logits.abs().max()), 3)}
        arrays = {k: v.detach().to(torch.int64 if not v.is_floating_point() else torch.float32).contiguous().numpy()
                  for k, v in out.items()}
        return arrays, fact, counts

    def longer(self, inputs, whole):
        """The inputs of a prompt with the answer behind it."""
        out = dict(inputs, input_ids=torch.cat([inputs["input_ids"], whole[None]], 1))
        # 1 in PaliGemma's `token_type_ids` is what follows the prefix; elsewhere 0 is text
        fills = {"attention_mask": 1, "mm_token_type_ids": 0, "token_type_ids": int(self.model.config.model_type == "paligemma")}
        for key, fill in fills.items():
            if key in inputs:
                out[key] = torch.cat([inputs[key], torch.full((1, len(whole)), fill, dtype=inputs[key].dtype)], 1)
        if "cross_attention_mask" in inputs:
            mask = inputs["cross_attention_mask"]
            out["cross_attention_mask"] = torch.cat([mask, mask[:, -1:].expand(-1, len(whole), -1, -1)], 1)
        return out

    def prompt(self, messages):
        if self.family.prompt == "chat":
            return self.processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        parts = [p for m in messages for p in m["content"]]
        media = self.family.marker * sum(p["type"] != "text" for p in parts)
        text = "".join(p["text"] for p in parts if p["type"] == "text")
        return self.family.prompt.format(media=media, text=text)

    def check_prompt(self, messages, images, clips, ids):
        """The one-call route through the chat template gives the same ids."""
        if self.family.prompt != "chat":
            return
        messages, left = copy.deepcopy(messages), {"image": list(images), "audio": list(clips)}
        for m in messages:
            for p in m["content"] if isinstance(m["content"], list) else []:
                if p["type"] in left:
                    p[p["type"]] = left[p["type"]].pop(0)
        # a template that shows pictures in another order would pair them differently; no family's does
        got = self.processor.apply_chat_template(messages, tokenize=True, add_generation_prompt=True, return_dict=True,
                                                 processor_kwargs={"return_tensors": "pt"})
        found = torch.as_tensor(got["input_ids"])[0].tolist()
        assert found == ids.tolist(), (found, ids.tolist())
