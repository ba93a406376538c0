"""Run the module that ours shadows: the next one of its name on sys.path."""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec


def run(name: str, ours: str) -> None:
    """Import the shadowed module in place of ours. Raises what it raises."""
    spec = _spec(name, os.path.dirname(ours))
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec

    module = module_from_spec(spec)
    own = sys.modules.get(name)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if own is not None:
            sys.modules[name] = own
        raise


def _spec(name: str, folder: str) -> "ModuleSpec | None":
    from importlib.machinery import PathFinder

    ours = os.path.realpath(folder)
    texts = [entry for entry in sys.path if isinstance(entry, str)]
    return PathFinder.find_spec(name, [e for e in texts if os.path.realpath(e) != ours])
