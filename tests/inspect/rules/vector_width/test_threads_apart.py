"""What is said of threads that leave gaps is true of the sectors that they touch."""

import pytest

from tests.ptx.compiled_kernels import a_line, an_access
from traceview.kernels.inspect.rules.vector_width.causes import Narrow, Suspects
from traceview.kernels.inspect.rules.vector_width.from_layout import threads_apart
from traceview.kernels.ptx.addresses.request_costs import SECTOR_BYTES
from traceview.kernels.ptx.addresses.slicing import together
from traceview.kernels.ptx.addresses.strides import Layout, Stride
from traceview.kernels.ptx.model import Argument

THREADS, WIDTH = 960, 4


def basis(apart):
    """What is said of threads that move `WIDTH` bytes each; empty if they leave no gaps."""
    layout = Layout(Stride(WIDTH), WIDTH, WIDTH, False, True, True, threads_apart=apart)
    place, access = (a_line(), "load", "global"), an_access(8 * WIDTH)
    narrow = Narrow(
        place, frozenset({"x"}), (access,), 1.0, 8 * WIDTH, together([]), Suspects((), ()), layout
    )
    reason = threads_apart(narrow, cuda=True)
    return reason.basis if reason else ""


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("bytes_apart", [0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 64, 4096])
def test_sectors_by_distance(bytes_apart, known):
    stride = Argument("stride", "i32", value=bytes_apart // WIDTH)
    said = basis(Stride(WIDTH, stride) if known else Stride(bytes_apart))
    sectors = {thread * bytes_apart // SECTOR_BYTES for thread in range(THREADS)}
    per_sector = THREADS / len(sectors)
    if bytes_apart < 2 * WIDTH:
        assert not said
    elif per_sector == 1:
        assert said.endswith("each needs a sector of its own, whatever the width")
    else:
        shown = f"{per_sector:.2f}".removesuffix(".00")
        assert said.endswith(f" {shown} of them share a sector")


def test_an_unknown_distance_is_said_to_be_so():
    assert basis(Stride(WIDTH, Argument("stride", "i32"))).endswith("if that is 32 bytes or more")
