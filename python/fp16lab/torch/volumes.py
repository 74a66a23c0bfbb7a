"""3-d convolutions as matrix products: operands are gathered by place, and a tensor core's products add them up.

As the C++ library's convolutions of planes, each is one implicit GEMM a group, of one sum an element over all of K:

    y         over channel, t, r, s of the filter; over t, r, s, channel where x or the weight is channels last
    x         over output channel, t, r, s: zeros where no output reached
    weight    over image and place of y
"""

from __future__ import annotations

from typing import Any

import torch

from . import product_sums
from .emulation import Run, torchs_error

_LAST = torch.channels_last_3d


def _is_last(*tensors: torch.Tensor) -> bool:
    return any(not t.is_contiguous() and t.is_contiguous(memory_format=_LAST) for t in tensors)


class Volumes:
    """y (N, K, D', H', W') = convolution of x (N, C, D, H, W) with weight (K, C / groups, T, R, S). Bias and results
    have the dtype of the operands."""

    def __init__(self, stride: Any, padding: Any, dilation: Any, groups: int, last: bool) -> None:
        self.stride, self.padding, self.dilation = (
            tuple(each) * (3 // len(each)) for each in (stride, padding, dilation)
        )
        self.groups, self.last = groups, last

    def outputs(self, x: Any, weight: Any) -> list[int]:
        """The extents of y."""
        return [
            (x.shape[2 + i] + 2 * self.padding[i] - self._reach(weight, i) - 1) // self.stride[i] + 1
            for i in range(3)
        ]

    def inputs(self, y: Any, weight: Any, holes: Any) -> list[int]:
        """The extents of x, as a transposed convolution has them."""
        holes = tuple(holes) * (3 // len(holes))
        return [
            (y.shape[2 + i] - 1) * self.stride[i] - 2 * self.padding[i] + self._reach(weight, i) + holes[i] + 1
            for i in range(3)
        ]

    def y(self, run: Run, x: Any, weight: Any, bias: Any = None) -> torch.Tensor:
        taps = self._grouped(self._taps_of_x(x, weight, self.outputs(x, weight)))
        filters = self._of_groups(weight)
        if self.last:
            taps, filters = taps.movedim(2, -1), filters.movedim(2, -1)
        else:
            taps = taps.movedim(2, 5)
        rows = taps.flatten(1, 4).flatten(2)
        return self._result(run, rows, filters.flatten(2).mT, taps.shape[1:5], bias)

    def x(self, run: Run, y: Any, weight: Any, extents: list[int], bias: Any = None) -> torch.Tensor:
        taps = self._grouped(self._taps(y, [self._reaching(y, weight, extents, i) for i in range(3)]))
        filters = self._of_groups(weight).movedim(2, -1)
        rows = taps.movedim(2, 5).flatten(1, 4).flatten(2)
        return self._result(run, rows, filters.flatten(1, 4), (y.shape[0], *extents), bias)

    def weight(self, run: Run, x: Any, weight: Any, y: Any) -> torch.Tensor:
        rows = self._grouped(y).transpose(1, 2).flatten(2)  # (group, K of it, N D' H' W')
        taps = self._grouped(self._taps_of_x(x, weight, list(y.shape[2:])))
        columns = taps.movedim(2, 5).flatten(1, 4).flatten(2)
        result: torch.Tensor = run.products.matmul(rows, columns).view(weight.shape)
        return result

    # ---- inside

    def _reach(self, weight: Any, axis: int) -> int:
        return int(self.dilation[axis] * (weight.shape[2 + axis] - 1))

    def _grouped(self, t: torch.Tensor) -> Any:
        """(N, C, ...) as (group, N, C of it, ...)."""
        return t.unflatten(1, (self.groups, t.shape[1] // self.groups)).movedim(1, 0)

    def _of_groups(self, weight: torch.Tensor) -> Any:
        """(K, C of a group, T, R, S) as (group, K of it, C of it, T, R, S)."""
        return weight.unflatten(0, (self.groups, weight.shape[0] // self.groups))

    def _taps_of_x(self, x: Any, weight: Any, outs: list[int]) -> torch.Tensor:
        places = []
        for i, out in enumerate(outs):
            steps = torch.arange(out)[:, None] * self.stride[i] - self.padding[i]
            reached = steps + torch.arange(weight.shape[2 + i])[None] * self.dilation[i]
            inside = (reached >= 0) & (reached < x.shape[2 + i])
            places.append(reached.where(inside, x.shape[2 + i]))
        return self._taps(x, places)

    def _reaching(self, y: Any, weight: Any, extents: list[int], i: int) -> Any:
        """By place of x and tap of the filter, the place of y that read it."""
        taps = torch.arange(weight.shape[2 + i])[None] * self.dilation[i]
        steps = torch.arange(extents[i])[:, None] + self.padding[i] - taps
        place = steps.div(self.stride[i], rounding_mode="floor")
        read = (steps % self.stride[i] == 0) & (place >= 0) & (place < y.shape[2 + i])
        return place.where(read, y.shape[2 + i])

    def _taps(self, t: torch.Tensor, places: list[torch.Tensor]) -> torch.Tensor:
        """(N, C, *outs, *taps) of t (N, C, D, H, W) by three matrices (out, tap) of places; the place after the last
        one holds zero."""
        padded = torch.nn.functional.pad(t, (0, 1) * 3)
        shapes = []
        for i in range(3):
            shape = [1] * 6
            shape[i], shape[3 + i] = places[i].shape
            shapes.append(shape)
        return padded[:, :, places[0].view(shapes[0]), places[1].view(shapes[1]), places[2].view(shapes[2])]

    def _result(self, run: Run, rows: Any, columns: Any, extents: Any, bias: Any) -> torch.Tensor:
        """The product of (group, N D H W, K) and (group, K, C), as (N, C of all groups, D, H, W)."""
        addend = None
        if bias is not None:
            addend = bias.view(self.groups, 1, columns.shape[2]).expand(-1, rows.shape[1], -1)
        product = run.products.matmul(rows, columns, addend=addend)
        spread = product.unflatten(1, tuple(extents)).movedim(-1, 2).movedim(0, 1).flatten(1, 2)
        last = _LAST if self.last else torch.contiguous_format
        result: torch.Tensor = spread.contiguous(memory_format=last)
        product_sums.follow(result, product)
        return result


def convolution(
    run: Run,
    func: Any,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Any:
    """aten.convolution of operands that fit, and are counted already."""
    if run.products.planned and x.dtype != torch.float32:
        raise run.products.unknown("convolutions")
    volumes = Volumes(stride, padding, dilation, groups, _is_last(x, weight))
    extents = volumes.inputs(x, weight, output_padding) if transposed else volumes.outputs(x, weight)
    if min(extents) < 1:
        return torchs_error(
            func, x, weight, bias, stride, padding, dilation, transposed, output_padding, groups
        )
    return volumes.x(run, x, weight, extents, bias) if transposed else volumes.y(run, x, weight, bias)


def convolution_backward(
    run: Run,
    gradient: Any,
    x: Any,
    weight: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    groups: int,
    output_mask: Any,
) -> Any:
    """aten.convolution_backward of operands that are counted already."""
    if run.products.planned and x.dtype != torch.float32:
        raise run.products.unknown("convolutions")
    volumes = Volumes(stride, padding, dilation, groups, _is_last(x, weight))
    of_x = of_weight = of_bias = None
    if output_mask[0]:
        if transposed:
            of_x = volumes.y(run, gradient, weight)
        else:
            of_x = volumes.x(run, gradient, weight, list(x.shape[2:]))
    if output_mask[1]:
        image, result = (gradient, x) if transposed else (x, gradient)
        of_weight = volumes.weight(run, image, weight, result)
    if output_mask[2]:
        of_bias = run.products.sum_channels(gradient.flatten(2, 3).contiguous())
    return of_x, of_weight, of_bias
