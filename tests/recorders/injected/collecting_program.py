"""Collects garbage with each object made, which lets other threads run; calls of many sizes.

Its arguments: the folder of samples, and how many seconds it runs.
"""

import gc
import sys
import time

from traceview_injected import python_sampler


def deep(n):
    return deep(n - 1) if n else n


def wide(n, a=7, b=7, c=7, d=7, e=7, f=7, g=7):
    x = y = z = n + 2**40
    return odd(n - 1) + x - y if n else z


def odd(n, a=7, b=9, c=8):
    return wide(n - 1) if n else n


python_sampler.PERIOD_S = 0.0001
python_sampler.MOST_COST = 1
python_sampler.SWITCH_S = 0.00005
python_sampler.install(sys.argv[1])
gc.set_threshold(1)
gc.callbacks.append(lambda phase, info: time.sleep(0))
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    deep(40)
    wide(30)
    deep(3)
    odd(11)
assert gc.isenabled()
