"""A recording of a simulated rank as nsys exports it: calls, kernels, NCCL's ranges, samples."""

from __future__ import annotations

from pathlib import Path

from tests.build import Export
from tests.ranks.job_model import MS, US
from tests.ranks.simulated_figures import (
    PARTS,
    SAMPLE_NS,
    Recorded,
    recorded_operations,
    whole_steps,
)
from tests.ranks.simulation import (
    COLLECTIVE,
    COMPUTE,
    SYNCHRONIZE,
    Operation,
    Pause,
    RankTimeline,
)

KERNELS = {
    "gemm": "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT",
    "attention": "void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128>>(Flash_fwd_params)",
    "elementwise": (
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
        "std::array<char *, 3>>(int, at::native::CUDAFunctor_add<float>, std::array<char *, 3>)"
    ),
    "optimizer": (
        "void at::native::multi_tensor_apply_kernel<at::native::TensorListMetadata<4>, "
        "at::native::FusedAdamMathFunctor<float, 4>>(T1, T2, T3...)"
    ),
    "all-reduce": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096>)",
    "all-gather": "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096>)",
    "reduce-scatter": "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096>)",
    "all-to-all": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096>)",
    "send": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096>)",
    "receive": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096>)",
}
FUNCTIONS = {
    "all-reduce": "ncclAllReduce",
    "all-gather": "ncclAllGather",
    "reduce-scatter": "ncclReduceScatter",
    "all-to-all": "ncclAlltoAll",
    "send": "ncclSend",
    "receive": "ncclRecv",
}
_LOADER = ("/usr/lib/python3/dist-packages/torch/utils/data/dataloader.py", 701, "__next__")
_MAIN = ("/job/train.py", 12, "<module>")


def write(line: RankTimeline, recorded: Recorded, path: Path, *, payloads: bool = True) -> Path:
    """Write the recording of a rank to `path`."""
    return _Writer(line, recorded, payloads=payloads).export().write(path)


class _Writer:
    def __init__(self, line: RankTimeline, recorded: Recorded, *, payloads: bool) -> None:
        self.line, self.recorded, self.payloads = line, recorded, payloads
        self.kept = recorded_operations(line, recorded)
        self.to = Export()

    def at(self, time: int) -> int:
        return int(self.recorded.clock([time])[0])

    def export(self) -> Export:
        rank = self.line.program.rank
        where = {"host": self.recorded.host, "launcher": "torchrun"}
        self.to.run(rank=str(rank), local_rank=str(rank % 8), **where)
        self._communicators()
        for place, op in enumerate(self.line.program.operations):
            if self.kept[place]:
                self._operation(place, op)
        self._steps()
        return self.to

    def _communicators(self) -> None:
        """Communicators are created before the first operation, if that is recorded."""
        if self.recorded.begin_ns or not self.payloads:
            return
        found = {op.communicator: op for op in self.line.program.operations if op.members}
        begin = self.at(min(self.line.call_ns)) - 10 * MS
        for number, (communicator, op) in enumerate(found.items()):
            created = {
                "NCCL communicator ID": communicator,
                "No. of ranks": op.members,
                "Rank": op.own_rank,
                "CUDA device": 0,
            }
            start = begin + number * MS
            self.to.nccl("ncclCommInitRank", start, start + MS // 2, created)

    def _operation(self, place: int, op: Operation) -> None:
        line = self.line
        call = self.at(line.call_ns[place]), self.at(line.returned_ns[place])
        work = self.at(line.start_ns[place]), self.at(line.end_ns[place])
        if op.pause is not None:
            self._pause(op.pause, line.call_ns[place] - op.pause_ns, line.call_ns[place])
        if op.pause_ns > US and self._waits_for_other_stream(op):
            event = call[0] - 400, call[0] - 100
            self.to.sync(
                "cudaStreamWaitEvent_v3020",
                *event,
                sync_type="stream-wait-event",
                stream=op.stream,
                event=1,
            )
        if op.does == SYNCHRONIZE:
            self.to.sync("cudaStreamSynchronize_v3020", *call)
        elif op.does == COLLECTIVE:
            if self.payloads:
                self._nccl(op, call)
            name = KERNELS[op.kind]
            self.to.launch((call[0] + 500, call[1] - 500), work, name=name, stream=op.stream)
        elif op.does == COMPUTE:
            self.to.launch(call, work, name=KERNELS[op.kind], stream=op.stream)
        else:
            self.to.copy(call, work, source="pinned", stream=op.stream)

    def _waits_for_other_stream(self, op: Operation) -> bool:
        ops = self.line.program.operations
        return any(ops[place].stream != op.stream for place in op.after)

    def _nccl(self, op: Operation, call: tuple[int, int]) -> None:
        parts = op.members if op.kind in PARTS else 1
        payload = {
            "NCCL communicator ID": op.communicator,
            "Message size [bytes]": op.bytes // parts,
        }
        if op.peer >= 0:
            payload["Peer rank"] = op.peer
        self.to.nccl(FUNCTIONS[op.kind], *call, payload)

    def _pause(self, pause: Pause, begin: int, end: int) -> None:
        """Samples on a grid of the recording, as a sampler takes them."""
        if pause.cause == "allocation" and end - begin > 50 * US:
            self.to.call("cudaMalloc_v3020", self.at(begin) + 1_000, self.at(end) - 1_000)
        frames = [(pause.file, pause.line, pause.function), _MAIN]
        if pause.what.startswith("DataLoader"):
            frames.insert(0, _LOADER)
        for time in range(-(-begin // SAMPLE_NS) * SAMPLE_NS, end, SAMPLE_NS):
            self.to.python_sample(self.at(time), *frames)

    def _steps(self) -> None:
        """Ranges step_0, step_1 … on the CPU, of the steps recorded from their begin."""
        ops = self.line.program.operations
        for step in whole_steps(self.line, self.recorded):
            within = [place for place, op in enumerate(ops) if op.step == step]
            begin = self.line.call_ns[within[0]] - ops[within[0]].pause_ns
            end = self.at(self.line.returned_ns[within[-1]]) + 500
            self.to.range(f"step_{step}", self.at(begin), end)
