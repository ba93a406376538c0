"""A process that has imported Triton and PyTorch, and forks itself for each program it is given.

Run with a listening Unix socket of packets as stdin; its arguments are modules to import as well.
It ends when all who have connected have left. A request names the program text, its arguments, the
current folder and the environment, and brings four descriptors: stdin, stdout, stderr, and a pipe
that gets the process id, then the status in the way of `subprocess.Popen.returncode`.
"""

import gc
import json
import os
import random
import select
import selectors
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


def serve(listener: socket.socket) -> None:
    """Fork for each request of those who connect, until all of them have left."""
    import torch  # noqa: F401
    from triton.runtime.cache import triton_key

    for module in sys.argv[1:]:
        import_module(module)
    # The hash of Triton's own files, which each process takes before it compiles.
    triton_key()
    # A fork has only the thread that forked: the locks of another would stay locked in it.
    assert len(list(Path("/proc/self/task").iterdir())) == 1
    gc.freeze()
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    connected = 0
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                selector.register(listener.accept()[0], selectors.EVENT_READ)
                connected += 1
            elif isinstance(key.fileobj, Fork):
                selector.unregister(key.fileobj)
                key.fileobj.end()
            elif request := _received(key.fileobj):
                selector.register(Fork(*request), selectors.EVENT_READ)
            else:
                selector.unregister(key.fileobj)
                key.fileobj.close()
                connected -= 1
        # Somebody may have connected, and nobody been accepted.
        if not connected and not select.select([listener], [], [], 0)[0]:
            return


def _received(connection: socket.socket) -> tuple[dict, Sequence[int]] | None:
    text, descriptors, *_ = socket.recv_fds(connection, MOST_BYTES, 4)
    return (json.loads(text), descriptors) if text else None


class Fork:
    """A running program, and where to report how it ends."""

    def __init__(self, request: dict, descriptors: Sequence[int]) -> None:
        *streams, self._report = descriptors
        self._process = os.fork()
        if not self._process:
            os.setsid()
            os.write(self._report, NUMBER.pack(os.getpid()))
            _run(request, streams)
        for stream in streams:
            os.close(stream)
        self._ended = os.pidfd_open(self._process)

    def fileno(self) -> int:
        """A descriptor that can be read when the program has ended."""
        return self._ended

    def end(self) -> None:
        """Report its status, which counts its time as that of the session."""
        _, status = os.waitpid(self._process, 0)
        # Nobody may wait for it any more.
        with suppress(BrokenPipeError):
            os.write(self._report, NUMBER.pack(os.waitstatus_to_exitcode(status)))
        for descriptor in (self._report, self._ended):
            os.close(descriptor)


def _run(request: dict, streams: Sequence[int]) -> None:
    """Become a fresh Python that was started with `-c`, but for the imports."""
    for at, stream in enumerate(streams):
        os.dup2(stream, at)
    # Those of the server, and of other forks.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
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
