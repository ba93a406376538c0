"""What a program printed, where nsys keeps it: an error that ended it, or a result that is wrong.

A false alarm costs more than a miss: a line counts only if it says by itself that something failed,
and not where it counts no failures, nor where the program says later that all is well.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from traceview.base.findings import shortened
from traceview.base.tables import Table
from traceview.traces.trace.sqlite.file import Database

LOADER_ERROR, PROGRAM_ERROR, WRONG_RESULT = "loader_error", "program_error", "wrong_result"
_MOST_STREAMS, _MOST_PRINTED, _MOST_BEHIND, _MOST_SHOWN = 100, 10_000, 2, 240
"""Rust prints a line on how to see its stack behind a panic, a shell one that a program died."""
_LOADER_ERROR = re.compile(
    r"(?:symbol lookup error|error while loading shared libraries): (.{1,500}?)(?:, version \S+)?$",
    re.MULTILINE,
)
_ENDS = tuple(
    re.compile(sign, re.MULTILINE)
    for sign in (
        # Rust, its older form included, Python.
        r"panicked at (?:\S+:\n)?(.{1,500})$",
        r"^Traceback \(most recent call last\):\n(?:(?: .*)?\n)+"
        r"(?!KeyboardInterrupt|SystemExit)(\S.{1,500})$",
        # OpenACC, with the lines that say where; OpenMP.
        r"^FATAL ERROR: (.{1,500}(?:\n\s*file:.{1,500})?)$",
        r"^Accelerator Fatal Error: "
        r"(.{1,500}(?:\n(?:Rebuild | *(?:File|Function|Line):).{0,300}){0,4})$",
        r"^(call to cu\w+ returned error \d+.{0,300})$",
        r"^Libomptarget fatal error(?: \d+)?: (.{1,500})$",
        r"^libgomp: (.{1,200} error: .{1,300})$",
        # C++, C, Fortran.
        r"^terminate called .*\n\s*what\(\):\s+(.{1,500})$",
        r"^(terminate called (?:without an active exception|after throwing .{1,300}))$",
        r"^(.{0,200}: Assertion .{1,300} failed\.?)$",
        r"^(?:Fortran runtime error|Error termination|forrtl: severe \(\d+\)): (.{1,500})$",
        # MPI, with the note that Open MPI prints behind.
        r"^(MPI_ABORT was invoked on rank .{1,200}(?:\n.{0,200}){0,3}?errorcode -?\d+)\.?$"
        r"(?:\s+NOTE: invoking MPI_ABORT(?:.*\n?){3})?",
        r"^(.{0,100}\bapplication called MPI_Abort\(.{1,200})$",
        # Signals, as shells name them, and what has no code for the GPU.
        r"^(.{0,100}\b(?:Segmentation fault|Bus error)\b.{0,100})$",
        r"(?i:^(.{0,200}\bno kernel image is available for execution.{0,100}))$",
    )
)
"""What a program prints that ends with it."""
_CHECKED = re.compile(
    r"^(?!.*no error)(.{0,200}\b(?:CUDA_ERROR_|cudaError[A-Z]|(?i:cuda error|gpuassert)).*)$",
    re.MULTILINE,
)
"""What checks of CUDA's results print: the program may go on."""


def program_error(database: Database, present: Mapping[str, Table]) -> dict[str, str]:
    """What a program printed that speaks against it, whose output nsys keeps.

    Where kernels ran, only an error that ends a program counts, at the end of its output: it may go
    on after others, as an allocator does that tries again. That of the loader counts where nothing
    was recorded: a child may fail to load.
    """
    streams, strings = "ProcessStreams", "StringIds"
    if streams not in database.tables:
        return {}
    has_kernels = "kernels" in present and len(present["kernels"])
    ran = any(len(present[name]) for name in ("api_calls", "os_calls") if name in present)
    rows = [row for (row,) in database.lines(streams, ("contentId",)) if isinstance(row, int)]
    texts = database.lines_of(strings, ("value",), {"id": rows[:_MOST_STREAMS]})
    # A line of progress is written over by the next; colours are no part of the text.
    printed = [_COLORS.sub("", str(text)[-_MOST_PRINTED:]).replace("\r", "\n") for (text,) in texts]
    signs = _ENDS if has_kernels else (*_ENDS, _CHECKED)
    for sign in signs if ran else (_LOADER_ERROR, *signs):
        for text in printed:
            *_, found = (None, *sign.finditer(text.rstrip()))
            # Lines below that are indented or ruled belong to it.
            behind = text[found.end() :].split("\n") if found else []
            after = sum(bool(re.match(r"[^\s-]", line)) for line in behind)
            if found and not (has_kernels and after > _MOST_BEHIND):
                return {LOADER_ERROR if sign is _LOADER_ERROR else PROGRAM_ERROR: _shown(found[1])}
    wrong = next(filter(None, map(_wrong_result, printed)), None)
    right = any(map(_RIGHT.search, printed))
    return {WRONG_RESULT: _shown(wrong)} if wrong and not right else {}


def _shown(text: str) -> str:
    """A part of the output, without the folders of a machine."""
    return shortened(" ".join(_FOLDERS.sub("", text).split()), _MOST_SHOWN)


def _wrong_result(text: str) -> str | None:
    """The last line of an output that tells of its result, if that is wrong.

    A loss or an error may have been anything in earlier steps.
    """
    for line in reversed(text.split("\n")):
        if len(line) > _MOST_SHOWN:
            continue
        *_, value = (None, *_VALUE.finditer(line))
        if value:
            is_far = bool(_COMPARED.search(line)) and not _OF_OTHERS.search(line)
            number = float(value["number"])
            return line if math.isnan(number) or (is_far and abs(number) >= _FAR) else None
        if _WRONG.search(line) and not _HARMLESS.search(line):
            return line
    return None


_COLORS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_FOLDERS = re.compile(
    r"(?<![\w/.~])(?:~|\.{1,2})?/(?:[^\s/]+/)*(?=\w)|(?:[\w.~@+-]+/)+(?=[A-Za-z_][\w-]*\.\w)"
)
_VALUE = re.compile(
    r"(?i)\b(?:loss|error|diff(?:erence)?|deviation|residual)\b[^:=]{0,40}[:=]\s*"
    r"(?P<number>[-+]?(?:nan|inf|\d+\.?\d*(?:e[-+]?\d+)?))(?=\s|[,;.)\]]|$)"
)
_COMPARED = re.compile(r"(?i)\b(?:max(?:imum)?|cpu|host|reference|expected)\b")
_OF_OTHERS = re.compile(
    r"(?i)time|\bm?s\b|sec|cycle|byte|memor|size|speed|clock|power|percent|%|tolerance|threshold"
    r"|allowed|limit|bound|code|rate|count|line|iter|step|epoch"
)
_FAR = 100.0
"""An absolute error of 1 may be rounding, of sums of half precision. A program whose launches all
failed has 1,709 (a public recording), a residual of a solver 30."""
_SAYS = r"\W{0,5}(?:has |have |is |are |was )?"
_WRONG = re.compile(
    "(?i)"
    r"\bnans?\b.{0,20}\b(?:detected|found|encountered|appeared)\b"
    r"|\b(?:detected|found|encountered|contains?|produced)\s(?:an? |some |\d+ )?nans?\b"
    r"|\bloss\w* (?:is|became|went|turned) nan\b"
    rf"|\b(?:results?|test){_SAYS}(?:fail(?:ed)?|incorrect|wrong)\b(?! to\b)"
    r"|\b(?:results?|correctness) (?:check|verification|validation)\b"
    rf"{_SAYS}(?:failed|failure|incorrect)\b"
    rf"|^\W*(?:verification|validation|correctness|self-?test){_SAYS}(?:fail(?:ed|ure)?|incorrect)\b"
    r"|\bmismatch(?:es)?\b.{0,20}(?:\bat\b|\bindex\b|\belement\b|\brow\b|\[ ?\d)"
    r"|\b(?:results?|outputs?|values?|matrices|arrays|vectors)\b.{0,30}"
    r"\b(?:do(?:es)? not|don't|doesn't) match\b"
)
_HARMLESS = re.compile(
    r"(?i)\b(?:0|zero|no|without|any|none of the)\s(?:\w+[\s/]){0,2}"
    r"(?:nans?|infs?|mismatch\w*|fail\w*|tests?|results?)\b"
    r"|\b(?:fail|detect|found|encounter|mismatch)\w*\b\s?(?:[:=]\s*|\s)"
    r"(?:0|none|no|never|false|off|\[\])\s*(?:$|[,;.)/])"
    r"|\b(?:if|whether|unless|when|until|should|may|might|could|would|check(?:ing|s)? for|skip\w*"
    r"|ignor\w*|retry\w*|replac\w*|fill\w*|drop\w*|remov\w*|mask\w*|recover\w*|fall\w*"
    r"|scal\w*|version|shapes?|sizes?|types?|dtypes?|headers?|certificate|signature|columns?"
    r"|usage|--\w+)\b"
)
"""Counts of none, what a program guards against, what it goes on after, and other things than
results."""
_RIGHT = re.compile(
    r"(?i)\b(?:results?|tests?|verification|validation|checks?|correctness)\b.{0,40}"
    r"\b(?:pass(?:ed|es)?|ok|succe\w*|(?<!not )correct|(?<!not )(?<!n't )match(?:es)?)\b"
)
