"""The tables of a Trace: filled by every reader, used by every analysis.

Times are int64 nanoseconds on the clock of the recording. `process`, `thread` and `device` are row
numbers in the tables of that name: ids of the operating system and of CUDA repeat between
processes, hosts and contexts, row numbers do not.
"""

from traceview.trace.schema import cpu_calls, gpu_work, program, ranges, samples

TABLES = {
    table.name: table
    for table in (
        *(gpu_work.KERNELS, gpu_work.COPIES, gpu_work.SETS, gpu_work.GRAPH_LAUNCHES),
        *(cpu_calls.API_CALLS, cpu_calls.SYNCHRONIZATIONS),
        *(ranges.RANGES, ranges.COLLECTIVE_CALLS, ranges.COMMUNICATORS),
        *(cpu_calls.CALL_SITES, cpu_calls.CALLCHAINS),
        *(gpu_work.MEMORY_EVENTS, cpu_calls.OVERHEADS),
        *(cpu_calls.HOST_FUNCTIONS, cpu_calls.JIT_COMPILATIONS),
        *(samples.THREAD_RUNS, cpu_calls.OS_CALLS),
        *(samples.NATIVE_SAMPLES, samples.NATIVE_FRAMES),
        *(samples.PYTHON_SAMPLES, samples.PYTHON_FRAMES, samples.SOURCE_LINES),
        *(program.DIAGNOSTICS, program.KERNEL_CODE),
        *(gpu_work.GPU_METRICS, gpu_work.KERNEL_COUNTERS),
        *(program.DEVICES, program.PROCESSES, program.THREADS),
    )
}
