"""lab.watch: exponent histograms of a training as it runs."""

from __future__ import annotations

import math
import os
import shlex
import tempfile
import time
import warnings
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._subclasses import FakeTensor

from .. import _core
from .grad_scaler import settings_of
from .networks import any_compiled, nonfinite_gradients, path_of, unwrapped, unwrapped_optimizer
from .recording import Evaluation, Recording, Step, toml
from .scopes import Opened
from .precisions import Precisions
from .step_ends import Number, StepEnds, weights_digest
from .tensor_counts import StepCounts

_OBSERVED = ("gradients", "activations", "weights", "optimizer_state")


class watch:
    """Counts exponents of a training's tensors, in the steps 1, every, 2 every, ...

        with lab.watch(model, every=10, optimizer=optimizer, scaler=scaler) as w:
            for batch, target in loader:
                ...                        # the loop as it is
                w.step(loss=loss)          # optional: gives the loss of the step that has just ended
            w.evaluate(loss=test_loss)     # optional, where there is one
        print(w)                           # w.table()
        w.save("results/mine")             # fp16lab hist, replay, compare, report

    A step ends at `scaler.update()`; without a scaler, when the last one of `optimizer` (one, or a list) has
    stepped; without both, at `w.step()`, which is then needed. A watch that was left may be entered again and
    goes on counting. What is counted, by `tensors`:

    gradients        of parameters ("fc1.weight"), each micro-batch as it arrives and before the all-reduce
                     of DistributedDataParallel; of what goes into layers ("fc2.input"), and of what the
                     network gives ("loss.prediction"). With a scaler they carry its scale (loss_scale)
    activations      "fc1.input", "fc1.output" of modules without children, while the network is in training
                     mode; what activation checkpointing recomputes is not counted again
    weights          as the step's forward pass has them (an optimizer or a scaler is needed)
    optimizer_state  as the step leaves it: "fc1.weight.second_moment" (an optimizer is needed)

    Counted are the backward passes that were completed, those of torch.autograd.grad (a gradient penalty's) too,
    and the forward passes that they reached: none whose backward pass raised, or never came. In a step without a
    backward pass every forward pass counts that has gradients.

    A row's dtype is the tensor's own, and its two histograms are the same (FP64 is counted as fp16lab.histogram does,
    and is f32 in a run folder, of which `save` warns); inputs and weights that autocast
    casts to 16 bits inside of Linear, convolutions, attention and RNNs have its dtype, and are counted before
    and after the rounding. PyTorch rounds gradients inside of its operations: what underflowed there arrives
    as exact zeros. Within lab.emulate a row of what a product gave has both sides of that rounding, and dtype is
    what it was rounded to (a weight's gradient under autocast: f16); steps.csv has the underflow_rate.
    Within lab.recipe("nvfp4", model), whose network is this one, a part of it or has it as a part,
    recipe.jsonl and the table say what each layer's operands lost in counted steps, and the headroom of their
    blocks.
    Numbers are kept, never tensors: about 150 bytes a tensor and counted step. Tensors of a GPU are counted there, and
    nothing waits for it: counts, losses, norms and a digest of the weights come to the host after 10 counted steps, and
    when `table`, `histogram`, `recording` or `save` asks; only `evaluate` and gradients in sparse layout read it at once.
    The first counted step compiles what counts, which takes some seconds; the table says whether that worked.
    steps.csv: loss as given to `step`, else as given to `scaler.scale` (mean over
    micro-batches), else NaN; grad_norm right after `scaler.unscale_`, before clipping, or else as `optimizer.step`
    finds it; lr of the first optimizer, NaN without one; state_hash a digest of the weights in counted steps (on the
    host their CRC-32, elsewhere the sum of engine/backend/digest_functions.hpp), and of norm and scale in each.

    `name` is what tables and the page call this configuration, `seed` what pairs its runs with those of others;
    dtypes of products and the tensor core of lab.emulate are recorded by themselves, so that FP32, BF16 and FP16
    are three configurations of one network. A loss that was not given is unknown there, not NaN.

    ValueError: an unknown name in `tensors`, every < 1, seed < 0, what needs an optimizer without one; activations of a
    compiled module; on entering, a network on the device meta, which has no numbers. TypeError: no module, or one of
    FSDP. FSDP2's fully_shard may follow after the watch was entered, and the optimizer that is made after it is given
    by `w.optimizer = optimizer`; gradients are counted before they are reduced. A warning names, once, what cannot be
    counted: complex and FP8 tensors, those of wrapper classes, gradients set by hand, and those of parameters of
    FullyShardedDataParallel. The table says so ("not counted: ..."), and so does the run folder (observe.not_counted in
    config.toml and the manifest).

    Optimizers and networks may be wrapped by accelerate, Lightning or Fabric; lab.TrainerCallback and
    lab.LightningCallback watch by themselves. Each rank counts the states that it has of a ZeroRedundancyOptimizer.

    >>> model = nn.Linear(3, 2)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> with watch(model, every=1, optimizer=optimizer) as w:
    ...     for _ in range(2):
    ...         loss = model(torch.ones(4, 3)).square().mean()
    ...         loss.backward()
    ...         optimizer.step()
    ...         w.step(loss=loss)
    >>> w.histogram("weight").total, w.histogram("loss.prediction", step=2).total
    (12, 8)
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        every: int = 10,
        tensors: Iterable[str] = ("gradients",),
        optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer] | None = None,
        scaler: torch.amp.GradScaler | None = None,
        name: str = "",
        seed: int = 0,
    ) -> None:
        self._compiled = isinstance(model, nn.Module) and any_compiled(model)
        self._model = unwrapped(
            model,
            "lab.watch",
            "watch a DistributedDataParallel one; or enter it before fully_shard, and it counts whole gradients",
        )
        self._every = every
        self._tensors = _each(tensors, str)
        optimizers = list(_each([] if optimizer is None else optimizer, torch.optim.Optimizer))
        self._ends = StepEnds(optimizers, scaler, self)
        self._refuse_what_cannot_be_watched(seed)
        self._name = name or type(self._model).__name__
        self._tables = self._tables_of(optimizers, scaler, seed)
        self._precisions = Precisions(self._model)
        self._recording = Recording()
        self._untold = False  # a step has ended whose loss may yet be given
        self._opened = Opened("lab.watch", of_thread=False)
        self._counts = StepCounts(self._model, self._tensors, self._recording.tally)
        self._open_step()
        self._end = "stopped"

    @property
    def recording(self) -> Recording:
        """All of it, on the host."""
        return self._recording.settle()

    # ---- for users

    def __enter__(self) -> watch:
        self._opened.require_closed()
        for name, tensor in (*self._model.named_parameters(), *self._model.named_buffers()):
            if tensor.device.type == "meta" or isinstance(tensor, FakeTensor):
                kind = "on the device meta" if tensor.device.type == "meta" else "a fake tensor"
                raise ValueError(
                    f"lab.watch: {name} is {kind}, which has no numbers: enter it after "
                    'model.to_empty(device="cpu") and the initialisation'
                )
        self._began = time.perf_counter()
        with ExitStack() as scope:
            self._counts.listen(scope, modules=not self._compiled)
            if not self._compiled:
                self._precisions.listen(scope)
            self._ends.listen(scope)
            self._opened.hold(scope)
        return self

    def __exit__(self, error_type: type | None, *_: object) -> None:
        self._opened.close()
        self._end = "finished" if error_type is None else "failed"
        if error_type is None and (nothing := self._nothing()):
            warnings.warn(f"lab.watch {nothing}", stacklevel=2)

    @property
    def optimizer(self) -> list[torch.optim.Optimizer]:
        """Whose steps are watched. It may be set, to one or a list, where an optimizer is made after the watch was
        entered, as FSDP2's is after fully_shard: from then on these end steps. TypeError: no optimizer."""
        return self._ends.optimizers

    @optimizer.setter
    def optimizer(self, given: torch.optim.Optimizer | Iterable[torch.optim.Optimizer]) -> None:
        optimizers = list(_each(given, torch.optim.Optimizer))
        self._ends.take(optimizers)
        self._tables.update(_optimizer_table(optimizers))

    @property
    def has_untold_step(self) -> bool:
        """Has a step ended that has no call of `step`?"""
        return self._untold

    def step(
        self, loss: float | torch.Tensor | None = None, *, grad_norm: float | torch.Tensor | None = None
    ) -> None:
        """After `optimizer.step()` (`scaler.update()`): gives loss or gradient norm of the step that has
        just ended. With neither optimizer nor scaler it is what ends the step. RuntimeError: no step has
        ended since."""
        if not self._ends.automatic:
            self._ends.note_norm([parameter for parameter in self._model.parameters()], 1.0)
            self.end_step(None)
        if not self._untold:
            raise RuntimeError(
                "w.step: no step has ended since the last call; call it after optimizer.step(), or scaler.update() "
                "where there is a scaler"
                if self._recording.steps
                else f"w.step: no step has ended: {self._ends.awaited()}"
            )
        self._untold = False
        self._recording.tell(loss, grad_norm)

    def evaluate(
        self,
        step: int | None = None,
        *,
        loss: float | torch.Tensor,
        accuracy: float | torch.Tensor | None = None,
        split: str = "test",
    ) -> None:
        """Records what an evaluation after `step` gave (None: after the last step that has ended). accuracy:
        from 0 to 1. split: "test" or "train". ValueError: a step that has not ended, or is before an
        earlier evaluation's; an accuracy beyond 0 to 1; another split."""
        done, rows = len(self._recording.steps), self._recording.evaluations
        number = done if step is None else int(step)
        first = rows[-1].step if rows else 0
        if not first <= number <= done:
            raise ValueError(
                f"w.evaluate({number}): a step from {first} to {done} is needed, the last that ended"
            )
        if split not in ("test", "train"):
            raise ValueError(f'w.evaluate: split is {split!r}; "test" or "train" is needed')
        share = None if accuracy is None else float(accuracy)
        if share is not None and not 0 <= share <= 1:
            raise ValueError(f"w.evaluate: accuracy is {share:g}; a share from 0 to 1 is needed")
        rows.append(Evaluation(number, split, float(loss), share))

    def histogram(self, tensor: str, observed: str = "gradients", step: int | None = None) -> _core.Histogram:
        """Returns that of one tensor, "fc1.weight", in one step or summed over all counted ones. KeyError: never
        counted."""
        return self.recording.histogram(tensor, observed, step)

    def table(self, step: int | None = None, format: str = "f16") -> str:
        """What happened so far, as `fp16lab hist` prints it for the saved run, and the next command; then a line a
        tensor of one counted step, the last one without `step`: the zones of its values in `format`."""
        lines = self.recording.table(step, format)
        lines += "".join(f"not counted: {what}\n" for what in self._not_counted())
        notes = self._recording.tally.notes()
        return f"{self._account()}\n{lines}{notes}" if self._recording.counts else lines

    def __str__(self) -> str:
        return self.table()

    def save(self, folder: str | os.PathLike[str], *, replace: bool = False) -> Path:
        """Writes a run folder and returns its path. In a distributed training each rank writes its own,
        FOLDER-rank0, ... (FOLDER itself where it ends with this rank's "-rank0" already); `lab.merge` makes one of
        them. FileExistsError where it exists, but for replace=True."""
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        if distributed and torch.distributed.get_world_size() > 1:
            rank = f"-rank{torch.distributed.get_rank()}"
            folder = f"{os.fspath(folder).removesuffix(rank)}{rank}"
        return self.recording.save(folder, self._name, self._config(), self._end, replace)

    def note_culprits(self, culprits: list[dict[str, Any]]) -> None:
        """What lab.explain_overflow found, of the step that ended last. RuntimeError: none has."""
        if not self._recording.steps:
            raise RuntimeError("no step has ended yet whose overflow could be explained")
        number = self._recording.steps[-1].step
        self._recording.culprits.setdefault(number, []).extend(
            {**culprit, "step": number} for culprit in culprits
        )

    def _config(self) -> str:
        tables = {**self._tables, **self._precisions.tables()}
        if left_out := self._not_counted():
            tables["observe"] = {**tables["observe"], "not_counted": left_out}
        return toml(tables)

    def _not_counted(self) -> list[str]:
        nothing = self._nothing()
        return [f"anything: lab.watch {nothing}"] if nothing else self._counts.not_counted()

    def _nothing(self) -> str:
        """Why there are no counts, where it is not what was left out."""
        steps = len(self._recording.steps)
        if steps == 0:
            return f"saw no step end, and counted nothing: {self._ends.awaited()}"
        if self._recording.has_counts or self._counts.not_counted():
            return ""
        return (
            f"saw {steps} steps end and nothing to count in them: was it given the network whose backward pass ran,"
            " and the optimizer of its parameters?"
        )

    def _account(self) -> str:
        """The account of the run folder that `save` would write now."""
        with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `save` says again what is wide
            run = self.recording.save(Path(place) / "run", self._name, self._config(), self._end, False)
            findings, then = _core.account_of(os.fspath(run))
        saved = "results/mine"
        then = then.replace(shlex.quote(os.fspath(run)), saved)
        if then.startswith("fp16lab "):
            then = f'w.save("{saved}"), then {then}'
        return f"{findings}Next: {then}\n"

    # ---- a step; StepEnds calls these

    def before_update(self) -> None:
        self._counts.count_weights()

    def end_step(self, flags: list[Number] | None) -> None:
        """`flags`: where a scaler found an Inf or NaN; None: no scaler looked, the norm decides."""
        self._counts.count_weights()
        self._counts.count_optimizer_state(self._ends.optimizers)
        weights = weights_digest(self._model) if self._counts.counting else None
        step, rows = Step(len(self._recording.steps) + 1), self._counts.rows()
        self._recording.end(step, self._ends.ended(), flags, weights, rows, self._nonfinite)
        if operands := self._counts.operands():
            self._recording.operands[step.step] = operands
        now = time.perf_counter()
        step.seconds, self._began = now - self._began, now
        self._untold = True
        self._open_step()

    def _open_step(self) -> None:
        number = len(self._recording.steps) + 1
        self._counts.open(number == 1 or number % self._every == 0)

    def _nonfinite(self, norms: list[tuple[list[int], list[float]]]) -> list[str]:
        """Parameters whose gradients hold an Inf or NaN: by their norms, where gradients were on a device."""
        if not norms:
            return nonfinite_gradients(self._model)
        bad = {key for ids, own in norms for key, norm in zip(ids, own) if not math.isfinite(norm)}
        return [path_of(name) for name, parameter in self._model.named_parameters() if id(parameter) in bad]

    # ---- inside

    def _refuse_what_cannot_be_watched(self, seed: int) -> None:
        for name in self._tensors:
            if name not in _OBSERVED:
                why = "updates need a copy of every weight" if name == "updates" else f"there is no '{name}'"
                raise ValueError(f"watch(tensors=...): {why}; known are {', '.join(_OBSERVED)}")
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise ValueError(f"watch(seed={seed!r}): a whole number, 0 or more, is needed")
        if not isinstance(self._every, int) or self._every < 1:
            raise ValueError(f"watch(every={self._every!r}): a whole number of steps, 1 or more, is needed")
        if "optimizer_state" in self._tensors and not self._ends.optimizers:
            raise ValueError('watch(tensors=["optimizer_state"]) needs optimizer=')
        if "weights" in self._tensors and not self._ends.automatic:
            raise ValueError(
                'watch(tensors=["weights"]) needs optimizer= or scaler=: it counts them before the update'
            )
        if self._compiled and "activations" in self._tensors:
            raise ValueError(
                "torch.compile fuses the modules of this network, which then have no activations to "
                'count: watch it before compiling, or tensors=["gradients", "weights"]'
            )

    def _tables_of(
        self, optimizers: list[torch.optim.Optimizer], scaler: torch.amp.GradScaler | None, seed: int
    ) -> dict[str, Mapping[str, object]]:
        tables: dict[str, Mapping[str, object]] = {
            "model": {"name": type(self._model).__name__},
            "train": {"seed": seed},
            **_optimizer_table(optimizers),
            "scaler": {"policy": "none"},
        }
        if scaler is not None and scaler.is_enabled():
            tables["scaler"] = settings_of(scaler)
        tables["observe"] = {"histograms_every": self._every, "tensors": list(self._tensors)}
        return tables


def _each(given: Any, one: type) -> tuple[Any, ...]:
    """A tuple from a list of `one`, or from a single one, which may be of a wrong type."""
    return tuple(given) if isinstance(given, Iterable) and not isinstance(given, one) else (given,)


def _optimizer_table(optimizers: list[torch.optim.Optimizer]) -> dict[str, Mapping[str, object]]:
    """A configuration's table: the first optimizer, by what steps in it; empty without one."""
    return {
        "optimizer": {"name": type(each).__name__.lower(), "lr": float(each.param_groups[0]["lr"])}
        for each in map(unwrapped_optimizer, optimizers[:1])
    }
