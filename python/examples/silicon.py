"""What PyTorch computes on this processor, predicted bit by bit: BF16 products of oneDNN on AVX512_BF16.

First every class of product that the network below uses, on operands that cancel: as PyTorch gives it, as the row and plan
predict it, and as controls would have it. Then trainings in BF16, natively and under lab.emulate: losses and weights at
every step. Exits with 1 if a bit differs, with 77 where the processor has no AVX512_BF16, or PyTorch another order.

    python silicon.py [STEPS [FIGURE.png]]      1,000 steps in three trainings; a figure of how far a control gets
"""

import contextlib
import hashlib
import os
import sys
from typing import Any

os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_BF16"  # AMX, where there is one, has an order of its own

import torch
from torch import nn

import fp16lab
import fp16lab.torch as lab

if any(word in ("-h", "--help") for word in sys.argv[1:]):
    sys.exit(__doc__)
STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
CONTROLS = {"one chain": ("avx512_bf16", "instruction"), "hopper": ("hopper", "instruction")}


def cancelling(m: int, n: int, k: int, draw: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """a (m, k) and b (k, n) in BF16: products of many magnitudes come in pairs of opposite signs, in any order."""
    a, b = torch.randn(m, k, generator=draw), torch.randn(k, n, generator=draw)
    a *= torch.exp2(torch.randint(0, 13, (1, k), generator=draw).float())
    half, order = k // 2, torch.randperm(k, generator=draw)
    a[:, half : 2 * half], b[half : 2 * half] = -a[:, :half], b[:half]
    return a[:, order].bfloat16(), b[order].bfloat16()


def differing(x: torch.Tensor, y: torch.Tensor) -> int:
    return int((x.view(torch.int16) != y.view(torch.int16)).sum())


#: Shapes of each class of calls (batch 0: mm), and which operands memory holds transposed.
CLASSES = {
    "a b": ([(0, 64, 48, 640), (0, 33, 17, 1300), (0, 7, 90, 513)], "nn"),
    "a b^T, linear": ([(0, 64, 48, 640), (0, 20, 64, 2050)], "nt"),
    "a^T b, dW": ([(0, 64, 48, 640), (0, 33, 70, 2050)], "tn"),
    "bmm": ([(3, 20, 24, 700), (40, 3, 4, 30)], "nn"),
    "small a b": ([(0, 4, 4, 254), (0, 8, 8, 62)], "nn"),
    "small linear": ([(0, 4, 4, 254), (0, 8, 8, 62)], "nt"),
    "small dW": ([(0, 4, 4, 254), (0, 8, 8, 62)], "tn"),
    "small bmm": ([(3, 8, 8, 20), (3, 4, 4, 24)], "nt"),
    "to one": ([(0, 300, 1, 126), (0, 64, 1, 900)], "nt"),
    "from one, dX": ([(0, 1, 300, 126), (0, 1, 64, 900)], "nn"),
    "one row, linear": ([(0, 1, 300, 126), (0, 1, 64, 900)], "nt"),
}


def products() -> tuple[int, int]:
    """Prints a row for each class; gives how many outputs were compared, and how many differ."""
    draw = torch.Generator().manual_seed(1)
    print(f"{'product':16} {'outputs':>8} {'differ':>7}  " + "  ".join(f"{name:>10}" for name in CONTROLS))
    all_compared = all_wrong = 0
    for name, (shapes, layout) in CLASSES.items():
        compared = wrong = 0
        controls = dict.fromkeys(CONTROLS, 0)
        while compared < 1000:
            for batch, m, n, k in shapes:
                pairs = [cancelling(m, n, k, draw) for _ in range(max(batch, 1))]
                a, b = (torch.stack(x) if batch else x[0] for x in zip(*pairs, strict=True))
                a = a.mT.contiguous().mT if layout[0] == "t" else a
                b = b.mT.contiguous().mT if layout[1] == "t" else b
                native = torch.bmm(a, b) if batch else torch.mm(a, b)
                wrong += differing(native, fp16lab.matmul(a, b, "avx512_bf16", plan="onednn"))
                for control, (row, plan) in CONTROLS.items():
                    controls[control] += differing(native, fp16lab.matmul(a, b, row, plan=plan))
                compared += native.numel()
        print(f"{name:16} {compared:8} {wrong:7}  " + "  ".join(f"{c / compared:10.1%}" for c in controls.values()))
        all_compared, all_wrong = all_compared + compared, all_wrong + wrong
    return all_compared, all_wrong


class Net(nn.Module):
    """An MLP with a head of width 1, and a small gate whose layers lie below ATen's 4096 multiplications."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(600, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 1030), nn.GELU())
        self.digits, self.head = nn.Linear(1030, 10), nn.Linear(1030, 1)
        self.small = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.body(x)
        return self.digits(y).float() + self.head(y).float() + self.small(x[:8, :4]).float().mean()


def digest(weights: torch.Tensor) -> str:
    return hashlib.sha256(weights.numpy().tobytes()).hexdigest()


def training(library: str, steps: int, adam: bool, threads: int, see: Any = digest) -> list[tuple[float, Any]]:
    """The loss, and what `see` makes of all weights, after each step. library: a plan, or "" for torch itself."""
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = Net()
    if adam:
        optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    draw = torch.Generator().manual_seed(2)
    teacher = torch.randn(600, 10, generator=draw)
    seen = []
    for step in range(steps):
        x = torch.randn({1: 2048, 2: 1}.get(step, 128), 600, generator=draw)
        y = (x @ teacher).argmax(1)
        optimizer.zero_grad()
        scope = lab.emulate("avx512_bf16", library=library) if library else contextlib.nullcontext()
        with scope as run, torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
        if run is not None and run.total("native") + run.total("let through") > 0:
            raise RuntimeError(f"products of torch's own:\n{run.table()}")
        optimizer.step()
        seen.append((loss.item(), see(torch.cat([p.detach().flatten() for p in model.parameters()]))))
    return seen


def draw(path: str, steps: int) -> None:
    """How far from torch's own weights a training gets with the plan, and with one chain instead."""
    import matplotlib.pyplot as plt

    def weights(library: str) -> list[torch.Tensor]:
        return [seen for _, seen in training(library, steps, True, 1, see=lambda weights: weights)]

    native = weights("")
    figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
    for library, label in (("instruction", "one chain instead of the plan"), ("onednn", "row and plan")):
        distances = [float((x - y).norm() / y.norm()) for x, y in zip(weights(library), native, strict=True)]
        axes.plot(range(1, steps + 1), distances, label=label)
    plt.rcParams["svg.fonttype"] = "none"  # text, not outlines
    axes.set_yscale("symlog", linthresh=1e-8)
    axes.set(xlabel="step", ylabel="distance from PyTorch's weights", title="BF16 training on this processor (AdamW)")
    axes.legend()
    figure.savefig(path, metadata={"Date": None})


def another_order() -> str:
    """How torch's own order differs from the plan's, as the sums themselves tell; "" where it does not."""
    for m, n, k in ((8, 8, 600), (4, 4, 70)):
        own, planned = (
            lab.reveal(product, k, torch.bfloat16, shape=(m, n))
            for product in (torch.mm, lambda a, b: fp16lab.matmul(a, b, "avx512_bf16", plan="onednn"))
        )
        if own != planned:
            return f"{m} x {n} x {k} adds as {own}, not as {planned}"
    return ""


def main() -> int:
    torch.set_num_threads(1)
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported() or "avx512_bf16" not in open("/proc/cpuinfo").read():
        print("Skipped: this processor has no AVX512_BF16")
        return 77
    if other := another_order():
        print(f"Skipped: this PyTorch has another order: {other}")
        return 77
    compared, wrong = products()
    print(f"{compared} outputs of products compared: {wrong} differ")
    failed = wrong
    for adam, threads, steps in ((True, 1, STEPS * 2 // 5), (True, 2, STEPS * 3 // 10), (False, 1, STEPS * 3 // 10)):
        native, predicted = (training(library, steps, adam, threads) for library in ("", "onednn"))
        equal = sum(x == y for x, y in zip(native, predicted, strict=True))
        failed += steps - equal
        print(
            f"{'AdamW' if adam else 'SGD'}, {threads} thread(s): loss and every weight are equal in {equal} of {steps} "
            f"steps; last loss {native[-1][0]:.4f}"
        )
    if len(sys.argv) > 2:
        draw(sys.argv[2], 100)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
