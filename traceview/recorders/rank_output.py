"""The rank that this process records, and its output file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from traceview.errors import InputError
from traceview.recorders.program import starts_ranks
from traceview.records import record
from traceview.trace.rank_identity import RANKS, RankIdentity, launched_rank

_FIELD = "{rank}"
_VARIABLE = re.compile(r"%q\{(\w+)\}")


@record
class RankOutput:
    """The file that this process writes.

    `rank` is None for a single process, or if the program starts the ranks. `pattern` is a shell
    glob for the files of all processes, None if only one is written.
    """

    path: Path
    rank: RankIdentity | None = None
    pattern: str | None = None


def rank_output(words: Sequence[str], out: Path, environment: Mapping[str, str]) -> RankOutput:
    """The file of this process for the program `words`, where the user named it `out`.

    Each of several ranks adds its number, as in run.rank03.sqlite, unless the name contains {rank}
    or a variable of the launcher in nsys's notation, %q{RANK}. A task that runs torchrun is not a
    rank: it writes run.task0.sqlite. Raises InputError for a variable that is not set.
    """
    place = launched_rank(environment)
    label = str(place.rank).zfill(len(str(place.world_size or 0))) if place else "0"
    name = str(out).replace(_FIELD, label)
    missing = [variable for variable in _VARIABLE.findall(name) if variable not in environment]
    if missing:
        what = f"{name} names the variable {missing[0]}, which is not set"
        raise InputError(what, "set it, or use {rank}")
    path = Path(_VARIABLE.sub(lambda found: environment[found[1]], name))
    if place is None:
        return RankOutput(path)
    kind = "task" if starts_ranks(words) else "rank"
    rank = place if kind == "rank" else None
    if _FIELD in str(out) or not RANKS.isdisjoint(_VARIABLE.findall(str(out))):
        # A star for each part that differs between ranks.
        starred = _VARIABLE.sub(
            lambda found: "*" if found[1] in RANKS else environment[found[1]],
            str(out).replace(_FIELD, "*"),
        )
        return RankOutput(path, rank, _quoted(starred))
    if re.search(rf"rank[._-]?0*{place.rank}$", path.stem):
        # A shell script in each rank chose the name.
        return RankOutput(path, rank)
    named = path.with_name(f"{path.stem}.{kind}{label}{path.suffix}")
    return RankOutput(named, rank, _quoted(path.with_name(f"{path.stem}.{kind}*{path.suffix}")))


def _quoted(pattern: Path | str) -> str:
    """A pattern for the command line: its stars stay outside of quotes."""
    return "*".join(shlex.quote(part) if part else "" for part in str(pattern).split("*"))
