"""Loss-scale policies of PyTorch, Paddle, MindSpore, apex, Megatron and others, one step at a time."""

from __future__ import annotations

from typing import Any

from . import _core
from ._core import Histogram


class Policy(_core.Policy):
    """A loss-scale policy with its state.

    name: one of policies(). Parameters: the policy's own, by the names of the config keys; others are
    refused.
    Errors: ValueError with the nearest name. Source: engine/amp/policy.hpp; each policy's own is in
    policies().

    >>> import fp16lab
    >>> p = fp16lab.Policy("megatron", growth_interval=4, initial_scale=65536)
    >>> for found_inf in (False, True, True): p.update(found_inf)
    >>> p.scale
    32768.0
    """

    def __init__(self, name: str, **parameters: float) -> None:
        if not isinstance(name, str):
            raise TypeError(f"name is {name!r}; the name of a policy is needed")
        super().__init__(name, {key: _number(key, value) for key, value in parameters.items()})

    def update(
        self,
        found_inf: Any,
        weights: Histogram | None = None,
        activations: Histogram | None = None,
        format: str = "f16",
    ) -> None:
        """One step of training: did its gradients overflow?

        found_inf: true or false, also as a number, an array or a tensor of one element. weights, activations:
        the step's gradients, for policies that need statistics; format: what they are judged in. Errors:
        TypeError, ValueError.
        """
        for name, counts in (("weights", weights), ("activations", activations)):
            if counts is not None and not isinstance(counts, Histogram):
                raise TypeError(f"{name} is a {type(counts).__name__}; a Histogram is needed, or None")
        super().update(bool(found_inf), weights, activations, str(format))

    @property
    def state(self) -> bytes:
        """Scale and counters, as a checkpoint has them; may be assigned to a policy of the same name."""
        return self._state()

    @state.setter
    def state(self, state: bytes) -> None:
        self._set_state(state)

    def __repr__(self) -> str:
        settings = "".join(f", {name}={value:g}" for name, value in self.settings.items())
        return f"Policy({self.name!r}{settings}) at scale {self.scale:g}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.name, self.settings, self.state)


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {value!r}; a number is needed") from None


def _restored(name: str, settings: dict[str, float], state: bytes) -> Policy:
    policy = Policy(name, **settings)
    policy.state = state
    return policy


def policies() -> dict[str, dict[str, Any]]:
    """All policies by name, each a dict.

    Keys: family, rule, source, parameters (default and help), wants_statistics, constant and per_layer.

    >>> import fp16lab
    >>> fp16lab.policies()["torch"]["parameters"]["growth_interval"]["default"]
    2000.0
    """
    return _core.policies()
