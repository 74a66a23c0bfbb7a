"""Which of a training's passes count: the backward passes that were completed, and the forward passes before them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch


@dataclass(eq=False)
class _Forward:
    """What was counted in one forward pass. followed: a backward pass of it is noticed."""

    countings: list[Callable[[], None]] = field(default_factory=list)
    followed: bool = False


class Passes:
    """A forward pass counts when a backward pass that reached one of its tensors has been completed, and what a
    backward pass finds when that one has. What one found that raised does not count; nor does a forward pass that
    no completed backward pass reached, unless no backward pass was seen in its step at all.

    A forward pass without gradients (a teacher's, an average's) is none of the training, unless a backward pass
    computes it again: so does activation checkpointing with use_reentrant=True. One with them whose tensors all have
    none (a frozen network's) belongs to the next one.
    """

    def __init__(self) -> None:
        self._forwards: list[_Forward] = []  # of this step
        self.clear()

    def clear(self) -> None:
        """A step begins."""
        for forward in self._forwards:  # tensors that outlive the step still know them
            forward.countings.clear()
        self._forwards = []
        self._found: list[Callable[[], None]] = []  # by the backward passes that are open
        self._reached: list[_Forward] = []  # by these
        self._open: list[int] = []  # backward passes that have begun, the outermost first
        self._any_backward = False
        self._recomputing = False  # is the innermost of them computing forward?
        self._without_gradients: Counter[str] = Counter()  # forward passes, by tensor

    def begin(self) -> None:
        """A forward pass begins: of the network, or of a module of it outside of such a pass."""
        if not self._forwards or self._forwards[-1].followed:
            self._forwards.append(_Forward())

    def follow(self, tensor: torch.Tensor) -> None:
        """A tensor of the forward pass that began last, whose gradient shows a backward pass."""
        if tensor.requires_grad and torch._C._current_graph_task_id() == -1 and self._forwards:
            self._forwards[-1].followed = True
            tensor.register_hook(partial(self._on_gradient, self._forwards[-1]))

    def add(self, counting: Callable[[], None]) -> None:
        """`counting` is done when the pass that is under way is known to count."""
        forward = torch._C._current_graph_task_id() == -1 and self._forwards
        (self._forwards[-1].countings if forward else self._found).append(counting)

    def finish(self) -> None:
        """The step ends."""
        if not self._any_backward:
            self._reached = self._forwards
            self._do()

    def backward(self) -> None:
        """A backward pass is under way."""
        task = torch._C._current_graph_task_id()
        if task == -1 or task in self._open[-1:]:
            return
        if self._open and not self._recomputing:  # else it is one within the recomputation
            self._abort()
        self._recomputing = False
        self._any_backward = True
        self._open.append(task)
        torch.autograd.Variable._execution_engine.queue_callback(self._leave)

    def forward(self) -> None:
        """A forward pass is under way, perhaps within a backward pass, which computes it again."""
        if torch._C._current_graph_task_id() != -1:
            self.backward()
            self._recomputing = True
        elif self._open:
            self._abort()

    def counts(self, name: str) -> bool:
        """Does the tensor of this name count, in the forward pass that is under way? Once, if it is computed
        again."""
        if torch._C._current_graph_task_id() == -1:
            if not torch.is_grad_enabled():
                self._without_gradients[name] += 1
            return torch.is_grad_enabled()
        self._without_gradients[name] -= 1
        return self._without_gradients[name] >= 0

    def _on_gradient(self, forward: _Forward, _: torch.Tensor) -> None:
        self.backward()
        self._reached.append(forward)

    def _leave(self) -> None:
        if self._open:
            self._open.pop()
        if not self._open:
            self._reached += [each for each in self._forwards[-1:] if not each.followed]
            self._do()

    def _abort(self) -> None:
        """The backward pass that was open has raised."""
        self._found.clear()
        self._reached.clear()
        self._open.clear()

    def _do(self) -> None:
        for countings in (*(each.countings for each in self._reached), self._found):
            for counting in countings:
                counting()
            countings.clear()
        self._reached = []
