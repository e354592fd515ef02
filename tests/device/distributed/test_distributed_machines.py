# tests/device/distributed/test_distributed_machines.py: torchrun restarts ranks and agents, on one machine and on two simulated
# ones.
"""A simulated machine is a network namespace with its own address. A virtual cable (veth) connects two of them. Only
root can make them."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[3]
SWEEP = pytest.mark.needs("sweep")
TORCHRUN = f"{sys.executable} -m torch.distributed.run"


def run(command, seconds, **env):
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **env}
    done = subprocess.run(
        command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds, env=env
    )
    return done.returncode, done.stdout


def write(folder, program):
    (folder / "program.py").write_text(textwrap.dedent(program))
    return str(folder / "program.py")


@SWEEP
def test_ranks_that_are_restarted_find_each_other(tmp_path):
    """After a restart, the agent's store still has the addresses of the earlier ranks. Rank 1 starts late; rank 0 must
    not use its old address."""
    program = """
    import datetime, os, sys, time
    import torch, torch.distributed as dist
    rank, count = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    time.sleep(2 * rank * bool(count))
    dist.init_process_group(timeout=datetime.timedelta(seconds=30))
    x = torch.ones(3, device="ocl:0")
    dist.all_reduce(x)
    dist.all_reduce(x, group=dist.new_group())
    print("SUM", count, x[0].item(), flush=True)
    if rank == count < 2:
        os._exit(3)
    x[0].item() and dist.barrier()
    dist.destroy_process_group()
    """
    command = [
        *TORCHRUN.split(),
        "--standalone",
        "--nproc-per-node",
        "2",
        "--max-restarts",
        "2",
        write(tmp_path, program),
    ]
    status, output = run(command, 150)
    assert status == 0 and output.count("SUM 2 4.0") == 2, output


def machines(script, folder, seconds=200, **env):
    """Runs a shell script in a new network namespace. In the script, `$A COMMAND` and `$B COMMAND` run a command on the
    machine 10.77.0.1 or 10.77.0.2, and `appears FILE` waits for a file."""
    if not shutil.which("ip") or not shutil.which("nsenter"):
        pytest.skip("needs the commands ip and nsenter (packages iproute2, util-linux)")
    if subprocess.run(["unshare", "-n", "ip", "link", "set", "lo", "up"], capture_output=True).returncode:
        pytest.skip("needs the right to make network namespaces (root)")
    head = """
    set -u
    appears() { for i in $(seq 900); do [ -e "$1" ] && return; sleep 0.1; done; echo "no $1"; exit 1; }
    unshare -n sleep 1000 & a=$!
    unshare -n sleep 1000 & b=$!
    trap 'kill $a $b' EXIT
    sleep 0.5
    ip link add eth9 netns $a type veth peer name eth9 netns $b
    A="nsenter -t $a -n" B="nsenter -t $b -n"
    $A ip address add 10.77.0.1/24 dev eth9; $B ip address add 10.77.0.2/24 dev eth9
    for side in "$A" "$B"; do $side ip link set eth9 up; $side ip link set lo up; done
    """
    text = textwrap.dedent(head) + textwrap.dedent(script)
    return run(["unshare", "-n", "bash", "-c", text], seconds, GLOO_SOCKET_IFNAME="eth9", FOLDER=str(folder), **env)


PROGRAM = """
import datetime, os, time
from pathlib import Path
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group(timeout=datetime.timedelta(seconds=60))
rank, folder = dist.get_rank(), Path(os.environ["FOLDER"])
torch.manual_seed(0)
model = torch.nn.Linear(5, 3)
x = torch.arange(60.0).view(2, 6, 5)[rank] / 60
x, model = x.to("ocl:0"), DistributedDataParallel(model.to("ocl:0"))
if "KILLED" in os.environ and not (folder / "again").exists():
    (folder / f"rank{rank}.new").write_text(str(os.getpid()))
    (folder / f"rank{rank}.new").rename(folder / f"rank{rank}")
    while True:
        dist.all_reduce(x)
        x[0].item()
        x /= 2
        time.sleep(0.1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for _ in range(3):
    optimizer.zero_grad()
    model(x).pow(2).mean().backward()
    optimizer.step()
print("WEIGHTS", *model.module.weight.flatten().tolist(), flush=True)
dist.destroy_process_group()
"""
AGENT = f"{TORCHRUN} --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint 10.77.0.1:29517 --rdzv-id test"


def assert_both_have_the_weights_of_one_process(output):
    torch.manual_seed(0)
    model = torch.nn.Linear(5, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.arange(60.0).view(12, 5) / 60).pow(2).mean().backward()
        optimizer.step()
    found = [line.split()[1:] for line in output.splitlines() if line.startswith("WEIGHTS")]
    assert len(found) == 2, output
    for weights in found:
        got = torch.tensor([float(w) for w in weights])
        torch.testing.assert_close(got, model.weight.detach().flatten(), rtol=1e-4, atol=1e-5)


@SWEEP
def test_training_on_two_machines(tmp_path):
    script = f"""
    $A {AGENT} --local-addr 10.77.0.1 --rdzv-conf is_host=1 {write(tmp_path, PROGRAM)} &
    first=$!
    $B {AGENT} --local-addr 10.77.0.2 --rdzv-conf is_host=0 {write(tmp_path, PROGRAM)} && wait $first
    """
    status, output = machines(script, tmp_path)
    assert status == 0, output
    assert_both_have_the_weights_of_one_process(output)


@SWEEP
def test_an_agent_that_is_killed_and_started_again(tmp_path):
    """The agent and the rank of the second machine are killed, and the agent is started again. The first agent waits
    for it. The store is not shared (TORCH_DISABLE_SHARE_RDZV_TCP_STORE): in torch 2.13, a new agent would wait for ever
    for the address of a shared store."""
    program = write(tmp_path, PROGRAM)
    script = f"""
    $A {AGENT} --max-restarts 3 --local-addr 10.77.0.1 --rdzv-conf is_host=1 {program} > $FOLDER/first.log 2>&1 &
    first=$!
    B="$B {AGENT} --max-restarts 3 --local-addr 10.77.0.2 --rdzv-conf is_host=0 {program}"
    $B > $FOLDER/killed.log 2>&1 & second=$!
    appears $FOLDER/rank0; appears $FOLDER/rank1
    kill -9 $second $(grep -lE . $FOLDER/rank? | xargs -n1 cat | while read p; do
      [ "$(readlink /proc/$p/ns/net)" = "$(readlink /proc/$b/ns/net)" ] && echo $p; done)
    touch $FOLDER/again
    $B > $FOLDER/second.log 2>&1; status=$?
    wait $first && [ $status = 0 ]; status=$?
    cat $FOLDER/first.log $FOLDER/second.log
    exit $status
    """
    status, output = machines(script, tmp_path, KILLED="1", TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
    assert status == 0, output
    assert_both_have_the_weights_of_one_process(output)
