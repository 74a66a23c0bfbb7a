"""What counting on a device costs, measured on the CPU by the same code: nanoseconds an element, and how often the
elements go through memory.

    python python/examples/device_counting.py --threads 1     # half a minute
    python python/examples/device_counting.py --device cuda   # what only a GPU can say

passes: operations on tensors as long as what is counted; bytes: what these read and write, for one element. The C++
library counts in one pass; it is faster where all numbers are in few binades ("narrow"), the kernels are not.
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import fp16lab
from fp16lab.torch import device_counts
from fp16lab.torch.device_counts import DeviceCounts


class Traffic(TorchDispatchMode):
    """passes and bytes of operations on at least `least` elements, but for views."""

    def __init__(self, least: int) -> None:
        super().__init__()
        self.least, self.passes, self.bytes = least, 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        tensors = [t for t in tree_leaves((args, kwargs, result)) if isinstance(t, torch.Tensor)]
        long = [t for t in tensors if t.numel() >= self.least and 0 not in t.stride()]
        if long and not func.is_view:
            self.passes += 1
            self.bytes += sum(t.nbytes for t in long)
        return result


def seconds(call: Callable[[], object], device: torch.device, times: int = 7) -> float:
    """The least of several calls."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
        found.append(time.perf_counter() - began)
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--elements", type=int, default=2**22)
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    n, device = arguments.elements, arguments.device
    print(f"{n} elements on {device}, {arguments.threads} threads; ns an element")
    print("dtype     numbers  C++    compiled  ratio  one by one  passes  bytes")
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn):
        bits = torch.randint(0, 256, (n * dtype.itemsize,), dtype=torch.uint8).view(dtype)
        for name, x in (("narrow", torch.randn(n).mul(1e-2).to(dtype)), ("any", bits)):
            there = x.to(device)
            counts = DeviceCounts(device)

            def count(counts=counts, there=there) -> None:
                counts.add(counts.new_row(), there)

            count()  # which compiles
            assert counts.read()[0] == fp16lab.histogram(x)
            host = seconds(lambda x=x: fp16lab.histogram(x, threads=arguments.threads), torch.device("cpu"))
            compiled = seconds(count, device)
            call, device_counts.Compiled.__call__ = device_counts.Compiled.__call__, lambda self, *a: self._function(*a)
            eager = seconds(count, device)
            with Traffic(min(n, 2**22)) as traffic:
                count()
            device_counts.Compiled.__call__ = call
            short = str(dtype).removeprefix("torch.")[:9]
            times = f"{host / n * 1e9:<6.2f} {compiled / n * 1e9:<9.2f} {compiled / host:<6.1f} {eager / n * 1e9:<11.1f}"
            print(f"{short:<9} {name:<8} {times} {traffic.passes:<7} {traffic.bytes / n:.0f}")
    print(f"counted {device_counts.how(device)}")


if __name__ == "__main__":
    main()
