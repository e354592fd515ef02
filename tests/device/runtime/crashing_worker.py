# tests/device/runtime/crashing_worker.py: a build worker whose compiler ends with signal 11 on chosen kernels.
"""It passes all messages between its parent and a real worker, the program TEST_REAL_WORKER. A program text that matches
the regular expression CRASH ends it, as a driver's compiler that crashes ends a worker. With HOW=hang, the worker waits instead."""

import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import time


def main() -> None:
    crash = re.compile(os.environ["CRASH"].encode(), re.DOTALL)
    parent = socket.socket(fileno=os.dup(0))
    ours, theirs = socket.socketpair()
    worker = subprocess.Popen([os.environ["TEST_REAL_WORKER"]], stdin=theirs.fileno())
    theirs.close()
    waiting = selectors.DefaultSelector()
    waiting.register(parent, selectors.EVENT_READ, (ours, True))
    waiting.register(ours, selectors.EVENT_READ, (parent, False))
    request = b""
    while True:
        for key, _ in waiting.select():
            other, is_request = key.data
            piece = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
            if not piece:
                ours.close()  # The real worker ends when its channel is closed.
                sys.exit(worker.wait())
            request = request + piece if is_request else b""
            if is_request and crash.search(request):
                if os.environ.get("HOW") == "hang":
                    time.sleep(1000)
                os.kill(os.getpid(), signal.SIGSEGV)
            other.sendall(piece)


if __name__ == "__main__":
    main()
