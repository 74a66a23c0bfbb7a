"""lab.watch as a callback of the trainers of transformers and Lightning, which are imported when one is made."""

from __future__ import annotations

import importlib
import math
import os
import sys
from collections.abc import Iterable
from functools import cache
from typing import Any

import torch

from .watching import watch


class _Watching:
    """A watch that a trainer opens and closes. It is an instance of the trainer's own class of callbacks too."""

    _bases: tuple[tuple[str, str], ...]  # modules that have that class, and what to install

    def __new__(cls, *_: Any, **__: Any) -> Any:
        own: Any = cls
        return object.__new__(_with_base(own) if "_bases" in vars(cls) else own)

    def __init__(
        self,
        *,
        every: int = 10,
        tensors: Iterable[str] = ("gradients",),
        name: str = "",
        seed: int | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        self._arguments: dict[str, Any] = {"every": every, "tensors": tensors, "name": name}
        self._seed, self._folder = seed, folder
        self._open = False
        #: The watch of the training run under way, or of the last one: `callback.watch.table()`.
        self.watch: watch | None = None

    def close(self, error: BaseException | None = None) -> None:
        """Ends the watch, as a trainer does by itself unless the training raised (transformers), and saves it."""
        if self._open and self.watch is not None:
            self._open = False
            self.watch.__exit__(type(error) if error else None, error, None)
            if self._folder is not None:
                self.watch.save(self._folder, replace=True)

    def _begin(self, model: Any, optimizer: Any, scaler: Any, seed: int) -> None:
        self.close()
        own = self._seed if self._seed is not None else seed
        self.watch = watch(model, optimizer=optimizer, scaler=scaler, seed=own, **self._arguments)
        self.watch.__enter__()
        self._open = True


class TrainerCallback(_Watching):
    """lab.watch as a callback of transformers' Trainer.

    every, tensors, name: as lab.watch has them. seed: that of the run (None: TrainingArguments.seed). folder: where the
    run folder is saved when the training ends; one that is there is replaced. `watch` is the lab.watch of the training:
    `callback.watch.table()`.

    Optimizer and scaler are the Trainer's own. The loss of a step is the mean that the Trainer logs, of the steps since
    it logged last (logging_steps=1: of each), or with a scaler what it scales; evaluations have eval_loss, and
    eval_accuracy where there is one. If a training run raises, callbacks get no call: `callback.close(error)` ends the
    watch.

    ModuleNotFoundError: there is no transformers. Other errors are those of lab.watch, when the training begins.

    >>> callback = TrainerCallback(every=10, folder="results/mine")    # doctest: +SKIP
    >>> Trainer(model, arguments, train_dataset=data, callbacks=[callback]).train()    # doctest: +SKIP
    >>> print(callback.watch.table())    # doctest: +SKIP
    """

    _bases = (("transformers", "transformers"),)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        optimizer = kwargs.get("optimizer")
        self._told = 0
        self._begin(kwargs["model"], optimizer, getattr(optimizer, "scaler", None), args.seed)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if self._open and self.watch is not None and "loss" in (logs or {}):
            steps = self.watch.recording.steps
            for step in steps[self._told :]:
                if step.loss is None or math.isnan(float(step.loss)):
                    step.loss = float(logs["loss"])
            self._told = len(steps)

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **_: Any) -> None:
        if self._open and self.watch is not None and "eval_loss" in (metrics or {}):
            self.watch.evaluate(loss=metrics["eval_loss"], accuracy=metrics.get("eval_accuracy"))

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.close()


class LightningCallback(_Watching):
    """lab.watch as a callback of Lightning's Trainer.

    Arguments and `watch` as lab.TrainerCallback's; seed is 0 where none is given. Optimizers, and the scaler of
    MixedPrecision, are the Trainer's own. The loss of a step is what training_step gave, the mean over micro-batches;
    evaluations are validations that log val_loss. A training that raises ends the watch, and its run is "failed".

    ModuleNotFoundError: there is neither lightning nor pytorch_lightning.

    >>> Trainer(callbacks=[LightningCallback(every=10, folder="results/mine")]).fit(module, data)    # doctest: +SKIP
    """

    _bases = (("lightning.pytorch", "lightning"), ("pytorch_lightning", "pytorch-lightning"))

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._losses: list[torch.Tensor] = []
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        self._begin(pl_module, trainer.optimizers, scaler, 0)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        loss = outputs.get("loss") if hasattr(outputs, "get") else outputs
        if isinstance(loss, torch.Tensor):
            self._losses.append(loss.detach().float())
        if self._open and self.watch is not None and self.watch.has_untold_step:
            self.watch.step(torch.stack(self._losses).mean() if self._losses else None)
            self._losses = []

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if self._open and self.watch is not None and "val_loss" in trainer.callback_metrics:
            self.watch.evaluate(loss=trainer.callback_metrics["val_loss"])

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.close(exception)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self.close()


@cache
def _with_base(own: Any) -> type:
    """`own` with the trainer's class of callbacks as a base: of the package that is imported already, or of the first
    one."""
    bases = sorted(own._bases, key=lambda base: base[0] not in sys.modules)
    for module, _ in bases:
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError:
            continue
        base = found.TrainerCallback if module == "transformers" else found.Callback
        return type(own.__name__, (own, base), {"__module__": own.__module__, "__doc__": own.__doc__})
    needed = " or ".join(install for _, install in own._bases)
    raise ModuleNotFoundError(f"lab.{own.__name__} needs {needed}: pip install {own._bases[0][1]}")
