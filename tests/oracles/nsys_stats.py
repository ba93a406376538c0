"""The numbers by which nsys exports name kinds of things, and the values of a typical GPU."""

EVENT_TYPES = {"push-pop": 59, "start-end": 60, "mark": 34}
DOMAIN_CREATED = 75
SYNC_TYPES = {"event": 1, "stream-wait-event": 2, "stream": 3, "context": 4}
COPY_KINDS = {"H2D": 1, "D2H": 2, "D2D": 8, "H2H": 9, "P2P": 10}
MIGRATION_KINDS = {"UVM H2D": 11, "UVM D2H": 12, "UVM D2D": 13}
MIGRATION_CAUSES = {
    "user prefetch": 1,
    "page fault": 2,
    "speculative prefetch": 3,
    "eviction": 4,
}
MEMORY_KINDS = {
    "pageable": 0,
    "pinned": 1,
    "device": 2,
    "array": 3,
    "managed": 4,
    "device static": 5,
}
SEVERITIES = {"info": 1, "warning": 2, "error": 3, "verbose": 4}
MEMORY_OPERATIONS = {"allocation": 0, "release": 1}
QUEUE_FULL = 8
RUNTIME_CLASS, DRIVER_CLASS = 0, 1

H200 = {
    "name": "NVIDIA H200",
    "smCount": 132,
    "computeMajor": 9,
    "computeMinor": 0,
    "maxWarpsPerSm": 64,
    "maxBlocksPerSm": 32,
    "maxRegistersPerSm": 65536,
    "maxShmemPerSm": 233472,
    "maxShmemPerBlockOptin": 232448,
    "l2CacheSize": 62914560,
    "totalMemory": 150109880320,
    "memoryBandwidth": 4814304000000,
    "clockRate": 1980000000,
    "threadsPerWarp": 32,
}
GRID = {"gridX": 132, "gridY": 1, "gridZ": 1, "blockX": 128, "blockY": 1, "blockZ": 1}
