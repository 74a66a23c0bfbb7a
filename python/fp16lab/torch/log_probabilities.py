"""Log-probabilities that an engine gives the tokens of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from .engines import Engine, Seen, running

#: The targets that torch's cross_entropy leaves out.
IGNORED = -100


def head_of(model: nn.Module, name: str | None, call: str) -> nn.Module | None:
    """The layer that gives the logits: of this name, or that of transformers' get_output_embeddings, or the
    last nn.Linear. ValueError: no module of this name."""
    if name is not None:
        found: nn.Module | None = dict(model.named_modules()).get(name)
        if found is None:
            raise ValueError(f"{call}: head is {name!r}, which names no module of the model")
        return found
    of_transformers = getattr(model, "get_output_embeddings", lambda: None)()
    if isinstance(of_transformers, nn.Module):
        return of_transformers
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    return linear[-1] if linear else None


class Tokens:
    """One batch: what the model gets and the targets, of which `counted` says which count.

    given: integer ids (rows, length), whose targets are the next ids; a dictionary as transformers' models
    take it (input_ids, attention_mask, ...), whose labels, if any, take the place of input_ids as targets; or
    a tuple (what the model gets, targets), where logits[..., :] belong to the target at their own place.
    """

    def __init__(self, given: Any, call: str) -> None:
        self._call, self.shifted = call, not isinstance(given, tuple)
        self.inputs: dict[str, torch.Tensor] | torch.Tensor
        mask = None
        if isinstance(given, tuple) and len(given) == 2:
            self.inputs, targets = given
        elif isinstance(given, Mapping) and isinstance(given.get("input_ids"), torch.Tensor):
            self.inputs = {name: value for name, value in given.items() if name != "labels"}
            targets, mask = given.get("labels", given["input_ids"]), given.get("attention_mask")
        elif isinstance(given, torch.Tensor) and given.dim() == 2 and not given.is_floating_point():
            self.inputs = targets = given
        else:
            kind = type(given).__name__
            if isinstance(given, torch.Tensor):
                kind = f"{given.dtype} and {given.dim()} dimensions"
            raise TypeError(
                f"{call}: a batch is of {kind}; integer token ids (rows, length), a dictionary "
                "with input_ids or a tuple (inputs, targets) is needed, or a list of these"
            )
        if mask is not None:
            targets = torch.where(mask.bool(), targets, IGNORED)
        self.targets = targets[:, 1:] if self.shifted else targets
        self.counted = self.targets != IGNORED
        self.rows = int(self.targets.shape[0])
        if not bool(self.counted.any()):
            raise ValueError(f"{call}: a batch has no target that counts: the first position is none")

    def log_probabilities(
        self,
        model: nn.Module,
        engine: Engine,
        head: nn.Module | None,
        *,
        seen: Seen | None = None,
        only: tuple[str, Engine] | None = None,
    ) -> torch.Tensor:
        """Of the targets that count, in order, in FP64: log_softmax in FP64 of the logits, so that no batch
        size of it adds a gap of its own."""
        size = engine.batch or self.rows
        if self.rows % size:
            raise ValueError(f"{self._call}: {self.rows} rows are not divisible by a batch of {size}")
        with running(model, engine, head, seen=seen, only=only):
            parts = [self._logits(model, engine, at, at + size) for at in range(0, self.rows, size)]
        logits = torch.cat(parts)
        if self.shifted:
            logits = logits[:, : self.targets.shape[1]]
        if logits.shape[:-1] != self.targets.shape:
            raise ValueError(
                f"{self._call}: logits of {tuple(logits.shape)} do not fit targets of "
                f"{tuple(self.targets.shape)}"
            )
        targets = self.targets[self.counted].long()
        classes = logits.shape[-1]
        if int(targets.min()) < 0 or int(targets.max()) >= classes:
            wrong = targets[(targets < 0) | (targets >= classes)][0]
            raise ValueError(f"{self._call}: there are {classes} logits; a target is {int(wrong)}")
        chosen = logits[self.counted].double().log_softmax(-1)
        return chosen.gather(-1, targets.unsqueeze(-1)).squeeze(-1)

    def place(self, index: int) -> tuple[int, ...]:
        """Where the counted target of this number stands: its row and position among the ids."""
        where = [int(each) for each in self.counted.nonzero()[index]]
        return (where[0], where[1] + 1, *where[2:]) if self.shifted else tuple(where)

    def token(self, index: int) -> int:
        return int(self.targets[self.counted][index])

    def _logits(self, model: nn.Module, engine: Engine, begin: int, end: int) -> torch.Tensor:
        try:
            if isinstance(self.inputs, torch.Tensor):
                result = model(self._padded("input_ids", self.inputs[begin:end], engine.pad))
            else:
                rows = {
                    name: self._padded(name, value[begin:end], engine.pad)
                    if isinstance(value, torch.Tensor) and value.dim() and value.shape[0] == self.rows
                    else value
                    for name, value in self.inputs.items()
                }
                result = model(**rows)
        except IndexError as error:  # torch.nn.Embedding's, which names no id
            ids = self.inputs if isinstance(self.inputs, torch.Tensor) else self.inputs.get("input_ids")
            told = "" if ids is None else f" of ids from {int(ids.min())} to {int(ids.max())}"
            raise ValueError(f"{self._call}: the model refuses a batch{told}: {error}") from error
        logits = getattr(result, "logits", result)
        if not isinstance(logits, torch.Tensor) or not logits.is_floating_point() or logits.dim() < 2:
            raise TypeError(
                f"{self._call}: the model gives {type(result).__name__}; logits are needed, a tensor "
                "(..., classes) or an output with .logits"
            )
        return logits

    def _padded(self, name: str, value: torch.Tensor, length: int | None) -> torch.Tensor:
        if length is None:
            return value
        if not self.shifted or value.dim() != 2 or name not in ("input_ids", "attention_mask"):
            raise ValueError(f"{self._call}: pad knows input_ids and attention_mask alone, not {name}")
        if length < value.shape[1]:
            raise ValueError(f"{self._call}: pad is {length}, and a batch has {value.shape[1]} positions")
        return nn.functional.pad(value, (0, length - value.shape[1]))
