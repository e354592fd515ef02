# tests/libraries/use_sentence_transformers.py: pooling and normalisation of sentence-transformers over a small BERT.
import torch
from torch import nn

from tests.libraries.harness import Side, Tensors, program, steps_of


@program("sentence-transformers", "Pooling, Normalize and CosineSimilarity loss over BERT")
def pooling(side: Side) -> Tensors:
    from sentence_transformers import util
    from sentence_transformers.models import Normalize, Pooling
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2)
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0

    class Sentences(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert, self.pool, self.normal = BertModel(config, add_pooling_layer=False), Pooling(32), Normalize()

        def forward(self, words: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            tokens = self.bert(words, attention_mask=mask).last_hidden_state
            found = self.normal(self.pool({"token_embeddings": tokens, "attention_mask": mask}))["sentence_embedding"]
            return util.cos_sim(found, found)

    mask = torch.ones(3, 8, dtype=torch.int64)
    mask[1, 5:] = 0
    return steps_of(Sentences(), [torch.arange(24).reshape(3, 8), mask], side)
