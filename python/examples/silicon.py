"""What PyTorch computes on this processor, predicted bit by bit: BF16 products of oneDNN on AVX512_BF16.

First every class of product that the network below uses, on operands that cancel: as PyTorch gives it, as the row and plan
predict it, and as controls would have it. Then a training in BF16, natively and under lab.emulate: losses and weights at
every step. Exits with 1 if a bit differs, with 77 where the processor or PyTorch is another one.
"""

import os
import sys

os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_BF16"  # AMX, where there is one, has an order of its own

import torch
from torch import nn

import fp16lab
import fp16lab.torch as lab

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
CONTROLS = {"one chain": ("avx512_bf16", "instruction"), "hopper": ("hopper", "instruction")}


def cancelling(m: int, n: int, k: int, draw: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """a (m, k) and b (k, n) in BF16: products come in pairs of opposite signs, in any order."""
    a, b = torch.randn(m, k, generator=draw), torch.randn(k, n, generator=draw)
    half, order = k // 2, torch.randperm(k, generator=draw)
    a[:, half : 2 * half], b[half : 2 * half] = -a[:, :half], b[:half]
    return a[:, order].bfloat16(), b[order].bfloat16()


def differing(x: torch.Tensor, y: torch.Tensor) -> int:
    return int((x.view(torch.int16) != y.view(torch.int16)).sum())


def products() -> tuple[int, int]:
    """Prints a row for each layout; gives how many outputs were compared, and how many differ."""
    draw = torch.Generator().manual_seed(1)
    layouts = {"a b": (False, False), "a b^T (linear)": (False, True), "a^T b (dW)": (True, False)}
    print(f"{'product':16} {'outputs':>8} {'differ':>7}  " + "  ".join(f"{name:>10}" for name in CONTROLS))
    all_compared = all_wrong = 0
    for name, (a_transposed, b_transposed) in layouts.items():
        compared = wrong = 0
        controls = dict.fromkeys(CONTROLS, 0)
        for m, n, k in ((64, 48, 640), (33, 17, 1300), (20, 64, 2050), (7, 90, 513)):
            a, b = cancelling(m, n, k, draw)
            a = a.t().contiguous().t() if a_transposed else a
            b = b.t().contiguous().t() if b_transposed else b
            native = a @ b
            wrong += differing(native, fp16lab.matmul(a, b, "avx512_bf16", plan="onednn"))
            for control, (row, plan) in CONTROLS.items():
                controls[control] += differing(native, fp16lab.matmul(a, b, row, plan=plan))
            compared += m * n
        print(f"{name:16} {compared:8} {wrong:7}  " + "  ".join(f"{c / compared:10.1%}" for c in controls.values()))
        all_compared, all_wrong = all_compared + compared, all_wrong + wrong
    return all_compared, all_wrong


def training(emulated: bool, steps: int) -> list[tuple[float, ...]]:
    """(loss, sums of bits of every weight) at each step."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(600, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 128), nn.GELU(), nn.Linear(128, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    draw = torch.Generator().manual_seed(2)
    teacher = torch.randn(600, 10, generator=draw)
    seen = []
    for step in range(steps):
        x = torch.randn(2048 if step == 1 else 256, 600, generator=draw)
        y = (x @ teacher).argmax(1)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            if emulated:
                with lab.emulate("avx512_bf16", library="onednn") as run:
                    loss = nn.functional.cross_entropy(model(x).float(), y)
                    loss.backward()
                assert run.total("native") == run.total("let through") == 0
            else:
                loss = nn.functional.cross_entropy(model(x).float(), y)
                loss.backward()
        optimizer.step()
        weights = (int(p.detach().view(torch.int32).long().sum()) for p in model.parameters())
        seen.append((loss.item(), *weights))
    return seen


def main() -> int:
    torch.set_num_threads(1)
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported() or "avx512_bf16" not in open("/proc/cpuinfo").read():
        print("Skipped: this processor has no AVX512_BF16")
        return 77
    compared, wrong = products()
    print(f"{compared} outputs of products compared: {wrong} differ")
    native, predicted = training(False, STEPS), training(True, STEPS)
    equal = sum(x == y for x, y in zip(native, predicted, strict=True))
    print(f"training: loss and every weight are equal in {equal} of {STEPS} steps; last loss {native[-1][0]:.4f}")
    return 0 if wrong == 0 and equal == STEPS else 1


if __name__ == "__main__":
    sys.exit(main())
