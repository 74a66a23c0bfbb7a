"""Loss-scale policies of PyTorch, Paddle, MindSpore, apex, Megatron and others, one step at a time."""

from __future__ import annotations

from typing import Any

from . import _core


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
        super().__init__(name, {key: float(value) for key, value in parameters.items()})

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


def _restored(name: str, settings: dict[str, float], state: bytes) -> Policy:
    policy = Policy(name, **settings)
    policy.state = state
    return policy


def policies() -> dict[str, dict[str, Any]]:
    """All policies by name, each a dict.

    Keys: rule, source, parameters (default and help), wants_statistics, constant and per_layer.

    >>> import fp16lab
    >>> fp16lab.policies()["torch"]["parameters"]["growth_interval"]["default"]
    2000.0
    """
    return _core.policies()
