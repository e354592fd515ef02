# torch_ocl_compile/device/restarts.py: gives each start of the ranks keys of its own in the store of torchrun's agent.
"""After a restart of the ranks, the agent's store still has the keys of the earlier ranks: addresses of processes that have
ended, among others. A rank that reads such an address before its owner has overwritten it does not connect. The number of
restarts cannot tell the starts apart, because each agent counts for itself. So the ranks agree on a word that is new."""

from __future__ import annotations

import os
import time
import uuid
from datetime import timedelta
from typing import Any

PAUSE = 0.01  # seconds


def needed() -> bool:
    """True if ranks may have been restarted with the store that their predecessors used."""
    restarts = int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0"))
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and restarts > 0


def agree(store: Any, rank: int, size: int, timeout: timedelta) -> str:
    """Returns a word that all ranks of this start get, and that no earlier start had.

    A rank asks with a word of its own, which is part of the name of the key for the answer, so it never reads an
    answer to another rank. Rank 0 may answer questions of earlier ranks too; it goes on until all ranks have thanked.
    """
    deadline = time.monotonic() + timeout.total_seconds()
    if rank == 0:
        word = uuid.uuid4().hex
        waiting = dict.fromkeys(range(1, size), "")  # Rank -> the question that was answered last.
        while waiting:
            for other, answered in list(waiting.items()):
                if store.check([f"ocl/thanks/{word}/{other}"]):
                    del waiting[other]
                elif store.check([f"ocl/question/{other}"]):
                    question = store.get(f"ocl/question/{other}").decode()
                    if question != answered:
                        store.set(f"ocl/answer/{question}", word)
                        waiting[other] = question
            if waiting:
                _pause(deadline, f"no sign of rank {', '.join(map(str, waiting))}")
        return word
    question = uuid.uuid4().hex
    store.set(f"ocl/question/{rank}", question)
    while not store.check([f"ocl/answer/{question}"]):
        _pause(deadline, "no sign of rank 0")
    word = str(store.get(f"ocl/answer/{question}").decode())
    store.set(f"ocl/thanks/{word}/{rank}", "1")
    return word


def _pause(deadline: float, problem: str) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError(f"init_process_group: {problem} within the timeout; the ranks must all call it")
    time.sleep(PAUSE)
