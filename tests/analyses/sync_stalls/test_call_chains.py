"""What a C++ call chain says the program called."""

from collections import Counter

import pytest

from tests.build import Export
from traceview.traces.facts.launches import waits
from traceview.traces.facts.waits import chain_hints, wait_sites
from traceview.traces.trace.load import load

OBJECTS = "(_object*, _object*, _object*)"
CHAINS = {
    "Tensor.item": ("at::native::_local_scalar_dense_cuda(at::Tensor const&)", "at::native::item"),
    "Tensor.cpu": ("at::native::copy_kernel_cuda(x)", f"torch::autograd::THPVariable_cpu{OBJECTS}"),
    "Tensor.__bool__": (
        "at::native::_local_scalar_dense_cuda(at::Tensor const&)",
        "torch::autograd::THPVariable_bool_scalar(_object*, _object*)",
    ),
    "Tensor.__getitem__": (
        "at::native::nonzero_out_cuda(at::Tensor const&, at::Tensor&)",
        "torch::autograd::THPVariable_getitem(_object*, _object*)",
    ),
    "Tensor.nonzero": ("at::native::nonzero_out_cuda(at::Tensor const&, at::Tensor&)", "backward"),
    "torch.cuda.Stream.synchronize": ("THCPStream_synchronize(_object*, _object*)",),
    "torch.cuda.synchronize": ("c10::cuda::device_synchronize()", "THCPModule_cudaSynchronize"),
    "aten::linear": (f"torch::autograd::THPVariable_linear{OBJECTS}",),
    "aten::addmm": (
        "at::native::addmm_out_cuda_impl(at::Tensor&)",
        "at::_ops::addmm::call(at::Tensor const&)",
        "torch::autograd::generated::AddmmBackward0::apply()",
    ),
    "at::cuda::getCurrentCUDABlasHandle": (
        "cublasCreate_v2",
        "at::cuda::getCurrentCUDABlasHandle()",
    ),
    # Python called by C++ called by Python: the innermost call is the one that waits.
    "Tensor.tolist": (
        f"torch::autograd::THPVariable_tolist{OBJECTS}",
        "_PyEval_EvalFrameDefault",
        f"torch::autograd::THPVariable_to{OBJECTS}",
    ),
    None: ("0x7f00", "xla::ffi::Call", "main"),
}


@pytest.mark.parametrize(("hint", "frames"), CHAINS.items(), ids=map(str, CHAINS))
def test_the_hint_of_a_chain(hint, frames, tmp_path):
    export = Export().chain(3, "cudaStreamSynchronize", *frames, "_start")
    trace = export.sync("cudaStreamSynchronize_v3020", 0, 5, callchain=3).load(tmp_path)

    ids, hints = chain_hints(trace)
    assert (ids.tolist(), [hints[0]]) == ([3], [hint])


def test_on_a_real_recording(unpack):
    """Eight losses are read, 16 layers with weight and bias are moved, all is waited for once."""
    trace = load(unpack("mlp_sync_callchains"))
    names = trace.api_calls.texts("name").take(waits(trace).call)
    found = Counter(zip(names.decode(), wait_sites(trace).hint.decode(), strict=True))

    assert found["cudaStreamSynchronize", "Tensor.item"] == 8
    assert found["cudaStreamSynchronize", "Tensor.cuda"] == 32
    assert found["cudaMemcpyAsync", "Tensor.cuda"] == 32
    assert found["cudaDeviceSynchronize", "torch.cuda.synchronize"] == 1
    assert found["cudaStreamSynchronize", None] == 0
