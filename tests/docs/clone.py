"""Run the blocks of a page as in a fresh clone, and write down what they print."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import Block, command_of, excerpt
from tests.headless.forked_python import start_script
from tests.places import REPOSITORY
from traceview.cli import run

# Commands that run a program of the user's, with what it imports.
RUN_PROGRAMS = ("bench", "record", "mcp")
WIDTH = 80
SECONDS = 120
NOT_CLONED = {".git", ".venv", ".cache"}


def fresh_clone(folder: Path) -> Path:
    """Make a folder that holds what a clone holds, by links; what is written there stays there."""
    for name in sorted(_top_level() - NOT_CLONED):
        (folder / name).symlink_to(REPOSITORY / name)
    return folder


def _top_level() -> set[str]:
    if not (REPOSITORY / ".git").exists():  # An unpacked source distribution.
        return {path.name for path in REPOSITORY.iterdir()}
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return {path.partition("/")[0] for path in tracked}


def environment() -> dict[str, str]:
    """The environment of a terminal of 80 columns, with this installation on the PATH."""
    return os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": str(WIDTH),
        "NO_COLOR": "1",
        "TERM": "dumb",
    }


def run_command(command: str, folder: Path) -> str:
    """Run a shell command and return what it printed, both streams as a terminal shows them."""
    words = _of_traceview(command)
    if not words:
        status, printed = _run_in_shell(command, folder)
    elif words[0] in RUN_PROGRAMS:
        status, printed = _run_in_fork(words, folder)
    else:
        status, printed = _run_here(words, folder)
    assert status == 0, f"{command}: exit status {status}\n{printed}"
    return printed


def _of_traceview(command: str) -> list[str]:
    """The arguments of a command that is `traceview` alone, without a pipe or a redirection."""
    words = shlex.split(command, comments=True)
    # An operator that is quoted, as in an expectation, may go to the shell as well.
    is_alone = words[:1] == ["traceview"] and not set("|&;<>$`") & set(command)
    return words[1:] if is_alone else []


def _run_in_shell(command: str, folder: Path) -> tuple[int, str]:
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
    )
    return done.returncode, done.stdout


def _run_in_fork(words: list[str], folder: Path) -> tuple[int, str]:
    command = [sys.executable, "-m", "traceview", *words]
    with tempfile.TemporaryFile("w+") as printed, Path(os.devnull).open() as nothing:
        streams = (nothing.fileno(), printed.fileno(), printed.fileno())
        with contextlib.chdir(folder):
            status = start_script(command, environment(), streams).wait(SECONDS)
        printed.seek(0)
        return status, printed.read()


def _run_here(words: list[str], folder: Path) -> tuple[int, str]:
    """Run `traceview` in this process, which has imported it, and whose workers PyTorch."""
    with tempfile.TemporaryFile("w+") as printed, _descriptors_into(printed.fileno()):
        # As in a process of its own: what stdout holds is written in blocks, and at the end.
        with (
            open(1, "w", closefd=False) as out,
            open(2, "w", 1, closefd=False) as err,
            pytest.MonkeyPatch.context() as patch,
            contextlib.chdir(folder),
        ):
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            for name, value in environment().items():
                patch.setenv(name, value)
            status = run(words)
        printed.seek(0)
        return status, printed.read()


@contextlib.contextmanager
def _descriptors_into(file: int) -> Iterator[None]:
    """Let stdout and stderr of this process, and of those that it starts, go to a file."""
    kept = [(os.dup(stream), stream) for stream in (1, 2)]
    try:
        for stream in (1, 2):
            os.dup2(file, stream)
        yield
    finally:
        for copy, stream in kept:
            os.dup2(copy, stream)
            os.close(copy)


def rendered_shell(block: Block, folder: Path) -> str:
    """Run the commands of a block; return its text with the output that they print now."""
    if block.language == "bash":
        for command in block.commands:
            run_command(command, folder)
        return block.text
    lines = []
    for statement, _ in block.statements():
        lines += [statement, *excerpt(run_command(command_of(statement), folder), block.shown)]
    return "\n".join(lines) + "\n"


def rendered_python(blocks: Iterable[Block], folder: Path) -> list[str]:
    """Run the statements of all Python blocks of a page, one after the other, in one namespace."""
    names: dict[str, object] = {"__name__": "__main__"}
    texts = []
    with contextlib.chdir(folder):
        for block in blocks:
            lines = []
            for statement, _ in block.statements():
                printed = io.StringIO()
                code = compile(command_of(statement) + "\n", str(block), "single")
                with contextlib.redirect_stdout(printed):
                    exec(code, names)  # the documentation's own statements
                lines += [statement, *excerpt(printed.getvalue(), block.shown)]
            texts.append("\n".join(lines) + "\n")
    return texts
