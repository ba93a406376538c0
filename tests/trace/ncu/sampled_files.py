"""Files with warp samples, in the layout of Nsight Compute and Proton."""

import json
from collections.abc import Iterable, Mapping

from tests.trace.ncu.test_report_file import field, report, sized

Stalls = Mapping[str, int]
REASONS = ("barrier", "drain", "long_scoreboard", "selected", "short_scoreboard", "wait")
NAMES = [
    *(f"smsp__pcsamp_warps_issue_stalled_{reason}" for reason in REASONS),
    *(f"smsp__pcsamp_warps_issue_stalled_{reason}_not_issued" for reason in REASONS),
    "inst_executed",
]
COLUMNS = {"long_scoreboard": "stall_long_sb", "short_scoreboard": "stall_short_sb"}
START = 0x7F91_B4FB_3600


def ncu_report(symbol: str, cubin: bytes, launches: Iterable[Mapping[int, Stalls]]) -> bytes:
    """A report of launches, each with samples by offset in the code, and the cubin."""
    return report(*blocks(symbol, cubin, launches))


def blocks(
    symbol: str, cubin: bytes, launches: Iterable[Mapping[int, Stalls]], process: int = 0
) -> tuple[bytes, bytes]:
    """Those of such a report: the code, and the launches after it."""
    place, other = (
        field(1, field(1, name.encode()) + field(2, start) + field(3, 17))
        for name, start in ((symbol, START), ("other", START - 4096))
    )
    # The entry of a second function leaves out the cubin.
    module, again = field(4, cubin) + field(9, other), field(9, place)
    entries = [_launch(symbol, stalls) for stalls in launches]
    names = b"".join(field(1, name.encode()) for name in NAMES)
    code = _block((module, again), (), names, process)
    return code, _block((), entries, names, process)


def _block(codes: Iterable[bytes], launches: Iterable[bytes], names: bytes, process: int) -> bytes:
    codes, launches = list(codes), list(launches)
    payload = b"".join(map(sized, (*codes, *launches)))
    counts = field(1, len(codes)) + field(2, len(launches))
    return (
        sized(counts + field(4, names) + field(5, len(payload)) + field(6, field(1, process)))
        + payload
    )


def _launch(symbol: str, stalls: Mapping[int, Stalls]) -> bytes:
    metrics = [
        field(13, field(1, number) + field(2, field(5, 1)) + _instances(name, stalls))
        for number, name in enumerate(NAMES)
    ]
    return field(5, symbol.encode()) + b"".join(metrics)


def _instances(name: str, stalls: Mapping[int, Stalls]) -> bytes:
    reason = name.removeprefix("smsp__pcsamp_warps_issue_stalled_").removesuffix("_not_issued")
    return b"".join(
        field(3, field(1, field(5, START + offset)) + field(2, field(5, counts.get(reason, 0))))
        for offset, counts in stalls.items()
    )


def source_page(symbol: str, sass: Iterable[str], stalls: Mapping[int, Stalls]) -> str:
    """The page of one launch, as `ncu --page source --csv` prints it."""
    lines = [f'"Kernel Name","{symbol}",', _row("Address", "Source", *_figures())]
    for index, text in enumerate(sass):
        counts = stalls.get(index, {})
        lines.append(_row(hex(START + 16 * index), f"      {text} ", *_figures(counts)))
    return "\n".join(lines) + "\n"


def page_with_source(symbol: str, sass: Iterable[str], stalls: Mapping[int, Stalls]) -> str:
    """The page with `--print-source cuda,sass`, which lists inlined code in two files."""
    lines = []
    for file in ("k.cu", "helper.cuh"):
        lines += [_row("File Path", file), _row("Function Name", symbol)]
        lines.append(_row("Line No", "Source", "Address", "Source", *_figures()))
        lines.append('"12","asm("mov %0, 1;" : "=r"(x), "r"(y));","-","-",' + _row(*_figures({})))
        for index, text in enumerate(sass):
            figures = _figures(stalls.get(index, {}))
            lines.append(_row("", "", hex(START + 16 * index), f"  {text}", *figures))
    return "\n".join(lines) + "\n"


def _figures(counts: Stalls | None = None) -> list[str]:
    """The cells of an instruction, or the names of the columns."""
    names = [COLUMNS.get(reason, f"stall_{reason}") for reason in REASONS]
    if counts is None:
        return ["# Samples", *names, *(f"{name} (Not Issued)" for name in names)]
    cells = [str(counts.get(reason, 0)) for reason in REASONS]
    return [str(sum(counts.values())), *cells, *cells]


def _row(*cells: str) -> str:
    return ",".join(f'"{cell}"' for cell in cells)


def proton_profile(symbol: str, lines: Mapping[tuple[str, int], Stalls]) -> str:
    """A profile with pc_sampling: one kernel under a Python frame."""
    kernel = [
        _frame(f"{file}:{number}@{symbol}", _metrics(stalls))
        for (file, number), stalls in lines.items()
    ]
    tree = _frame("train.py:3@main", {}, [_frame(symbol, {"time (ns)": 5}, kernel)])
    return json.dumps([_frame("ROOT", {}, [tree]), {"CUDA": {"0": {"arch": "90"}}}])


def _frame(name: str, metrics: Mapping[str, int], children: Iterable[object] = ()) -> object:
    return {
        "frame": {"name": name, "type": "function"},
        "metrics": metrics,
        "children": [*children],
    }


def _metrics(stalls: Stalls) -> dict[str, int]:
    stalled = {f"stalled_{reason}": count for reason, count in stalls.items()}
    total = sum(stalls.values())
    return {"num_samples": total, "num_stalled_samples": total, "stalled_not_Selected": 0} | stalled
