"""torch.profiler: its name as a recorder, and how to record each table with it."""

TORCH_PROFILER = "torch.profiler"
"""Name of the recorder of Kineto's traces."""

_TORCH_CUDA = "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])"
_TORCH_STACKS = "torch.profiler.profile(with_stack=True)"
_TORCH_RANGES = (
    "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]), prof.step() "
    "after each step, and record_function() around parts of the program"
)
TORCH_REMEDIES = {
    **dict.fromkeys(
        ("kernels", "copies", "sets", "graph_launches", "api_calls", "overheads"), _TORCH_CUDA
    ),
    **dict.fromkeys(("python_samples", "python_frames", "call_sites"), _TORCH_STACKS),
    "ranges": _TORCH_RANGES,
    "memory_events": "torch.profiler.profile(profile_memory=True)",
    "synchronizations": "torch.profiler.profile(experimental_config="
    "torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True))",
    "collective_calls": "torch.profiler.profile() with torch 2.1 or newer",
    "communicators": "torch.profiler.profile() with torch 2.3 or newer",
}
"""How to record a table with torch.profiler; tables not listed need another recorder."""

_ON_GPU = "traceview record SCRIPT, on a machine with a GPU"
_OWN_STACKS = "traceview record --python-samples SCRIPT"
OWN_TORCH_REMEDIES = {
    **TORCH_REMEDIES,
    **dict.fromkeys(
        (
            *("kernels", "copies", "sets", "graph_launches", "api_calls", "overheads"),
            *("memory_events", "synchronizations", "collective_calls", "communicators"),
        ),
        _ON_GPU,
    ),
    **dict.fromkeys(("python_samples", "python_frames"), _OWN_STACKS),
    "call_sites": "traceview record SCRIPT (without --no-sync-sites)",
    "ranges": "traceview record SCRIPT, and ranges (torch.cuda.nvtx.range) in the program",
}
"""How to record a table with `traceview record --backend torch`."""
