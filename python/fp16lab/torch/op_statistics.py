"""lab.op_stats: which operation ran in which dtype, how often, in which layer and pass."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from .layers import LayerTracker, float_tensors, gives_views, op_name
from .networks import any_compiled, unwrapped
from .scopes import Opened
from .tables import aligned, save_csv

_COLUMNS = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.float64: "f64"}
_HEADER = ("op", "layer", "pass", "f16", "bf16", "f32", "f64", "other")


class op_stats:
    """Counts PyTorch's operations while the context is open.

        with lab.op_stats(model) as stats:
            with torch.autocast("cpu", torch.float16):
                loss = loss_fn(model(x), y)
            loss.backward()
        print(stats.table())

    A row is an operation ("addmm", "convolution", as the dispatcher names it after autocast and autograd) in
    a layer (module path; empty outside of `model`) and a pass: forward, backward or optimizer. Its columns
    count calls by the dtype of the first floating-point result: f16, bf16, f32, f64, other (FP8, complex).
    Casts are rows of their own, op "cast", by the dtype that they give. Operations that only show memory in
    another shape are left out, and those without floating-point numbers. What a backward pass recomputes
    counts as forward.

    ValueError: a compiled module, whose operations are fused and not to be seen. RuntimeError: left in another
    thread than it was entered in.

    >>> model = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    >>> with op_stats(model) as stats, torch.autocast("cpu", torch.float16):
    ...     _ = model(torch.ones(4, 3))
    >>> stats.counts["addmm", "0", "forward"]["f16"], stats.total("cast", "f16")
    (1, 3)
    """

    def __init__(self, model: nn.Module | None = None) -> None:
        network = None
        if model is not None:
            instead = "lab.op_stats() without a network counts operations without their layers"
            network = unwrapped(model, "lab.op_stats", instead)
            if any_compiled(model):
                raise ValueError(
                    "torch.compile fuses the operations of this network: give lab.op_stats the module before "
                    "compiling"
                )
        self._tracker = LayerTracker(network)
        self._mode = _Counting(self._on_op)
        self._in_optimizer = False
        self._opened = Opened("lab.op_stats")
        self.counts: dict[tuple[str, str, str], dict[str, int]] = {}

    def __enter__(self) -> op_stats:
        self._opened.require_closed()
        with ExitStack() as scope:
            scope.callback(self._tracker.end)
            self._tracker.begin()
            scope.callback(self._set_optimizer(False))
            scope.callback(register_optimizer_step_pre_hook(self._set_optimizer(True)).remove)
            scope.callback(register_optimizer_step_post_hook(self._set_optimizer(False)).remove)
            scope.enter_context(self._mode)
            self._opened.hold(scope)
        return self

    def __exit__(self, *error: Any) -> None:
        self._opened.close(*error)

    def rows(self) -> list[dict[str, str | int]]:
        """A dictionary for each row, in the order of first calls."""
        return [
            {"op": op, "layer": layer, "pass": pass_, **counts}
            for (op, layer, pass_), counts in self.counts.items()
        ]

    def total(self, op: str, dtype: str) -> int:
        """Calls of an operation with this column's dtype, over all layers and passes."""
        return sum(counts[dtype] for (name, _, _), counts in self.counts.items() if name == op)

    def table(self) -> str:
        """All rows as text, and a line of totals; columns that are empty are left out."""
        rows = self.rows()
        shown = [c for c in _HEADER if c in _HEADER[:3] or any(row[c] for row in rows)]
        lines = [shown] + [[str(row[c]) or "-" for c in shown] for row in rows]
        lines.append(["total", "", ""] + [str(sum(int(row[c]) for row in rows)) for c in shown[3:]])
        return aligned(lines)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the rows as CSV, as a whole or not at all; returns the path."""
        return save_csv(path, _HEADER, ([row[column] for column in _HEADER] for row in self.rows()))

    def _set_optimizer(self, inside: bool) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            self._in_optimizer = inside

        return hook

    def _on_op(self, func: Any, args: tuple, result: Any) -> None:
        values = float_tensors(result) or float_tensors(args) if func._schema.returns else float_tensors(args)
        if gives_views(func) or not values:
            return
        op = op_name(func)
        if op == "cast" and values[0].dtype == args[0].dtype:
            op = "copy"
        layer, pass_ = self._tracker.site()
        if self._in_optimizer:
            layer, pass_ = "", "optimizer"
        counts = self.counts.setdefault((op, layer, pass_), dict.fromkeys(_HEADER[3:], 0))
        counts[_COLUMNS.get(values[0].dtype, "other")] += 1


class _Counting(TorchDispatchMode):
    def __init__(self, on_op: Callable[[Any, tuple, Any], None]) -> None:
        super().__init__()
        self._on_op = on_op

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self._on_op(func, args, result)
        return result
