"""What is tested here runs on the CPU, also where there is a GPU, but for the tests marked gpu."""

import pytest


@pytest.fixture(autouse=True)
def on_the_cpu(request, monkeypatch):
    if request.node.get_closest_marker("gpu"):
        return
    try:
        import torch
    except ImportError:
        return
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
