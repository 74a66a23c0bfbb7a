"""What PyTorch computes on this processor, predicted bit by bit: BF16 products of oneDNN on AVX512_BF16.

First every class of product that the networks below use, on operands that cancel: as PyTorch gives it, as the row and
plan predict it, and as controls would have it. Then training runs of a perceptron, a convolutional network and a
transformer in BF16, natively and under lab.emulate: losses and weights at every step. Exits with 1 if a bit differs,
with 77 where the processor has no AVX512_BF16, or PyTorch another order.

    python silicon.py [STEPS [FIGURE.png]]      1,000 steps in six training runs; a figure of how far a control gets
"""

import contextlib
import hashlib
import itertools
import math
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_BF16"  # AMX, where there is one, has an order of its own

import torch
from torch import nn

import fp16lab
import fp16lab.torch as lab

CONTROLS = {"one chain": ("avx512_bf16", "instruction"), "hopper": ("hopper", "instruction")}
Call = Callable[[], torch.Tensor]


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
PRODUCTS = {
    "a b": ([(0, 64, 48, 640), (0, 33, 17, 1300), (0, 7, 90, 513)], "nn"),
    "a b^T, linear": ([(0, 64, 48, 640), (0, 20, 64, 2050)], "nt"),
    "a^T b, dW": ([(0, 64, 48, 640), (0, 33, 70, 2050)], "tn"),
    "bmm": ([(3, 20, 24, 700), (40, 3, 4, 30)], "nn"),
    "bmm, a b^T": ([(4, 16, 16, 640)], "nt"),
    "bmm, a^T b": ([(4, 16, 16, 640)], "tn"),
    "small a b": ([(0, 4, 4, 254), (0, 8, 8, 62)], "nn"),
    "small linear": ([(0, 4, 4, 254), (0, 8, 8, 62)], "nt"),
    "small dW": ([(0, 4, 4, 254), (0, 8, 8, 62)], "tn"),
    "small bmm": ([(3, 8, 8, 20), (3, 4, 4, 24)], "nt"),
    "to one": ([(0, 300, 1, 126), (0, 64, 1, 900)], "nt"),
    "from one, dX": ([(0, 1, 300, 126), (0, 1, 64, 900)], "nn"),
    "one row, linear": ([(0, 1, 300, 126), (0, 1, 64, 900)], "nt"),
}
#: Channels in and out, and the memory of 6 images of 14 x 14.
CONVOLUTIONS = {
    "conv2d": ((34, 32), torch.contiguous_format),
    "conv2d, last": ((34, 32), torch.channels_last),
}


def calls_of_products(draw: torch.Generator) -> Iterator[tuple[str, Call]]:
    for name, (shapes, layout) in PRODUCTS.items():
        for batch, m, n, k in shapes:
            pairs = [cancelling(m, n, k, draw) for _ in range(max(batch, 1))]
            a, b = (torch.stack(x) if batch else x[0] for x in zip(*pairs, strict=True))
            a = a.mT.contiguous().mT if layout[0] == "t" else a
            b = b.mT.contiguous().mT if layout[1] == "t" else b
            yield name, partial(torch.bmm if batch else torch.mm, a, b)


def opposite(x: torch.Tensor, dim: int, sign: int) -> torch.Tensor:
    """Its second half along a dimension becomes the first, times the sign, in reversed order."""
    first = x.narrow(dim, 0, x.shape[dim] // 2)
    return torch.cat([first, sign * first.flip(dim)], dim)


def calls_of_convolutions(draw: torch.Generator) -> Iterator[tuple[str, Call]]:
    """y, and the gradients of x, weight and bias. Inputs alike and weights opposite in pairs of channels, and gradients
    opposite in pairs of images: sums cancel in all four."""

    def spread(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=draw) * torch.exp2(torch.randint(0, 13, shape, generator=draw).float())

    for name, ((c, k), layout) in CONVOLUTIONS.items():
        x = opposite(opposite(spread(6, c, 14, 14), 1, 1), 0, 1)
        weight = opposite(opposite(spread(k, c, 3, 3), 1, -1), 0, -1)
        gradient = opposite(opposite(spread(6, k, 14, 14), 1, 1), 0, -1)
        x, weight, gradient = (t.bfloat16().contiguous(memory_format=layout) for t in (x, weight, gradient))
        yield name, partial(nn.functional.conv2d, x, weight, padding=1)
        for i, result in enumerate(("dX", "dW", "db")):

            def backward(i: int = i, x: Any = x, weight: Any = weight, gradient: Any = gradient) -> torch.Tensor:
                one, none = [1, 1], [0, 0]
                args = gradient, x, weight, [len(weight[:, 0])], one, one, one, False, none, 1, [True] * 3
                result: torch.Tensor = torch.ops.aten.convolution_backward(*args)[i]
                return result

            yield f"{name} {result}", backward


def emulated(row: str, plan: str, call: Call) -> torch.Tensor:
    with lab.emulate(row, library=plan):
        return call()


def products() -> tuple[int, int]:
    """Prints a row for each class; gives how many outputs were compared, and how many differ."""
    draw = torch.Generator().manual_seed(1)
    rows: dict[str, list[int]] = {}  # outputs, those that differ, those of each control
    for _ in range(8):
        for name, call in itertools.chain(calls_of_products(draw), calls_of_convolutions(draw)):
            row = rows.setdefault(name, [0, 0] + [0] * len(CONTROLS))
            if row[0] >= 1000:
                continue
            native = call()
            row[0] += native.numel()
            for i, (chip, plan) in enumerate([("avx512_bf16", "onednn"), *CONTROLS.values()]):
                row[1 + i] += differing(native, emulated(chip, plan, call))
    print(f"{'product':16} {'outputs':>8} {'differ':>7}  " + "  ".join(f"{name:>10}" for name in CONTROLS))
    for name, (compared, wrong, *controls) in rows.items():
        print(f"{name:16} {compared:8} {wrong:7}  " + "  ".join(f"{c / compared:10.1%}" for c in controls))
    return sum(row[0] for row in rows.values()), sum(row[1] for row in rows.values())


class Perceptron(nn.Module):
    """Layers with a head of width 1, and a small one below ATen's 4096 multiplications."""

    inputs = (600,)

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(600, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 1030), nn.GELU())
        self.digits, self.head = nn.Linear(1030, 10), nn.Linear(1030, 1)
        self.small = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.body(x)
        return self.digits(y).float() + self.head(y).float() + self.small(x[:8, :4]).float().mean()


class Convolutions(nn.Module):
    """Two convolutions with their biases, the second in the layout channels_last."""

    inputs = (1, 14, 14)

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
        self.norm, self.digits = nn.GroupNorm(4, 16), nn.Linear(32 * 7 * 7, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.gelu(self.norm(self.first(x))).contiguous(memory_format=torch.channels_last)
        y = nn.functional.avg_pool2d(nn.functional.gelu(self.second(y)), 2)
        return self.digits(y.flatten(1)).float()


class Transformer(nn.Module):
    """One block over 16 tokens of 30 numbers; attention is written out, because its fused kernel has an order of its own."""

    inputs = (16, 30)

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mixed = nn.Linear(30, 64), nn.Linear(64, 3 * 64)
        self.out, self.digits = nn.Linear(64, 64), nn.Linear(64, 10)
        self.wide = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        q, k, v = (t.unflatten(2, (4, 16)).transpose(1, 2) for t in self.mixed(x).chunk(3, 2))
        weights = torch.softmax((q @ k.transpose(2, 3)).float() / 4, -1)
        x = x + self.out((weights.bfloat16() @ v).transpose(1, 2).flatten(2))
        return self.digits((x + self.wide(x)).mean(1)).float()


def digest(weights: torch.Tensor) -> str:
    return hashlib.sha256(weights.numpy().tobytes()).hexdigest()


def training(
    network: type[nn.Module], library: str, steps: int, adam: bool, threads: int, see: Any = digest
) -> list[tuple[float, Any]]:
    """The loss, and what `see` makes of all weights, after each step. library: a plan, or "" for torch itself."""
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = network()
    if adam:
        optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    shape: Any = network.inputs
    draw = torch.Generator().manual_seed(2)
    teacher = torch.randn(math.prod(shape), 10, generator=draw)
    seen = []
    for step in range(steps):
        x = torch.randn({1: 2048, 2: 1}.get(step, 128), *shape, generator=draw)
        y = (x.flatten(1) @ teacher).argmax(1)
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
    """How far training runs get from torch's own weights with the plan, and with one chain instead."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
    for network in (Perceptron, Convolutions, Transformer):
        native, planned, chain = (
            [seen for _, seen in training(network, library, steps, True, 1, see=lambda w: w)]
            for library in ("", "onednn", "instruction")
        )
        for weights, label, style in (
            (chain, f"one chain: {network.__name__.lower()}", "-"),
            (planned, "row and plan: all three", "k--"),
        ):
            distances = [float((x - y).norm() / y.norm()) for x, y in zip(weights, native, strict=True)]
            axes.plot(range(1, steps + 1), distances, style, label=label if style == "-" or network is Transformer else None)
    axes.set_yscale("symlog", linthresh=1e-8)
    axes.set(xlabel="step", ylabel="distance from PyTorch's weights", title="BF16 trainings on this processor (AdamW)")
    axes.legend(ncols=2, loc="center right", bbox_to_anchor=(1, 0.25))
    figure.savefig(path, metadata={"Date": None}, dpi=150)


def convolved(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a b as a convolution: each row of a an image of 3 x 3, each column of b a kernel."""
    images, kernels = (t.contiguous().view(len(t), -1, 3, 3) for t in (a, b.mT))
    return nn.functional.conv2d(images, kernels).flatten(1)


def weighed(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a b as the middle tap of a weight's gradient: each row of a a channel of y, each column of b one of x, 14 x 14."""
    gradient = a.contiguous().view(len(a), -1, 14, 14).transpose(0, 1).contiguous()
    x = b.contiguous().view(-1, 14, 14, b.shape[1]).permute(0, 3, 1, 2).contiguous()
    weight, one = torch.zeros(len(a), b.shape[1], 3, 3, dtype=a.dtype), [1, 1]
    args = gradient, x, weight, None, one, one, one, False, [0, 0], 1, [False, True, False]
    result: torch.Tensor = torch.ops.aten.convolution_backward(*args)[1]
    return result[:, :, 1, 1]


def another_order() -> str:
    """How torch's own order differs from the plan's, as the sums themselves show; "" where it does not."""
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported() or "avx512_bf16" not in open("/proc/cpuinfo").read():
        return "this processor has no AVX512_BF16"
    sums = ((torch.mm, 8, 8, 600), (torch.mm, 4, 4, 70), (convolved, 4, 16, 180), (weighed, 32, 16, 392))
    for threads, (call, m, n, k) in itertools.product((2, 1), sums):
        torch.set_num_threads(threads)
        own, planned = (
            lab.reveal(product, k, torch.bfloat16, shape=(m, n))
            for product in (call, lambda a, b, call=call: emulated("avx512_bf16", "onednn", partial(call, a, b)))
        )
        if own != planned:
            return f"this PyTorch has another order: {call.__name__} of {m} x {n} x {k} adds as {own}, not as {planned}"
    return ""


def main() -> int:
    if any(word in ("-h", "--help") for word in sys.argv[1:]):
        print(__doc__)
        return 0
    all_steps = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    torch.set_num_threads(1)
    if other := another_order():
        print(f"Skipped: {other}")
        return 77
    compared, wrong = products()
    print(f"{compared} outputs of products compared: {wrong} differ")
    failed = wrong
    for network, adam, threads, tenths in (
        (Perceptron, True, 1, 2),
        (Perceptron, False, 2, 1),
        (Convolutions, True, 1, 2),
        (Convolutions, False, 2, 1),
        (Transformer, True, 1, 3),
        (Transformer, False, 2, 1),
    ):
        steps = all_steps * tenths // 10
        native, predicted = (training(network, library, steps, adam, threads) for library in ("", "onednn"))
        equal = sum(x == y for x, y in zip(native, predicted, strict=True))
        failed += steps - equal
        print(
            f"{network.__name__}, {'AdamW' if adam else 'SGD'}, {threads} thread(s): loss and every weight are equal in {equal} of {steps} "
            f"steps; last loss {native[-1][0]:.4f}"
        )
    if len(sys.argv) > 2:
        draw(sys.argv[2], 50)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
