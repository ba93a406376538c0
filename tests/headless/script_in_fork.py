"""Run a script or a module, in a fork of a Python that has imported much, as Python would.

The arguments are a command: Python, script or `-m` and module, its arguments. Each module in
AWAITED is unknown until the script imports it: hooks see that import, which then takes no time.
"""

import atexit
import fcntl
import os
import runpy
import signal
import site
import sys
import termios
import threading
import weakref
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

# Those that traceview's hooks wait for.
AWAITED = (
    "nvtx",
    "triton",
    "triton.compiler.compiler",
    "torch",
    "torch.cuda._utils",
    "torch._dynamo",
)


class Unimported:
    """Finds and loads modules that were imported before, each with those that it brought."""

    def __init__(self, awaited: Sequence[str]) -> None:
        self._brought: dict[str, dict[str, ModuleType]] = {}
        # Awaited modules that the import of their package imports.
        self._inner: dict[str, list[str]] = {}
        # Modules stand in order of the ends of their imports.
        place = {name: at for at, name in enumerate(sys.modules)}
        for name in sorted(place.keys() & {*awaited}, key=len, reverse=True):
            package, (parent, _, attribute) = name.partition(".")[0], name.rpartition(".")
            brought = [each for each in sys.modules if f"{each}.".startswith(f"{package}.")]
            if place[name] < place[package]:
                self._inner.setdefault(package, []).append(name)
                brought = [name]
            elif name != package:
                brought = [each for each in brought if place[each] > place[package]]
            self._brought[name] = {each: sys.modules.pop(each) for each in brought}
            if parent:
                delattr(sys.modules[parent], attribute)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The spec of a module that is not imported again yet."""
        if name not in self._brought:
            return None
        known = self._brought[name][name].__spec__
        assert known
        spec = ModuleSpec(name, self, origin=known.origin)
        spec.submodule_search_locations = known.submodule_search_locations
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module as it was."""
        return self._brought[spec.name][spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """Put all that it brought back; importing it imports other awaited ones."""
        assert module.__spec__
        name = module.__spec__.name
        sys.modules.update(self._brought.pop(name))
        for inner in self._inner.get(name, ()):
            import_module(inner)


def run(command: Sequence[str]) -> int:
    """Run a command as a Python that starts now. Returns the exit status."""
    sys.orig_argv, sys.argv = list(command), list(command[1:])
    own = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:0] = [str(Path(entry).absolute()) for entry in own]
    sys.modules.pop("sitecustomize", None)
    site.execsitecustomize()
    try:
        _execute(*command[1:3])
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        print(ended.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        sys.excepthook(*sys.exc_info())
        return -signal.SIGINT
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _execute(script: str, module: str = "") -> None:
    if script == "-m":
        del sys.argv[:1]
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return
    path = Path(script).absolute()
    sys.path.insert(0, str(path.parent))
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__file__ = str(path)
    exec(compile(path.read_bytes(), script, "exec"), vars(main))


if __name__ == "__main__":
    sys.meta_path.insert(0, Unimported(AWAITED))
    # The terminal of this session.
    if os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # Those of PyTorch's own operators, which take longer than many a script.
    weakref.finalize._registry.clear()
    status = run(sys.argv[1:])
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)
