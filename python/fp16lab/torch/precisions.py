"""What a watched training computes its products in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from . import emulating, recipes
from .counting import FORMATS
from .networks import CAST_BY_AUTOCAST, first_tensor, observed_modules


class Precisions:
    """The dtypes that modules with products gave in training (without such: those of all modules without children), and
    the tensor core that lab.emulate had them computed by, and lab.recipe's recipe."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._given: Counter[torch.dtype] = Counter()
        self._machine: dict[str, object] = {}
        self._recipe: dict[str, object] = {}  # by the engine's keys

    def __reduce__(self) -> tuple[Any, ...]:
        """A network that is pickled or copied with its hooks is not looked at where it is loaded."""
        return Precisions, (nn.Module(),)

    def listen(self, scope: ExitStack) -> None:
        """Until `scope` closes."""
        modules = [module for _, module in observed_modules(self._model)]
        products = [module for module in modules if isinstance(module, CAST_BY_AUTOCAST)]
        for module in products or modules:
            scope.callback(module.register_forward_hook(self._on_output).remove)

    def tables(self) -> dict[str, Mapping[str, object]]:
        """As sections of a configuration: [amp] and [backend]; empty where nothing was computed. The 16-bit or 8-bit
        dtype that was given most often counts, for layers around it may stay FP32."""
        if not self._given:
            return {}
        low = [(times, FORMATS[dtype]) for dtype, times in self._given.items() if dtype.itemsize < 4 and dtype in FORMATS]
        stored = any(parameter.dtype.itemsize < 4 for parameter in self._model.parameters())
        level = "O0" if not low else "O3" if stored else "O1"
        dtype = {"dtype": max(low)[1]} if low else {}
        if self._recipe and not low:  # FP32 around products of codes is not the FP32 that others are compared with
            level, dtype = "O1", {"dtype": "f32"}
        tables: dict[str, Mapping[str, object]] = {"amp": {"level": level, **dtype, **self._recipe}}
        return {**tables, **({"backend": self._machine} if self._machine else {})}

    @torch.compiler.disable
    def _on_output(self, module: nn.Module, _: tuple[object, ...], output: object) -> None:
        tensor = first_tensor(output)
        if tensor is None or not tensor.is_floating_point() or not module.training:
            return
        self._given[tensor.dtype] += 1
        run, rounding = emulating.running(), recipes.running()
        if rounding is not None:
            how = rounding.recipe
            wide = {"recipe_wide": sorted(rounding.wide)} if rounding.wide else {}
            parts = {"recipe_stochastic": how.stochastic, "recipe_hadamard": how.hadamard > 0}
            self._recipe = {"recipe": how.name, **parts, **wide}
        if run is not None:
            self._machine = {"tensor_core": run.products.tensor_core, "accumulator": run.accumulator}
