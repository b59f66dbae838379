"""The tiny checkpoints behind the goldens: tokenizers, chat templates and config files in the layout of published ones.

Each function in CHECKPOINTS returns a `Checkpoint`. Geometry is tiny but not degenerate: more than one layer of each kind,
fewer key-value heads than heads where the base case has it, widths that differ from one another.
Published configs leave out keys that equal the library's defaults; tiny values have to spell those out.
"""
import dataclasses
import json

CORPUS = [
    "Describe the image in one short sentence. What is in this picture?",
    "The quick brown fox jumps over the lazy dog while the small cat sleeps on the mat.",
    "Compare the two images and say which one is larger, wider or taller than the other.",
    "You are a helpful assistant. A chat between a curious human and an artificial intelligence assistant.",
    "USER: ASSISTANT: user assistant system model human 0 1 2 3 4 5 6 7 8 9",
    "\n\n", "\n\n", "\n\n", "\n\n", "\n\n", "\n\n", "\n\n", "\n\n",  # the real tokenizers all have a "\n\n" token
]
CLIP_MEAN = [0.48145466, 0.4578275, 0.40821073]
CLIP_STD = [0.26862954, 0.26130258, 0.27577711]
HALF = [0.5, 0.5, 0.5]


# ------------------------------------------------------------------------------------------------------------ tokenizers
class Tokenizer:
    """`kind` "spm": BPE over the text with "▁" for spaces and byte fallback (Llama 2); "bytelevel": BPE over bytes (Qwen 2).
    `first` are special tokens with ids 0.., `last` those after the base vocabulary."""

    def __init__(self, kind, first=(), last=(), bos=None, eos=None, pad=None, unk=None):
        import tokenizers as tk
        from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

        self.names = {"bos_token": bos, "eos_token": eos, "pad_token": pad, "unk_token": unk}
        self.specials = list(first) + list(last)
        trained = tk.Tokenizer(models.BPE(unk_token=unk))
        if kind == "bytelevel":
            split = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
                     r"|\s+(?!\S)|\s+")
            pre = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(split), "isolated"),
                                           pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
            trained.pre_tokenizer = pre
            trained.train_from_iterator(CORPUS, trainers.BpeTrainer(
                vocab_size=256 + 64, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False))
        else:
            trained.train_from_iterator([c.replace(" ", "▁") for c in CORPUS],
                                        trainers.BpeTrainer(vocab_size=140, show_progress=False))
        model = json.loads(trained.to_str())["model"]
        base = sorted(model["vocab"], key=model["vocab"].get)
        merges = [tuple(m) for m in model["merges"]]
        vocab = {}
        for t in list(first) + ([f"<0x{b:02X}>" for b in range(256)] if kind == "spm" else []) + base:
            vocab.setdefault(t, len(vocab))
        if kind == "bytelevel":
            self.tk = tk.Tokenizer(models.BPE(vocab=vocab, merges=merges))
            self.tk.normalizer = normalizers.NFC()
            self.tk.pre_tokenizer = pre
            self.tk.decoder = decoders.ByteLevel()
        else:
            self.tk = tk.Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token=unk, byte_fallback=True, fuse_unk=True))
            self.tk.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
            self.tk.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                                 decoders.Strip(" ", 1, 0)])
        self.tk.add_special_tokens([tk.AddedToken(t, special=True, normalized=False) for t in self.specials])
        if bos and kind == "spm":
            self.tk.post_processor = processors.TemplateProcessing(
                single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, self(bos))])

    def __call__(self, token):
        i = self.tk.token_to_id(token)
        assert i is not None, token
        return i

    def vocab_size(self, multiple):
        """The size of an embedding table padded as the published ones are."""
        return -(-self.tk.get_vocab_size(with_added_tokens=True) // multiple) * multiple

    def files(self, processor_class, **more):
        added = {str(self(t)): {"content": t, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
                                "special": True} for t in self.specials}
        return {"tokenizer.json": json.loads(self.tk.to_str()),
                "tokenizer_config.json": {
                    "added_tokens_decoder": added, **self.names, "clean_up_tokenization_spaces": False,
                    "model_max_length": 32768, "padding_side": "left", "processor_class": processor_class,
                    "tokenizer_class": "PreTrainedTokenizerFast", **more}}


def llama_tokenizer(last=("<image>", "<pad>")):
    return Tokenizer("spm", ["<unk>", "<s>", "</s>"], last, bos="<s>", eos="</s>", pad="<pad>", unk="<unk>")


QWEN_VL_SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>",
                    "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>",
                    "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"]


def qwen_tokenizer(specials):
    return Tokenizer("bytelevel", last=specials, eos="<|im_end|>", pad="<|endoftext|>")


# -------------------------------------------------------------------------------------------------------- chat templates
# Short equivalents of the published ones.
TYPED = "{%% for part in message['content'] | selectattr('type', 'equalto', '%s') %%}"

VICUNA_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] != 'system' %}{{ message['role'].upper() + ': ' }}{% endif %}"
    "{# images first #}" + TYPED % "image" + "{{ '<image>\n' }}{% endfor %}"
    "{# then the text #}{% if message['role'] != 'assistant' %}" + TYPED % "text" + "{{ part['text'] + ' ' }}{% endfor %}"
    "{% else %}" + TYPED % "text" + "{% generation %}{{ part['text'] + ' ' }}{% endgeneration %}{% endfor %}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}")

MISTRAL_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'system' %}"
    "{{ '<<SYS>>\n' + message['content'][0]['text'] + '\n<</SYS>>\n\n' }}{% elif message['role'] == 'user' %}{{ '[INST] ' }}"
    + TYPED % "image" + "{{ '<image>\n' }}{% endfor %}" + TYPED % "text" + "{{ part['text'] }}{% endfor %}{{ ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' ' + message['content'][0]['text'] + eos_token }}"
    "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}")

CHATML_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + ' ' }}" + TYPED % "image" + "{{ '<image>\n' }}"
    "{% endfor %}" + TYPED % "text" + "{{ '\n' + part['text'] }}{% endfor %}{{ '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")

QWEN_VL_TEMPLATE = (
    "{% set images = namespace(value=0) %}{% set videos = namespace(value=0) %}{% for message in messages %}"
    "{% if loop.first and message['role'] != 'system' %}<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    "{% endif %}<|im_start|>{{ message['role'] }}\n{% if message['content'] is string %}{{ message['content'] }}<|im_end|>\n"
    "{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' or 'image' in part or 'image_url' in part %}{% set images.value = images.value + 1 %}"
    "{% if add_vision_id %}Picture {{ images.value }}: {% endif %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part['type'] == 'video' or 'video' in part %}{% set videos.value = videos.value + 1 %}"
    "{% if add_vision_id %}Video {{ videos.value }}: {% endif %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif 'text' in part %}{{ part['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


# ------------------------------------------------------------------------------------------------------------ checkpoints
@dataclasses.dataclass
class Checkpoint:
    seed: int                # of the weights
    model_class: str
    files: dict              # name -> JSON value, config.json among them
    tokenizer: Tokenizer
    marker: str              # what stands for one image in a prompt
    damped: list             # token ids that greedy decoding must not choose
    raised: list             # token ids that it should choose now and then: they end the text
    tied: bool = False
    rename: list = dataclasses.field(default_factory=list)  # (prefix that save_pretrained writes, published prefix)


def clip_preprocessor(crop, shortest_edge=None, **more):
    return {"crop_size": {"height": crop, "width": crop}, "do_center_crop": True, "do_convert_rgb": True,
            "do_normalize": True, "do_rescale": True, "do_resize": True, "image_mean": CLIP_MEAN,
            "image_processor_type": "CLIPImageProcessor", "image_std": CLIP_STD, "processor_class": "LlavaProcessor",
            "resample": 3, "rescale_factor": 0.00392156862745098, "size": {"shortest_edge": shortest_edge or crop}, **more}


def clip_tower(size, patch, layers, hidden, heads, intermediate, **more):
    return {"hidden_size": hidden, "image_size": size, "intermediate_size": intermediate, "model_type": "clip_vision_model",
            "num_attention_heads": heads, "num_hidden_layers": layers, "patch_size": patch, "projection_dim": 24,
            "vocab_size": 32000, **more}


def llava_checkpoint(seed, t, template, text, tower, preprocessor, patch, strategy, class_tokens, more, tied=False,
                     bos="<s>", eos="</s>", rename=True):
    config = {"architectures": ["LlavaForConditionalGeneration"], "ignore_index": -100, "image_token_index": t("<image>"),
              "model_type": "llava", "pad_token_id": t(t.names["pad_token"]), "projector_hidden_act": "gelu",
              "text_config": text, "torch_dtype": "float32", "transformers_version": "4.36.0.dev0", "vision_config": tower,
              "vision_feature_select_strategy": strategy, **more}
    processor = {"image_token": "<image>", "num_additional_image_tokens": class_tokens, "patch_size": patch,
                 "processor_class": "LlavaProcessor", "vision_feature_select_strategy": strategy}
    generation = {"_from_model_config": True, "bos_token_id": t(bos), "eos_token_id": t(eos),
                  "pad_token_id": t(t.names["pad_token"]), "transformers_version": "4.36.0.dev0"}
    return Checkpoint(
        seed, "LlavaForConditionalGeneration",
        {"config.json": config, "preprocessor_config.json": preprocessor, "processor_config.json": processor,
         "generation_config.json": generation, "chat_template.json": {"chat_template": template},
         **t.files("LlavaProcessor")},
        t, "<image>", [t("<image>"), t(t.names["pad_token"])], [t(eos)], tied,
        [("vision_tower.", "vision_tower.vision_model.")] if rename else [])


def llava(seed):
    """LLaVA-1.5 as published: CLIP tower, tap -2, class token dropped, Llama decoder."""
    t = llama_tokenizer()
    text = {"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
            "max_position_embeddings": 4096, "model_type": "llama", "num_attention_heads": 4, "num_hidden_layers": 3,
            "num_key_value_heads": 2, "rms_norm_eps": 1e-05, "torch_dtype": "float16", "vocab_size": t.vocab_size(64)}
    return llava_checkpoint(seed, t, VICUNA_TEMPLATE, text, clip_tower(24, 4, 3, 32, 4, 60), clip_preprocessor(24), 4,
                            "default", 1, {"vision_feature_layer": -2, "tie_word_embeddings": False})


def llava_full(seed):
    """The class token is kept; tap two blocks above the bottom of four, another activation and eps in the tower, resize above
    the crop, no projector bias, as many key-value heads as heads (the key left out), tied embeddings (said in text_config only)."""
    t = llama_tokenizer()
    text = {"architectures": ["LlamaForCausalLM"], "hidden_size": 48, "intermediate_size": 80,
            "max_position_embeddings": 2048, "model_type": "llama", "num_attention_heads": 6, "num_hidden_layers": 2,
            "rms_norm_eps": 1e-03, "rope_theta": 500.0, "tie_word_embeddings": True, "torch_dtype": "float16",
            "vocab_size": t.vocab_size(8)}
    tower = clip_tower(30, 5, 4, 36, 3, 52, hidden_act="gelu", layer_norm_eps=1e-3)
    return llava_checkpoint(seed, t, VICUNA_TEMPLATE, text, tower, clip_preprocessor(30, 36), 5, "full", 1,
                            {"vision_feature_layer": -3, "multimodal_projector_bias": False}, tied=True)


def llava_taps(seed):
    """Three taps side by side, one of them counted from below; Mistral decoder with a head width of its own."""
    t = llama_tokenizer()
    text = {"architectures": ["MistralForCausalLM"], "head_dim": 20, "hidden_size": 64, "intermediate_size": 72,
            "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 4, "num_hidden_layers": 2,
            "num_key_value_heads": 2, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "sliding_window": None,
            "torch_dtype": "bfloat16", "vocab_size": t.vocab_size(64)}
    return llava_checkpoint(seed, t, MISTRAL_TEMPLATE, text, clip_tower(24, 6, 4, 24, 2, 40), clip_preprocessor(24), 6,
                            "default", 1, {"vision_feature_layer": [-2, 1, -1], "tie_word_embeddings": False})


def llava_siglip(seed):
    """LLaVA-Interleave: SigLIP tower without a class token whose side is no multiple of the patch, Qwen2 decoder (biases on
    q, k, v), ChatML."""
    t = qwen_tokenizer(["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>"])
    text = {"architectures": ["Qwen2ForCausalLM"], "hidden_size": 64, "intermediate_size": 88, "max_window_layers": 21,
            "model_type": "qwen2", "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 1,
            "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": False,
            "use_sliding_window": False, "torch_dtype": "bfloat16", "vocab_size": t.vocab_size(8)}
    tower = {"hidden_size": 32, "image_size": 30, "intermediate_size": 44, "model_type": "siglip_vision_model",
             "num_attention_heads": 4, "num_hidden_layers": 3, "patch_size": 4, "vision_use_head": False}
    preprocessor = {"do_convert_rgb": None, "do_normalize": True, "do_rescale": True, "do_resize": True, "image_mean": HALF,
                    "image_processor_type": "SiglipImageProcessor", "image_std": HALF, "processor_class": "LlavaProcessor",
                    "resample": 3, "rescale_factor": 0.00392156862745098, "size": {"height": 30, "width": 30}}
    return llava_checkpoint(seed, t, CHATML_TEMPLATE, text, tower, preprocessor, 4, "full", 0,
                            {"vision_feature_layer": -1, "tie_word_embeddings": False}, bos="<|im_start|>",
                            eos="<|im_end|>")


def qwen2vl_checkpoint(seed, config, preprocessor, t, tied=False, template_in_tokenizer=False):
    ids = {"bos_token_id": t("<|endoftext|>"), "eos_token_id": t("<|im_end|>"),
           "vision_start_token_id": t("<|vision_start|>"), "vision_end_token_id": t("<|vision_end|>"),
           "vision_token_id": t("<|vision_pad|>"), "image_token_id": t("<|image_pad|>"),
           "video_token_id": t("<|video_pad|>")}
    config = {"architectures": ["Qwen2VLForConditionalGeneration"], "attention_dropout": 0.0, **ids, "hidden_act": "silu",
              "initializer_range": 0.02, "max_position_embeddings": 32768, "max_window_layers": 28,
              "model_type": "qwen2_vl", "sliding_window": 32768, "tie_word_embeddings": tied, "torch_dtype": "float32",
              "use_cache": True, "use_sliding_window": False, **config}
    generation = {"bos_token_id": t("<|endoftext|>"), "pad_token_id": t("<|endoftext|>"), "do_sample": True,
                  "eos_token_id": [t("<|im_end|>"), t("<|endoftext|>")], "repetition_penalty": 1.0, "temperature": 0.01,
                  "top_p": 0.001, "top_k": 1, "transformers_version": "4.37.0"}
    files = {"config.json": config, "preprocessor_config.json": preprocessor, "generation_config.json": generation,
             "chat_template.json": {"chat_template": QWEN_VL_TEMPLATE},
             **t.files("Qwen2VLProcessor", **({"chat_template": QWEN_VL_TEMPLATE} if template_in_tokenizer else {}))}
    return Checkpoint(seed, "Qwen2VLForConditionalGeneration", files, t, "<|vision_start|><|image_pad|><|vision_end|>",
                      [t(x) for x in ("<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>",
                                      "<|video_pad|>")], [t("<|im_end|>"), t("<|endoftext|>")], tied)


def qwen2vl(seed):
    """Qwen2-VL as published."""
    t = qwen_tokenizer(QWEN_VL_SPECIALS)
    config = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_hidden_layers": 3,
              "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "transformers_version": "4.41.2",
              "vision_config": {"depth": 3, "embed_dim": 32, "mlp_ratio": 3, "num_heads": 4, "in_chans": 3,
                                "hidden_size": 64, "patch_size": 4, "spatial_merge_size": 2, "spatial_patch_size": 4,
                                "temporal_patch_size": 2},
              "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}, "vocab_size": t.vocab_size(8)}
    preprocessor = {"min_pixels": 256, "max_pixels": 2560, "patch_size": 4, "temporal_patch_size": 2, "merge_size": 2,
                    "image_mean": CLIP_MEAN, "image_std": CLIP_STD, "image_processor_type": "Qwen2VLImageProcessor",
                    "processor_class": "Qwen2VLProcessor"}
    return qwen2vl_checkpoint(seed, config, preprocessor, t, template_in_tokenizer=True)


def qwen2vl_odd(seed):
    """Merge 3, three heads everywhere, other activation in the tower, uneven mrope sections, tied embeddings. Files as a
    fine-tune with transformers 4.46 saves them: mrope spelt "default", vision_config with few keys, limits inside `size`."""
    t = qwen_tokenizer(QWEN_VL_SPECIALS)
    config = {"hidden_size": 48, "intermediate_size": 80, "num_attention_heads": 3, "num_hidden_layers": 2,
              "num_key_value_heads": 3, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "transformers_version": "4.46.1",
              "vision_config": {"depth": 2, "embed_dim": 36, "hidden_act": "gelu", "hidden_size": 48, "in_chans": 3,
                                "mlp_ratio": 2, "model_type": "qwen2_vl", "num_heads": 3, "patch_size": 6,
                                "spatial_merge_size": 3, "spatial_patch_size": 6},
              "rope_scaling": {"mrope_section": [4, 1, 3], "rope_type": "default", "type": "default"},
              "vocab_size": t.vocab_size(64)}
    preprocessor = {"do_convert_rgb": True, "do_normalize": True, "do_rescale": True, "do_resize": True, "image_mean": HALF,
                    "image_processor_type": "Qwen2VLImageProcessor", "image_std": CLIP_STD, "merge_size": 3, "patch_size": 6,
                    "processor_class": "Qwen2VLProcessor", "resample": 3, "rescale_factor": 0.00392156862745098,
                    "size": {"longest_edge": 6000, "shortest_edge": 1000}, "temporal_patch_size": 2}
    return qwen2vl_checkpoint(seed, config, preprocessor, t, tied=True)


CHECKPOINTS = {"llava": llava, "llava_full": llava_full, "llava_taps": llava_taps, "llava_siglip": llava_siglip,
               "qwen2vl": qwen2vl, "qwen2vl_odd": qwen2vl_odd}
