"""lab.comm_hook: gradients of DistributedDataParallel averaged as on a wire of 16 bits, in NCCL's order."""

# Annotations stay what they are: DistributedDataParallel looks at those of a hook.
import os
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from .. import _core
from .tables import aligned, save_csv

_WIRES, _ORDERS, _DIVISORS = ("f32", "f16", "bf16"), ("nccl-ring", "nccl-tree"), ("1", "sqrt", "n")


@dataclass(frozen=True, slots=True)
class Mean:
    """One bucket's average: what it cost against the exact mean (the sum over ranks in FP64, divided).

    values: of the bucket. error: L2 norm of the difference over that of the exact mean. lost: values that are
    zero where the exact mean is not. subnormal: values below the wire's least normal number, not zero.
    overflow: not finite although every rank's value was.
    """

    call: int
    bucket: int
    ranks: int
    values: int
    error: float
    lost: int
    subnormal: int
    overflow: int


class comm_hook:
    """A communication hook that averages gradients bit for bit as NCCL would, and counts what that costs.

        model = DistributedDataParallel(network)               # on gloo, CPU tensors
        hook = lab.comm_hook(wire="f16", order="nccl-ring", predivide="n")
        model.register_comm_hook(None, hook)
        ...
        print(hook.table())
        hook.save("results/mine")                              # comm.csv in the run folder of lab.watch

    wire: "f16", "bf16" or "f32": what travels; every partial sum is rounded to it. order: "nccl-ring" or
    "nccl-tree" (the double binary tree), as NCCL adds over as many ranks. predivide: what each rank divides
    by before: "n", the number of ranks (DistributedDataParallel), "sqrt", its root (FSDP), or "1"; the rest
    is divided after. NCCL's own kernels may cut a bucket into channels, which this does not: one channel.

    Every rank gathers all ranks' buckets and computes the same mean: it is an experiment on numerics, and
    moves as many bytes a rank as there are ranks. ValueError: an unknown name. TypeError: gradients that are
    not on the CPU in float32, float16 or bfloat16.

    >>> hook = comm_hook(wire="bf16", order="nccl-tree")
    >>> hook.mean([torch.tensor([1.0, 2.0]), torch.tensor([3.0, 2.0])])
    tensor([2., 2.])
    >>> comm_hook(wire="f8")
    Traceback (most recent call last):
    ValueError: wire is 'f8'; one of f32, f16, bf16 is needed
    """

    def __init__(
        self, wire: str = "f16", order: str = "nccl-ring", predivide: str | int = "n", group: Any = None
    ) -> None:
        for name, value, known in (
            ("wire", wire, _WIRES),
            ("order", order, _ORDERS),
            ("predivide", str(predivide), _DIVISORS),
        ):
            if value not in known:
                raise ValueError(f"{name} is {value!r}; one of {', '.join(known)} is needed")
        self.wire, self.order, self.predivide, self._group = wire, order, str(predivide), group
        self._least_normal = 0.0 if wire == "f32" else 2.0 ** (-14 if wire == "f16" else -126)
        self.__name__ = self.__qualname__ = "fp16lab_comm_hook"  # DistributedDataParallel needs names
        self.means: list[Mean] = []
        self._calls = 0

    def __call__(
        self,
        state: Any,
        bucket: dist.GradBucket,  # type: ignore[name-defined]
    ) -> torch.futures.Future[torch.Tensor]:
        given = bucket.buffer()
        if given.device.type != "cpu" or given.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise TypeError(
                f"lab.comm_hook: a bucket of {given.dtype} on {given.device}; float32, float16 or bfloat16 on"
                " the CPU is needed"
            )
        group = self._group or dist.group.WORLD
        ranks = [torch.empty_like(given) for _ in range(dist.get_world_size(group))]
        dist.all_gather(ranks, given, group=group)
        if bucket.index() == 0:
            self._calls += 1
        result = self.mean(ranks, bucket.index()).to(given.dtype)
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(result)
        return future

    def mean(self, ranks: list[torch.Tensor], bucket: int = 0) -> torch.Tensor:
        """The mean of one tensor of every rank, FP32, of one dimension; it is counted as a bucket."""
        values = torch.stack([rank.float() for rank in ranks])
        exact = values.double().mean(0)
        finite = values.isfinite().all(0)
        result = torch.empty(values.shape[1])
        _core.mean_over_ranks(values.numpy(), self.wire, self.order, self.predivide, result.numpy())
        both = finite & result.isfinite()
        difference = torch.where(both, result.double() - exact, 0.0).norm()
        norm = torch.where(both, exact, 0.0).norm()
        small = (result.abs() < self._least_normal) & (result != 0)
        self.means.append(
            Mean(
                self._calls,
                bucket,
                len(ranks),
                result.numel(),
                float(difference / norm) if norm > 0 else 0.0,
                int(((result == 0) & (exact != 0)).sum()),
                int(small.sum()),
                int((finite & ~result.isfinite()).sum()),
            )
        )
        return result

    def table(self) -> str:
        """A line a bucket, over all calls: the mean of its errors, and sums of the counts."""
        lines: list[list[str]] = [["bucket", "calls", "values", "error", "lost %", "subnormal %", "overflow"]]
        for bucket in sorted({mean.bucket for mean in self.means}):
            own = [mean for mean in self.means if mean.bucket == bucket]
            total = sum(mean.values for mean in own)
            lines.append(
                [
                    str(bucket),
                    str(len(own)),
                    str(total),
                    f"{sum(mean.error for mean in own) / len(own):.3g}",
                    f"{100 * sum(mean.lost for mean in own) / total:.3f}",
                    f"{100 * sum(mean.subnormal for mean in own) / total:.3f}",
                    str(sum(mean.overflow for mean in own)),
                ]
            )
        return f"{self.wire}, {self.order}, predivide {self.predivide}\n" + aligned(lines)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Writes comm.csv into a folder, as a whole or not at all: a row for each call and bucket."""
        rows = (astuple(mean) for mean in self.means)
        return save_csv(Path(folder) / "comm.csv", [field.name for field in fields(Mean)], rows)
