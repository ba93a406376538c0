"""Programs for the torch backend, each a script of its own."""

MODEL = """
import torch, sys
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters())

def step(x=None):
    x = torch.randn(8, 16) if x is None else x
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
"""
# Without an optimizer, whose construction imports torch._dynamo.
GRADIENTS = """
import torch, sys
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))

def step(x=None):
    x = torch.randn(8, 16) if x is None else x
    loss = model(x).square().mean()
    loss.backward()
    return loss.item()
"""
RANGES = f"""{GRADIENTS}
import nvtx, threading
for number in range(6):
    with nvtx.annotate(f"mine_{{number}}", domain="program"):
        step()
nvtx.push_range('a "quoted"\\n<name>')
torch.ones(3)
nvtx.pop_range()
nvtx.mark("a mark")
opened = nvtx.start_range("across threads")
thread = threading.Thread(target=lambda: (torch.ones(4) * 2, nvtx.end_range(opened)))
thread.start()
thread.join()
nvtx.push_range("never closed", domain="program")
print("arguments", sys.argv[1:], __name__)
"""
STEPS = f"{MODEL}\nfor _ in range(6): step()\n"
TORCH_NVTX = """
import torch

class Nvtx:  # What torch binds in a build with CUDA.
    rangePushA = rangePop = rangeEnd = markA = staticmethod(lambda *_: 0)
    rangeStartA = staticmethod(lambda _: 7)

torch.cuda.nvtx._nvtx = Nvtx
with torch.cuda.nvtx.range("outer {}", 1):
    torch.cuda.nvtx.range_push(msg="inner")
    torch.ones(3)
    torch.cuda.nvtx.range_pop()
number = torch.cuda.nvtx.range_start("free")
torch.cuda.nvtx.mark("moment")
torch.cuda.nvtx.range_end(number)
"""
RAISES = f"{GRADIENTS}\nstep()\nraise ValueError('on purpose')\n"
EXITS = f"{GRADIENTS}\nstep()\nsys.exit(3)\n"
LEAVES = f"{GRADIENTS}\nimport os\nstep()\nsys.stdout.flush()\nos._exit(4)\n"
# They pause between steps, or as many are recorded as the machine can run until they are stopped.
ENDLESS = f"""{GRADIENTS}
import time
for number in range(10**9):
    step()
    if number == 3:
        print("running", flush=True)
    if number > 3:
        time.sleep(0.02)
"""
DEAF = f"""{GRADIENTS}
import time
for number in range(10**9):
    try:
        step()
        if number == 3:
            print("running", flush=True)
        if number > 3:
            time.sleep(0.02)
    except KeyboardInterrupt:
        pass
"""
DEAF_TO_ALL = f"""import signal
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
{ENDLESS}"""
CHILD = "import torch; print(torch.ones(3).sum())"
WORKERS = f"""{GRADIENTS}
from torch.utils.data import DataLoader, TensorDataset
import subprocess
data = TensorDataset(torch.arange(32 * 16, dtype=torch.float32).reshape(32, 16))
for (x,) in DataLoader(data, batch_size=8, num_workers=2):
    print(f"{{step(x):.9f}}")
child = "{CHILD}"
subprocess.run([sys.executable, "-c", child], check=True)
"""
COMPILED = f"""{MODEL}
import nvtx
model = torch.compile(model, backend="aot_eager")

@torch.compile(backend="aot_eager")
def inside(x):
    with nvtx.annotate("in compiled code"):
        return x.sin() + 1

for _ in range(3):
    print(f"{{step():.9f}}")
print(inside(torch.zeros(2)).tolist())
"""
OWN_PROFILER = f"""{GRADIENTS}
from torch.profiler import profile
step()
with profile() as mine:
    step()
print("events", len(mine.events()) > 10)
step()
"""
NO_TORCH = "print('nothing to see')\n"
