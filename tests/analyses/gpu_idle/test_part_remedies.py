"""Remedies for idle time by the library function that the CPU spends it in."""

import pytest

from tests.analyses.gpu_idle.test_lines import MAIN, MS, SITE, loop, sample_gaps
from tests.analyses.single_answer import ask
from tests.build import Export
from traceview.analyses.gpu_idle.analysis import ANALYSIS

SERIALIZATION = f"{SITE}/torch/serialization.py"
LOADER = f"{SITE}/torch/utils/data/dataloader.py"
FORK = ("/usr/lib/python3.12/multiprocessing/popen_fork.py", 66, "_launch")
NUMPY = (f"{SITE}/numpy/lib/_histograms_impl.py", 879, "histogram")


def remedy(tmp_path, *stack) -> str:
    """What is said of 4 ms in each gap at such a stack."""
    result = ask(ANALYSIS, sample_gaps(loop(gap_ms=4), *stack, MAIN, gap_ms=4), tmp_path)
    return result.findings[0].action


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        ([FORK, (LOADER, 1192, "__init__"), (LOADER, 500, "__iter__")], "Keep the DataLoader's"),
        ([(LOADER, 1300, "_get_data"), (LOADER, 734, "__next__")], "Raise num_workers"),
        (
            [
                (f"{SITE}/torch/serialization.py", n, name)
                for n, name in ((9, "_save"), (5, "save"))
            ],
            "Save less often",
        ),
        ([(f"{SITE}/torch/serialization.py", 1400, "load")], "Read ahead"),
        ([NUMPY, (f"{SITE}/torch/utils/tensorboard/summary.py", 503, "histogram")], "Log less"),
        ([NUMPY], "Take this CPU work out"),
        (
            [("/work/train.py", 8, "augment"), (f"{SITE}/jax/_src/callback.py", 71, "__call__")],
            "Compute this in JAX",
        ),
    ],
)
def test_the_remedy_fits_the_library_that_takes_the_time(tmp_path, stack, expected):
    assert remedy(tmp_path, *stack).startswith(expected)


@pytest.mark.parametrize(("kernel", "expected"), [("sdpa_sm90_flash", True), ("conv_sm90", False)])
def test_attention_that_cudnn_plans_for_each_shape(tmp_path, kernel, expected):
    """A memset comes between the plan, made on the CPU, and the kernel."""
    export = Export()
    for step in range(20):
        start = 5 * step * MS
        export.set((start - 9_000, start - 8_000), (start - 2_000, start))
        name = f"cudnn_generated_fort_native_{kernel}_fprop_kernel0_0"
        export.launch((start - 5_000, start - 3_000), (start, start + MS), name=name)
    sample_gaps(export, ("/work/model.py", 158, "attend"), MAIN, gap_ms=4)

    said = ask(ANALYSIS, export, tmp_path).findings[0].action

    assert said.startswith("Turn cuDNN's attention off") == expected
