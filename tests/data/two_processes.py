"""Two processes on one GPU, each with two streams and two threads: source of two_processes.

Both processes count their correlation ids, contexts and streams from the same numbers.
"""

import threading

import torch
import torch.multiprocessing as mp


def launch(stream: torch.cuda.Stream, name: str) -> None:
    x = torch.randn(512, 512, device="cuda")
    with torch.cuda.stream(stream):
        for step in range(5):
            with torch.cuda.nvtx.range(f"{name}_{step}"):
                x = (x @ x).clamp_(-1.0, 1.0)
            stream.synchronize()


def work(rank: int) -> None:
    streams = [torch.cuda.Stream() for _ in range(2)]
    threads = [
        threading.Thread(target=launch, args=(stream, f"rank{rank}_thread{number}"))
        for number, stream in enumerate(streams)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    mp.spawn(work, nprocs=2)
