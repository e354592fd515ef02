# tests/libraries/use_architectures.py: architectures of transformers, tiny, from their configuration classes.
"""A row is an architecture: the class of its model, whose configuration class it names, the sizes, and what it is given."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from tests.libraries.harness import Side, Tensors, add, steps_of

DECODER = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
           "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, "pad_token_id": 0}  # fmt: skip
ENCODER = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
           "max_position_embeddings": 64, "pad_token_id": 0}  # fmt: skip
GPT = {"vocab_size": 64, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4}
SEQ2SEQ = {"vocab_size": 64, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
           "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 64,
           "pad_token_id": 0, "decoder_start_token_id": 1}  # fmt: skip
T5 = {
    "vocab_size": 64,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 64,
    "num_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}
VIT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "image_size": 32,
       "patch_size": 8}  # fmt: skip
WAVE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 32,
        "conv_dim": (16, 16, 16), "conv_stride": (5, 4, 2), "conv_kernel": (10, 8, 4), "num_feat_extract_layers": 3,
        "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4, "apply_spec_augment": False, "layerdrop": 0.0}  # fmt: skip
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
MAMBA = {"vocab_size": 64, "hidden_size": 32, "state_size": 8, "num_hidden_layers": 2}

WORDS, TWO, IMAGE, SOUND, TOWERS, SERIES = "words", "words and words", "images", "sound", "words and images", "series"

# Name of the classes, of the model's class after it, what it is given, sizes.
ROWS: list[tuple[str, str, str, dict[str, Any]]] = [
    ("Llama", "ForCausalLM", WORDS, DECODER),
    ("Mistral", "ForCausalLM", WORDS, DECODER | {"sliding_window": 8}),
    ("Qwen2", "ForCausalLM", WORDS, DECODER),
    ("Qwen3", "ForCausalLM", WORDS, DECODER),
    ("Gemma", "ForCausalLM", WORDS, DECODER),
    ("Gemma2", "ForCausalLM", WORDS, DECODER | {"sliding_window": 8, "query_pre_attn_scalar": 8}),
    ("Phi", "ForCausalLM", WORDS, ENCODER),
    ("Phi3", "ForCausalLM", WORDS, DECODER),
    ("Olmo2", "ForCausalLM", WORDS, DECODER),
    ("Granite", "ForCausalLM", WORDS, DECODER),
    ("StableLm", "ForCausalLM", WORDS, DECODER),
    ("Cohere", "ForCausalLM", WORDS, DECODER),
    ("Falcon", "ForCausalLM", WORDS, ENCODER | {"alibi": True}),
    ("GPTNeoX", "ForCausalLM", WORDS, ENCODER),
    ("GPT2", "LMHeadModel", WORDS, GPT),
    ("GPTJ", "ForCausalLM", WORDS, GPT | {"rotary_dim": 4}),
    ("GPTNeo", "ForCausalLM", WORDS,
     {"vocab_size": 64, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "max_position_embeddings": 64,
      "attention_types": [[["global", "local"], 1]], "window_size": 8}),
    ("Bloom", "ForCausalLM", WORDS, {"vocab_size": 64, "hidden_size": 32, "n_layer": 2, "n_head": 4}),
    ("OPT", "ForCausalLM", WORDS, ENCODER | {"ffn_dim": 64, "word_embed_proj_dim": 32}),
    ("Mpt", "ForCausalLM", WORDS, {"vocab_size": 64, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 64}),
    ("Mixtral", "ForCausalLM", WORDS, DECODER | {"num_local_experts": 4, "experts_implementation": "batched_mm"}),
    ("Qwen2Moe", "ForCausalLM", WORDS,
     DECODER | MOE | {"shared_expert_intermediate_size": 32, "experts_implementation": "batched_mm"}),
    ("Qwen3Moe", "ForCausalLM", WORDS, DECODER | MOE | {"experts_implementation": "eager"}),
    ("Olmoe", "ForCausalLM", WORDS, DECODER | {"num_experts": 4, "num_experts_per_tok": 2, "experts_implementation": "batched_mm"}),
    ("DeepseekV3", "ForCausalLM", WORDS,
     DECODER | {"num_key_value_heads": 4, "head_dim": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1,
                "moe_intermediate_size": 32, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4,
                "v_head_dim": 8, "first_k_dense_replace": 1, "experts_implementation": "batched_mm"}),
    ("Mamba", "ForCausalLM", WORDS, MAMBA),
    ("Mamba2", "ForCausalLM", WORDS, MAMBA | {"num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 8}),
    ("Rwkv", "ForCausalLM", WORDS, {"vocab_size": 64, "hidden_size": 32, "attention_hidden_size": 32, "num_hidden_layers": 2}),
    ("Bert", "ForMaskedLM", WORDS, ENCODER),
    ("Roberta", "ForMaskedLM", WORDS, ENCODER),
    ("XLMRoberta", "ForTokenClassification", WORDS, ENCODER),
    ("DistilBert", "ForSequenceClassification", WORDS, {"vocab_size": 64, "dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4}),
    ("Albert", "ForMaskedLM", WORDS, ENCODER | {"embedding_size": 16}),
    ("Electra", "ForMaskedLM", WORDS, ENCODER | {"embedding_size": 16}),
    ("DebertaV2", "Model", WORDS, ENCODER | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8}),
    ("ModernBert", "ForMaskedLM", WORDS,
     ENCODER | {"local_attention": 8, "cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2}),
    ("MPNet", "Model", WORDS, ENCODER),
    ("FNet", "Model", WORDS, ENCODER),
    ("Longformer", "Model", WORDS, ENCODER | {"attention_window": 4}),
    ("BigBird", "Model", WORDS, ENCODER | {"attention_type": "original_full"}),
    ("XLNet", "Model", WORDS, {"vocab_size": 64, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64}),
    ("T5", "ForConditionalGeneration", TWO, T5),
    ("MT5", "ForConditionalGeneration", TWO, T5 | {"feed_forward_proj": "gated-gelu"}),
    ("SwitchTransformers", "ForConditionalGeneration", TWO,
     T5 | {"num_experts": 2, "expert_capacity": 24, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1}),
    ("Bart", "ForConditionalGeneration", TWO, SEQ2SEQ),
    ("Pegasus", "ForConditionalGeneration", TWO, SEQ2SEQ),
    ("Marian", "MTModel", TWO, SEQ2SEQ),
    ("M2M100", "ForConditionalGeneration", TWO, SEQ2SEQ),
    ("ViT", "Model", IMAGE, VIT),
    ("DeiT", "Model", IMAGE, VIT),
    ("Dinov2", "Model", IMAGE, VIT),
    ("Beit", "Model", IMAGE, VIT | {"use_relative_position_bias": True}),
    ("Swin", "Model", IMAGE,
     {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}),
    ("ConvNext", "Model", IMAGE, {"hidden_sizes": [8, 16, 32, 64], "depths": [1, 1, 1, 1], "image_size": 32}),
    ("ResNet", "Model", IMAGE, {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}),
    ("Segformer", "ForSemanticSegmentation", IMAGE,
     {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 2, 4], "decoder_hidden_size": 16}),
    ("ViTMAE", "Model", IMAGE, VIT | {"mask_ratio": 0.0}),
    ("CLIP", "Model", TOWERS,
     {"text_config": ENCODER | {"eos_token_id": 63, "bos_token_id": 1}, "vision_config": VIT, "projection_dim": 16}),
    ("Siglip", "Model", TOWERS, {"text_config": ENCODER, "vision_config": VIT}),
    ("Wav2Vec2", "Model", SOUND, WAVE | {"mask_time_prob": 0.0}),
    ("Hubert", "Model", SOUND, WAVE | {"mask_time_prob": 0.0}),
    ("Whisper", "Model", SOUND,
     SEQ2SEQ | {"num_mel_bins": 16, "max_source_positions": 24, "max_target_positions": 24, "bos_token_id": 1, "eos_token_id": 2}),
    ("PatchTST", "ForPrediction", SERIES,
     {"num_input_channels": 2, "context_length": 32, "patch_length": 8, "patch_stride": 8, "prediction_length": 8, "d_model": 16,
      "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 32}),
]  # fmt: skip


def given(kind: str, name: str) -> dict[str, Any]:
    words = torch.arange(24).mul(5).remainder(61).add(3).reshape(2, 12)
    if kind == TWO:
        return {"input_ids": words, "decoder_input_ids": words[:, :7]}
    if kind == IMAGE:
        noise = {"noise": torch.rand(2, 16)} if name == "ViTMAE" else {}  # Devices draw different numbers.
        return {"pixel_values": torch.randn(2, 3, 32, 32)} | noise
    if kind == TOWERS:
        return {"input_ids": words, "pixel_values": torch.randn(2, 3, 32, 32)}
    if kind == SERIES:
        return {"past_values": torch.randn(2, 32, 2)}
    if name == "Whisper":
        return {"input_features": torch.randn(2, 16, 48), "decoder_input_ids": words[:, :7]}
    if kind == SOUND:
        return {"input_values": torch.randn(2, 800)}
    mask = torch.ones_like(words)
    mask[1, 9:] = 0
    return {"input_ids": words} if name in ("Rwkv", "FNet") else {"input_ids": words, "attention_mask": mask}


def model_of(name: str, ending: str, sizes: dict[str, Any]) -> Any:
    import transformers

    config = getattr(transformers, name + "Config")(**sizes)
    for key, value in vars(config).items():
        if "drop" in key and isinstance(value, float):
            setattr(config, key, 0.0)
    config.use_cache = False
    return getattr(transformers, name + ending)(config)


def steps(name: str, ending: str, kind: str, sizes: dict[str, Any], side: Side) -> Tensors:
    return steps_of(model_of(name, ending, sizes), given(kind, name), side)


for row in ROWS:
    add("transformers", row[0].lower(), f"{row[0]}{row[1]}: {row[2]}", partial(steps, *row))
