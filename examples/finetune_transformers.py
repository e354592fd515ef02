# examples/finetune_transformers.py: a small BERT learns to sort texts into two classes, with HF Trainer or with accelerate.
"""python examples/finetune_transformers.py --device ocl --steps 20 --with trainer"""

import argparse
import os
import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification


def examples(count, length=16, words=64):
    """Random texts. Those of class 1 have many words from the upper half of the vocabulary."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % 2
    ids = torch.randint(0, words // 2, (count, length), generator=generator)
    upper = torch.rand(count, length, generator=generator) < 0.2 + 0.6 * labels[:, None]
    return [
        {"input_ids": text, "labels": label} for text, label in zip(ids + upper * (words // 2), labels, strict=True)
    ]


def with_trainer(model, data, args):
    from transformers import Trainer, TrainingArguments

    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            folder, max_steps=args.steps, per_device_train_batch_size=16, learning_rate=1e-3, logging_steps=1, report_to=[],
            use_cpu=args.device == "cpu",
            save_strategy="no", disable_tqdm=True, dataloader_pin_memory=False, seed=0,
        )  # fmt: skip
        if args.device != "cpu":
            model.compile(backend="ocl")  # torch_compile_backend= takes only names that accelerate knows
        trainer = Trainer(model, settings, train_dataset=data)
        trainer.train()
        print("device", next(model.parameters()).device.type)
        return [row["loss"] for row in trainer.state.log_history if "loss" in row]


def with_accelerate(model, data, args):
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=args.device == "cpu")
    loader = torch.utils.data.DataLoader(data, batch_size=16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    run = torch.compile(model, backend="ocl") if args.device != "cpu" else model
    print("device", accelerator.device.type)
    losses = []
    while len(losses) < args.steps:
        for batch in loader:
            loss = run(**batch).loss
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            losses.append(loss.item())
            if len(losses) == args.steps:
                break
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="ocl")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--with", dest="tool", default="trainer", choices=["trainer", "accelerate"])
    args = parser.parse_args()
    if args.device != "cpu":
        # accelerate, which the Trainer uses too, looks only for devices that it knows by name.
        os.environ["ACCELERATE_TORCH_DEVICE"] = args.device
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model = BertForSequenceClassification(config)
    losses = (with_trainer if args.tool == "trainer" else with_accelerate)(model, examples(256), args)
    print(f"step 1: loss {losses[0]:.4f}")
    print(f"step {len(losses)}: loss {losses[-1]:.4f}")


if __name__ == "__main__":
    main()
