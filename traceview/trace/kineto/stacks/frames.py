"""Names of Python calls parsed: file, line and function, and whether it is the program's own."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

import numpy as np

from traceview.records import record
from traceview.tables import RowNumbers
from traceview.trace.kineto.values import ABSENT, INT32
from traceview.trace.program_files import is_library

_FRAME = re.compile(r"(?P<file>.*)\((?P<line>\d{1,9})\): (?P<function>.*)", re.DOTALL)
_BUILTIN = re.compile(r"<built-in (?:method|function) (\S+)(?: of (\S+) object at 0x[0-9a-f]+)?>")
_MODULE = re.compile(r"nn\.Module: (.*?)(?:_\d+)?$")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
# Kineto cuts off the sys.path folder; a file of one of these packages belongs to a library.
_PACKAGE_NAMES = """
torch torchvision torchaudio torchtext torchao torchdata functorch triton numpy scipy pandas
sklearn PIL cv2 tqdm transformers accelerate datasets diffusers tokenizers safetensors peft timm
lightning pytorch_lightning lightning_fabric torchmetrics deepspeed apex megatron xformers
flash_attn bitsandbytes einops huggingface_hub requests urllib3 packaging pydantic jax jaxlib
flax optax cupy numba ray wandb tensorboard pkg_resources setuptools hydra omegaconf fsspec dill
filelock yaml regex matplotlib networkx sympy IPython ipykernel tornado traitlets zmq
torch_geometric dgl fairscale fbgemm_gpu torchrec pybind11 typing_extensions attr click uvloop
uvicorn fastapi starlette anyio vllm sglang aiter flashinfer traceview_injected
"""
_PACKAGES = frozenset(_PACKAGE_NAMES.split())


@record
class Frames:
    """Columns per distinct call name: file, line (ABSENT if none), function, and the two flags.

    `builtin` is True for built-in functions, `user` for functions of the user's program.
    """

    file: list[str]
    line: RowNumbers
    function: list[str]
    builtin: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
    user: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


def frames_of(names: Sequence[str]) -> Frames:
    parsed = [parse_frame(name) for name in names] or [("", ABSENT, "", False)]
    file = [each[0] for each in parsed]
    return Frames(
        file,
        np.array([each[1] for each in parsed], np.int32),
        [each[2] for each in parsed],
        np.array([each[3] for each in parsed], bool),
        np.array([not is_library(each) for each in file], bool),
    )


def parse_frame(name: str) -> tuple[str, int, str, bool]:
    """File ("" if none), line, function, and whether the function is built in."""
    if match := _FRAME.fullmatch(name):
        line = int(match["line"])
        return (
            _placed(match["file"]),
            line if 0 < line <= INT32.max else ABSENT,
            match["function"],
            False,
        )
    if match := _BUILTIN.fullmatch(name):
        owner = match[2]
        known = owner and owner not in ("type", "module")
        return "", ABSENT, f"{owner.rsplit('.', 1)[-1]}.{match[1]}" if known else match[1], True
    if match := _MODULE.fullmatch(name):
        return "", ABSENT, match[1] or name, False
    return "", ABSENT, _ADDRESS.sub("", name), True


def _placed(file: str) -> str:
    """The file, prefixed with a library folder if it belongs to a package or to Python."""
    if file.startswith(("/", "<")) or "\\" in file[:4]:
        return file
    top = file.split("/", 1)[0].removesuffix(".py")
    if top in _PACKAGES:
        return f"site-packages/{file}"
    return f"/lib/python3/{file}" if top in sys.stdlib_module_names else file
