"""Remedies for idle time by the library function that the CPU spends it in."""

import pytest

from tests.analyses.gpu_idle.test_lines import BACKWARD, MAIN, MS, SITE, loop, sample_gaps
from tests.analyses.single_answer import ask
from tests.build import Export
from traceview.traces.analyses.gpu_idle.analysis import ANALYSIS

SERIALIZATION = f"{SITE}/torch/serialization.py"
LOADER = f"{SITE}/torch/utils/data/dataloader.py"
FETCHING = f"{SITE}/torch/utils/data/_utils/fetch.py"
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
        # Without workers persistent_workers=True raises a ValueError.
        (
            [(f"{SITE}/torch/utils/data/sampler.py", 162, "__init__"), (LOADER, 388, "__init__")],
            "Raise num_workers",
        ),
        ([(LOADER, 757, "__init__"), (LOADER, 484, "_get_iterator")], "Raise num_workers"),
        (
            [
                (f"{SITE}/torch/serialization.py", n, name)
                for n, name in ((9, "_save"), (5, "save"))
            ],
            "Save less often",
        ),
        ([(f"{SITE}/torch/serialization.py", 1400, "load")], "Read ahead"),
        ([NUMPY, (f"{SITE}/torch/utils/tensorboard/summary.py", 503, "histogram")], "Log less"),
        ([("/home/me/tensorboard/train.py", 12, "augment")], "Take this CPU work out"),
        ([NUMPY], "Take this CPU work out"),
        ([NUMPY, (FETCHING, 52, "fetch"), (LOADER, 734, "__next__")], "Load in worker processes"),
        (
            [
                (f"{SITE}/torch_geometric/data/collate.py", 90, "_collate"),
                (f"{SITE}/torch_geometric/loader/dataloader.py", 24, "__call__"),
                *((FETCHING, 55, "fetch"), (LOADER, 734, "__next__")),
            ],
            "Make the batches once",
        ),
        (
            [("/work/train.py", 8, "augment"), (f"{SITE}/jax/_src/callback.py", 71, "__call__")],
            "Compute this in JAX",
        ),
    ],
)
def test_the_remedy_fits_the_library_that_takes_the_time(tmp_path, stack, expected):
    assert remedy(tmp_path, *stack).startswith(expected)


@pytest.mark.parametrize("waits", [(LOADER, 734, "__next__"), FORK])
@pytest.mark.parametrize(
    ("source", "again"),
    [
        ("x, y = next(iter(loader))", True),
        ("j, data = next(enumerate(test_loader, 0))", True),
        ("x, y = next(batches)", False),
        ("for x, y in iter(loader):", False),
        ("for i, data in enumerate(loader, 0):", False),
    ],
)
def test_an_iterator_that_is_made_for_one_batch_is_to_be_kept(tmp_path, waits, source, again):
    export = sample_gaps(loop(gap_ms=4), waits, (LOADER, 500, "__iter__"), MAIN, gap_ms=4)
    export.source_line(*MAIN[:2], source)
    [first, *_] = ask(ANALYSIS, export, tmp_path).findings

    assert first.action.startswith("Keep the DataLoader's iterator") is again


FPROP = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_kernel0_0"
CONVOLUTION = "cudnn_generated_fort_native_conv_sm90_fprop_kernel0_0"
ATTEND = ("/work/model.py", 158, "attend")
ATTENTION = (f"{SITE}/transformers/integrations/sdpa_attention.py", 96, "sdpa_attention_forward")
TOKENIZE = ("/work/train.py", 12, "tokenize")


def attention(*stack, kernel=FPROP, grids=20, **memset) -> Export:
    """19 ms at such a stack, a memset, and a kernel of one of so many grids; GPU 1 attends as well.

    It begins its attention while GPU 0 runs the memset.
    """
    export, torch = Export().gpu(1), "void at::native::copy(int)"
    for step in range(20):
        start, grid = 20 * step * MS, {"gridX": 1 + step % grids}
        export.set((start - 9_000, start - 8_000), (start - 2_000, start), **memset)
        export.launch((start - 5_000, start - 4_000), (start, start + MS), name=kernel, **grid)
        export.launch((start - 3_000, start - 2_000), (start + 50, start + MS), name=torch)
        beside = {"device": 1, "thread": 5, "name": FPROP, "gridX": step + 1}
        export.launch((start - 9_000, start - 8_000), (start - 1_000, start + 19 * MS), **beside)
    return sample_gaps(export, *stack, MAIN, gap_ms=19)


def plans(export: Export, tmp_path) -> bool:
    """Whether the remedy is to do without cuDNN's plans."""
    said = ask(ANALYSIS, export, tmp_path).findings[0].action
    return said.startswith("Turn cuDNN's attention off")


@pytest.mark.parametrize("stack", [[ATTEND], [ATTENTION], [BACKWARD, ATTEND]])
def test_attention_that_cudnn_plans_for_each_shape(tmp_path, stack):
    """A memset comes between the plan, made on the CPU, and the kernel."""
    assert plans(attention(*stack), tmp_path)


@pytest.mark.parametrize(
    "export",
    [
        attention(ATTEND, grids=2),
        attention(ATTEND, kernel=CONVOLUTION),
        attention(ATTEND, stream=9),
        attention(NUMPY, ATTEND),
        attention(TOKENIZE),
        attention((f"{SITE}/transformer_engine/attention.py", 5, "fused_attn_fwd")),
        attention((f"{SITE}/transformers/masking_utils.py", 5, "sdpa_mask")),
    ],
    ids=["shapes", "kernel", "stream", "numpy", "tokenizer", "another library", "mask"],
)
def test_other_work_before_attention_is_no_plan(tmp_path, export):
    assert not plans(export, tmp_path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)", True),
        ("mask = make_attention_mask(lengths)", False),
        ("batch = tokenizer(texts)['attention_mask']", False),
    ],
)
def test_the_line_says_whether_it_calls_attention(tmp_path, text, expected):
    forward = ("/work/model.py", 158, "forward")
    assert plans(attention(forward).source_line(*forward[:2], text), tmp_path) == expected
