# tests/fork_server.py: starts Python programs as forks of a process that has imported torch, which saves 3 s for each.
"""`start(["-c", text], env)` is like `subprocess.Popen([sys.executable, "-c", text], env=env)`, and `run` like `subprocess.run`.

The server imports the modules of torch that torch.compile needs. It does not import torch_ocl_compile, which reads
environment variables at import: each program imports it itself. All programs of one server have the same hash seed
(PYTHONHASHSEED) and the same LD_LIBRARY_PATH, which the system reads only when a process starts: programs with another path get a
server of their own. A test that compares the cache keys of two processes therefore starts one of them with subprocess.

The server accepts connections, one for each program. A request is a JSON object with file descriptors. The server
replies with the program's process id when it starts, and with its exit status when it ends. If the client closes the
connection, the program is killed."""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# Modules that torch imports at the first compilation. The server imports them once for all programs.
IMPORTS = (
    "torch._dynamo",
    "torch._dynamo.backends.common",
    "torch._dynamo.repro.after_dynamo",
    "torch._functorch.aot_autograd",
    "torch._inductor.debug",
    "torch._inductor.pattern_matcher",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "torch.testing",
)
# A client that starts many programs of a kind adds modules of the checkout before its first program.
FURTHER_IMPORTS: list[str] = []


class Program:
    """A running program."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.replies = connection.makefile("r")
        self.pid = int(self.replies.readline())
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self.connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"program {self.pid}", timeout or 0)
            self.returncode = int(self.replies.readline())
            self.replies.close()
            self.connection.close()
        return self.returncode

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self.connection], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def kill(self) -> None:
        """Ends the program if it still runs."""
        if self.returncode is None:
            self.connection.shutdown(socket.SHUT_WR)
            self.wait()


_servers: dict[str, tuple[subprocess.Popen[bytes], str]] = {}  # By the LD_LIBRARY_PATH of their programs.
_starting = threading.Lock()


def _address(libraries: str) -> str:
    """Starts a server with this LD_LIBRARY_PATH if there is none. Returns the address of its socket."""
    if libraries not in _servers:
        address = tempfile.mkdtemp(prefix="torch_ocl_fork_") + "/socket"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(address)
            listener.listen(64)
            environment = {k: v for k, v in os.environ.items() if not k.startswith("TORCH_OCL_")}
            environment |= {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"}
            environment["LD_LIBRARY_PATH"] = libraries
            # A module that torch imports asks for the number of CUDA devices. This variable makes torch ask NVML, which
            # does not initialise CUDA. Once CUDA is initialised in a process, it does not work in forks of this
            # process.
            environment["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
            command = [sys.executable, __file__, str(listener.fileno()), str(os.getpid()), *FURTHER_IMPORTS]
            process = subprocess.Popen(
                command, env=environment, pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL, start_new_session=True
            )
        _servers[libraries] = (process, address)
        atexit.register(_stop, libraries)
    return _servers[libraries][1]


def _stop(libraries: str) -> None:
    process, address = _servers.pop(libraries)
    process.kill()
    process.wait()
    os.unlink(address)
    os.rmdir(os.path.dirname(address))


def start(
    arguments: Sequence[str],
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
    pass_fds: Sequence[int] = (),
) -> Program:
    """Starts `python ARGUMENTS`: a script, `-c TEXT` or `-m MODULE`. The standard streams are file descriptors;
    None stands for /dev/null."""
    null = os.open(os.devnull, os.O_RDWR)
    fds = {0: null, 1: null, 2: null} | {i: fd for i, fd in enumerate((stdin, stdout, stderr)) if fd is not None}
    fds |= {fd: fd for fd in pass_fds}
    request: dict[str, Any] = {
        "arguments": list(arguments),
        "env": dict(os.environ if env is None else env),
        "fds": list(fds),
    }
    request["cwd"] = os.fspath(cwd or os.getcwd())
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with _starting:
        address = _address(request["env"].get("LD_LIBRARY_PATH", ""))
    connection.connect(address)
    text = json.dumps(request).encode()
    socket.send_fds(connection, [len(text).to_bytes(8, "big")], list(fds.values()))
    connection.sendall(text)
    os.close(null)
    return Program(connection)


def run(
    arguments: Sequence[str],
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    timeout: float = 300,
) -> subprocess.CompletedProcess[str]:
    """Runs `python ARGUMENTS` and returns its exit status, stdout and stderr."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        program = start(arguments, env, cwd, stdout=out.fileno(), stderr=err.fileno())
        try:
            status = program.wait(timeout)
        finally:
            program.kill()
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    return subprocess.CompletedProcess(list(arguments), status, *texts)


# The server


def _receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    size, fds, _, _ = socket.recv_fds(connection, 8, 64)
    text = b""
    while len(text) < int.from_bytes(size, "big"):
        text += connection.recv(1 << 20)
    return json.loads(text), list(fds)


def _watch(connection: socket.socket, child: int) -> None:
    """Waits for the program and sends its exit status; kills the program if the client closes the connection first."""
    connection.sendall(f"{child}\n".encode())
    ended = os.pidfd_open(child)
    if ended not in select.select([connection, ended], [], [])[0]:
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(BrokenPipeError):
        connection.sendall(f"{status}\n".encode())
    os._exit(0)


def _become(request: dict[str, Any], fds: list[int]) -> list[str]:
    """Makes this process look like a new one: its open files, environment and working folder. Returns the arguments."""
    import fcntl

    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 100 + max(request["fds"])) for fd in fds]
    for fd in fds:
        os.close(fd)
    for fd, wanted in zip(high, request["fds"], strict=True):
        os.dup2(fd, wanted)
        os.close(fd)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    tempfile.tempdir = None  # The server may have another TMPDIR.
    if os.environ.get("PYTHONFAULTHANDLER"):
        faulthandler.enable()
    for path in reversed(os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        if path and path not in sys.path:
            sys.path.insert(0, path)
    import torch

    if torch.cuda._is_in_bad_fork() and os.path.exists("/dev/nvidiactl"):
        raise RuntimeError("an import of the fork server started CUDA, which now works in no program")
    # `import torch` does this in a new process. In the server it was switched off.
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "1":
        torch._import_device_backends()
    return list(request["arguments"])


def _serve(listener: socket.socket, parent: int) -> list[str]:
    """Forks for each request. Returns only in the child, with the arguments of its program."""
    while True:
        if not select.select([listener], [], [], 5)[0]:
            if os.getppid() != parent:
                os._exit(0)
            continue
        connection = listener.accept()[0]
        if os.fork() == 0:
            listener.close()
            request, fds = _receive(connection)
            child = os.fork()
            if child == 0:
                connection.close()
                return _become(request, fds)
            for fd in fds:
                os.close(fd)
            _watch(connection, child)
        connection.close()
        while os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG):
            pass


def _main() -> None:
    import importlib

    if sys.argv[3:]:
        sys.path.insert(1, str(ROOT))
    for name in (*IMPORTS, *sys.argv[3:]):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    listener = socket.socket(fileno=int(sys.argv[1]))
    what, *rest = _serve(listener, int(sys.argv[2]))
    if what == "-c":
        sys.argv, sys.path[0] = ["-c", *rest[1:]], ""
        module = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), vars(module))
    elif what == "-m":
        sys.argv, sys.path[0] = rest, os.getcwd()
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = [what, *rest], os.path.dirname(os.path.abspath(what))
        runpy.run_path(what, run_name="__main__")


if __name__ == "__main__":
    _main()
