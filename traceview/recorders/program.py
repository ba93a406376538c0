"""The program to record: the command that runs a script, and the Python that runs it."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from traceview.errors import InputError

_SHEBANG_BYTES = 256
_LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "srun")
_LAUNCHER_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands")


def command_of(words: Sequence[str]) -> list[str]:
    """The command for SCRIPT [ARGS...]; this Python runs a `.py` file.

    Raises InputError if there is no such script or program.
    """
    script, *arguments = words
    path = Path(script)
    if path.suffix == ".py":
        if not path.is_file():
            raise InputError(f"script {script} does not exist", "check the path")
        return [sys.executable, script, *arguments]
    program = shutil.which(script)
    if program:
        return [program, *arguments]
    if path.is_file():
        raise InputError(
            f"{script} is neither a .py file nor executable", f"run: chmod +x {script}"
        )
    raise InputError(f"program {script} was not found", "check the name or pass its path")


def module_command(module: str, arguments: Sequence[str]) -> list[str]:
    """The command that runs a module, as `python -m` does."""
    return [sys.executable, "-m", module, *arguments]


def script_of(words: Sequence[str]) -> Path:
    """The script in a command, else the module that Python runs, else the program itself."""
    script = next((Path(w) for w in words if w.endswith(".py")), None)
    if script is None and _is_python(Path(words[0]).name) and "-m" in words[1:-1]:
        return Path(words[words.index("-m") + 1].rpartition(".")[2])
    return script or Path(words[0])


def starts_ranks(words: Sequence[str]) -> bool:
    """Whether a command is a launcher, which starts a process for each GPU."""
    names = [Path(word).name for word in words[:2]]
    if names[0] in _LAUNCHERS or (_is_python(names[0]) and names[-1] in _LAUNCHERS):
        return True
    module = words[words.index("-m") + 1] if "-m" in words[:-1] else ""
    return _is_python(names[0]) and module.startswith(_LAUNCHER_MODULES)


def python_of(command: Sequence[str]) -> Path | None:
    """The Python that runs a command; None if it does not look like a Python program."""
    program = Path(shutil.which(command[0]) or command[0])
    if _is_python(program.name):
        return program
    words = _shebang(program)
    if words and Path(words[0]).name == "env":
        path = shutil.which(next((w for w in words[1:] if _is_python(w)), ""))
        return Path(path) if path else None
    return Path(words[0]) if words and _is_python(Path(words[0]).name) else None


def _is_python(name: str) -> bool:
    return bool(re.fullmatch(r"(python|pypy)[\d.]*", name))


def _shebang(program: Path) -> list[str]:
    try:
        with program.open("rb") as file:
            line = file.read(_SHEBANG_BYTES).partition(b"\n")[0]
    except OSError:
        return []
    return os.fsdecode(line[2:]).split() if line.startswith(b"#!") else []
