"""What a library's kernel says of its call: products of a few elements, keys, seeds, its place."""

import pytest

from tests.analyses.single_answer import ask
from tests.build import Export
from traceview.traces.analyses.kernel_share.analysis import ANALYSIS

MS = 1_000_000
GEMV = (
    "void internal::gemvx::kernel<int, int, float, float, float, float, (bool)1, (int)5, "
    "cublasGemvParamsEx<int, cublasGemvTensorStridedBatched<const float>>>(T13)"
)


def messages(export, tmp_path):
    return [(each.severity, each.message) for each in ask(ANALYSIS, export, tmp_path).findings]


def batched_products(launches, rest, *, passes=40, own_bytes=2 * 10**7, **columns):
    """Passes of a batched product, with another kernel before each."""
    export, call, at = Export().memory(0, bytes=own_bytes), 0, 100_000
    for _ in range(passes):
        call += 20
        export.launch((call, call + 10), (at, at + 60_000), name="update(float*)")
        for number in range(launches):
            call, at = call + 20, at + 60_000
            size = rest if rest and number == launches - 1 else 65_535
            shape = {"gridX": 1, "gridZ": size, "blockX": 2, "blockY": 16} | columns
            took = max(59_000 * size // 65_535, 1_000)
            export.launch((call, call + 10), (at, at + took), **{"name": GEMV, **shape})
        at += 60_000
    return export


@pytest.mark.parametrize(("launches", "rest"), [(2, 1), (3, 65_535), (5, 0), (33, 32)])
def test_a_batch_of_vectors_of_a_few_elements(tmp_path, launches, rest):
    [(severity, message)] = [
        each for each in messages(batched_products(launches, rest), tmp_path) if "GEMV" in each[1]
    ]

    products = 65_535 * (launches - bool(rest)) + rest
    assert f"{launches} launches in a row are one call of {products:,} products" in message
    assert "reading all memory in use, 20.0 MB, 4.15 µs" in message
    assert severity == "high"


@pytest.mark.parametrize(
    "columns",
    [{"blockY": 128}, {"gridX": 4}, {"name": "products_of_mine(float*)"}, {"gridY": 65_535}],
)
def test_other_products_in_many_blocks(tmp_path, columns):
    found = messages(batched_products(5, 7, **columns), tmp_path)
    assert not [each for each in found if "one call of" in each[1]]


def test_one_launch_per_call_may_be_of_any_batch(tmp_path):
    found = messages(batched_products(1, 0), tmp_path)
    assert not [each for each in found if "one call of" in each[1]]


def test_products_that_may_read_all_that_the_call_takes_save_nothing_for_sure(tmp_path):
    """114 GB are read in 24 ms: vectors of thousands of elements."""
    found = messages(batched_products(5, 7, own_bytes=114 * 10**9), tmp_path)
    [(severity, message)] = [each for each in found if "one call of" in each[1]]
    assert severity == "info"
    assert "memory in use" not in message


def test_memory_that_the_recording_does_not_have_proves_nothing(tmp_path):
    found = messages(batched_products(5, 7, own_bytes=1024), tmp_path)
    [(severity, _)] = [each for each in found if "one call of" in each[1]]
    assert severity == "info"


THRUST = "thrust::THRUST_300001_SM_900_NS::"
COUNTING = f"{THRUST}counting_iterator<unsigned int, {THRUST}use_default>"
LAMBDA = "Grid::play(unsigned int)::[lambda(unsigned int) (instance 1)]"
FUNCTOR = "key_of_row"
STORED = f"{THRUST}detail::normal_iterator<{THRUST}pointer<int, {THRUST}cuda_cub::tag>>"
AGENT = (
    f"void {THRUST}cuda_cub::core::detail::_kernel_agent<{THRUST}cuda_cub::__reduce_by_key::"
    "ReduceByKeyAgent<{keys}, {values}, int *, float *>>(T2)"
)
CUB = (
    "void cub::CUB_200200_860_NS::DeviceReduceByKeyKernel<cub::CUB_200200_860_NS::"
    "DeviceReduceByKeyPolicy<float, int>::Policy900, {keys}, int *, {values}, float *>(T2)"
)


def transformed(function, over):
    return f"{THRUST}transform_iterator<{function}, {over}, int>"


@pytest.mark.parametrize("form", [AGENT, CUB])
@pytest.mark.parametrize("gnu", [False, True])
@pytest.mark.parametrize(
    ("keys", "generated"),
    [
        (COUNTING, True),
        (transformed(FUNCTOR, COUNTING), True),
        (transformed(LAMBDA, transformed(FUNCTOR, COUNTING)), True),
        ("cub::CountingInputIterator<int, long>", True),
        (STORED, False),
        (transformed(FUNCTOR, STORED), False),
        (transformed(FUNCTOR, f"{THRUST}zip_iterator<tuple<{COUNTING}, {STORED}>>"), False),
        ("int *", False),
    ],
)
def test_keys_that_no_array_holds(tmp_path, form, gnu, keys, generated):
    name = form.format(keys=keys, values=transformed(LAMBDA, COUNTING))
    if gnu:
        name = name.replace("[lambda(unsigned int) (instance 1)]", "{lambda(unsigned int)#1}")
    export = Export()
    for number in range(20):
        call, at = 40 * number, MS * (number + 1)
        export.launch((call, call + 10), (at, at + MS // 8))
        export.launch((call + 20, call + 30), (at + MS // 8, at + MS), name=name)

    found = [each for each in messages(export, tmp_path) if "keys" in each[1]]

    assert bool(found) is generated
    if found:
        assert "It is called in Grid::play." in found[0][1]
        assert found[0][0] == "medium"


def seeded(times):
    """A generator of cuRAND that is seeded so many times, in a function of the program."""
    export, call, at = Export(), 0, 100_000
    name = "void generate_seed_pseudo<rng_config<curandStateMRG32k3a, (curandOrdering)101>>(int)"
    for number in range(20):
        export.launch((call, call + 10), (at, at + 900_000), name="step(float*)")
        if number < times:
            export.launch((call + 20, call + 30), (at + 900_000, at + 1_800_000), name=name)
            export.native_sample(
                call + 25,
                ("/usr/lib/libcurand.so.10", "curandGenerateSeeds"),
                ("/usr/lib/libcurand.so.10", "curandGenerateNormal"),
                ("/work/paths", "void simulate<Put>(int, double*)"),
                ("/work/paths", "main"),
            )
        call, at = call + 40, at + 1_800_000
    return export


@pytest.mark.parametrize("times", [1, 2, 3, 20])
def test_a_generator_that_is_seeded_again_and_again(tmp_path, times):
    found = [each for each in messages(seeded(times), tmp_path) if "generator" in each[1]]

    assert bool(found) is (times >= 3)
    if times >= 5:
        assert "It is called in simulate." in found[0][1]


@pytest.mark.parametrize("samples", [0, 4, 20])
def test_the_longest_kernel_of_a_library_is_named_with_its_place(tmp_path, samples):
    """Without a place there is nothing to look at."""
    export = Export()
    for number in range(20):
        call, at = 40 * number, MS * (number + 1)
        export.launch((call, call + 10), (at, at + MS), name="void cub::DeviceScanKernel<int>(int)")
        if number < samples:
            export.native_sample(call + 5, ("/work/a", "count_all()"), ("/work/a", "main"))

    found = [each for each in messages(export, tmp_path) if "the most of any kernel" in each[1]]

    assert bool(found) is (samples >= 5)
    if found:
        assert found[0][0] == "info"
        assert "It is called in count_all." in found[0][1]


def test_collectives_are_no_call_to_look_at(tmp_path):
    export = Export()
    for number in range(20):
        call, at = 40 * number, MS * (number + 1)
        export.launch((call, call + 10), (at, at + MS), name="ncclDevKernel_SendRecv(int)")
        export.native_sample(call + 5, ("/work/a", "exchange()"), ("/work/a", "main"))
    assert not [each for each in messages(export, tmp_path) if "of any kernel" in each[1]]


def test_a_kernel_without_a_launch_is_called_nowhere(tmp_path):
    export = Export()
    for number in range(20):
        at = MS * (number + 1)
        export.kernel_without_launch((at, at + MS), name="void cub::DeviceScanKernel<int>(int)")
    assert not messages(export, tmp_path)
