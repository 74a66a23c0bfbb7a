"""torch.amp.GradScaler with any loss-scale policy of fp16lab."""

from __future__ import annotations

import struct
from typing import Any

import torch

from .. import _core
from .counting import count, format_of

#: What torch calls otherwise than the configuration keys do.
_TORCH_NAMES = {"init_scale": "initial_scale"}


class GradScaler(torch.amp.GradScaler):
    """`torch.amp.GradScaler` whose scale moves by `policy`, a name of `fp16lab.policies()`.

    Every call of torch's stays: scale, unscale_, step, update, get_scale, state_dict, several optimizers,
    clipping behind unscale_, accumulation. `parameters` are the policy's own, by the names of the
    configuration keys (initial_scale, or torch's init_scale; growth_factor, growth_interval, hysteresis,
    ...); what is not given has the policy's default. device: "cuda" or "cpu"; without it, "cuda" where there
    is a GPU.

    Policies that decide by statistics (lost-mass, openseq2seq-logmax, popart) get the exponent histograms of
    the scaled gradients as they stand before unscaling, of all optimizers that were stepped: of those in 16
    bits, in their format; where there are none, of all, as if FP16 were to hold them. What became zero inside
    PyTorch's own FP16 products reaches them as exact zeros, which no policy counts as lost: begin such a
    policy high, as its default does. `update` reads found_inf on the host: with a GPU it waits for the step.

    Policy "torch" has torch's scale and growth tracker bit for bit. What torch lacks is a guard: a scale
    stays where its reciprocal is finite in FP32 (2^-126 to 2^127); finite_guard=0 takes it away.

    ValueError: an unknown policy or parameter, a value out of range; a policy with scales of layers
    (ada-loss, layerwise, groups), which need hooks inside of the backward pass. `update` raises
    FloatingPointError where the policy's rule ends the training (fairseq at min_loss_scale), behind its
    update.

    >>> scaler = GradScaler("megatron", growth_interval=1000, device="cpu")
    >>> scaler.get_scale(), scaler.get_growth_interval()
    (4294967296.0, 1000)
    """

    _narrow: _core.Histogram | None
    _wide: _core.Histogram | None
    _narrow_format: str | None

    def __init__(
        self, policy: str = "torch", *, device: str | None = None, enabled: bool = True, **parameters: float
    ) -> None:
        self._policy = _policy_of(
            policy, {_TORCH_NAMES.get(name, name): float(value) for name, value in parameters.items()}
        )
        if device is None:
            device = "cuda" if torch.cuda.is_available() else "cpu"
        super().__init__(device, enabled=enabled)
        self._clear_statistics()
        if self._enabled:
            self._init_scale = self._policy.scale
            self._tell_torch_settings()

    @property
    def policy(self) -> str:
        """The policy's name."""
        return self._policy.name

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """Ends the iteration: the policy decides the next scale. With `new_scale` it goes on from that
        one."""
        if not self._enabled:
            return
        if new_scale is not None:
            super().update(new_scale)
            self._policy._set_scale(self.get_scale())
            self._clear_statistics()
            return
        _, growth_tracker = self._check_scale_growth_tracker("update")
        flags = [
            flag
            for state in self._per_optimizer_states.values()
            for flag in state["found_inf_per_device"].values()
        ]
        if not flags:
            raise AssertionError("No inf checks were recorded prior to update.")
        found_inf = any(flag.item() != 0 for flag in flags)
        self._policy.update(
            found_inf,
            weights=self._wide if self._narrow is None else self._narrow,
            format=self._narrow_format or "f16",
        )
        self._clear_statistics()
        super().update(self._policy.scale)  # fills the scale, and forgets the iteration's checks
        good = 0 if found_inf else self._get_growth_tracker() + 1
        growth_tracker.fill_(0 if good == self._policy.settings.get("growth_interval") else good)
        stop = self._policy.stop
        if stop is not None:
            raise FloatingPointError(stop)

    def state_dict(self) -> dict[str, Any]:
        """Torch's five entries, and "fp16lab": the policy's name, its parameters and its state (hexadecimal).

        `_growth_tracker` counts good steps in a row, from 0 again at growth_interval. Plain values only, so
        that `torch.load(weights_only=True)` reads them.
        """
        state = super().state_dict()
        if self._enabled:
            state["fp16lab"] = {
                "policy": self._policy.name,
                "settings": dict(self._policy.settings),
                "state": self._policy._state().hex(),
            }
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Of a scaler with this policy; or of a plain torch.amp.GradScaler: its scale, and with policy
        "torch" its growth tracker and factors too. ValueError: the state of another policy."""
        if not self._enabled:
            return
        if len(state_dict) == 0:
            super().load_state_dict(state_dict)  # raises
        own = state_dict.get("fp16lab")
        if own is None:
            self._load_plain(state_dict)
        elif own["policy"] != self._policy.name:
            raise ValueError(
                f"the state is of policy '{own['policy']}', this scaler's is '{self._policy.name}': "
                f'load it into lab.GradScaler("{own["policy"]}")'
            )
        else:
            self._policy = _policy_of(own["policy"], own["settings"], bytes.fromhex(own["state"]))
        self._tell_torch_settings()
        super().load_state_dict(
            {
                **super().state_dict(),
                "scale": self._policy.scale,
                "_growth_tracker": state_dict["_growth_tracker"],
            }
        )

    def set_growth_factor(self, new_factor: float) -> None:
        self._change("growth_factor", new_factor)

    def set_backoff_factor(self, new_factor: float) -> None:
        self._change("backoff_factor", new_factor)

    def set_growth_interval(self, new_interval: int) -> None:
        self._change("growth_interval", new_interval)

    def __getstate__(self) -> dict[str, Any]:
        return {
            **super().__getstate__(),
            "_policy": (self._policy.name, dict(self._policy.settings), self._policy._state()),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "_policy": _policy_of(*state["_policy"])})

    # ---- inside

    def _unscale_grads_(
        self,
        optimizer: torch.optim.Optimizer,
        inv_scale: torch.Tensor,
        found_inf: torch.Tensor,
        allow_fp16: bool,
    ) -> dict[torch.device, torch.Tensor]:
        """The one place where torch looks at an optimizer's gradients: they still carry the scale here."""
        if self._policy.wants_statistics:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        self._count(parameter.grad)
        return super()._unscale_grads_(optimizer, inv_scale, found_inf, allow_fp16)

    def _count(self, gradient: torch.Tensor) -> None:
        own = format_of(gradient)
        if own == "f32":
            self._wide = count(gradient, self._wide)
        else:
            self._narrow = count(gradient, self._narrow)
            self._narrow_format = own

    def _clear_statistics(self) -> None:
        """Of 16-bit gradients and of others; where there are 16-bit ones, only they overflow or vanish."""
        self._narrow = self._wide = self._narrow_format = None

    def _tell_torch_settings(self) -> None:
        """Torch's own members, for its getters and state_dict: its defaults where the policy has no such
        one."""
        settings = self._policy.settings
        self._growth_factor = settings.get("growth_factor", 2.0)
        self._backoff_factor = settings.get("backoff_factor", 1.0 / self._growth_factor)
        self._growth_interval = int(settings.get("growth_interval", 2000))

    def _load_plain(self, state: dict[str, Any]) -> None:
        if self._policy.name != "torch":
            self._policy._set_scale(state["scale"])
            return
        settings = {
            **self._policy.settings,
            **{name: float(state[name]) for name in ("growth_factor", "backoff_factor", "growth_interval")},
        }
        # TorchScaling::State (engine/amp/policies/torch.hpp), behind the scale of the step.
        raw = bytearray(self._policy._state())
        struct.pack_into("<dfi", raw, 0, state["scale"], state["scale"], state["_growth_tracker"])
        self._policy = _policy_of("torch", settings, bytes(raw))

    def _change(self, name: str, value: float) -> None:
        self._policy = _policy_of(
            self._policy.name, {**self._policy.settings, name: float(value)}, self._policy._state()
        )
        self._tell_torch_settings()


def settings_of(scaler: torch.amp.GradScaler) -> dict[str, str | float]:
    """The keys of the section [scaler] in a configuration file, from the scale that it has now on."""
    if isinstance(scaler, GradScaler):
        kinds = {"int": int, "float": float, "bool": bool}
        known = _core.policies()[scaler.policy]["parameters"]
        values = {name: kinds[known[name]["kind"]](value) for name, value in scaler._policy.settings.items()}
        settings = {"policy": scaler.policy, **values}
    else:
        settings = {
            "policy": "torch",
            "growth_factor": scaler.get_growth_factor(),
            "backoff_factor": scaler.get_backoff_factor(),
            "growth_interval": scaler.get_growth_interval(),
        }
    if settings["policy"] != "none":
        settings["initial_scale"] = scaler.get_scale()
    return settings


def _policy_of(name: str, settings: dict[str, float], state: bytes | None = None) -> _core.Policy:
    """A policy that a GradScaler can follow; ValueError otherwise."""
    known = _core.policies().get(name)
    if known is not None and known["per_layer"]:
        raise ValueError(
            f"policy '{name}' moves scales of layers inside of the backward pass, which a GradScaler "
            "cannot reach: take another one of fp16lab.policies()"
        )
    try:
        policy = _core.Policy(name, settings)
    except ValueError as error:
        if name in ("cpu", "cuda"):
            raise ValueError(
                f'the first argument is a policy: lab.GradScaler("torch", device="{name}")'
            ) from error
        raise
    if state is not None:
        policy._set_state(state)
    return policy
