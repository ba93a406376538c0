"""A process that has imported Triton and PyTorch, and forks itself for each program it is given.

Run with a Unix socket of datagrams as stdin; its arguments are modules to import as well. A request
names the program text, its arguments, the current folder and the environment, and brings four
descriptors: stdin, stdout, stderr, and a pipe that gets the process id, then the status in the way
of `subprocess.Popen.returncode`.
"""

import gc
import json
import os
import random
import socket
import struct
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path

NUMBER = struct.Struct("i")
MOST_BYTES = 1 << 20


def serve(requests: socket.socket) -> None:
    """Fork for each request until the other end is closed."""
    import torch  # noqa: F401
    from triton.runtime.cache import triton_key

    for module in sys.argv[1:]:
        import_module(module)
    # The hash of Triton's own files, which each process takes before it compiles.
    triton_key()
    # A fork has only the thread that forked: the locks of another would stay locked in it.
    assert len(list(Path("/proc/self/task").iterdir())) == 1
    gc.freeze()
    while True:
        text, descriptors, *_ = socket.recv_fds(requests, MOST_BYTES, 4)
        if not text:
            _reap()
            return
        if not os.fork():
            requests.close()
            _watch(json.loads(text), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        _reap()


def _reap() -> None:
    """Wait for the forks that have ended, so that their time counts as that of the session."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _watch(request: dict, descriptors: Sequence[int]) -> None:
    """Run the program in a fork, and report how it ends."""
    *streams, report = descriptors
    child = os.fork()
    if not child:
        os.setsid()
        os.write(report, NUMBER.pack(os.getpid()))
        os.close(report)
        _run(request, streams)
    for stream in (*streams, 0, 1, 2):
        os.close(stream)
    _, status = os.waitpid(child, 0)
    os.write(report, NUMBER.pack(os.waitstatus_to_exitcode(status)))
    os._exit(0)


def _run(request: dict, streams: Sequence[int]) -> None:
    """Become a fresh Python that was started with `-c`, but for the imports."""
    for at, stream in enumerate(streams):
        os.dup2(stream, at)
        os.close(stream)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["-c", *request["arguments"]]
    random.seed()
    try:
        exec(request["program"], {"__name__": "__main__"})  # the text is traceview's own
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    finally:
        sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    serve(socket.socket(fileno=os.dup(0)))
