# tests/libraries/use_transformers.py: a small Llama of transformers, with its own loss.
import torch

from tests.libraries.harness import Side, Tensors, program, steps_of


@program("transformers", "Llama, two layers, its own loss")
def llama_loss(side: Side) -> Tensors:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2
    )
    words = torch.arange(24).reshape(2, 12).remainder(64)
    model = LlamaForCausalLM(config)
    model.forward = _with_labels(model.forward)
    return steps_of(model, [words], side, loss=lambda out: out.loss)


def _with_labels(forward):  # type: ignore[no-untyped-def]
    return lambda words: forward(input_ids=words, labels=words)
