# tests/device/networks/test_transformers.py: small random models of transformers: language, vision and speech; training and generate.
"""Weights are random, and none are downloaded. A plain run tests some models, --sweep all."""

import copy

import pytest
import torch

from tests.device.networks.whole_models import check, import_models

hf = import_models("transformers")
pytestmark = pytest.mark.sampled()
VOCABULARY = 97


def tokens(batch=2, length=11):
    return torch.randint(3, VOCABULARY, (batch, length))


def gpt2():
    config = hf.GPT2Config(vocab_size=VOCABULARY, n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2,
                           loss_type="ForCausalLM")  # fmt: skip
    ids = tokens()
    return hf.GPT2LMHeadModel(config), {"input_ids": ids, "labels": ids}


def bert():
    config = hf.BertConfig(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                           max_position_embeddings=64, attention_probs_dropout_prob=0.0)  # fmt: skip
    ids = tokens()
    mask = torch.ones_like(ids)
    mask[0, 8:] = 0
    return hf.BertForMaskedLM(config), {"input_ids": ids, "attention_mask": mask, "labels": ids}


def t5():
    config = hf.T5Config(vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, dropout_rate=0.0,
                         decoder_start_token_id=0)  # fmt: skip
    return hf.T5ForConditionalGeneration(config), {"input_ids": tokens(), "labels": tokens(2, 7)}


def decoder(name, **settings):
    def make():
        common = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
        heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
        special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
        config = getattr(hf, f"{name}Config")(**common, **heads, **special, **settings)
        ids = tokens()
        return getattr(hf, f"{name}ForCausalLM")(config), {"input_ids": ids, "labels": ids}

    return make


def vit():
    config = hf.ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=32, patch_size=8,
                          num_labels=5)  # fmt: skip
    return hf.ViTForImageClassification(config), {
        "pixel_values": torch.randn(2, 3, 32, 32),
        "labels": torch.tensor([1, 3]),
    }


def whisper():
    config = hf.WhisperConfig(
        vocab_size=VOCABULARY, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=64, decoder_ffn_dim=64, num_mel_bins=16, max_source_positions=20, max_target_positions=32, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, dropout=0.0)  # fmt: skip
    return hf.WhisperForConditionalGeneration(config), {
        "input_features": torch.randn(2, 16, 40),
        "labels": tokens(2, 7),
    }


def clip():
    common = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    text = {
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 32,
        "eos_token_id": 2,
        "pad_token_id": 1,
        "bos_token_id": 0,
    }
    config = hf.CLIPConfig(text_config={**common, **text}, vision_config={**common, "image_size": 32, "patch_size": 8},
                           projection_dim=16)  # fmt: skip
    return hf.CLIPModel(config), {
        "input_ids": tokens(2, 9),
        "pixel_values": torch.randn(2, 3, 32, 32),
        "return_loss": True,
    }


MODELS = {
    "gpt2": gpt2,
    "bert": bert,
    "t5": t5,
    "llama": decoder("Llama"),
    "mistral": decoder("Mistral", sliding_window=6),
    "qwen2": decoder("Qwen2"),
    "qwen3": decoder("Qwen3", head_dim=8),
    "gemma": decoder("Gemma", head_dim=8),
    "gemma2": decoder("Gemma2", head_dim=8, sliding_window=6),
    "vit": vit,
    "whisper": whisper,
    "clip": clip,
}
PLAIN_RUN = {"gpt2", "llama"}


def by_sweep(names, but):
    """Returns parameters for all names. Those that are not in `but` run with --sweep only."""
    return [pytest.param(name, marks=() if name in but else pytest.mark.needs("sweep")) for name in names]


@pytest.mark.sampled(first=2)
@pytest.mark.parametrize("name", by_sweep(MODELS, PLAIN_RUN))
def test_training(ocl_device, name):
    check(MODELS[name], ocl_device)


def generated(model, ids, **settings):
    with torch.no_grad():
        return model.generate(ids, do_sample=False, max_new_tokens=6, min_new_tokens=6, **settings)


@pytest.mark.parametrize("name", by_sweep(["gpt2", "llama", "mistral", "qwen3", "gemma2", "t5"], {"llama"}))
def test_generate_with_static_cache(ocl_device, name):
    """With greedy decoding, the tokens are those of the CPU. There are two graphs: one for the prompt, and one for all
    later steps."""
    torch.manual_seed(1)
    model, inputs = MODELS[name]()
    model.eval()
    ids = inputs["input_ids"][:, :6]
    expected = generated(model, ids)
    torch._dynamo.utils.counters.clear()
    ported = copy.deepcopy(model).to(ocl_device)
    ported.forward = torch.compile(ported.forward, backend="ocl", options={"fallback": "error"})
    got = generated(ported, ids.to(ocl_device), cache_implementation="static")
    assert got.tolist() == expected.tolist()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2
