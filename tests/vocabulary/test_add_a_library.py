"""CONTRIBUTING's "Add a library of kernels": one record gives class, label, owner, tile, colour."""

import re

from tests.places import REPOSITORY
from traceview.base.vocabulary import libraries
from traceview.base.vocabulary.kernel_words import KernelClass, KernelOwner
from traceview.traces.timeline.tracks import CLASSES, FIRST_KERNEL

NAME = "fastmm_bf16_128x256x64_nt"


def forget():
    libraries.read.cache_clear()
    libraries._forms.cache_clear()


def test_one_record_is_all(monkeypatch):
    recipe = (REPOSITORY / "CONTRIBUTING.md").read_text().partition("## Add a library")[2]
    [(code, label)] = re.findall(r"```python\n(.*?)```.*?labelled `(.*?)`", recipe, re.DOTALL)
    made = {}
    exec(code, made)
    monkeypatch.setattr(libraries, "LIBRARIES", (made["FASTMM"], *libraries.LIBRARIES))
    forget()

    assert libraries.readable(NAME) == label
    assert libraries.classify(NAME) is KernelClass.GEMM
    assert libraries.owner_of(NAME) is KernelOwner.LIBRARY
    assert libraries.tile(NAME) == libraries.Tile(128, 256, 64, inputs="bf16")
    assert CLASSES[FIRST_KERNEL + libraries.classify(NAME)] == "kernel-gemm"

    monkeypatch.undo()
    forget()
    assert libraries.owner_of(NAME) is KernelOwner.PROGRAM
