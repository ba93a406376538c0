"""Paths without the folders that tell of a user: `…/train.py`, `…/site-packages/torch/nn/x.py`."""

from __future__ import annotations

import re

ELIDED = "…"
_PACKAGES_LISTED = """
accelerate apex cuda cudf cuml cupy cupyx cutlass deepspeed einops flash_attn flax jax jaxlib
keras lightning lightning_fabric matplotlib megatron networkx numba numpy nvidia nvtx optax pandas
PIL pytorch_lightning ray safetensors scipy sklearn tensorflow tokenizers torch torch_geometric
torch_xla torchaudio torchgen torchvision tqdm transformer_engine transformers triton vllm
xformers
"""
_PACKAGES = frozenset(_PACKAGES_LISTED.split())
"""Packages whose files are named with their folders, as analyses know some of them."""
_INSTALLED = re.compile(r"(?:^|/)((?:site|dist)-packages)/(?:([^/]+)/)?")
_STANDARD = re.compile(r"/(lib(?:64)?/python[\d.]+(?:\.zip)?)/(?:([\w]+/)*)([\w.]+)$")
_TORCH = re.compile(r"(?:^|/)(torch/(?:nn|optim|autograd|utils|cuda|_\w+)/[\w./]+)$")
_GENERATED = re.compile(r"/(torchinductor_)[^/]*/|/(traceview_injected)/")
_FILE = re.compile(r"[\w.<>+() -]*[\w>)]\.(?:py[xi]?|cuh?|cc|cpp|cxx|c|hpp|h|inc|inl|mojo|jl)")
_LIBRARY = re.compile(r"[\w.+-]+?\.(?:so|pyd|dylib|dll|exe)(?:\.[\d.]+)?")
_NAMED = re.compile(
    r"\[[A-Z][\w ]{1,20}\]|\[vdso\]|\(unnamed\)|<(?:string|stdin|unknown|frozen [\w.]{1,60}"
    r"|eval_with_key>?[.\d]*|__array_function__ internals)>?|\(removed\)|"
)
_SHORT = re.compile(rf"{ELIDED}/(?:\d+/)?(?=[^/]+$)")
_MODULE_ROOT = re.compile(r"/(?:usr|lib\w*|opt|nix|snap)/")


def public_tail(path: str) -> str | None:
    """The end of a path that tells nothing of its user; None if even its last part may.

    A path outside of known packages keeps its file name only.
    """
    if _NAMED.fullmatch(path):
        return path
    path = path.replace("\\", "/")
    name = path.rpartition("/")[2]
    if installed := _INSTALLED.search(path):
        known = installed[2] in _PACKAGES or (not installed[2] and name[:-3] in _PACKAGES)
        return path[installed.start(1) :] if known else _named(installed[1], name)
    if torch := _TORCH.search(path):
        return torch[1]
    if standard := _STANDARD.search(path):
        return f"{standard[1]}/{standard[3]}"
    if generated := _GENERATED.search(path):
        return _named(generated[1] or generated[2], name)
    return name if _FILE.fullmatch(name) else None


def _named(folder: str, name: str) -> str | None:
    return f"{folder}/{name}" if _FILE.fullmatch(name) else None


class SourcePaths:
    """Short paths of source files; files of the same name in different folders stay apart."""

    def __init__(self) -> None:
        self._short: dict[str, str | None] = {}
        self._taken: set[str] = set()

    def short(self, path: str) -> str | None:
        """`…/` and the public end of a path; `…/2/` for a second file with that end."""
        if path not in self._short:
            self._short[path] = self._new(path)
        return self._short[path]

    def _new(self, path: str) -> str | None:
        if _SHORT.match(path):
            self._taken.add(path)
            return path
        tail = public_tail(path)
        if tail is None or tail == path:
            return tail
        short, number = f"{ELIDED}/{tail}", 1
        while short in self._taken:
            number += 1
            short = f"{ELIDED}/{number}/{tail}"
        self._taken.add(short)
        return short


def short_module(path: str, is_public: bool) -> str | None:
    """The file name of an executable or library, below `/usr/…` if the system installed it."""
    if _NAMED.fullmatch(path):
        return path
    name = path.rpartition("/")[2]
    if not (is_public or _LIBRARY.fullmatch(name)):
        return None
    if name == path:
        return path
    installed = _INSTALLED.search(path)
    if installed:
        return f"{ELIDED}/{installed[1]}/{name}"
    root = _MODULE_ROOT.match(path)
    return f"{root[0]}{ELIDED}/{name}" if root else f"{ELIDED}/{name}"
