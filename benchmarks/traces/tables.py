"""The tables of an nsys export, and their rows of names, GPUs and versions."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from benchmarks.traces.processes import HOST, Run

KERNEL_NAMES = 120
CALLS = (
    "cudaLaunchKernel_v7000",
    "cudaStreamIsCapturing_v10000",
    "cudaMemcpyAsync_v3020",
    "cudaStreamSynchronize_v3020",
    "cudaGraphLaunch_v10000",
)
FIRST_CALL_ID, FIRST_KERNEL_ID, FIRST_SHORT_ID, THREAD_NAME_ID = 10, 100, 1_000, 5
FIRST_FRAME_ID, FRAMES = 2_000, 16

ON_STREAM = (
    "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,"
    " contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL,"
    " correlationId INTEGER, globalPid INTEGER, "
)
SCHEMA = {
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "CUPTI_ACTIVITY_KIND_KERNEL": ON_STREAM
    + "demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER,"
    " launchType INTEGER, cacheConfig INTEGER, registersPerThread INTEGER NOT NULL,"
    " gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL,"
    " blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL,"
    " staticSharedMemory INTEGER NOT NULL, dynamicSharedMemory INTEGER NOT NULL,"
    " localMemoryPerThread INTEGER NOT NULL, localMemoryTotal INTEGER NOT NULL,"
    " gridId INTEGER NOT NULL, sharedMemoryExecuted INTEGER, graphNodeId INTEGER,"
    " sharedMemoryLimitConfig INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMCPY": ON_STREAM
    + "bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, deprecatedSrcId INTEGER,"
    " srcKind INTEGER, dstKind INTEGER, srcDeviceId INTEGER, srcContextId INTEGER,"
    " dstDeviceId INTEGER, dstContextId INTEGER, migrationCause INTEGER, graphNodeId INTEGER,"
    " virtualAddress INTEGER, copyCount INTEGER",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": ON_STREAM
    + "deprecatedSyncType INTEGER, syncType INTEGER NOT NULL, eventId INTEGER NOT NULL,"
    " eventSyncId INTEGER",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER NOT NULL, end INTEGER NOT NULL,"
    " eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER,"
    " nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER",
    "NVTX_EVENTS": "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL,"
    " rangeId INTEGER, category INTEGER, color INTEGER, text TEXT, globalTid INTEGER,"
    " endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, uint64Value INTEGER,"
    " int64Value INTEGER, doubleValue REAL, uint32Value INTEGER, int32Value INTEGER,"
    " floatValue REAL, jsonTextId INTEGER, jsonText TEXT, binaryData TEXT",
    "TARGET_INFO_GPU": "vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT,"
    " l2CacheSize INTEGER, totalMemory INTEGER, memoryBandwidth INTEGER, clockRate INTEGER,"
    " smCount INTEGER, maxShmemPerBlockOptin INTEGER, maxShmemPerSm INTEGER,"
    " maxRegistersPerSm INTEGER, maxWarpsPerSm INTEGER, maxBlocksPerSm INTEGER,"
    " computeMajor INTEGER, computeMinor INTEGER, busLocation TEXT, chipName TEXT",
    "TARGET_INFO_CUDA_DEVICE": "gpuId INTEGER, cudaId INTEGER NOT NULL, pid INTEGER NOT NULL",
    "PROCESSES": "globalPid INTEGER, pid INTEGER, name TEXT",
    "ThreadNames": "nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER",
    "ENUM_CUDA_MEMCPY_OPER": "id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT",
    "META_DATA_CAPTURE": "name TEXT NOT NULL, value TEXT",
    "META_DATA_EXPORT": "name TEXT NOT NULL, value TEXT",
}


def write_small_tables(connection: sqlite3.Connection, runs: Sequence[Run]) -> int:
    processes = [run for run in runs if run.thread == 0]
    gpu = ("NVIDIA H200", 62914560, 150109880320, 4814304000000, 1980000000, 132, 232448, 233472)
    captured = [("CAPTURE_EVENT_TYPE", "Cuda"), ("CAPTURE_EVENT_TYPE", "NvtxEvents")]
    version = [("EXPORT_PRODUCT_VERSION", "2025.3.2.0"), ("EXPORT_SCHEMA_VERSION", "3.20.3")]
    version += [("EXPORT_SCHEMA_VERSION_MAJOR", "3"), ("EXPORT_SCHEMA_VERSION_MINOR", "20")]
    # Without it nsys stats skips two of its reports and looks faster than it is.
    copied = [(1, "CUDA_MEMCPY_KIND_HTOD", "Host-to-Device")]
    tables: dict[str, list[tuple[object, ...]]] = {
        "StringIds": [*_strings()],
        "TARGET_INFO_GPU": [
            (HOST, run.gpu, *gpu, 65536, 64, 32, 9, 0, _bus(run), "GH100") for run in processes
        ],
        "TARGET_INFO_CUDA_DEVICE": [(run.gpu, 0, run.pid) for run in processes],
        "PROCESSES": [(run.global_pid, run.pid, "python3") for run in processes],
        "ThreadNames": [(THREAD_NAME_ID, 20, run.global_tid) for run in runs],
        "ENUM_CUDA_MEMCPY_OPER": [*copied],
        "META_DATA_CAPTURE": [*captured],
        "META_DATA_EXPORT": [*version],
    }
    for table, rows in tables.items():
        marks = ", ".join("?" * len(rows[0]))
        connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
    return sum(map(len, tables.values()))


def _bus(run: Run) -> str:
    return f"0000:{0x18 + run.gpu:02x}:00.0"


def _strings() -> list[tuple[int, str]]:
    names = [(THREAD_NAME_ID, "python3")]
    names += [(FIRST_CALL_ID + at, name) for at, name in enumerate(CALLS)]
    for at in range(KERNEL_NAMES):
        arguments = f"<float, (int){at}, at::native::functor_{at}<float>>(int, T2, T3)"
        names.append((FIRST_KERNEL_ID + at, f"void at::native::kernel_{at}{arguments}"))
        names.append((FIRST_SHORT_ID + at, f"kernel_{at}"))
    for depth in range(FRAMES):
        names.append((FIRST_FRAME_ID + 2 * depth, f"function_{depth}"))
        names.append((FIRST_FRAME_ID + 2 * depth + 1, f"/model/file_{depth % 5}.py"))
    return names
