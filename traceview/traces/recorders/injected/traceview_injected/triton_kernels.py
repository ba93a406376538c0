"""Gather every kernel that this process compiles or loads: its code and compile options.

Covers Triton, Inductor, and CUDA C++ that torch compiles at run time.

The hooks run once per specialization, also on a cache hit, and never per launch. Inductor's compile
workers have hooks of their own; kernels from Inductor's cache pass through its launchers.
"""

from __future__ import annotations

from _thread import _local
from functools import partial, wraps

from . import import_hooks, notes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from .gathered_folder import Folder

_COMPILER = "triton.compiler.compiler"
_HEURISTICS = "torch._inductor.runtime.triton_heuristics"
_TORCH_CUDA = "torch.cuda._utils"
# The modules of Inductor's own launcher, in newer and older versions.
_LAUNCHERS = (
    "torch._inductor.runtime.static_triton_launcher",
    "torch._inductor.runtime.static_cuda_launcher",
)


def install(folder: str) -> None:
    """Hook Triton and Inductor as soon as the program imports them."""
    hooks = _Hooks(folder)
    for module, hook in hooks.by_module().items():
        import_hooks.after(module, hooks.guarded(hook))


class _Hooks:
    """The hooks of one process, and the compile result whose launcher is being made."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._opened: Folder | None = None
        self._now: Any = _local()

    @property
    def _folder(self) -> Folder:
        # Imported late: most processes never see a kernel.
        if self._opened is None:
            from .gathered_folder import Folder

            self._opened = Folder(self._path)
        return self._opened

    def by_module(self) -> dict[str, Callable[[ModuleType], None]]:
        """The hook for each module."""
        launchers = dict.fromkeys(_LAUNCHERS, self._hook_launchers)
        others = {_HEURISTICS: self._hook_heuristics, _TORCH_CUDA: self._hook_nvrtc}
        return {_COMPILER: self._hook_compiler, **others, **launchers}

    def guarded(self, hook: Callable[..., None]) -> Callable[..., None]:
        """Wrap a hook so that an exception becomes a note."""

        def safe(*arguments: Any) -> None:
            with notes.noting_errors(self._path, "recording kernels failed"):
                hook(*arguments)

        return safe

    def _hook_compiler(self, module: ModuleType) -> None:
        kernel = module.CompiledKernel
        construct, gather = kernel.__init__, self.guarded(lambda k: self._folder.add_compiled(k))

        @wraps(construct)
        def constructed(self: Any, *arguments: Any, **named: Any) -> None:
            construct(self, *arguments, **named)
            gather(self)

        kernel.__init__ = constructed

    def _hook_heuristics(self, module: ModuleType) -> None:
        for result in vars(module).values():
            # Static and dynamic launchers, whatever they are called in this version.
            if isinstance(result, type) and "make_launcher" in vars(result):
                hooked = self._around(result.make_launcher, self._result_begins)  # type: ignore[attr-defined]
                result.make_launcher = hooked  # type: ignore[attr-defined]
        tuner = module.CachingAutotuner
        begins = partial(setattr, self._now, "tuner")
        tuner._make_launchers = self._around(tuner._make_launchers, begins)

    def _hook_nvrtc(self, module: ModuleType) -> None:
        from . import nvrtc_kernels

        nvrtc_kernels.hook(module, lambda kernel: self._folder.add_known(kernel), self.guarded)

    def _hook_launchers(self, module: ModuleType) -> None:
        for kernel in vars(module).values():
            if isinstance(kernel, type) and "load_kernel" in vars(kernel):
                hooked = self._around(kernel.load_kernel, self._loading)  # type: ignore[attr-defined]
                kernel.load_kernel = hooked  # type: ignore[attr-defined]

    def _around(
        self, method: Callable[..., Any], before: Callable[[Any], None]
    ) -> Callable[..., Any]:
        ready = self.guarded(before)

        @wraps(method)
        def hooked(self: Any, *arguments: Any, **named: Any) -> Any:
            ready(self)
            return method(self, *arguments, **named)

        return hooked

    def _result_begins(self, result: Any) -> None:
        self._now.result = result
        if hasattr(result.kernel, "asm"):
            # Unpickled from a worker, without calling its constructor.
            self._folder.add_compiled(result.kernel)

    def _loading(self, kernel: Any) -> None:
        if getattr(kernel, "cubin_path", None):
            result, tuner = (getattr(self._now, name, None) for name in ("result", "tuner"))
            known = result if getattr(result, "kernel", None) is kernel else None
            self._folder.add_loaded(kernel, known, tuner if known is not None else None)
