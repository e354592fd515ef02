# tests/libraries/use_peft.py: LoRA of peft on a small BERT of transformers.
import torch

from tests.libraries.harness import Side, Tensors, program, steps_of


@program("peft", "LoRA on BERT of transformers")
def lora(side: Side) -> Tensors:
    from peft import LoraConfig, get_peft_model
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2)
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    model = get_peft_model(
        BertModel(config), LoraConfig(r=4, target_modules=["query", "value"], init_lora_weights=False)
    )
    words = torch.arange(24).reshape(2, 12)
    return steps_of(model, [words], side)
