"""lab.recipe: an unchanged PyTorch model whose linear layers multiply what a block-scaled recipe leaves of their operands."""

from __future__ import annotations

import hashlib
import math
import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakSet

import numpy as np
import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from .. import _core
from ..products import models
from ..quantization import (
    AmaxHistory,
    Quantized,
    Quantizer,
    product_of_rows,
    quantize,
    quantizers,
    random_hadamard,
)
from .layers import LayerTracker
from .networks import path_of
from .scopes import Opened, Switch, uncompiled
from .tables import aligned, save_csv

#: The products of a linear layer y = x W^T, and their operands: of the result's gradient g, dx = g W and dW = g^T x.
PRODUCTS = {"forward": ("x", "weight"), "dx": ("g", "weight"), "dw": ("g", "x")}
_PLACE = ("layer", "product", "operand", "weight")
_LINEAR = torch.ops.aten.linear.default
_FORMATS = frozenset((torch.float32, torch.bfloat16, torch.float16))


@dataclass(frozen=True)
class Recipe:
    """What each operand of a linear layer's three products becomes.

    x, weight, g: quantizers of activations, weights and gradients of results, in all products that have them.
    stochastic: gradients round stochastically. hadamard: neighbours of this number are transformed along the sum of
    dw, before they are quantized; 0: not. delayed: the scale of a tensor is that of its AmaxHistory of this length;
    0: of its own amax.

    >>> from dataclasses import replace
    >>> plain = replace(recipes()["nvfp4"], stochastic=False, hadamard=0)
    >>> plain.weight.block, plain.delayed
    ((16, 16), 0)
    """

    name: str
    x: Quantizer
    weight: Quantizer
    g: Quantizer
    source: str
    stochastic: bool = False
    hadamard: int = 0
    delayed: int = 0


def recipes() -> dict[str, Recipe]:
    """The recipes by name, those of the engine's amp.recipe; dataclasses.replace makes others of them.

    >>> list(recipes())[:5]
    ['mxfp8', 'mxfp8-hybrid', 'mxfp6-e3m2', 'mxfp6-e2m3', 'mxfp4']
    >>> recipes()["nvfp4"].weight.block, recipes()["nvfp4"].hadamard
    ((16, 16), 16)
    """
    known = quantizers()

    def quantizer(name: str, rule: str) -> Quantizer:
        return replace(known[name], rule=rule)

    return {
        name: Recipe(
            name,
            quantizer(*x),
            quantizer(*weight),
            quantizer(*g),
            source,
            stochastic,
            16 if hadamard else 0,
            1024 if delayed else 0,
        )
        for name, (x, weight, g, source, stochastic, hadamard, delayed) in _core.recipes().items()
    }


#: Layer, product, operand, shape of the weight.
_Place = tuple[str, str, str, str]


@dataclass
class Losses:
    """What one operand of one product lost, over one call or several, by the names of recipe.jsonl. headroom:
    the sum over blocks; difference, norm: squares, of what quantizing changed and of the operand."""

    values: int = 0
    made_zero: int = 0
    saturated: int = 0
    blocks: int = 0
    saturated_blocks: int = 0
    least_headroom: float = math.inf
    headroom: float = 0.0
    difference: float = 0.0
    norm: float = 0.0

    @staticmethod
    def of(q: Quantized, values: int, x: torch.Tensor) -> Losses:
        there = q.headroom[~np.isnan(q.headroom)]
        return Losses(
            values,
            int(q.made_zero.sum(dtype=np.int64)),
            int(q.saturated.sum(dtype=np.int64)),
            there.size,
            int((q.saturated > 0).sum()),
            float(there.min(initial=math.inf)),
            float(there.sum(dtype=np.float64)),
            *q.changed(x, torch.get_num_threads()),
        )

    def add(self, other: Losses) -> None:
        least = min(self.least_headroom, other.least_headroom)
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
        self.least_headroom = least

    def row(self) -> dict[str, Any]:
        """As recipe.jsonl has it: without blocks that have a headroom there is none."""
        counts = "values", "made_zero", "saturated", "blocks", "saturated_blocks"
        least, mean = (self.least_headroom, self.headroom / self.blocks) if self.blocks else (None, None)
        row = {name: getattr(self, name) for name in counts}
        return {**row, "least_headroom": least, "mean_headroom": mean}


#: What tables say of a row of recipe.jsonl.
SHARES = ("zeroed %", "saturated %", "blocks", "saturating %", "headroom")


def shares(row: dict[str, Any]) -> list[str]:
    """In percent of values and of blocks, and the mean headroom in binades."""
    values, blocks, headroom = max(row["values"], 1), max(row["blocks"], 1), row["mean_headroom"]
    return [
        f"{100 * row['made_zero'] / values:.3g}",
        f"{100 * row['saturated'] / values:.3g}",
        str(row["blocks"]),
        f"{100 * row['saturated_blocks'] / blocks:.3g}",
        "-" if headroom is None else f"{round(headroom, 2) + 0.0:.2f}",
    ]


class Listener(Protocol):
    """lab.watch."""

    def on_operand(self, module: nn.Module | None, product: str, operand: str, lost: Losses) -> None:
        """`operand` of `product` of a layer in `module` was quantized; None: lab.recipe has no network."""


#: Who is told of each call.
listeners: WeakSet[Listener] = WeakSet()


class recipe:
    """Multiplies the operands of every linear layer in the scope as a recipe leaves them: in the forward pass and in both
    products of the backward pass.

        with lab.recipe("nvfp4", model, wide=["lm_head"]) as run:
            loss = loss_of(model(x), y)
            loss.backward()
        print(run.table())

    Nothing is rewritten: aten::linear is caught after autocast and before autograd, whoever calls it.
    Each operand is quantized along the dimension that its product sums over, to the bit as fp16lab.quantize says, and
    multiplied as the numbers that its codes and scales stand for, with FP32 sums that torch makes (what torchao calls
    emulated), or with those of a tensor core; the result is rounded once to the layer's dtype, and autocast's casts come before. Dimensions that are no
    multiple of a block are filled with zeros, which change no other block and add nothing to a product.

    name: a name of recipes(), or a Recipe. model: its layers' names in tables, and what `wide` is about. wide: names of
    layers, or patterns ("*.head"), that stay as they are. seed: of stochastic rounding: the bits of a call follow from
    seed, layer, operand and how many calls there were before. sums: "fp32", torch's; "row", those of the tensor core
    that takes such scales (fp16lab.quantized_matmul); or the name of one.

    Layers that call aten::mm or addmm themselves (GPT-2's Conv1D) are not seen; attention, LSTM and convolutions stay
    torch's, and so do layers in FP64. A scope belongs to the thread that opens it; compiled modules run uncompiled in
    it. Gradients of gradients are refused.

    ValueError: no such recipe; `wide` without a model, or a pattern that names none of its modules. RuntimeError:
    entered in a thread that has one open, or left in another one.

    >>> layer = torch.nn.Linear(64, 32)
    >>> with recipe("mxfp8") as run:
    ...     layer(torch.ones(8, 64)).sum().backward()
    >>> [row["product"] for row in run.losses()]
    ['forward', 'forward', 'dw', 'dw']
    """

    def __init__(
        self,
        name: str | Recipe,
        model: nn.Module | None = None,
        wide: Sequence[str] = (),
        seed: int = 0,
        sums: str = "fp32",
    ) -> None:
        known = recipes()
        if isinstance(name, str) and name not in known:
            raise ValueError(f"there is no recipe {name!r}; {', '.join(known)} are")
        if not isinstance(name, (str, Recipe)):
            raise TypeError(f"name is of {type(name).__name__}; a name of recipes() or a Recipe is needed")
        if model is not None and not isinstance(model, nn.Module):
            raise TypeError(f"model is of {type(model).__name__}; a module, or None, is needed")
        self.recipe = known[name] if isinstance(name, str) else name
        if not isinstance(sums, str) or (sums not in ("fp32", "row", "b200") and sums not in models()):
            raise ValueError(f'sums is {sums!r}; "fp32", "row" or one of {", ".join(models())} is needed')
        self.seed, self.sums = seed, sums
        self._layers = LayerTracker(model)
        named = model.named_modules() if model is not None else ()
        self._modules = {path_of(name): module for name, module in named}
        self.wide = _chosen(wide, model)
        self._losses: dict[_Place, Losses] = {}
        self._histories: dict[_Place, AmaxHistory] = {}
        self._calls: Counter[_Place] = Counter()
        self.with_gradients = True  # is the layer at work called with them? torch.autograd.Function is not
        self._opened = Opened("lab.recipe")

    def __enter__(self) -> recipe:
        self._opened.require_closed()
        if _of_thread.run is not None:
            raise RuntimeError(
                f'lab.recipe("{_of_thread.run.recipe.name}") is open in this thread: scopes do not nest, leave it first'
            )
        with ExitStack() as scope:
            scope.enter_context(uncompiled)
            scope.enter_context(_linear_caught)
            self._layers.begin()
            scope.callback(self._layers.end)
            scope.callback(setattr, _of_thread, "run", None)
            self._opened.hold(scope)
            _of_thread.run = self
        return self

    def __exit__(self, *error: Any) -> None:
        self._opened.close(*error)

    def losses(self) -> list[dict[str, Any]]:
        """A row for each layer, product and operand, over all calls: the weight's shape; then as recipe.jsonl has
        it values; how many non-zero ones became zero (made_zero), and how many rounded beyond the largest code,
        which they became (saturated); blocks with a headroom, those with a number that saturated
        (saturated_blocks), the least and the mean over blocks of log2(largest code * scale / amax)
        (least_headroom, mean_headroom; None without such blocks); and the norm of what quantizing changed over
        that of the operand (error)."""
        rows = []
        for place, lost in self._losses.items():
            error = (lost.difference / lost.norm) ** 0.5 if lost.norm else None
            rows.append({**dict(zip(_PLACE, place)), **lost.row(), "error": error})
        return rows

    def table(self) -> str:
        """The same as text: shares in percent of values and of blocks, headroom in binades, errors in percent."""
        lines = [[*_PLACE, "values", *SHARES, "error %"]]
        for row in self.losses():
            error = "-" if row["error"] is None else f"{100 * row['error']:.3g}"
            lines.append([*(str(row[column]) for column in (*_PLACE, "values")), *shares(row), error])
        return aligned(lines)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes losses() as CSV, as a whole or not at all; returns the path."""
        header = (*_PLACE, *Losses().row(), "error")
        return save_csv(path, header, ([row[column] for column in header] for row in self.losses()))

    # ---- what a caught layer asks

    def layer(self, weight: torch.Tensor) -> tuple[str, str] | None:
        """The layer at work and its weight's shape; None: it stays as it is."""
        name = self._layers.site()[0]
        if name in self.wide or weight.dtype not in _FORMATS:
            return None
        return name, "x".join(map(str, weight.shape))

    def multiply(
        self, layer: tuple[str, str], product: str, a: torch.Tensor, b: torch.Tensor, right: _Coded | None = None
    ) -> tuple[torch.Tensor, _Coded]:
        """a (m, k) b (n, k)^T with FP32 sums, from what the recipe leaves of the operands of `product`; and that of b,
        which `right` is where it is known."""
        name, shape = layer
        threads = torch.get_num_threads()
        operands = [each.detach().float().contiguous() for each in (a, b)]
        if product == "dw" and self.recipe.hadamard:
            length = self.recipe.hadamard
            operands = [random_hadamard(_filled(each, 1, length), length, threads=threads) for each in operands]
        places: list[_Place] = [(name, product, operand, shape) for operand in PRODUCTS[product]]
        coded = self._quantized(places[0], operands[0]), right or self._quantized(places[1], operands[1])
        for place, each in zip(places, coded):
            self._tell(place, each.lost)
        left, of_b = (each.codes for each in coded)
        m, n = operands[0].shape[0], operands[1].shape[0]
        if self.sums == "fp32":
            result = left.dequantize(threads) @ of_b.dequantize(threads).T
        else:
            result = product_of_rows(left, of_b, "" if self.sums == "row" else self.sums, threads)
        return result[:m, :n], coded[1]

    def _quantized(self, place: _Place, x: torch.Tensor) -> _Coded:
        """x, filled to whole blocks, quantized along its rows."""
        operand = place[2]
        how: Quantizer = getattr(self.recipe, operand)
        of_call: dict[str, Any] = {"threads": torch.get_num_threads()}
        if operand == "g" and self.recipe.stochastic:
            of_call["seed"] = self._random(place)
        history = None
        if self.recipe.delayed:
            if place not in self._histories:
                self._histories[place] = AmaxHistory(how.element, self.recipe.delayed)
            history = self._histories[place]
            of_call["scale"] = history.scale
        filled = _filled(x, *how.block)
        q = quantize(filled, how, **of_call)
        if history is not None:
            history.see(float(x.abs().max()) if x.numel() else 0.0)
        return _Coded(q, Losses.of(q, x.numel(), filled))

    def _tell(self, place: _Place, lost: Losses) -> None:
        self._losses.setdefault(place, Losses()).add(lost)
        with torch.set_grad_enabled(self.with_gradients):
            for listener in tuple(listeners):
                listener.on_operand(self._modules.get(place[0]), place[1], place[2], lost)

    def _random(self, place: _Place) -> int:
        """A seed of this call's own."""
        self._calls[place] += 1
        words = f"{self.seed}/{'/'.join(place)}/{self._calls[place]}".encode()
        return int.from_bytes(hashlib.blake2b(words, digest_size=8).digest(), "little")


class _OfThread(threading.local):
    run: recipe | None = None  # the open scope


_of_thread = _OfThread()


def running() -> recipe | None:
    """The scope that is open in this thread."""
    return _of_thread.run


@dataclass(frozen=True)
class _Coded:
    """An operand as codes, and what it lost."""

    codes: Quantized
    lost: Losses

    def transposed(self, delayed: bool) -> _Coded | None:
        """The same of the transposed operand, where its blocks are square and its scale needs no history."""
        q = self.codes
        if delayed or q.quantizer.block[0] != q.quantizer.block[1]:
            return None
        turned = {name: getattr(q, name).T for name in ("codes", "scales", "made_zero", "saturated", "headroom")}
        return _Coded(replace(q, **turned), self.lost)


class _Linear(torch.autograd.Function):
    """y = x W^T + b and its gradients."""

    @staticmethod
    def forward(ctx: Any, run: recipe, layer: tuple[str, str], x: Any, weight: Any, bias: Any) -> Any:
        ctx.run, ctx.layer = run, layer
        ctx.save_for_backward(x, weight)
        rows = x.reshape(-1, x.shape[-1])
        y, ctx.of_weight = run.multiply(layer, "forward", rows, weight)
        if bias is not None:
            y += bias
        return y.to(x.dtype).reshape(*x.shape[:-1], weight.shape[0])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Any) -> Any:
        x, weight = ctx.saved_tensors
        rows, g = x.reshape(-1, x.shape[-1]), gradient.reshape(-1, weight.shape[0])
        dx = dw = db = None
        if ctx.needs_input_grad[2]:
            of_weight = ctx.of_weight.transposed(ctx.run.recipe.delayed > 0)
            dx = ctx.run.multiply(ctx.layer, "dx", g, weight.T, of_weight)[0].to(x.dtype).reshape(x.shape)
        if ctx.needs_input_grad[3]:
            dw = ctx.run.multiply(ctx.layer, "dw", g.T, rows.T)[0].to(weight.dtype)
        if ctx.needs_input_grad[4]:
            db = g.float().sum(0).to(g.dtype)
        return None, None, dx, dw, db


def _catch_linear() -> Callable[[], object]:
    """In threads without a scope it is torch's own."""

    def caught(x: Any, weight: Any, bias: Any = None) -> Any:
        run = _of_thread.run
        layer = run.layer(weight) if run is not None else None
        if run is None or layer is None or weight.ndim != 2 or x.dtype != weight.dtype or x.shape[-1:] != weight.shape[1:]:
            return _LINEAR._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, x, weight, bias)
        run.with_gradients = torch.is_grad_enabled()
        return _Linear.apply(run, layer, x, weight, bias)

    library = torch.library.Library("aten", "IMPL")
    for key in ("AutogradCPU", "CPU"):  # the second one in inference mode
        library.impl(_LINEAR, caught, key)
    return library._destroy


_linear_caught = Switch(_catch_linear)


def _filled(x: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """With zeros up to multiples of a block; 0: as it is."""
    down = -x.shape[0] % rows if rows else 0
    across = -x.shape[1] % columns if columns else 0
    return pad(x, (0, across, 0, down)) if down or across else x


def _chosen(wide: Sequence[str], model: nn.Module | None) -> frozenset[str]:
    """The modules that the patterns name."""
    if isinstance(wide, str):
        raise TypeError(f"wide is {wide!r}; a list is needed: [{wide!r}]")
    if wide and model is None:
        raise ValueError("wide names layers of a model, and none is given: lab.recipe(name, model, wide) is right")
    names = [name for name, _ in model.named_modules()] if model is not None else []
    chosen: set[str] = set()
    for pattern in wide:
        matching = {name for name in names if fnmatchcase(name, pattern)}
        if not matching:
            linear = [n for n, module in model.named_modules() if isinstance(module, nn.Linear)] if model else []
            raise ValueError(f"wide: {pattern!r} names no module of the model; its linear layers are {', '.join(linear)}")
        chosen |= matching
    return frozenset(chosen)
