"""An engine that computes a network: tensor core, plan, formats and batches, for lab.mismatch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from ..products import Plan
from .attention import attention
from .autocasting import autocast
from .counting import FORMATS
from .emulated_ops import product_handler
from .emulating import emulate
from .layers import LayerTracker, float_tensors, gives_views, op_name
from .networks import path_of
from .tensor_products import TensorProducts
from .wide_operations import Place, Places, model_in_fp32

_DTYPES: dict[Any, torch.dtype] = {"f16": torch.float16, "bf16": torch.bfloat16}
#: Operations that move values and compute none: whether they are called depends on layouts, so on batches.
_MOVES = frozenset(("clone", "copy_", "cast", "_unsafe_view", "_reshape_alias"))
#: Fields that choose how a product is computed, and so may be possible together alone.
OF_PRODUCTS = ("row", "library", "accumulator", "f32", "dtype")
#: Fields that can be given to one kind of operation alone.
OF_OPERATIONS = ("row", "library", "accumulator", "f32", "storage")


@dataclass(frozen=True)
class Engine:
    """What computes a network's forward pass.

    row: a tensor core's name, or a chip, as lab.emulate takes it; "native" is torch itself on this CPU.
    library, accumulator, f32: those of lab.emulate.
    dtype: what lab.autocast computes products in, "bf16" or "f16"; None: no autocast, the model's own dtypes.
    storage: what results are kept in between kernels. "autocast": as autocast leaves them. "bf16", "f16":
    each floating result is rounded to it (and keeps its dtype, so that autocast casts as before). A kernel is
    a module without modules inside (its result is rounded, what it computes inside is not), or an operation
    outside of those.
    weights: None, or "bf16" or "f16", to which every parameter is rounded first.
    head: None, or "f32": the last linear layer multiplies FP32 operands, and nothing rounds its result, nor
    what is computed after it.
    batch: rows of a call; None: all at once. pad: positions to which the sequences are padded on the right;
    None: none.

    Dtypes may be torch's, such as torch.bfloat16.
    ValueError: a name that is unknown, or fields that cannot be together (FP16 sums of BF16 products).

    >>> Engine("h100", storage="bf16").storage
    'bf16'
    """

    row: str = "hopper"
    library: str | Plan = "instruction"
    accumulator: str = "f32"
    f32: str = "native"
    dtype: str | torch.dtype | None = "bf16"
    storage: str | torch.dtype = "autocast"
    weights: str | torch.dtype | None = None
    head: str | None = None
    batch: int | None = None
    pad: int | None = None

    def __post_init__(self) -> None:
        for name, known in (
            ("dtype", (None, *_DTYPES)),
            ("storage", ("autocast", *_DTYPES)),
            ("weights", (None, *_DTYPES)),
            ("head", (None, "f32")),
        ):
            if isinstance(getattr(self, name), torch.dtype):  # torch.bfloat16 is "bf16"
                object.__setattr__(self, name, FORMATS.get(getattr(self, name), getattr(self, name)))
            if getattr(self, name) not in known:
                needed = ", ".join(repr(each) for each in known)
                raise ValueError(f"Engine: {name} is {getattr(self, name)!r}; one of {needed} is needed")
        for name in ("batch", "pad"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ValueError(f"Engine: {name} is {value!r}; a whole number from 1 on, or None, is needed")
        if self.row == "native":
            if (self.library, self.accumulator, self.f32) != ("instruction", "f32", "native"):
                raise ValueError('Engine: row "native" is torch itself: it has no library, sums or f32')
            return
        products = emulate(self.row, self.accumulator, self.f32, library=self.library).products
        if self.dtype is not None:
            parts = self.library.parts if isinstance(self.library, Plan) else 1
            # K is equal parts of whole tiles.
            square = torch.ones(128 * parts, 128 * parts, dtype=_DTYPES[self.dtype])
            try:
                products.matmul(square[:2], square[:, :2])
            except ValueError as error:
                raise ValueError(f"Engine: {self.row} with library {self.library!r}: {error}") from None


def engine_of(value: Any, name: str) -> Engine:
    """An Engine, its fields as a dictionary, or the name of its row. TypeError: something else."""
    if isinstance(value, Engine):
        return value
    if isinstance(value, str):
        return Engine(value)
    if isinstance(value, Mapping):
        unknown = set(value) - {each.name for each in fields(Engine)}
        if unknown:
            known = ", ".join(each.name for each in fields(Engine))
            raise ValueError(f"{name} has {sorted(unknown)[0]!r}, which is no field of lab.Engine: {known}")
        return Engine(**value)
    raise TypeError(f'{name} is of {type(value).__name__}; a lab.Engine or a name such as "h100" is needed')


#: What is done with every result of a forward pass: (place, result), once it has been rounded.
Seen = Callable[[Place, torch.Tensor], None]


@contextmanager
def running(
    model: nn.Module,
    engine: Engine,
    head: nn.Module | None = None,
    *,
    seen: Seen | None = None,
    only: tuple[str, Engine] | None = None,
) -> Iterator[None]:
    """The model's forward passes inside are this engine's. head: the layer that `engine.head` means. only:
    (kind of operation, engine): this kind is computed and rounded as the other engine does it."""
    tracker = LayerTracker(model)
    with ExitStack() as scope:
        scope.enter_context(torch.no_grad())
        if engine.weights is not None:
            scope.enter_context(_rounded_weights(model, _DTYPES[engine.weights]))
        if engine.head is not None and head is not None:
            scope.enter_context(_in_fp32(head))
        run = None
        if engine.row != "native":
            run = scope.enter_context(
                emulate(engine.row, engine.accumulator, engine.f32, library=engine.library)
            )
        if engine.dtype is not None:
            scope.enter_context(autocast("cuda", _DTYPES[engine.dtype]))
        wide = head if engine.head is not None else None
        mode = _Kernels(model, tracker, engine, run, wide, seen, only)
        scope.callback(mode.end)
        tracker.begin()
        scope.callback(tracker.end)
        scope.enter_context(mode)
        scope.enter_context(_PlainAttention())
        yield


class _PlainAttention(TorchFunctionMode):
    """Attention by the same plain algorithm in every engine."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func is not functional.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        if torch.is_autocast_enabled("cpu"):
            dtype = torch.get_autocast_dtype("cpu")
            args, kwargs = tree_map(
                lambda value: value.to(dtype) if float_tensors(value) else value, (args, kwargs or {})
            )
        return attention(*args, **(kwargs or {}))


class _Kernels(TorchDispatchMode):
    """Rounds what kernels give, and has one kind of operation be another engine's."""

    def __init__(
        self,
        model: nn.Module,
        tracker: LayerTracker,
        engine: Engine,
        run: emulate | None,
        wide: nn.Module | None,
        seen: Seen | None,
        only: tuple[str, Engine] | None,
    ) -> None:
        super().__init__()
        self._tracker, self._places, self._run, self._seen = tracker, Places(tracker), run, seen
        self._storage, self._only = engine.storage, only
        leaves = [
            (path_of(name), module)
            for name, module in model.named_modules()
            if module is not model and next(module.children(), None) is None
        ]
        self._leaves = {name for name, _ in leaves}
        # Made before the tracker's own hooks, so that the layer is still at work when its result is rounded.
        self._hooks = [
            module.register_forward_hook(self._give) for _, module in leaves if module is not wide
        ]
        self._is_past_head = False
        if wide is not None:
            self._hooks.append(model.register_forward_pre_hook(partial(self._pass_head, False)))
            self._hooks.append(wide.register_forward_hook(partial(self._pass_head, True)))

    def end(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _pass_head(self, is_past: bool, *_: Any) -> None:
        """What comes after a head in FP32 stays as it is."""
        self._is_past_head = is_past

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kind = op_name(func)
        with self._other_products(func, kind):
            result = func(*args, **(kwargs or {}))
        if gives_views(func):
            return result
        if self._tracker.site()[0] not in self._leaves:
            self._round(kind, result)
        elif product_handler(func) is None:
            return result
        if self._seen is not None and kind not in _MOVES:
            for value in float_tensors(result):
                self._seen(self._places.next(kind), value)
        return result

    def _give(self, module: nn.Module, _: Any, result: Any) -> Any:
        kind = type(module).__name__
        if self._format(kind) == "autocast":
            rounded = result
        else:  # a module may give what it was given, or a parameter: that stays as it is
            rounded = tree_map(lambda value: self._rounded(kind, value), result)
        if self._seen is not None:
            for value in float_tensors(rounded):
                self._seen(self._places.next(kind), value)
        return rounded

    def _format(self, kind: str) -> Any:
        if self._is_past_head:
            return "autocast"
        return self._only[1].storage if self._only and self._only[0] == kind else self._storage

    def _rounded(self, kind: str, value: Any) -> Any:
        return value.to(_DTYPES[self._format(kind)]).to(value.dtype) if float_tensors(value) else value

    def _round(self, kind: str, result: Any) -> None:
        if self._format(kind) != "autocast":
            for value in float_tensors(result):
                if value.dtype.itemsize > 1:
                    value.copy_(self._rounded(kind, value))

    @contextmanager
    def _other_products(self, func: Any, kind: str) -> Iterator[None]:
        run, only = self._run, self._only
        if run is None or only is None or only[0] != kind or product_handler(func) is None:
            yield
            return
        own = (run.products, run.accumulator, run.f32)
        other = only[1]
        run.products = TensorProducts(other.row, other.accumulator, other.f32, other.library)
        run.accumulator, run.f32 = other.accumulator, other.f32
        try:
            yield
        finally:
            run.products, run.accumulator, run.f32 = own


@contextmanager
def _rounded_weights(model: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    held = [(each, each.data) for each in model.parameters() if each.is_floating_point()]
    try:
        for parameter, data in held:
            parameter.data = data.to(dtype).to(data.dtype)
        yield
    finally:
        for parameter, data in held:
            parameter.data = data


@contextmanager
def _in_fp32(head: nn.Module) -> Iterator[None]:
    forward = head.forward

    def in_fp32(*args: Any, **kwargs: Any) -> Any:
        wide = tree_map(lambda value: value.float() if float_tensors(value) else value, (args, kwargs))
        with torch.autocast("cpu", enabled=False), model_in_fp32(head):
            return forward(*wide[0], **wide[1])

    own = head.__dict__.get("forward")
    head.forward = in_fp32
    try:
        yield
    finally:
        del head.forward
        if own is not None:
            head.forward = own
