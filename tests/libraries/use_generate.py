# tests/libraries/use_generate.py: generate of transformers with each kind of cache, its pipeline and its Trainer.
from __future__ import annotations

import os
import tempfile
from functools import partial
from typing import Any

import torch

from tests.libraries.harness import STEPS, Side, Tensors, add, parameters, program

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}  # fmt: skip
# How generate is called. None stands for the cache that the model chooses.
CALLS: dict[str, dict[str, Any]] = {
    "dynamic": {},
    "static": {"cache_implementation": "static"},
    "quantized": {
        "cache_implementation": "quantized",
        "cache_config": {"backend": "quanto", "nbits": 4, "q_group_size": 16},
    },
    "offloaded": {"cache_implementation": "offloaded"},
    "offloaded_static": {"cache_implementation": "offloaded_static"},
    "no_cache": {"use_cache": False},
    "beams": {"num_beams": 3, "num_return_sequences": 2},
    "beams_static": {"num_beams": 2, "cache_implementation": "static"},
    "penalties": {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "min_new_tokens": 4},
}


def llama(side: Side, **more: Any) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(LlamaConfig(**SIZES, **more)).eval().to(side.device)
    with torch.no_grad():  # Larger weights, so that tokens differ.
        for p in model.parameters():
            p.mul_(5)
    return model


def words(side: Side) -> torch.Tensor:
    return torch.arange(12).mul(5).remainder(61).add(3).reshape(2, 6).to(side.device)


def generated(call: dict[str, Any], side: Side) -> Tensors:
    if side.device == "cpu" and "offloaded" in call.get("cache_implementation", ""):
        call = {}  # There is nothing to offload to.
    model = llama(side)
    model.forward = side.compiled(model.forward)
    out = model.generate(
        words(side), do_sample=False, max_new_tokens=8, output_scores=True, return_dict_in_generate=True, **call
    )
    return [out.sequences, *out.scores]


def t5(call: dict[str, Any], side: Side) -> Tensors:
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
    model = (
        T5ForConditionalGeneration(T5Config(**sizes, decoder_start_token_id=0, eos_token_id=None))
        .eval()
        .to(side.device)
    )
    model.forward = side.compiled(model.forward)
    out = model.generate(
        words(side), do_sample=False, max_new_tokens=6, output_scores=True, return_dict_in_generate=True, **call
    )
    return [out.sequences, *out.scores]


for name, call in CALLS.items():
    add("transformers", f"generate_{name}", f"generate: {call or 'the default cache'}", partial(generated, call))
add("transformers", "generate_t5", "generate of T5, dynamic cache", partial(t5, {}))
add(
    "transformers",
    "generate_t5_static",
    "generate of T5, static cache",
    partial(t5, {"cache_implementation": "static"}),
)


@program("transformers", "pipeline: feature-extraction with a tokenizer made here", wrote="device=")
def pipeline_features(side: Side) -> Tensors:
    import tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, pipeline

    names = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "the", "cat", "sat", "mat"])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(names, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
    model = BertModel(BertConfig(vocab_size=8, **sizes)).eval()
    model.forward = side.compiled(model.forward)
    pipe = pipeline("feature-extraction", model=model, tokenizer=fast, device=side.device)
    found = [pipe("the cat sat", return_tensors=True), pipe("the mat", return_tensors=True)]
    return [*found, model.embeddings.word_embeddings.weight.detach()]


@program("transformers", "Trainer: three steps, evaluate", wrote="ACCELERATE_TORCH_DEVICE=ocl")
def trainer(side: Side) -> Tensors:
    os.environ["ACCELERATE_TORCH_DEVICE"] = side.device
    from accelerate.state import AcceleratorState
    from transformers import Trainer, TrainingArguments

    AcceleratorState._reset_state(reset_partial_state=True)
    model = llama(side)
    if side.backend:
        model.compile(backend=side.backend)
    rows = [{"input_ids": row, "labels": row} for row in words(Side())]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, max_steps=STEPS, per_device_train_batch_size=2, report_to=[], save_strategy="no", optim="sgd",
            learning_rate=1e-3, dataloader_pin_memory=False, disable_tqdm=True)  # fmt: skip
        made = Trainer(model, arguments, train_dataset=rows, eval_dataset=rows)
        made.train()
        loss = made.evaluate()["eval_loss"]
    return [torch.tensor(loss), *parameters(model)]
