"""Open and past scopes of lab.autocast in each thread: whose lists count, and which casts are kept."""

from __future__ import annotations

import sys
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from .scopes import fused_encoders_off, uncompiled


class Scope:
    """An open or past lab.autocast: its owner, its lists, and the numbers of the autograd nodes made in it."""

    def __init__(self, owner: object, lists: str, switch: torch.autocast) -> None:
        self.owner: object | None = owner
        self.lists = lists
        with ExitStack() as switches:
            switches.callback(register_module_forward_pre_hook(_tells_of_other_devices()).remove)
            switches.enter_context(switch)
            if lists == "cuda":
                switches.enter_context(fused_encoders_off)
                if "torch._dynamo" in sys.modules:  # else nothing is compiled yet
                    switches.enter_context(uncompiled)
            self.switches = switches.pop_all()
        self.first_node = torch._C._autograd._get_sequence_nr()
        self.end_node = self.first_node


def _tells_of_other_devices() -> Callable[[Any, tuple], None]:
    """A hook that looks at the first tensor that a module of this thread gets."""
    own, looked = threading.get_ident(), False

    def look(_: Any, args: tuple) -> None:
        nonlocal looked
        tensor = next((each for each in args if isinstance(each, torch.Tensor)), None)
        if looked or tensor is None or threading.get_ident() != own:
            return
        looked = True
        if tensor.device.type not in ("cpu", "meta"):
            warnings.warn(
                f"lab.autocast casts CPU tensors, and these are on {tensor.device}, where it has no effect:"
                f' torch.autocast("{tensor.device.type}") is that device\'s own',
                stacklevel=4,
            )

    return look


#: In place of an autograd node's number: forward, in an open scope.
_OPEN = -1


class Thread(threading.local):
    """The scopes of one thread, and its casts of parameters."""

    def __init__(self) -> None:
        self.open: list[Scope] = []
        self.past: deque[Scope] = deque(maxlen=1024)  # for backward passes that compute forward again
        self.casts: dict[tuple, tuple[weakref.ref, torch.Tensor]] = {}
        self.casts_of = _OPEN

    def leave(self, owner: object, *error: Any) -> None:
        """The innermost scope ends, whosever it is. RuntimeError: none of this thread is `owner`'s."""
        own = next((each for each in reversed(self.open) if each.owner is owner), None)
        if own is None:
            raise RuntimeError(
                "this lab.autocast is not open in this thread: it was never entered here, or was left already"
            )
        scope = self.open.pop()
        own.owner, scope.owner = scope.owner, None
        scope.switches.__exit__(*error)
        scope.end_node = torch._C._autograd._get_sequence_nr()
        self.past.append(scope)
        if not self.open:
            self.casts.clear()

    def lists(self) -> str:
        """Which lists count for the operation at hand."""
        if self.open:
            return self.open[-1].lists
        node = torch._C._current_autograd_node()
        return "cpu" if node is None else self._lists_of(node._sequence_nr())

    def _lists_of(self, node: int) -> str:
        """Those under which an autograd node was made: a backward pass is computing forward again."""
        for scope in reversed(self.past):
            if scope.first_node <= node < scope.end_node:
                # What is made now belongs to it, too: checkpoints in checkpoints.
                scope.end_node = max(scope.end_node, torch._C._autograd._get_sequence_nr())
                return scope.lists
        return "cpu"

    def parameter(self, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """The cast of a parameter: one for all uses, as at::autocast::cached_cast keeps it.

        Kept until the outermost scope ends; by a backward pass that computes forward again, for one node.
        Unlike there, a cast made without gradients serves no use that needs them, nor one from before the
        parameter changed.
        """
        place = _OPEN if self.open else torch._C._current_autograd_node()._sequence_nr()
        if place != self.casts_of:
            self.casts.clear()
            self.casts_of = place
            if not self.open:  # a backward pass that computes forward again
                torch.autograd.Variable._execution_engine.queue_callback(self.casts.clear)
        key = (id(value), dtype, value._version, torch.is_grad_enabled())
        kept = self.casts.get(key)
        if kept is None or kept[0]() is not value:
            kept = self.casts[key] = weakref.ref(value), value.to(dtype)
        return kept[1]


thread = Thread()
