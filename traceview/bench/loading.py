"""From FILE.py to the OPERATION that it defines: the file runs here, with the user's rights."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from traceview.bench.operation import Operation
from traceview.errors import InputError

_INTERPRET = "TRITON_INTERPRET"
_REMEDY = "define OPERATION = traceview.bench.Operation(...) in it"


def load_operation(path: str | Path) -> Operation:
    """Import a file and take its OPERATION.

    Where torch sees no GPU, TRITON_INTERPRET=1 is set before, so that Triton's kernels run in its
    interpreter; it stays set. Raises InputError if there is no such file, if the file fails, or if
    it defines no OPERATION.
    """
    file = Path(path)
    if file.suffix != ".py" or not file.is_file():
        raise InputError(f"{path} is no Python file", "name one that defines OPERATION")
    if is_program(file):
        # Not imported: without a guard it would run, with a command line that is not its own.
        what, remedy = f"{path} defines no OPERATION", f"{_REMEDY}, or time it as a program: "
        raise InputError(what, f"{remedy}--sweep steps=1,2,4,8")
    interpret_without_gpu()
    operation = getattr(_imported(file), "OPERATION", None)
    if not isinstance(operation, Operation):
        what = f"{path} defines no OPERATION" if operation is None else f"{path}: no Operation"
        raise InputError(what, _REMEDY)
    return operation


def is_program(path: str | Path) -> bool:
    """Whether a Python file binds no OPERATION, seen without running it.

    A file that is not there, or no Python, is none: loading it says what is wrong.
    """
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
    return Path(path).suffix == ".py" and not {"OPERATION", "*"} & set(_bound(tree))


def _bound(tree: ast.Module) -> Iterator[str]:
    """The names that a file binds, in whatever way, at any depth."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)


def interpret_without_gpu() -> None:
    """Have Triton interpret its kernels if there is no GPU. Triton reads this when it is imported.

    What was set before is left.
    """
    if _INTERPRET in os.environ or "triton" in sys.modules or _sees_gpu():
        return
    os.environ[_INTERPRET] = "1"


def _sees_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def _imported(file: Path) -> ModuleType:
    folder, name = _importable(file.resolve())
    if str(folder) not in sys.path:
        # A package must be this one and no other of its name; a lone file, which may be called
        # select.py, must hide nothing.
        sys.path.insert(0 if "." in name else len(sys.path), str(folder))
    try:
        module = importlib.import_module(name) if "." in name else _alone(file.resolve())
    except (Exception, SystemExit) as error:
        raise InputError(failure(error, file)) from error
    found = Path(module.__file__ or "")
    if found.resolve() != file.resolve():
        what = f"{file} is {name} to Python, and so is {found}, which was found first"
        raise InputError(what, "give its folder another name")
    return module


def _importable(file: Path) -> tuple[Path, str]:
    """The folder to search, and the name in it: with its package, if it is in one."""
    folder, parts = file.parent, [file.stem]
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        parts.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(parts)


def _alone(file: Path) -> ModuleType:
    """Under a name that no other module has: `select.py` must not become Python's own."""
    name = f"traceview_operation_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise InputError(f"{file} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def failure(error: BaseException, file: Path) -> str:
    """Why a file failed, such as `gelu.py raised ValueError at line 12: no data`."""
    if isinstance(error, SyntaxError):
        return f"{file.name}, line {error.lineno}: this is not Python: {error.msg}"
    if isinstance(error, ModuleNotFoundError):
        return f"{file.name} needs the package {error.name}, not found by {sys.executable}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename) == file.resolve()]
    place = f" at line {lines[-1]}" if lines else ""
    return f"{file.name} raised {in_words(error, place)}"


_BREAKING = (
    "an illegal memory access",
    "an illegal instruction",
    "misaligned address",
    "unspecified launch failure",
    "device-side assert",
    "hardware stack error",
    "invalid program counter",
    "global/shared address space",
    "the launch timed out",
    "ECC error",
)
"""As CUDA words its errors; torch, Triton and CuPy each put words of their own before them."""


def broke_cuda(said: str) -> bool:
    """Whether an error, in words, is one after which CUDA does nothing more in this process."""
    return any(each in said for each in _BREAKING)


def broken_by(what: str, error: BaseException) -> InputError:
    """The error for that: nothing that was tried after it says anything."""
    return InputError(
        f"{what} broke CUDA in this process: {in_words(error)}",
        "leave it out, or look at it with compute-sanitizer",
    )


def in_words(error: BaseException, place: str = "") -> str:
    """An exception on one line: its type, and the first line of what it says."""
    said = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}{place}" + (f": {said[:300]}" if said else "")
