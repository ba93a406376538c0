"""Import FILE.py and take the OPERATION it defines. The file runs with the user's rights."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType

from traceview.bench.operation import Operation
from traceview.errors import InputError

_INTERPRET = "TRITON_INTERPRET"
_REMEDY = "define OPERATION = traceview.bench.Operation(...) in it"


def load_operation(path: str | Path) -> Operation:
    """Import a file and return its OPERATION.

    If torch sees no GPU, TRITON_INTERPRET=1 is set first, and stays set, so that Triton kernels run
    in the interpreter. Raises InputError if there is no such file, if importing it fails, or if it
    defines no OPERATION.
    """
    file = Path(path)
    if not file.exists():
        raise InputError(f"{path} does not exist", "check the path")
    if file.suffix != ".py" or not file.is_file():
        raise InputError(f"{path} is not a Python file", "pass one that defines OPERATION")
    if is_program(file):
        # Not imported: without a main guard it would run with a command line that is not its own.
        what, remedy = f"{path} defines no OPERATION", f"{_REMEDY}, or time it as a program: "
        raise InputError(what, f"{remedy}--sweep steps=1,2,4,8")
    _interpret_without_gpu()
    operation = getattr(_imported(file), "OPERATION", None)
    if not isinstance(operation, Operation):
        what = (
            f"{path} defines no OPERATION"
            if operation is None
            else f"OPERATION in {path} is not an Operation"
        )
        raise InputError(what, _REMEDY)
    return operation


def is_program(path: str | Path) -> bool:
    """Whether a Python file binds no OPERATION; the file is parsed, not run.

    False for a file that is missing or not Python: loading it raises the right error.
    """
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
    bound: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {alias.asname or alias.name for alias in node.names}
    return Path(path).suffix == ".py" and not {"OPERATION", "*"} & bound


def _interpret_without_gpu() -> None:
    """Make Triton interpret its kernels if there is no GPU.

    Triton reads the setting when it is imported. A value that is already set stays.
    """
    if _INTERPRET in os.environ or "triton" in sys.modules:
        return
    try:
        import torch

        has_gpu = torch.cuda.is_available()
    except ImportError:
        has_gpu = False
    if not has_gpu:
        os.environ[_INTERPRET] = "1"


def _imported(path: Path) -> ModuleType:
    file = path.resolve()
    folder, parts = file.parent, [file.stem]
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        parts.insert(0, folder.name)
        folder = folder.parent
    name, in_package = ".".join(parts), len(parts) > 1
    if str(folder) not in sys.path:
        # A package must take precedence over others of its name. A single file, which may be called
        # select.py, must not shadow anything.
        sys.path.insert(0 if in_package else len(sys.path), str(folder))
    try:
        if in_package:
            module = importlib.import_module(name)
        else:
            # Under a unique name: `select.py` must not replace the standard library's.
            name = f"traceview_operation_{file.stem}"
            spec = importlib.util.spec_from_file_location(name, file)
            if spec is None or spec.loader is None:
                raise InputError(f"{file} cannot be imported", "pass a Python file")
            sys.modules[name] = module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise InputError(import_error_line(error, path)) from error
    imported = Path(module.__file__ or "")
    if imported.resolve() != file:
        what = f"importing {path} as {name} found {imported} first"
        raise InputError(what, "rename its folder")
    return module


def import_error_line(error: BaseException, file: Path) -> str:
    """Why importing a file failed, such as `gelu.py raised ValueError at line 12: no data`."""
    if isinstance(error, SyntaxError):
        return f"{file.name}, line {error.lineno}: syntax error: {error.msg}"
    if isinstance(error, ModuleNotFoundError):
        return f"{file.name} needs the package {error.name}, which {sys.executable} does not have"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename) == file.resolve()]
    place = f" at line {lines[-1]}" if lines else ""
    return f"{file.name} raised {error_line(error, place)}"


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
"""CUDA's own wording of these errors; torch, Triton and CuPy each put a prefix before it."""


def broke_cuda(message: str) -> bool:
    """Whether an error message is of a kind that leaves CUDA unusable in this process."""
    return any(text in message for text in _BREAKING)


def broken_cuda_error(what: str, error: BaseException) -> InputError:
    """The error to raise after an error that broke CUDA: later results would be meaningless."""
    return InputError(
        f"{what} broke CUDA in this process: {error_line(error)}",
        "exclude it, or debug it with compute-sanitizer",
    )


def error_line(error: BaseException, place: str = "") -> str:
    """An exception on one line: its type, the place, and the first line of its message."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}{place}" + (f": {first[:300]}" if first else "")
