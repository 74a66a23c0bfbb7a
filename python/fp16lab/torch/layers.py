"""Which layer of a network is at work, in the forward pass and in the backward pass."""

from __future__ import annotations

from bisect import bisect_right
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from .networks import path_of


class LayerTracker:
    """Follows the calls of a network's modules by hooks.

    Forward, the layer is the innermost module that is being called. Backward, it is the one that was being
    called when the autograd node at work was made: nodes are numbered as they are made, and the numbers at
    which modules begin and end are kept. What a backward pass recomputes (activation checkpointing) is a
    forward pass.
    """

    def __init__(self, model: nn.Module | None) -> None:
        self._model = model
        self._stack: list[str] = []
        self._numbers: list[int] = []
        self._layers: list[str] = []
        self._hooks: list[Any] = []

    def begin(self) -> None:
        self._mark("")
        for name, module in self._model.named_modules() if self._model is not None else ():
            self._hooks.append(
                module.register_forward_pre_hook(partial(self._enter, path_of(name)), prepend=True)
            )
            self._hooks.append(module.register_forward_hook(self._leave, always_call=True))

    def end(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def forget(self) -> None:
        """What was made up to now has no layer any more: a step has ended."""
        self._numbers, self._layers = [], []
        self._mark(self._stack[-1] if self._stack else "")

    def site(self) -> tuple[str, str]:
        """(layer, "forward" or "backward"); the layer is empty outside of all modules."""
        if self._stack:
            return self._stack[-1], "forward"
        node = torch._C._current_autograd_node()
        if node is None:
            return "", "forward" if torch._C._current_graph_task_id() == -1 else "backward"
        return self.layer_of(node), "backward"

    def layer_of(self, node: Any) -> str:
        """Which one was being called when an autograd node was made; empty outside of all modules."""
        number = node._sequence_nr()
        if number >= 2**63:  # nodes that add up the gradients of leaves have no number
            return ""
        return self._layers[max(bisect_right(self._numbers, number) - 1, 0)]

    def _enter(self, path: str, *_: Any) -> None:
        self._stack.append(path)
        self._mark(path)

    def _leave(self, *_: Any) -> None:
        self._stack.pop()
        self._mark(self._stack[-1] if self._stack else "")

    def _mark(self, layer: str) -> None:
        self._numbers.append(torch._C._autograd._get_sequence_nr())
        self._layers.append(layer)


def op_name(func: Any) -> str:
    """ "addmm" of aten.addmm.default; "cast" of a copy that changes the dtype, or may do."""
    space, _, name = func._schema.name.partition("::")
    if name == "_to_copy":
        return "cast"
    return name if space == "aten" else f"{space}::{name}"


def node_name(node: Any) -> str:
    """The operation whose gradient a node computes: "addmm" of AddmmBackward0, "cast" of ToCopyBackward0."""
    name = node.name().rsplit("::", 1)[-1].split("Backward")[0]
    snake = "".join("_" + c.lower() if c.isupper() and i else c.lower() for i, c in enumerate(name))
    return "cast" if snake == "to_copy" else snake


def gives_views(func: Any) -> bool:
    """Does it only show memory in another shape?"""
    return any(
        value.alias_info is not None and not value.alias_info.is_write for value in func._schema.returns
    )


def float_tensors(value: Any) -> list[torch.Tensor]:
    """Floating-point tensors of nested arguments, in order."""
    return [
        leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    ]
