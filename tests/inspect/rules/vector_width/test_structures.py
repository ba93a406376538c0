"""Arrays of structures in CUDA C++: what is said of them follows from their size and what is read.

The order in which the source names the members, and the compiler loads them, changes nothing.
"""

import random

import pytest

import traceview
from tests.inspect.rules.written_ptx import need, need_compiler

BYTES = {"short": 2, "float": 4, "double": 8}
BLOCK, SECTOR, VECTOR = 128, 32, 16
RANDOM = random.Random(9)


def drawn():
    """A type, the number of members, and those that are read, in the order of the source."""
    for number in (2, 3, 4, 5, 8):
        for kind in BYTES:
            some = RANDOM.sample(range(number), RANDOM.randint(1, number - 1))
            for read in ([*range(number)], [*reversed(range(number))], some):
                yield kind, number, tuple(read)
            yield kind, number, tuple(RANDOM.sample(range(number), number))


def source(cases):
    """One file with a kernel per case."""
    for at, (kind, number, read) in enumerate(cases):
        members = [f"m{each}" for each in range(number)]
        total = " + ".join(f"p[i].{members[each]}" for each in read)
        yield f"struct S{at} {{ {kind} {', '.join(members)}; }};"
        yield f'extern "C" __global__ void k{at}({kind}* o, const S{at}* p, int n) {{'
        yield "  int i = blockIdx.x * blockDim.x + threadIdx.x;"
        yield f"  if (i < n) o[i] = {total};\n}}"


CASES = list(dict.fromkeys(drawn()))


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    need("ptxas", "nvdisasm")
    need_compiler()
    path = tmp_path_factory.mktemp("structures") / "k.cu"
    path.write_text("\n".join(source(CASES)))
    return traceview.inspect_ptx(path).kernels


def test_structures(kernels):
    assert len(kernels) == len(CASES)
    said = {}
    for kernel in kernels:
        kind, number, read = CASES[int(kernel.name.removeprefix("k"))]
        each, size = BYTES[kind], BYTES[kind] * number
        needed = {t * size + m * each for t in range(BLOCK) for m in read}
        touched = {at // SECTOR for at in needed}
        used = len(needed) * each / (len(touched) * SECTOR)
        found = [f for f in kernel.findings if "Global loads" in f.message]
        text = [f"{f.message} {f.action} {f.evidence.basis}" for f in found]
        where = (kind, number, read, text)
        # The findings are those of the set of members that are read, in whatever order.
        key = (kind, number, frozenset(read))
        assert said.setdefault(key, [(f.severity, f.action) for f in found]) == [
            (f.severity, f.action) for f in found
        ], where
        assert not any("leave the distance" in each for each in text), where
        (narrow,) = found or [None]
        if size % VECTOR and size.bit_count() > 1 and narrow:
            assert f"neighbouring threads are {size} bytes apart" in text[0], where
            if used >= 0.88:
                assert narrow.severity == "low", where
                assert "the rest of its bytes, through L1" in text[0], where
                assert "sectors instead of" not in narrow.message, where
            else:
                assert "where all of it is used" not in narrow.action, where
                assert f"use {100 * used:.1f} % of the bytes moved" in text[0], where
        elif narrow and len(read) == number and size > VECTOR // 2:
            assert "in vectors of 16 bytes" in narrow.action, where
