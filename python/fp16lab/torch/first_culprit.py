"""Finds the operation that made the first Inf or NaN of a pass, while it runs."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

from .. import _core
from .counting import count, format_of, is_countable
from .layers import LayerTracker, float_tensors, gives_views, node_name, op_name
from .networks import joined, path_of
from .wide_operations import PRODUCTS, Call, Place, Places, as_it_is, in_fp32

#: Memory that no operation has written yet.
UNWRITTEN = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_")
#: Operations that put infinities on purpose: masks.
_DELIBERATE = (
    "full",
    "full_like",
    "new_full",
    "fill",
    "fill_",
    "masked_fill",
    "masked_fill_",
    "scalar_tensor",
    "where",
    "copy_",
    "clone",
    "index_put",
    "index_put_",
    "lift_fresh",
    "log",
)
#: Nodes whose gradient is that of the memory they show.
_VIEWS = ("view", "unsafe_view", "transpose", "t", "permute", "squeeze", "unsqueeze", "select", "slice")


class CulpritFinder(TorchDispatchMode):
    """Looks at every floating-point result; `culprits` has at most one for each pass, as CulpritRow's members
    (numerics/files/run/run_rows.hpp) without verdict and advice.

    `call` computes the operations. `places` has where the culprits are that an operation made, by pass and
    cause. `logs` has what the logarithms made of zeros, by place: a mask may be made so, and it is no culprit
    then."""

    def __init__(
        self, model: nn.Module, tracker: LayerTracker, loss_scale: float, call: Call = as_it_is
    ) -> None:
        super().__init__()
        self._tracker, self._loss_scale, self._call = tracker, loss_scale, call
        self._places = Places(tracker)
        self.places: dict[tuple[str, str], Place] = {}
        self.logs: dict[Place, dict[str, Any]] = {}
        self._parameters = {path_of(name): parameter.shape for name, parameter in model.named_parameters()}
        self._names = WeakIdKeyDictionary()
        for name, parameter in model.named_parameters():
            self._names[parameter] = path_of(name)
        self._first: dict[tuple[str, str], dict[str, Any]] = {}  # by pass and cause

    @property
    def culprits(self) -> list[dict[str, Any]]:
        """Forward, then backward. Infinities that the model made itself only count where nothing else
        does."""
        found = []
        for pass_ in ("forward", "backward"):
            for cause in ("parameter", "data", "loss_scale", "operation", "infinity"):
                if (pass_, cause) in self._first:
                    found.append(self._first[(pass_, cause)])
                    break
        return found

    def note(self, pass_: str, cause: str, tensor: str, value: torch.Tensor, **facts: Any) -> None:
        """Takes down a culprit, unless the pass has one of this cause already."""
        if (pass_, cause) not in self._first:
            self._first[(pass_, cause)] = self._row(pass_, cause, tensor, value, **facts)

    def _row(
        self, pass_: str, cause: str, tensor: str, value: torch.Tensor, **facts: Any
    ) -> dict[str, Any]:
        return {
            "pass": pass_,
            "cause": cause,
            "tensor": tensor,
            "loss_scale": self._loss_scale,
            **_facts_of(value),
            **facts,
        }

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        op = op_name(func)
        place = self._places.next(op)
        result = self._call(place, func, args, kwargs)
        results = [value for value in float_tensors(result) if is_countable(value)]
        if not results or op in UNWRITTEN:
            return result
        operands = [value for value in float_tensors((args, kwargs)) if is_countable(value)]
        pass_, layer = place.pass_, place.layer
        if gives_views(func) or op == "cast":
            if operands and operands[0] in self._names:
                self._names[results[0]] = self._names[operands[0]]
        else:
            self._names[results[0]] = (
                "gradient" if pass_ == "backward" else op + (f" of {layer}" if layer else "")
            )
        if not gives_views(func):
            self._look(place, func, args, kwargs, operands, results)
        return result

    def _look(
        self,
        place: Place,
        func: Any,
        args: tuple,
        kwargs: dict,
        operands: list[torch.Tensor],
        results: list[torch.Tensor],
    ) -> None:
        pass_, layer, op, _ = place
        if (pass_, "operation") in self._first:
            return
        value = next((value for value in results if not bool(torch.isfinite(value).all())), None)
        if value is None:
            return
        has_nan = bool(torch.isnan(value).any())
        if any(not bool(torch.isfinite(operand).all()) for operand in operands):
            if not has_nan or any(bool(torch.isnan(operand).any()) for operand in operands):
                return  # inherited
            cause = "infinity"
        elif op in _DELIBERATE and op != "log" and not has_nan:
            return
        else:
            cause = "operation"
        node = torch._C._current_autograd_node() if pass_ == "backward" else None
        asked = op if node is None else node_name(node)
        index = next(i for i, known in enumerate(results) if known is value)
        wide = in_fp32(func, args, kwargs, index) if value.dtype != torch.float32 else value
        facts = {
            "op": asked,
            "part": "" if op == asked else op,
            "layer": layer,
            **_wide_facts(wide, value),
            "operands": [self._operand(operand) for operand in operands],
        }
        tensor = self._tensor_name(op, layer, pass_, node, operands, value)
        if op == "log" and not has_nan:
            self.logs[place] = self._row(pass_, cause, tensor, value, **facts)
            return
        self.places.setdefault((pass_, cause), place)
        self.note(pass_, cause, tensor, value, **facts)

    def _tensor_name(
        self, op: str, layer: str, pass_: str, node: Any, operands: list[torch.Tensor], value: torch.Tensor
    ) -> str:
        # Outside of all modules only products have weights, those of a network that is one layer.
        own = {
            name: shape
            for name, shape in self._parameters.items()
            if name.rpartition(".")[0] == layer and (layer or op in PRODUCTS)
        }
        if node is not None and not layer and not own:
            maker = self._maker(node, value)
            if maker is not None:
                return maker
        named = [self._names.get(operand) for operand in operands]
        if op == "cast":
            return (
                named[0]
                if named and named[0] in own
                else joined(layer, "output" if pass_ == "backward" else "input")
            )
        if pass_ == "forward":
            return joined(layer, "output")
        if not any(name in own for name in named):  # what meets a weight gives the gradient of the input
            for name, shape in own.items():
                if value.shape in (shape, shape[::-1]):
                    return name
        return joined(layer, "input")

    def _maker(self, node: Any, value: torch.Tensor) -> str | None:
        """What a node gives the gradient `value` of: a parameter, or the output of the module, outside of
        modules of the operation, that made it. None: nothing of this shape."""
        for function, place in node.next_functions:
            if function is None or tuple(function._input_metadata[place].shape) != tuple(value.shape):
                continue
            while not self._tracker.layer_of(function) and node_name(function) in _VIEWS:
                function = function.next_functions[0][0]
            if hasattr(function, "variable"):
                return str(self._names.get(function.variable, "input"))
            layer = self._tracker.layer_of(function)
            return joined(layer, "output") if layer else f"output of {node_name(function)}"
        return None

    def _operand(self, tensor: torch.Tensor) -> dict[str, Any]:
        histogram = count(tensor)
        return {
            "name": self._names.get(tensor, "constant"),
            "dtype": format_of(tensor),
            "shape": list(tensor.shape),
            "smallest": histogram.smallest,
            "greatest": histogram.greatest,
            "histogram": histogram,
        }


def _facts_of(value: torch.Tensor) -> dict[str, Any]:
    bad = ~torch.isfinite(value).reshape(-1)
    element = int(bad.nonzero()[0, 0]) if bool(bad.any()) else 0
    return {
        "dtype": format_of(value),
        "shape": list(value.shape),
        "element": element,
        "value": float(value.reshape(-1)[element]),
        "nonfinite": int(bad.sum()),
    }


def _wide_facts(wide: torch.Tensor | None, value: torch.Tensor) -> dict[str, Any]:
    """What the result would be in FP32, where that is known."""
    if wide is None or wide.shape != value.shape:
        return {}
    histogram: _core.Histogram = count(wide)
    return {
        "wide_value": float(wide.reshape(-1)[_facts_of(value)["element"]]),
        "wide": histogram,
        "wide_greatest": histogram.greatest,
    }
