"""Counters, warp samples and code of kernels, from a report of `ncu -o` (.ncu-rep).

NVIDIA documents the format: Nsight Compute, Customization Guide, "Report File Format", version 7,
with the messages in `extras/FileFormat/*.proto` of an installation. A file is a header and blocks.
A block has a header, which counts its entries and holds names of metrics, and entries with their
sizes: code, then launches, then ranges. Integers are little-endian; headers and entries are
Protocol Buffers, of which the few fields below are read. Values are in base units: bytes,
instructions and nanoseconds.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from traceview.base.errors import MALFORMED, InputError
from traceview.base.records import record
from traceview.base.tables import Cell, Table
from traceview.kernels.ptx import producers
from traceview.traces.trace import ncu
from traceview.traces.trace.archives import ARCHIVES, damage, unpacked_pieces
from traceview.traces.trace.schema import KERNEL_COUNTERS

MAGIC = b"NVR\0"
_VERSION = 7
_CSV = "write it as CSV: ncu --import REPORT.ncu-rep --csv --page raw > FILE.csv"
_WHOLE = "copy the report again, or write it as CSV with ncu --import"
_USABLE = ("dram__bytes", "sm")

# Numbers of the fields that are read, by message.
_FILE_VERSION = 1
_CODES, _LAUNCHES, _NAMES, _PAYLOAD_BYTES, _PROCESS = 1, 2, 4, 5, 6
_LINKED, _FUNCTION, _DEMANGLED, _GRID, _BLOCK, _METRIC = 5, 6, 7, 10, 11, 13
_METRIC_NAME, _METRIC_VALUE, _INSTANCE = 1, 2, 3
_ADDRESS, _SAMPLES = 1, 2
_FLOAT, _DOUBLE, _UINT32, _UINT64 = 2, 3, 4, 5
_CUBIN, _SYMBOLS = 4, 9
_SYMBOL_NAME, _SYMBOL_ADDRESS = 1, 2

# Samples of cycles in which the scheduler issued nothing count again, as …_not_issued.
MOST_SAMPLES = 1 << 40
"""Far above the samples of an instruction: a damaged file may hold anything."""
_STALL = re.compile(r"smsp__pcsamp_warps_issue_stalled_(?!\w+_not_issued)(\w+)")

Field = tuple[int, int | bytes]


def read_report(path: Path) -> tuple[Table, tuple[str, ...]]:
    """Read the kernel_counters table from a report, and warnings about it.

    Raises InputError if the file is damaged, of another version, or has none of the metrics used.
    """
    try:
        # Names of all metrics, and a row of kernel_counters for each launch.
        names: list[str] = []
        rows: list[dict[str, Cell]] = []
        for block in _blocks(_content(path), path):
            names = block.names
            rows += [_launch(entry, names, block.process) for entry in block.launches]
    except MALFORMED as error:
        raise InputError(f"{path} is a damaged report of Nsight Compute", _WHOLE) from error
    if rows and not any(ncu.is_used(name) and name.startswith(_USABLE) for name in names):
        what = f"{path} has no metrics of device-memory bytes or FLOP"
        raise InputError(what, "add --metrics dram__bytes_read.sum,dram__bytes_write.sum to ncu")
    table = Table.from_rows(KERNEL_COUNTERS.columns, rows)
    return table, ncu.remarks(path.name, names, table)


def is_report(path: Path) -> bool:
    """Whether a file begins like a report or an archive: a .ncu-repz is compressed with zstd."""
    try:
        with path.open("rb") as file:
            start = file.read(6)
    except OSError:
        return False
    return start.startswith((MAGIC, *ARCHIVES))


def _content(path: Path) -> bytes:
    """The bytes of the report, unpacked. Raises ValueError if damaged, InputError if no report."""
    with path.open("rb") as packed:
        start = packed.read(6)
        archive = next((name for magic, name in ARCHIVES.items() if start.startswith(magic)), None)
        packed.seek(0)
        try:
            data = b"".join(unpacked_pieces(packed, archive))
        except damage(archive) as error:
            raise ValueError(f"a damaged {archive} archive") from error
    if not data.startswith(MAGIC):
        raise InputError(f"{path} holds no report of Nsight Compute", _CSV)
    return data


@record
class _Block:
    """The entries of a block, and the names of metrics known after its header."""

    names: list[str]
    process: int
    codes: list[bytes]
    launches: list[bytes]


def _blocks(data: bytes, path: Path) -> Iterator[_Block]:
    names: list[str] = []
    launches = 0
    place = _after_header(data, path)
    while place < len(data):
        header, place = _sized(data, place)
        fields = dict(_fields(header))
        names = _names(names, fields.get(_NAMES, b""), path)
        end = place + _number(fields.get(_PAYLOAD_BYTES, 0))
        process = _number(dict(_fields(_message(fields.get(_PROCESS, b"")))).get(1, 0))
        entries: dict[int, list[bytes]] = {_CODES: [], _LAUNCHES: []}
        for kind, listed in entries.items():
            for _ in range(_number(fields.get(kind, 0))):
                entry, place = _sized(data, place)
                listed.append(entry)
        launches += len(entries[_LAUNCHES])
        if place > end or end > len(data) or launches > ncu.MOST_LAUNCHES:
            raise ValueError("entries beyond the end of their block")
        yield _Block(names, process, entries[_CODES], entries[_LAUNCHES])
        # Results of ranges of launches are not launches.
        place = end


@record
class Module:
    """A cubin, and the addresses of its functions while it was loaded.

    A cubin is written once: that of an entry for more of its functions is empty.
    """

    cubin: bytes
    addresses: Mapping[str, int]


@record
class SampledLaunch:
    """The warp samples of a launch by address and reason; `symbol` is its kernel as linked.

    `loaded` of the modules of its process precede it in the report.
    """

    process: int
    loaded: int
    symbol: str
    stalls: Mapping[int, Mapping[str, int]]


def read_samples(path: Path) -> tuple[Mapping[int, Sequence[Module]], list[SampledLaunch]]:
    """The modules of a report by process, and launches that have warp samples per instruction.

    Processes may have different code at the same addresses.
    Raises InputError if the file is damaged or of another version, or has no samples.
    """
    modules: dict[int, list[Module]] = defaultdict(list)
    launches: list[SampledLaunch] = []
    try:
        for block in _blocks(_content(path), path):
            known = modules[block.process]
            known += map(_module, block.codes)
            launches += (_sampled_launch(entry, block, len(known)) for entry in block.launches)
    except MALFORMED as error:
        raise InputError(f"{path} is a damaged report of Nsight Compute", _WHOLE) from error
    sampled = [launch for launch in launches if launch.stalls]
    if not sampled:
        what = f"{path} has no warp samples per instruction"
        raise InputError(what, "record it with ncu --section SourceCounters")
    return modules, sampled


def _module(entry: bytes) -> Module:
    fields = dict(_fields(entry))
    listed = (each for _, each in _fields(_message(fields.get(_SYMBOLS, b""))))
    symbols = [dict(_fields(_message(each))) for each in listed]
    addresses = {
        _message(each[_SYMBOL_NAME]).decode(errors="replace"): _number(each[_SYMBOL_ADDRESS])
        for each in symbols
    }
    return Module(_message(fields.get(_CUBIN, b"")), addresses)


def _sampled_launch(entry: bytes, block: _Block, loaded: int) -> SampledLaunch:
    symbol = b""
    stalls: dict[int, dict[str, int]] = defaultdict(dict)
    for field, value in _fields(entry):
        if field == _LINKED:
            symbol = _message(value)
        elif field == _METRIC:
            fields = list(_fields(_message(value)))
            reason = _STALL.fullmatch(block.names[_number(dict(fields)[_METRIC_NAME])])
            instances = (_message(each) for number, each in fields if number == _INSTANCE)
            for address, samples in map(_instance, instances if reason else ()):
                if reason and samples:
                    stalls[address][reason[1]] = samples
    return SampledLaunch(block.process, loaded, symbol.decode(errors="replace"), stalls)


def _instance(entry: bytes) -> tuple[int, int]:
    """The address of an instruction, and the value of a metric there."""
    fields = dict(_fields(entry))
    address, samples = (_value(_message(fields.get(n, b""))) for n in (_ADDRESS, _SAMPLES))
    return int(address or 0), min(int(samples or 0), MOST_SAMPLES)


def _after_header(data: bytes, path: Path) -> int:
    header, place = _sized(data, len(MAGIC))
    version = dict(_fields(header)).get(_FILE_VERSION)
    if version != _VERSION:
        raise InputError(f"{path} is a report of version {version!r}; only 7 is read", _CSV)
    return place


def _names(known: list[str], table: int | bytes, path: Path) -> list[str]:
    """The metric names after a block; each block repeats, extends or omits the list."""
    listed = [_message(text).decode() for _, text in _fields(_message(table))]
    if known[: len(listed)] == listed:
        return known
    if listed[: len(known)] == known:
        return listed
    raise InputError(f"{path} has names of metrics that differ from block to block", _CSV)


def _launch(entry: bytes, names: list[str], process: int) -> dict[str, Cell]:
    texts: dict[int, str] = {}
    sizes: dict[int, ncu.Size] = {}
    metrics: dict[str, float] = {}
    for field, value in _fields(entry):
        if field == _METRIC:
            metric, read = _metric(_message(value), names)
            if read is not None:
                metrics[metric] = read
        elif field in (_FUNCTION, _DEMANGLED):
            texts[field] = _message(value).decode(errors="replace")
        elif field in (_GRID, _BLOCK):
            sides = dict(_fields(_message(value)))
            sizes[field] = (_number(sides[1]), _number(sides[2]), _number(sides[3]))
    if not {_GRID, _BLOCK} <= sizes.keys():
        raise ValueError("a launch without a size")
    if ncu.DURATION in metrics:
        metrics[ncu.DURATION] /= 1e9
    name = producers.base_name(texts.get(_DEMANGLED) or texts.get(_FUNCTION, ""))
    return ncu.counted_launch(name, process, sizes[_GRID], sizes[_BLOCK], metrics)


def _metric(entry: bytes, names: list[str]) -> tuple[str, float | None]:
    """Name and value of a metric; the value is None if the metric is not used, or is a text."""
    fields = _fields(entry)
    field, number = next(fields)
    if field != _METRIC_NAME:
        raise ValueError("a metric without a name")
    name = names[_number(number)]
    if not ncu.is_used(name):
        return name, None
    value = next((_message(each) for number, each in fields if number == _METRIC_VALUE), b"")
    return name, _value(value)


def _value(entry: bytes) -> float | None:
    for field, value in _fields(entry):
        if field in (_UINT32, _UINT64):
            return ncu.sound(float(_number(value)))
        if field in (_FLOAT, _DOUBLE):
            return ncu.sound(struct.unpack("<f" if field == _FLOAT else "<d", _message(value))[0])
    return None


def _sized(data: bytes, place: int) -> tuple[bytes, int]:
    """The entry at a place, where its size comes first, and the place after the entry."""
    (size,) = struct.unpack_from("<I", data, place)
    entry = data[place + 4 : place + 4 + size]
    if len(entry) < size:
        raise ValueError("truncated")
    return entry, place + 4 + size


def _fields(data: bytes) -> Iterator[Field]:
    """The fields of a Protocol Buffers message: numbers as int, all others as bytes."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        kind = key & 7
        if kind == 0:
            value, place = _varint(data, place)
            yield key >> 3, value
            continue
        if kind == 2:
            size, place = _varint(data, place)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError("a field of unknown kind")
        if place + size > len(data):
            raise ValueError("a field beyond its message")
        yield key >> 3, data[place : place + size]
        place += size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 64:
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
        shift += 7
    raise ValueError("a number that is too long")


def _number(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise ValueError("a message where a number should be")
    return value


def _message(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number where a message should be")
    return value
