# benchmarks/generate.py: tokens per second of generate() of transformers, with a static cache of keys and values and with a dynamic one.
"""python -m benchmarks.generate --save benchmarks/results/cpu_intel_generate.json

A Llama with 97 million random weights in fp32 writes --tokens tokens after a prompt, one sequence, without sampling. `forward` is compiled:
with a static cache, one graph of fixed sizes computes each token; with a dynamic one, a graph whose sizes are symbols. --backend eager
compiles nothing. The sides take turns; a turn is one call of generate, with the prompt; the median counts, over --rounds."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch
from torch._dynamo.utils import counters

import torch_ocl_compile  # noqa: F401  registers the device
from benchmarks import turns
from benchmarks.harness.networks import import_torchvision
from benchmarks.harness.side import settings_in_effect

SIZES = {"vocab_size": 16000, "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 12,
         "num_key_value_heads": 4, "max_position_embeddings": 512, "tie_word_embeddings": True, "bos_token_id": None,
         "eos_token_id": None, "pad_token_id": 0}  # fmt: skip


class Side:
    """One kind of cache: the model, and what each call of generate has written."""

    def __init__(self, cache: str, given: Any) -> None:
        from transformers import LlamaConfig, LlamaForCausalLM

        torch.manual_seed(0)
        self.cache, self.tokens = cache, given.tokens
        self.model: Any = LlamaForCausalLM(LlamaConfig(**SIZES)).eval().to(given.device)
        if given.backend != "eager":
            torch._dynamo.reset()
            self.model.forward = torch.compile(self.model.forward, backend=given.backend)
        self.prompt = torch.arange(given.prompt, device=given.device)[None].mul(37).remainder(SIZES["vocab_size"])
        self.written: list[list[int]] = []

    @torch.no_grad()
    def turn(self) -> float:
        """Returns the seconds of a call of generate."""
        begun = time.perf_counter()
        more = {"cache_implementation": "static"} if self.cache == "static" else {}
        found = self.model.generate(
            self.prompt, attention_mask=torch.ones_like(self.prompt), do_sample=False, min_new_tokens=self.tokens,
            max_new_tokens=self.tokens, **more,
        )  # fmt: skip
        self.written = found.tolist()  # waits
        return time.perf_counter() - begun


def main() -> None:
    parser = turns.parser_of(__doc__, 5)
    parser.add_argument("--device", default="ocl:0")
    parser.add_argument("--backend", default="ocl", help="ocl, inductor or eager")
    parser.add_argument("--caches", type=turns.words, default=["static", "dynamic"])
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64)
    given = parser.parse_args()
    import_torchvision()  # transformers imports it too; a plain import fails beside a torch for the CPU.
    file = turns.ResultFile("generate", given)
    sides = {cache: Side(cache, given) for cache in given.caches}
    for cache, side in sides.items():
        begun, graphs = side.turn() + side.turn(), counters["stats"]["unique_graphs"]
        print(f"{cache}: the first two calls took {begun:.1f} s; {graphs} graphs so far", flush=True)
    graphs = counters["stats"]["unique_graphs"]
    times = turns.in_turns({cache: side.turn for cache, side in sides.items()}, given.rounds)
    in_effect = settings_in_effect(given.backend, torch.device(given.device), "highest")
    for cache, found in times.items():
        speed = given.tokens / statistics.median(found)
        file.add({"side": given.backend, "cache": cache, "tokens_per_second": speed, "spread": max(found) / min(found),
                  "settings": in_effect})  # fmt: skip
        print(f"{cache:8s} {speed:8.1f} tokens/s  (slowest / fastest call {max(found) / min(found):.2f})", flush=True)
    assert counters["stats"]["unique_graphs"] == graphs, "a timed call has compiled a graph"
    assert len({str(side.written) for side in sides.values()}) == 1, "the sides have written different tokens"


if __name__ == "__main__":
    main()
