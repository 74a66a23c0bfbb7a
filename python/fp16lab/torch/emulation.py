"""What the handlers of lab.emulate's operations have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from .tensor_products import TensorProducts

#: Takes the run and the operation, then what the operation takes.
Handler = Callable[..., Any]


class EmulationError(NotImplementedError):
    """An operation that lab.emulate does not know, or cannot emulate as it was called.

    >>> try:
    ...     with lab.emulate():
    ...         _ = torch.linalg.inv(torch.ones(2, 2))
    ... except lab.EmulationError as error:
    ...     print(str(error)[:43])
    aten::linalg_inv_ex is on no list of lab.em
    """


class Run(Protocol):
    """What a product asks of the scope that it runs in."""

    products: TensorProducts

    def count_emulated(self, func: Any, *operands: torch.Tensor) -> None:
        """Counts a product that is emulated elsewhere."""

    def emulates(self, func: Any, *operands: torch.Tensor, unless: str = "") -> bool:
        """Counts the product; False: torch multiplies. EmulationError, with nothing counted: it cannot be emulated,
        because of `unless` or of an operand whose memory is not its value."""


def torchs_error(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Operands that do not fit: torch says so in its own words."""
    func(*args, **kwargs)
    raise EmulationError(f"{func.name()} is not emulated for operands of these shapes and dtypes")
