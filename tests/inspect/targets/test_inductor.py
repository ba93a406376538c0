"""What torch.compile leaves behind besides kernels names the file to pass instead."""

import pytest

from traceview.base.errors import InputError
from traceview.kernels.inspect.targets import kernels_of


def test_a_debug_folder_has_graphs(tmp_path):
    graph = tmp_path / "torchinductor" / "model__0_forward_1.0" / "output_code.py"
    graph.parent.mkdir(parents=True)
    graph.write_text("")
    with pytest.raises(InputError, match=r"graphs that torch\.compile has generated") as caught:
        kernels_of(str(tmp_path))
    assert caught.value.remedy == f"pass one, such as {graph}"


def test_a_log_names_the_file_of_its_code(tmp_path):
    log = tmp_path / "run.log"
    at = "V1123 18:44:22.271000 18697 torch/_inductor/graph.py:2722] [0/0] [__output_code]"
    log.write_text(
        f"{at} import torch\n{at} Output code written to: /tmp/torchinductor_u/mh/c.py\n"
    )
    with pytest.raises(InputError, match=r"is a log of torch\.compile") as caught:
        kernels_of(str(log))
    assert caught.value.remedy == "pass the file that it names: /tmp/torchinductor_u/mh/c.py"
