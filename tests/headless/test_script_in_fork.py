"""A script in a fork that has imported PyTorch: it finds what a Python finds that starts now."""

import os
import subprocess
import sys

import pytest

from tests.headless.forked_python import run_script

pytest.importorskip("triton", reason="triton is not installed")
pytest.importorskip("torch", reason="torch is not installed")

SCRIPT = """
import atexit, os, sys, threading
atexit.register(lambda: print("at exit"))
threading.Thread(target=lambda: (threading.main_thread().join(), print("thread"))).start()
print(sys.argv, sys.orig_argv, sys.path[:2], __name__, __file__, os.getcwd())
print([name for name in sys.modules if name.partition(".")[0] in ("torch", "triton", "nvtx")])
import torch.nn.functional
print([name in sys.modules for name in ("torch.cuda._utils", "torch._dynamo", "triton")])
print(torch._dynamo.__spec__.name, torch._dynamo is sys.modules["torch._dynamo"])
import triton.language
print(triton.compiler.compiler is sys.modules["triton.compiler.compiler"])
print(torch.nn.functional.relu(torch.ones(2)), torch.__spec__.loader is not None)
"""


@pytest.mark.programs
@pytest.mark.parametrize(
    ("end", "status"),
    [("", 0), ("sys.exit(3)", 3), ("sys.exit('a text')", 1), ("1 / 0", 1)],
    ids=["ends", "status", "text", "error"],
)
def test_a_script_cannot_tell_that_it_is_a_fork(end, status, tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT + end)
    (tmp_path / "own").mkdir()
    (tmp_path / "own/sitecustomize.py").write_text("print('site', __name__)")
    environment = {**os.environ, "PYTHONPATH": "own"}
    command = [sys.executable, "script.py", "an argument"]
    done = run_script(command, environment, folder=tmp_path)
    assert done.returncode == status, done.stderr
    if status != 3:
        assert done.stderr.splitlines()[-1:] == ERRORS[end]
    if not end:
        fresh = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.stdout == fresh.stdout
        assert fresh.stdout.startswith("site sitecustomize\n['script.py', 'an argument']")
        assert fresh.stdout.endswith("thread\nat exit\n")


ERRORS = {
    "": [],
    "sys.exit('a text')": ["a text"],
    "1 / 0": ["ZeroDivisionError: division by zero"],
}
