# examples/generate_text.py: a small Llama of transformers generates text with a static KV cache and compiled steps.
"""python examples/generate_text.py --device ocl --tokens 64

The weights are random, so the text is too. The tokens are compared with those of the CPU without torch.compile."""

import argparse
import time

import torch
from torch._dynamo.utils import counters
from transformers import LlamaConfig, LlamaForCausalLM


def generate(model, texts, tokens):
    """The prompts with new tokens behind them, [prompt, position]. The cache is static: all decode steps have equal sizes."""
    prompts = torch.tensor([[ord(letter) - 32 for letter in text] for text in texts], device=model.device)
    settings = {
        "do_sample": False,
        "min_new_tokens": tokens,
        "max_new_tokens": tokens,
        "cache_implementation": "static",
    }
    return model.generate(prompts, attention_mask=torch.ones_like(prompts), **settings)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="ocl")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=95, hidden_size=args.width, intermediate_size=4 * args.width, num_hidden_layers=args.layers,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512,
        bos_token_id=None, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    texts = ["The quick brown fox jumps ", "Sphinx of black quartz, ju"]
    expected = generate(model, texts, args.tokens)

    model.to(args.device)
    if args.device != "cpu":
        # Two graphs: one for the prompt, one for a single token.
        model.forward = torch.compile(model.forward, backend="ocl", fullgraph=True)
    for call in ("first", "second"):
        graphs, started = counters["stats"]["unique_graphs"], time.perf_counter()
        tokens = generate(model, texts, args.tokens).cpu()  # .cpu() waits for the device
        seconds = time.perf_counter() - started
        graphs = counters["stats"]["unique_graphs"] - graphs
        print(f"{call} call: {len(texts) * args.tokens / seconds:.1f} tokens/s, {graphs} graphs compiled")
    for row in tokens.tolist():
        print("".join(chr(32 + token) for token in row))
    print("the tokens are those of the CPU:", torch.equal(tokens, expected))


if __name__ == "__main__":
    main()
