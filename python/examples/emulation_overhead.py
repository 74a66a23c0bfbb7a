"""What lab.emulate and lab.recipe cost: steps of a transformer of MiniLM's size, and single operations.

    python python/examples/emulation_overhead.py            # three minutes
    python python/examples/emulation_overhead.py --pairs 3 --width 96

A step under emulation (FP16 autocast, every product emulated), or in a recipe with a tensor core's sums, and
torch's own step in FP32 alternate in one process; shown is the median of the ratios of their wall times. Then what
the scope adds to one operation, in microseconds: to a product of two numbers and to an addition, beside what a
dispatch mode that does nothing adds to them.
"""

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from watch_overhead import BATCH, TOKENS, VOCABULARY, of_command_line

import fp16lab.torch as lab


class Empty(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def emulated(core: str) -> AbstractContextManager[object]:
    scopes = ExitStack()
    scopes.enter_context(lab.emulate(core))
    scopes.enter_context(lab.autocast(torch.float16))
    return scopes


def step_ratio(model: nn.Module, scope: Callable[[], AbstractContextManager[object]], pairs: int) -> float:
    """The median over pairs of the time of a step in `scope` divided by that of torch's FP32."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(VOCABULARY, (BATCH, TOKENS + 1))

    def step(inside: bool) -> float:
        began = time.perf_counter()
        optimizer.zero_grad()
        with scope() if inside else nullcontext():
            scores = model(tokens[:, :-1]).flatten(0, 1)
            loss = nn.functional.cross_entropy(scores, tokens[:, 1:].flatten())
            loss.backward()
        optimizer.step()
        return time.perf_counter() - began

    for inside in (True, False):
        step(inside)  # memory, and the optimizer's state
    times = [
        (step(True), step(False)) if pair % 2 else (step(False), step(True))[::-1] for pair in range(pairs)
    ]
    return statistics.median(half / full for half, full in times)


def microseconds(scope, call, count: int = 2000) -> float:
    """One call's time: the median of 21 rounds of `count` calls."""
    rounds = []
    with scope:
        for _ in range(21):
            began = time.perf_counter()
            for _ in range(count):
                call()
            rounds.append((time.perf_counter() - began) / count * 1e6)
    return statistics.median(rounds)


def main() -> None:
    model, pairs = of_command_line(__doc__, 15)
    for core in ("hopper", "ampere", "volta"):
        print(f"{core}: {step_ratio(model, lambda: emulated(core), pairs):.2f} times torch's FP32 step")
    for name in ("mxfp8", "nvfp4"):
        ratio = step_ratio(model, lambda: lab.recipe(name, model, sums="row"), pairs)
        print(f"recipe {name}: {ratio:.2f} times torch's FP32 step")

    one, half = torch.ones(8), torch.ones(1, 1).half()
    product, addition = lambda: torch.mm(half, half), lambda: torch.add(one, one)
    bare, empty, own = (
        [microseconds(scope(), call) for call in (product, addition)]
        for scope in (nullcontext, Empty, lab.emulate)
    )
    for i, name in enumerate(("a product", "another operation")):
        print(
            f"{name}: {own[i] - bare[i]:+.1f} us in lab.emulate, {empty[i] - bare[i]:+.1f} us in an empty"
            f" mode (ratio {(own[i] - bare[i]) / (empty[i] - bare[i]):.2f}), beside {bare[i]:.1f} us without"
        )


if __name__ == "__main__":
    main()
