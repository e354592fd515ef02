# tests/device/networks/test_transformers.py: small random models of transformers: language, vision and speech; training and generate.
"""tests/libraries/use_architectures.py says how large they are. A plain run tests some models, --sweep all."""

import copy
from functools import partial

import pytest
import torch

from tests.device.networks.whole_models import check, import_models
from tests.libraries.use_architectures import ROWS, given, model_of

transformers = import_models("transformers")
pytestmark = pytest.mark.sampled()
NAMES = ("GPT2", "Bert", "T5", "Llama", "Mistral", "Qwen2", "Qwen3", "Gemma", "Gemma2", "ViT", "Whisper")


def made(name, ending, kind, sizes):
    """Returns a model and what it is given: where it can, it computes its own loss."""
    inputs = given(kind, name)
    words = inputs.get("decoder_input_ids", inputs.get("input_ids"))
    if words is not None:
        inputs["labels"] = words
    return model_of(name, ending, sizes), inputs


def clip():
    common = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    text = {
        "vocab_size": 97,
        "max_position_embeddings": 32,
        "eos_token_id": 2,
        "pad_token_id": 1,
        "bos_token_id": 0,
    }
    config = transformers.CLIPConfig(text_config={**common, **text}, vision_config={**common, "image_size": 32, "patch_size": 8},
                           projection_dim=16)  # fmt: skip
    return transformers.CLIPModel(config), {
        "input_ids": torch.randint(3, 97, (2, 9)),
        "pixel_values": torch.randn(2, 3, 32, 32),
        "return_loss": True,
    }


MODELS = {row[0].lower(): partial(made, *row) for row in ROWS if row[0] in NAMES} | {"clip": clip}
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
        return model.generate(ids, do_sample=False, max_new_tokens=6, use_cache=True, eos_token_id=None, **settings)


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
