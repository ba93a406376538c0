"""Run all tests here on the CPU, even with a GPU, except those marked gpu."""

import gc

import pytest


@pytest.fixture(autouse=True, scope="module")
def _only_own_garbage():
    """Leave what was made before out of the collections ahead of timed runs: 0.1 s each."""
    gc.freeze()


@pytest.fixture(autouse=True)
def on_the_cpu(request, monkeypatch):
    if request.node.get_closest_marker("gpu"):
        return
    try:
        import torch
    except ImportError:
        return
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
