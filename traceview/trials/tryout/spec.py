"""What the command and the program that it runs tell each other: two small JSON files."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from traceview.base.records import record

FIGURE_STEPS = 8
"""Steps at the start of a run whose losses and gradient norms are compared."""
BLOCK, SKIPPED = 8, 3
"""Steps in a row with, or without, a remedy that is switched, and how many of them are not timed:
work that was under way at the switch belongs to the block before."""


@record
class Spec:
    """One run of a program. `folder` is the user's, `scratch` the copy that it runs in.

    `linked` is what links in `folder` lead to elsewhere: neither is changed.
    `script` is the user's file; with `module` it runs as that one, as by `python -m`. A recorded
    run ends after `limit_s` seconds.

    The first `warmup` steps are not timed, the next `steps` are, those of `more` are not. With
    `alternates`, blocks of steps behind the warm-up run with the remedies on and off in turns.
    With `records`, a profiler watches, and the program ends by itself instead of at once.
    """

    script: str
    arguments: tuple[str, ...]
    folder: str
    scratch: str
    result: str
    remedies: tuple[str, ...] = ()
    warmup: int = 8
    steps: int = 20
    more: int = 0
    seed: int = 0
    alternates: bool = False
    records: bool = False
    module: str = ""
    limit_s: float = 0.0
    linked: tuple[str, ...] = ()

    @property
    def own_script(self) -> str:
        """The script where it runs: in the scratch folder if it is of the user's folder."""
        return _moved(self.script, self.folder, self.scratch)

    def scratch_folder(self, folder: str) -> str:
        """A folder for imports, in the scratch folder if it was copied there."""
        moved = _moved(folder, self.folder, self.scratch)
        copied = Path(moved).resolve().is_relative_to(Path(self.scratch).resolve())
        return moved if copied else folder

    def users_file(self, file: str) -> str:
        """The user's file that a file of the scratch folder is a copy of; any other as it is."""
        return _moved(file, self.scratch, self.folder)

    @property
    def last_step(self) -> int:
        """The step before whose beginning the run ends."""
        return self.warmup + self.steps + self.more

    def is_on(self, step: int) -> bool:
        """Whether the remedies are on in a step: A B B A in blocks, from the first on with them."""
        if not self.alternates or step < self.warmup:
            return True
        return (step - self.warmup) // BLOCK % 4 in (0, 3)

    def write(self, path: Path) -> None:
        """Write it for the driver."""
        path.write_text(json.dumps(asdict(self)), "utf-8")

    @classmethod
    def read(cls, path: str) -> Spec:
        """As the driver reads it."""
        values = json.loads(Path(path).read_text("utf-8"))
        lists = {name: tuple(values[name]) for name in ("arguments", "remedies", "linked")}
        return cls(**{**values, **lists})


Site = tuple[str, str, int, tuple[int, int], str, dict[str, Any]]
"""A remedy, file and line of the user's call, the line and column in bytes where it ends, the name
that is called there or in a library below, and the keywords that this call got. Without a file, no
call of the user led to it."""


@record
class RunResult:
    """What a run measured.

    `steps` are (number, nanoseconds) of the whole steps. `losses` and `norms` are of the first
    steps, each (step, value). `error` says why the program failed, `rejected` why the remedies are
    wrong for it. `applied` are the remedies that took effect, `sites` the user's calls where they
    did. `precision` is the rounding of the program itself.
    `outside` are files that it wrote outside of the scratch folder, and hosts that it called. With
    `is_protected`, native code could not change the user's folder, nor what its links lead to.
    `is_late` is a run that was ended before its steps were done. `modules` are those of libraries
    that it had imported before its own code changed the environment, which imports may read.
    """

    steps: tuple[tuple[int, float], ...] = ()
    losses: tuple[tuple[int, float], ...] = ()
    norms: tuple[tuple[int, float], ...] = ()
    error: str = ""
    rejected: str = ""
    applied: tuple[str, ...] = ()
    sites: tuple[Site, ...] = ()
    precision: float = 0.0
    outside: tuple[str, ...] = ()
    device: str = ""
    is_protected: bool = False
    is_late: bool = False
    modules: tuple[str, ...] = ()

    def write(self, path: str) -> None:
        """Write it whole or not at all."""
        part = Path(f"{path}.part")
        part.write_text(json.dumps(asdict(self)), "utf-8")
        part.replace(path)

    @classmethod
    def read(cls, path: Path) -> RunResult | None:
        """None where the program left none."""
        try:
            values = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            return None
        return cls(**{k: _tuples(v) for k, v in values.items()})


def _moved(path: str, source: str, target: str) -> str:
    """A path in the folder `source` as one in `target`; any other as it is."""
    inside = Path(path).is_relative_to(source)
    return str(Path(target) / Path(path).relative_to(source)) if inside else path


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
