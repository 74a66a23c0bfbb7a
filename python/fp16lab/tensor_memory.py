"""Tensors of PyTorch whose memory is their value, which alone may be read by address.

A torch.Tensor need not be one: wrapper classes (DTensor, torchao's, nested and fake tensors) hold other tensors and
give an address that is none; lazily negated tensors hold the numbers of another sign; functorch's belong to a
transformation. PyTorch's dispatcher knows all of them by keys, and so does this module, which nothing of the package
reads memory without. (It never imports torch.)
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

#: What a tensor of another kind is, by the dispatch key that a plain one does not have; and what helps.
_KINDS = {
    "NestedTensor": ("is a nested tensor", "{0}.values() or {0}.unbind() have its numbers"),
    "Quantized": ("is quantized", "{0}.dequantize() has its numbers"),
    "FuncTorch": ("belongs to a transformation of torch.func, such as vmap or grad", "call this outside of it"),
    "Functionalize": ("belongs to a transformation of torch.func", "call this outside of it"),
    "Python": ("is of class {1}, which wraps other tensors", "a plain torch.Tensor is needed"),
}
_HINTS = {
    "DTensor": "{0}.to_local() is this rank's part, {0}.full_tensor() the whole",
    "AsyncCollectiveTensor": "{0}.wait() has its numbers",
    "FakeTensor": "it has no numbers",
    "FunctionalTensor": "it has no numbers",
}


def in_memory(x: Any, name: str) -> Any:
    """`x`, a torch.Tensor, without a gradient, or a copy of it: dense or strided, on the CPU, and its memory is its
    value. ValueError, which says what `x` is and what helps: there is none."""
    x = plain(x, name)
    if x.device.type != "cpu":
        raise ValueError(f"{name} is on {x.device}; products and roundings run on the CPU: {name}.cpu() moves it there")
    return x


def plain(x: Any, name: str) -> Any:
    """The same on any device that keeps numbers."""
    torch = sys.modules["torch"]
    kind = _kind(x)
    if kind is not None:
        what, help = _KINDS[kind]
        own = type(x).__name__
        raise ValueError(f"{name} {what.format(name, own)}; {_HINTS.get(own, help).format(name)}")
    if x.layout != torch.strided:
        raise ValueError(f"{name} is a tensor of layout {x.layout}; {name}.to_dense() makes a strided one")
    if x.device.type == "meta":
        raise ValueError(f"{name} is on the device meta, which keeps no numbers")
    x = x.detach()
    if x._is_zerotensor():
        return torch.zeros(x.shape, dtype=x.dtype, device=x.device)
    return x.resolve_conj().resolve_neg() if x.is_neg() or x.is_conj() else x


def flat(x: Any, name: str = "the tensor") -> Any:
    """All elements of a plain `x` in one dimension, in any order: without a copy where they fill one piece of memory,
    as those of a transposed matrix do."""
    x = plain(x, name)
    if x.is_contiguous():
        return x.view(-1)
    expected = 1
    for stride, size in sorted(zip(x.stride(), x.shape)):
        if size != 1 and stride != expected:
            return x.contiguous().view(-1)
        expected *= size
    return x.as_strided((x.numel(),), (1,))


def local_parts(x: Any) -> Iterator[Any]:
    """The numbers of `x` that are in this process, as plain tensors of any device: of a DTensor this rank's part, of
    a nested tensor each part, of a sparse one the values, of functorch's the tensor inside. None of a tensor without
    numbers, and of other wrapper classes."""
    if not has_parts(x):
        return
    torch = sys.modules["torch"]
    while torch._C._functorch.is_functorch_wrapped_tensor(x):
        x = torch._C._functorch.get_unwrapped(x)
    while _wraps_local(x):
        x = x.to_local() if hasattr(x, "to_local") else x.wait()
    if x.is_nested:
        for part in x.unbind():
            yield from local_parts(part)
    elif x.is_sparse:
        yield x.coalesce().values()
    elif x.layout == torch._mkldnn:
        yield x.to_dense()
    elif x.layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        yield x.values()
    else:
        yield x


def has_parts(x: Any) -> bool:
    """Does `local_parts` give any of `x`?"""
    torch = sys.modules["torch"]
    while torch._C._functorch.is_functorch_wrapped_tensor(x):
        x = torch._C._functorch.get_unwrapped(x)
    known = _kind(x) is None or x.is_nested or _wraps_local(x)
    return known and x.device.type != "meta"


def _wraps_local(x: Any) -> bool:
    """A DTensor, or what a collective is still filling."""
    return type(x).__name__ in ("DTensor", "AsyncCollectiveTensor")


def _kind(x: Any) -> str | None:
    """A key of `_KINDS`; None: a plain tensor, of any layout and device."""
    return _kind_of(sys.modules["torch"]._C._dispatch_keys(x).raw_repr())


@cache
def _kind_of(keys: int) -> str | None:
    text = str(sys.modules["torch"]._C.DispatchKeySet.from_raw_repr(keys))
    names = frozenset(text.removeprefix("DispatchKeySet(").removesuffix(")").split(", "))
    for kind in _KINDS:
        if any(name.startswith(kind) for name in names):
            return kind
    return None
