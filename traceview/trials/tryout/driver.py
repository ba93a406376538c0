"""Runs the user's script or module with remedies, as `python driver.py SPEC`.

It is `__main__`, in the scratch folder, as are the user's modules that it imports.
"""

from __future__ import annotations

import builtins
import os
import sys
import traceback
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

ROOT = str(Path(__file__).resolve().parents[3])


def main() -> None:
    """Run the script of a spec. Its result is written when its steps are done, or when it ends."""
    # Only to find traceview; the program sees the path that it would see without us.
    sys.path[0] = ROOT
    from traceview.trials.tryout.session import Session
    from traceview.trials.tryout.spec import Spec

    spec = Spec.read(sys.argv[1])
    session = Session(spec)
    own = spec.own_script
    path = [spec.scratch if spec.module else str(Path(own).parent)]
    sys.path[:] = path + [spec.scratch_folder(each) for each in sys.path[1:]]
    sys.argv[:] = [own, *spec.arguments]
    os.chdir(spec.scratch)
    # A recorder starts this without the environment that runs have.
    os.environ["WANDB_MODE"] = "offline"
    sys.dont_write_bytecode = True
    try:
        session.begin()
        _run(own, session.source(), spec.module)
    except SystemExit as ended:
        failed = ended.code not in (None, 0) and not session.is_done
        session.finish(error=f"it exited with status {ended.code}" if failed else "")
    except BaseException as error:
        traceback.print_exc()
        session.finish(error=f"{type(error).__name__}: {error}")
        sys.exit(1)
    session.finish()


def _run(path: str, source: bytes | str, name: str) -> None:
    module = ModuleType("__main__")
    module.__dict__.update(__file__=path, __builtins__=builtins, __cached__=None)
    if name:
        module.__spec__ = find_spec(name)
        module.__package__ = name.rpartition(".")[0]
    sys.modules["__main__"] = module
    exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)  # noqa: S102


if __name__ == "__main__":
    main()
