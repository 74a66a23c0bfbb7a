"""Which of a training's passes count: a backward pass that raised, and the forward pass before it, do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import torch


class Passes:
    """What was counted since the last backward pass that ended: it counts when the next one has ended.

    A forward pass without gradients (a teacher's, an average's) is none of the training, unless a backward pass
    computes it again: so does activation checkpointing with use_reentrant=True.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """A step begins."""
        self._pending: list[Callable[[], None]] = []
        self._open: list[int] = []  # backward passes that have begun, the outermost first
        self._recomputing = False  # is the innermost of them computing forward?
        self._without_gradients: Counter[str] = Counter()  # forward passes, by tensor

    def add(self, counting: Callable[[], None]) -> None:
        """`counting` is done when the pass has ended."""
        self._pending.append(counting)

    def finish(self) -> None:
        """The step ends: what no backward pass has followed counts as well, unless the last one raised."""
        if self._open:
            self._abort()
        self._do()

    def backward(self) -> None:
        """A backward pass is under way."""
        task = torch._C._current_graph_task_id()
        if task == -1 or task in self._open[-1:]:
            return
        if self._open and not self._recomputing:  # else it is one within the recomputation
            self._abort()
        self._recomputing = False
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

    def _leave(self) -> None:
        if self._open:
            self._open.pop()
        if not self._open:
            self._do()

    def _abort(self) -> None:
        """The backward pass that was open has raised."""
        self._pending.clear()
        self._open.clear()

    def _do(self) -> None:
        for counting in self._pending:
            counting()
        self._pending.clear()
