# tests/device/distributed/test_accelerate_ranks.py: accelerate and the Trainer of transformers under torchrun.
"""Two ranks train on the halves of a data set. Their parameters must be the same, and be those of PyTorch on the CPU with the
whole batches. A plain run starts the ranks as forks, with the environment that torchrun gives them."""

import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from tests import fork_server
from tests.device.own_process import run_python

ROOT = Path(__file__).resolve().parents[3]
LOOP = """
import torch
import torch_ocl_compile
from accelerate import Accelerator

accelerator = Accelerator()
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
data = torch.utils.data.TensorDataset(torch.arange(32.0).view(8, 4) / 32, torch.zeros(8, 2))
loader = torch.utils.data.DataLoader(data, batch_size=4 // accelerator.num_processes)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x, y in loader:
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
total = sum(p.detach().sum() for p in model.parameters()).item()
print(f"{accelerator.num_processes} {accelerator.device.type} {x.device.type} {total:.4f}", flush=True)
"""
TRAINER = """
import importlib.util
import torch
import torch_ocl_compile
from benchmarks.harness.networks import import_torchvision

if importlib.util.find_spec("torchvision"):
    import_torchvision()  # transformers imports it, which fails with a CPU-only torch.
from transformers import Trainer, TrainingArguments

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
    def forward(self, x, labels):
        out = self.layer(x)
        return {"loss": torch.nn.functional.mse_loss(out, labels), "logits": out}

torch.manual_seed(0)
data = [{"x": torch.arange(4.0) + i, "labels": torch.zeros(2)} for i in range(8)]
arguments = TrainingArguments(FOLDER, per_device_train_batch_size=2, max_steps=2, report_to=[], save_strategy="no", disable_tqdm=True)
trainer = Trainer(Model(), arguments, train_dataset=data)
trainer.train()
total = sum(p.detach().sum() for p in trainer.model.parameters()).item()
print(f"{arguments.world_size} {arguments.device.type} {next(trainer.model.parameters()).device.type} {total:.5f}", flush=True)
"""


def run(program, folder, ranks, **env):
    """Returns the exit status and the output of all ranks."""
    script = folder / "program.py"
    script.write_text(textwrap.dedent(program).replace("FOLDER", repr(str(folder / "out"))))
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *launcher, str(script)],
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", **env},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def run_forks(program, folder, ranks, **env):
    """Like run(), without torchrun."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    both = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    programs, logs = [], [folder / f"log{rank}" for rank in range(ranks)]
    for rank, path in enumerate(logs):
        variables = {**os.environ, "PYTHONPATH": str(ROOT), **both, "RANK": str(rank), "LOCAL_RANK": str(rank), **env}
        with open(path, "w") as log:
            programs.append(fork_server.start(["-c", program], variables, stdout=log.fileno(), stderr=log.fileno()))
    try:
        status = max(one.wait(timeout=240) for one in programs)
    finally:
        for one in programs:
            one.kill()
    return status, "".join(path.read_text() for path in logs)


def alone():
    """Returns what LOOP prints of its parameters, computed on the CPU without accelerate."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in (torch.arange(32.0).view(8, 4) / 32).split(4):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return f"{sum(p.detach().sum() for p in model.parameters()).item():.4f}"


def lines(output, ranks):
    return [line for line in output.splitlines() if line.startswith(f"{ranks} ocl ocl ")]


def test_accelerate_trains_on_two_ranks(ocl_device, tmp_path):
    pytest.importorskip("accelerate")
    status, two = run_forks(LOOP, tmp_path, 2, ACCELERATE_TORCH_DEVICE="ocl")
    assert status == 0 and len(lines(two, 2)) == 2, two[-3000:]
    assert {line.split()[-1] for line in lines(two, 2)} == {alone()}


def test_accelerate_says_what_to_set(ocl_device, tmp_path):
    pytest.importorskip("accelerate")
    torchrun = {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0"}
    status, _, output = run_python("from accelerate import Accelerator\nAccelerator()", **torchrun)
    how = "on CUDA, without gradients" if torch.cuda.is_available() else "alone, on the CPU"
    assert status != 0 and f"each of the 2 processes would train {how}" in output, output[-3000:]
    assert "set ACCELERATE_TORCH_DEVICE=ocl" in output


# accelerate takes CUDA if torch has it, even if a variable names another device.
FAKE_CUDA = """
import torch
torch.cuda.is_available = lambda: True
torch.cuda.device_count = lambda: 2
torch.cuda.set_device = lambda device: None
"""
BACKEND = """
from accelerate.state import PartialState

print(*PartialState._prepare_backend(object()))
"""


@pytest.mark.parametrize("variable", ["ocl", "cuda", None])
def test_accelerate_does_not_take_cuda_beside_ocl(ocl_device, variable):
    pytest.importorskip("accelerate")
    torchrun = {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
    chosen = {"ACCELERATE_TORCH_DEVICE": variable} if variable else {}
    status, out, err = run_python(FAKE_CUDA + BACKEND, **torchrun, **chosen)
    if variable is None:
        assert status == 1 and "would train on CUDA, without gradients" in err, err
    else:
        assert status == 0, err
        assert out.split()[0] == ("cpu:gloo,ocl:ocl" if variable == "ocl" else "nccl"), out


def beside_cuda(program):
    """Returns a program with a stand-in for CUDA, which is there when the libraries have been imported."""
    last = program.rindex("import ")
    end = program.index("\n", last)
    return program[: end + 1] + textwrap.dedent(FAKE_CUDA) + program[end + 1 :]


def test_accelerate_trains_on_two_ranks_beside_cuda(ocl_device, tmp_path):
    pytest.importorskip("accelerate")
    status, two = run_forks(beside_cuda(LOOP), tmp_path, 2, ACCELERATE_TORCH_DEVICE="ocl")
    assert status == 0 and len(lines(two, 2)) == 2, two[-3000:]
    assert {line.split()[-1] for line in lines(two, 2)} == {alone()}


@pytest.mark.parametrize("how", ["one process", "torchrun"])
def test_one_process_beside_cuda(ocl_device, tmp_path, how):
    """It trains on ocl, and without the variable an error says what to write."""
    pytest.importorskip("transformers")
    ranks = {"WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
    environment = ranks if how == "torchrun" else {}
    for number, program in enumerate((LOOP, TRAINER)):
        program = beside_cuda(program).replace("FOLDER", repr(str(tmp_path / str(number))))
        status, out, err = run_python(program, ACCELERATE_TORCH_DEVICE="ocl", **environment)
        assert status == 0 and len(lines(out, 1)) == 1, out + err
        status, out, err = run_python(program, **environment)
        assert status != 0 and "the process would train on CUDA, without gradients" in err, out + err
        assert "set ACCELERATE_TORCH_DEVICE=ocl" in err


@pytest.mark.needs("sweep")
def test_the_trainer_of_transformers_trains_on_two_ranks(ocl_device, tmp_path):
    pytest.importorskip("transformers")
    status, output = run(TRAINER, tmp_path, 2, ACCELERATE_TORCH_DEVICE="ocl")
    assert status == 0 and len(set(lines(output, 2))) == 1, output[-3000:]
