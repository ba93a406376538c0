"""Names of kernels that differ in what a compiler counts."""

from dataclasses import replace

import pytest

from tests.comparison.sides import a_part, a_run
from traceview.traces.comparison.decomposition import compare_runs
from traceview.traces.comparison.matching import without_counters


@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("nvkernel_solve_F1L204_2", "nvkernel_solve_#"),
        ("kmeans_235_gpu", "kmeans_#_gpu"),
        ("main_53_gpu__red", "main_#_gpu__red"),
        ("__omp_offloading_31_18a8104__Z5triadllll_l41", "__omp_offloading_#__Z5triadllll_#"),
        (
            "_ZN50_GLOBAL__N__2530b397_17_Range_cu_4cc9e74411fill",
            "_ZN50_GLOBAL__N__#_17_Range_cu_#11fill",
        ),
        ("Inductor pointwise to_copy_t_3", "Inductor pointwise to_copy_t_#"),
        ("loop_add_fusion_3", "loop_add_fusion_#"),
        ("wrapped_add_1", "wrapped_add_#"),
        ("advance_5f0b8c1d_cuda_kernel_forward", "advance_#_cuda_kernel_forward"),
        ("julia_axpy_1342", "julia_axpy_#"),
        ("cuBLAS fp32 GEMM 128×128×8 TN", "cuBLAS fp32 GEMM 128×128×8 TN"),
        ("ampere_sgemm_128x64_nn", "ampere_sgemm_128x64_nn"),
        ("stage_2", "stage_2"),
        ("stencil_l2", "stencil_l2"),
    ],
)
def test_what_a_compiler_counts_is_no_part_of_the_name(name, rest):
    assert without_counters(name) == rest


def side(file: str, names: list[str]):
    parts = (a_part(name=name, time_ns=100 * place, calls=2) for place, name in enumerate(names, 1))
    return a_run(file, [replace(part, symbol=part.name) for part in parts], steps=1)


def compared(before: list[str], after: list[str]):
    return compare_runs([side("before.sqlite", before)], [side("after.sqlite", after)])


def test_lines_that_moved_leave_kernels_matched_in_their_order():
    result = compared(
        ["solve_F1L20_2", "solve_F1L99_2", "norm_12_gpu"],
        ["solve_F1L26_2", "solve_F1L105_2", "norm_18_gpu"],
    )
    assert {(p.before.name, p.after.name, p.change) for p in result.parts} == {
        ("solve_F1L20_2", "solve_F1L26_2", "same"),
        ("solve_F1L99_2", "solve_F1L105_2", "same"),
        ("norm_12_gpu", "norm_18_gpu", "same"),
    }
    assert result.delta_ns == 0


def test_another_number_of_kernels_is_not_matched_in_order():
    result = compared(["solve_F1L20_2", "solve_F1L99_2"], ["solve_F1L26_2"])
    assert {part.change for part in result.parts} == {"vanished", "appeared"}


def test_kernels_that_are_no_compilers_are_others():
    (note,) = compared(["stage_1"], ["stage_2"]).notes
    assert "0.0 % of kernel time before and 0.0 % after: they are different programs" in note
