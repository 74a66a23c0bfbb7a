"""torch.amp.GradScaler with any loss-scale policy of fp16lab."""

from __future__ import annotations

import struct
from typing import Any

import torch

from .. import _core
from .counting import Counted, Tally, fetched, format_of
from .networks import unwrapped_optimizer

#: What torch calls otherwise than the configuration keys do, and the other way round.
_OWN_NAMES = {"init_scale": "initial_scale"}
_TORCHS = {"initial_scale": "init_scale"}
#: What torch's scaler has.
_OF_TORCH = frozenset(("initial_scale", "growth_factor", "backoff_factor", "growth_interval"))


class GradScaler(torch.amp.GradScaler):
    """`torch.amp.GradScaler` whose scale moves by `policy`, a name of `fp16lab.policies()`.

    Every call of torch's stays: scale, unscale_, step, update, get_scale, state_dict, several optimizers,
    clipping after unscale_, accumulation. `parameters` are the policy's own, by the names of the
    configuration keys (initial_scale, or torch's init_scale; growth_factor, growth_interval, hysteresis,
    ...); what is not given has the policy's default. device: "cuda" or "cpu"; without it, "cuda" where there
    is a GPU.

    Policies that decide by statistics (lost-mass, openseq2seq-logmax, popart) get the exponent histograms of
    the scaled gradients as they are before unscaling, of all optimizers that were stepped: of those in 16
    bits, in their format; where there are none, of all, as if FP16 were to hold them. What became zero inside
    PyTorch's own FP16 products reaches them as exact zeros, which no policy counts as lost: begin such a
    policy high, as its default does. Gradients on a GPU are counted there. `update` reads found_inf, and of such a
    policy the counts (4 kB), on the host: with a GPU it waits for the step.

    Policy "torch" is torch's own, in every call. What torch lacks is a guard: with finite_guard=1, min_scale or
    max_scale the policy is the engine's, whose scale stays where its reciprocal is finite in FP32.

    process_group: of the ranks that hold one model together (FSDP, tensor parallelism), each a part of it: an
    overflow of one is one of all, and their histograms are added, so that all scales stay the same. Every rank
    calls every method.

    ValueError: an unknown policy or parameter, a value out of range; a policy with scales of layers
    (ada-loss, layerwise, groups), which need hooks inside of the backward pass; parameters that are spread over
    ranks, and no process_group. TypeError: a parameter that is no number, another process_group. `update` raises
    FloatingPointError where the policy's rule ends the training (fairseq at min_loss_scale), after its update.

    >>> scaler = GradScaler("megatron", growth_interval=1000, device="cpu")
    >>> scaler.get_scale(), scaler.get_growth_interval()
    (4294967296.0, 1000)
    """

    _narrow: Counted | None
    _wide: Counted | None
    _narrow_format: str | None

    def __init__(
        self,
        policy: str = "torch",
        *,
        device: str | None = None,
        enabled: bool = True,
        process_group: torch.distributed.ProcessGroup | None = None,
        **parameters: float,
    ) -> None:
        if device is None:
            device = "cuda" if torch.cuda.is_available() else "cpu"
        self._group = process_group
        self._tally = Tally()
        self._clear_statistics()
        if process_group is not None and not isinstance(process_group, _process_group_type()):
            raise TypeError(
                f"lab.GradScaler: process_group is of {type(process_group).__name__}; a "
                "torch.distributed.ProcessGroup, such as torch.distributed.group.WORLD, is needed"
            )
        if _OWN_NAMES.keys() & parameters.keys() and _TORCHS.keys() & parameters.keys():
            raise ValueError("lab.GradScaler: init_scale and initial_scale are one parameter; give one of them")
        given = {_OWN_NAMES.get(name, name): value for name, value in parameters.items()}
        self._policy: _core.Policy | None = None  # torch decides
        if policy == "torch" and given.keys() <= _OF_TORCH:
            of_torch: dict[str, Any] = {_TORCHS.get(name, name): value for name, value in given.items()}
            super().__init__(device, enabled=enabled, **of_torch)
            return
        for name, value in given.items():
            if isinstance(value, str) or not hasattr(value, "__float__"):
                raise TypeError(f"lab.GradScaler: {name} is {value!r}; a number is needed")
        self._policy = _policy_of(policy, {name: float(value) for name, value in given.items()})
        super().__init__(device, enabled=enabled)
        if self._enabled:
            self._init_scale = self._policy.scale
            self._tell_torch_settings(self._policy)

    @property
    def policy(self) -> str:
        """The policy's name."""
        return "torch" if self._policy is None else self._policy.name

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """As torch's. A wrapper of accelerate, Lightning or Fabric is the optimizer inside of it."""
        super().unscale_(unwrapped_optimizer(optimizer))

    def step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> float | None:
        """As torch's. The same holds for wrappers, whose own `step` is called."""
        inner = unwrapped_optimizer(optimizer)
        if self._enabled and inner is not optimizer:
            self._per_optimizer_states[id(optimizer)] = self._per_optimizer_states[id(inner)]
        return super().step(optimizer, *args, **kwargs)

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """Ends the iteration: the policy decides the next scale. With `new_scale` it goes on from that
        one."""
        if not self._enabled:
            return
        if self._policy is None:
            super().update(new_scale)
            return
        if new_scale is not None:
            before = self._policy._state()
            self._policy._set_scale(float(new_scale))
            try:
                super().update(new_scale)
            except BaseException:
                self._policy._set_state(before)
                raise
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
        found_inf = any(flag != 0 for flag in fetched(flags))
        wide, narrow, format = self._statistics(self._policy)
        self._policy.update(found_inf, weights=narrow or wide, format=format or "f16")
        self._clear_statistics()
        super().update(self._policy.scale)  # fills the scale, and forgets the iteration's checks
        good = 0 if found_inf else self._get_growth_tracker() + 1
        growth_tracker.fill_(0 if good == self._policy.settings.get("growth_interval") else good)
        stop = self._policy.stop
        if stop is not None:
            raise FloatingPointError(stop)

    def state_dict(self) -> dict[str, Any]:
        """Torch's five entries, and but for torch's own policy "fp16lab": the policy's name, its parameters and
        its state (hexadecimal).

        `_growth_tracker` counts good steps in a row, from 0 again at growth_interval. Plain values only, so
        that `torch.load(weights_only=True)` reads them.
        """
        state = super().state_dict()
        if self._enabled and self._policy is not None:
            state["fp16lab"] = {
                "policy": self._policy.name,
                "settings": dict(self._policy.settings),
                "state": self._policy._state().hex(),
            }
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads the state of a scaler with this policy; or of a plain torch.amp.GradScaler: its scale, and with policy
        "torch" its growth tracker and factors too. ValueError: the state of another policy, or a damaged one."""
        if not self._enabled:
            return
        if len(state_dict) == 0:
            super().load_state_dict(state_dict)  # raises
        own = state_dict.get("fp16lab")
        if own is not None:
            kinds = {"policy": str, "settings": dict, "state": str}
            given = own if isinstance(own, dict) else {}
            bad = [name for name, kind in kinds.items() if not isinstance(given.get(name), kind)]
            if bad:
                raise ValueError(f"the state's entry 'fp16lab' is damaged: it has no {', '.join(bad)}")
        if own is not None and own["policy"] != self.policy:
            raise ValueError(
                f"the state is of policy '{own['policy']}', this scaler's is '{self.policy}': "
                f'load it into lab.GradScaler("{own["policy"]}")'
            )
        if self._policy is None:
            super().load_state_dict(state_dict)
            return
        if own is None:
            self._policy = self._with_plain(self._policy, state_dict)
        else:
            try:
                self._policy = _policy_of(own["policy"], own["settings"], bytes.fromhex(own["state"]))
            except (TypeError, ValueError) as error:
                raise ValueError(f"the state's entry 'fp16lab' is damaged: {error}") from error
        self._tell_torch_settings(self._policy)
        super().load_state_dict(
            {
                **super().state_dict(),
                "scale": self._policy.scale,
                "_growth_tracker": state_dict["_growth_tracker"],
            }
        )

    def set_growth_factor(self, new_factor: float) -> None:
        super().set_growth_factor(new_factor)
        self._change("growth_factor", new_factor)

    def set_backoff_factor(self, new_factor: float) -> None:
        super().set_backoff_factor(new_factor)
        self._change("backoff_factor", new_factor)

    def set_growth_interval(self, new_interval: int) -> None:
        super().set_growth_interval(new_interval)
        self._change("growth_interval", new_interval)

    def __getstate__(self) -> dict[str, Any]:
        """A process group stays with its process."""
        own = self._policy
        policy = None if own is None else (own.name, dict(own.settings), own._state())
        return {**super().__getstate__(), "_policy": policy, "_group": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        policy = state["_policy"]
        super().__setstate__({**state, "_policy": None if policy is None else _policy_of(*policy)})

    # ---- inside

    def _unscale_grads_(
        self,
        optimizer: torch.optim.Optimizer,
        inv_scale: torch.Tensor,
        found_inf: torch.Tensor,
        allow_fp16: bool,
    ) -> dict[torch.device, torch.Tensor]:
        """The one place where torch looks at an optimizer's gradients: they still carry the scale here."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if self._group is None and _is_spread(parameter):
                    raise ValueError(
                        "lab.GradScaler: parameters are spread over ranks, whose loss scales would part: "
                        "lab.GradScaler(policy, process_group=torch.distributed.group.WORLD) keeps them together"
                    )
                if self._policy is not None and self._policy.wants_statistics and parameter.grad is not None:
                    self._count(parameter.grad)
        found = super()._unscale_grads_(optimizer, inv_scale, found_inf, allow_fp16)
        if self._group is not None:
            # A rank without gradients looks as well.
            one = torch.stack([flag.reshape(()).to(inv_scale.device) for flag in (*found.values(), found_inf)]).amax()
            torch.distributed.all_reduce(one, torch.distributed.ReduceOp.MAX, self._group)
            found = {device: one.to(device) for device in found or [inv_scale.device]}
        return found

    def _count(self, gradient: torch.Tensor) -> None:
        own = format_of(gradient)
        if own in ("f32", "f64"):
            self._wide = self._tally.count(gradient, self._wide)
        else:
            self._narrow = self._tally.count(gradient, self._narrow)
            self._narrow_format = own

    def _clear_statistics(self) -> None:
        """Clears those of 16-bit gradients and of others; where there are 16-bit ones, only they overflow or vanish."""
        self._narrow = self._wide = self._narrow_format = None

    def _statistics(self, policy: _core.Policy) -> tuple[_core.Histogram | None, _core.Histogram | None, str | None]:
        """The histograms of FP32 gradients, of 16-bit ones, and their format; from all ranks."""
        self._tally.read()
        counts = [None if each is None else each.histogram for each in (self._wide, self._narrow)]
        own = (counts[0], counts[1], self._narrow_format)
        if self._group is None or not policy.wants_statistics:
            return own
        ranks: list[Any] = [None] * torch.distributed.get_world_size(self._group)
        torch.distributed.all_gather_object(ranks, own, self._group)
        wide = narrow = format = None
        for of_rank in ranks:
            wide, narrow, format = _sum(wide, of_rank[0]), _sum(narrow, of_rank[1]), format or of_rank[2]
        return wide, narrow, format

    def _tell_torch_settings(self, policy: _core.Policy) -> None:
        """Torch's own members, for its getters and state_dict: its defaults where the policy has no such
        one."""
        settings = policy.settings
        self._growth_factor = settings.get("growth_factor", 2.0)
        self._backoff_factor = settings.get("backoff_factor", 1.0 / self._growth_factor)
        self._growth_interval = int(settings.get("growth_interval", 2000))

    def _with_plain(self, policy: _core.Policy, state: dict[str, Any]) -> _core.Policy:
        """The policy, with the state of a plain scaler."""
        if policy.name != "torch":
            policy._set_scale(state["scale"])
            return policy
        settings = {
            **policy.settings,
            **{name: float(state[name]) for name in ("growth_factor", "backoff_factor", "growth_interval")},
        }
        # TorchScaling::State (engine/amp/policies/counters.hpp), after the scale of the step.
        raw = bytearray(policy._state())
        struct.pack_into("<dfi", raw, 0, state["scale"], state["scale"], state["_growth_tracker"])
        return _policy_of("torch", settings, bytes(raw))

    def _change(self, name: str, value: float) -> None:
        own = self._policy
        if own is not None:
            self._policy = _policy_of(own.name, {**own.settings, name: float(value)}, own._state())
            self._tell_torch_settings(self._policy)


def _process_group_type() -> Any:
    """No type where PyTorch has no torch.distributed."""
    return torch.distributed.ProcessGroup if torch.distributed.is_available() else ()


def _is_spread(parameter: Any) -> bool:
    """Has this rank only a part of it? FSDP marks its parameters; others are DTensors."""
    if getattr(parameter, "_fsdp_flattened", False):
        return torch.distributed.get_world_size() > 1
    placements = getattr(parameter, "placements", ())
    return any(not each.is_replicate() for each in placements) and parameter.device_mesh.size() > 1


def _sum(first: _core.Histogram | None, second: _core.Histogram | None) -> _core.Histogram | None:
    if first is None or second is None:
        return first or second
    first += second
    return first


def settings_of(scaler: torch.amp.GradScaler) -> dict[str, str | float]:
    """The keys of the section [scaler] in a configuration file, from the scale that it has now on."""
    if isinstance(scaler, GradScaler) and scaler._policy is not None:
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
