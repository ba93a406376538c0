"""Rows between two loaded bounds, and which threads take their elements."""

from tests.inspect.rules.test_divisions_and_tables import kernels

SUM = "for (int o = 16; o; o >>= 1) s += __shfl_down_sync(-1u, s, o);"
START = "float s = 0; int r = i / 32, lane = threadIdx.x & 31"
# How a row's elements are taken, and whether a warp's lanes take those of one row of a table.
LOOPS = {
    "for (int j = mask[r] + lane; j < mask[r + 1]; j += 32)": True,
    "for (unsigned j = mask[r] + lane, end = mask[r + 1]; j < end; j += 32)": True,
    "for (int j = mask[i]; j < mask[i + 1]; j++)": False,
    "for (int j = lane; j < w; j += 32)": False,
    "for (int j = r * w + lane; j < (r + 1) * w; j += 32)": False,
}


def test_a_warp_for_each_row_of_a_table(tmp_path):
    bodies = [f"{START}; {loop} s += x[j]; {SUM} if (!lane) out[r] = s" for loop in LOOPS]
    # Of a product with a vector, and without a sum of the lanes.
    more = next(iter(LOOPS))
    product = bodies[0].replace("x[j]", "x[j] * x[mask[j + w]]")
    alone = f"{START}; {more} out[j] = x[j] * s"
    *found, vector, copies = kernels(tmp_path, [*bodies, product, alone])
    for findings, is_said in zip(
        [*found, vector, copies], [*LOOPS.values(), True, False], strict=True
    ):
        said = [f for f in findings if "elements of a row" in f.message]
        assert [f.severity for f in said] == ["low"] * is_said, findings
