"""A GPU operation to benchmark, as FILE.py defines it, which runs with the user's rights."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import Parameter, signature
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from traceview.base.errors import InputError
from traceview.base.records import record

Needs = Literal["cpu", "triton", "cuda"]
_FIXED = 3
"""The parameters that every `inputs` takes: size, data type and device."""


def _is_whole(parameter: Parameter) -> bool:
    """Whether a parameter is an int, by its annotation or else its default; a bool is not."""
    if parameter.kind not in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY):
        return False
    if parameter.annotation is Parameter.empty:
        return type(parameter.default) is int
    # A text if annotations are postponed, else a type or a union of types.
    annotation = str(getattr(parameter.annotation, "__name__", parameter.annotation))
    return annotation in ("int", "int | None", "Optional[int]")


@record
class Version:
    """One implementation of an operation: `run(*inputs)` returns a tensor, or a tuple of them.

    `needs` says where it runs: `cpu` on any device, `triton` on a GPU or in Triton's interpreter,
    `cuda` on a GPU only. `note` says in one line what distinguishes it from the version before.
    `kernels` are its Triton functions, from whose PTX the load width is read. `supports(*inputs)`
    says whether it takes the inputs; None means it takes all. `cuda_source` is its CUDA C++ source,
    if it is written in that, for the same purpose as `kernels`.
    """

    name: str
    run: Callable[..., Any]
    needs: Needs = "cpu"
    note: str = ""
    kernels: tuple[Any, ...] = ()
    supports: Callable[..., bool] | None = None
    cuda_source: str | None = None


@dataclass(frozen=True)
class Operation:
    """An operation, with all that is needed to check and time it.

    `inputs(size, dtype, device)` makes the inputs; the same arguments give the same inputs.
    `reference(*inputs)` is plain and obviously right; called with float64 inputs it returns the
    values that errors are measured against. `bytes_moved(*inputs)` is the minimum traffic to and
    from device memory in bytes and `flop(*inputs)` the arithmetic, both per call. `check(*inputs)`
    raises InputError for shapes, data types and layouts that no version takes. `sizes` are for a
    GPU; `small_sizes`, some of them odd, for a CPU and the interpreter. `tolerances` maps each
    data type to the largest error allowed, relative to the reference's largest magnitude.
    `tensor_cores` says to judge it by the peak of the tensor cores.

    Further integer parameters of `inputs`, such as `batch: int | None = None`, can be varied by
    `--sweep`.
    """

    name: str
    title: str
    inputs: Callable[[int, Any, str], tuple[Any, ...]]
    reference: Callable[..., Any]
    versions: tuple[Version, ...]
    bytes_moved: Callable[..., int]
    flop: Callable[..., int]
    sizes: tuple[int, ...]
    small_sizes: tuple[int, ...]
    tolerances: Mapping[str, float]
    check: Callable[..., None]
    size_means: str = "elements"
    facts: Mapping[str, str] = field(default_factory=dict)
    tensor_cores: bool = False

    def __post_init__(self) -> None:
        """Raise InputError without a version or data type, or for two versions of one name."""
        if not self.versions or not self.tolerances:
            missing = "data types in tolerances" if self.versions else "versions"
            raise InputError(f"{self.name} has no {missing}", "add at least one")
        names = [version.name for version in self.versions]
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated is not None:
            what = f"{self.name} has two versions named {repeated[:60]!r}"
            raise InputError(what, "rename one")

    @property
    def unit(self) -> str:
        """The singular of `size_means`, such as element or step."""
        many = self.size_means
        return "unit of size" if " " in many else many.removesuffix("s")

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters that can be varied besides size and data type."""
        more = list(signature(self.inputs).parameters.values())[_FIXED:]
        return tuple(parameter.name for parameter in more if _is_whole(parameter))

    def at(self, **values: int) -> Operation:
        """The operation at these parameter values. Raises InputError for an unknown parameter."""
        for name in values:
            if name not in self.parameters:
                known = ", ".join(("size", *self.parameters))
                what = f"{self.name} has no parameter {name[:60]!r} to sweep over"
                raise InputError(what, f"it has: {known}")
        return replace(self, inputs=partial(self.inputs, **values))

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Names of the data types that it takes, such as float32."""
        return tuple(self.tolerances)

    def version(self, name: str) -> Version:
        """The version of that name. Raises InputError if there is none."""
        for version in self.versions:
            if version.name == name:
                return version
        known = ", ".join(version.name for version in self.versions)
        raise InputError(f"{self.name} has no version {name[:60]!r}", f"it has: {known}")


_INTERPRET = "TRITON_INTERPRET"
_REMEDY = "define OPERATION = traceview.trials.bench.Operation(...) in it"


def load_operation(path: str | Path) -> Operation:
    """Import a file and return its OPERATION.

    If torch sees no GPU, TRITON_INTERPRET=1 is set first, and stays set, so that Triton kernels run
    in the interpreter. Raises InputError if there is no such file, if importing it fails, or if it
    defines no OPERATION.
    """
    file = python_file(path, "pass one that defines OPERATION")
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


def python_file(path: str | Path, remedy: str) -> Path:
    """The path of a Python file. Raises InputError for anything else."""
    file = Path(path)
    if not file.exists():
        raise InputError(f"{path} does not exist", "check the path")
    if file.suffix != ".py" or not file.is_file():
        raise InputError(f"{path} is not a Python file", remedy)
    return file


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


def error_line(error: BaseException, place: str = "") -> str:
    """An exception on one line: its type, the place, and the first line of its message."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}{place}" + (f": {first[:300]}" if first else "")
