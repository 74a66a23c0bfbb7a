"""Exponent histograms of tensors where they are, by integer operations of PyTorch: no element leaves the device.

A tensor adds to a row of one int64 buffer a device: 278 bins, zeros, Infs, NaNs and two extremes, with the counts of
fp16lab.histogram. Rows come to the host when they are read, all of them at once; nothing else waits for the device.
Nothing here computes with floating-point numbers that may be subnormal, so that flushing them changes no count.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch

from .. import _core
from ..arrays import FORMATS
from ..tensor_memory import flat

_ZERO, _WIDTH = 278, 283  # columns: bins, zero, Inf, NaN, then greatest and _INFINITY - smallest as FP32 bits
_MAGNITUDE, _INFINITY = 0x7FFFFFFF, 0x7F800000  # of FP32
_SMALL = 2**15  # elements: below, tensors are collected and counted together
_ROOM = 2**20  # elements that are collected
_PART = 2**22  # elements that are counted at once: bounds what operations one by one need, some 100 MB
_COLUMNS = 256  # counts of one class, side by side, so that atomic additions rarely meet
_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_NAMES = {
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "e4m3",
    torch.float8_e5m2: "e5m2",
}

_OF_LIBRARY = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}


def _classes(magnitudes: torch.Tensor) -> torch.Tensor:
    """The column of FP32 bits without sign: bins are closed at the right, which subtracting one makes of them."""
    below = magnitudes - 1
    length = (below.float().view(torch.int32) >> 23) - 126  # of subnormal ones, in bits; exact, and normal numbers
    bins = torch.where(below >= 1 << 23, (below >> 23) + 23, length.clamp(min=0))
    bins = torch.where(below < 0, _ZERO, bins)
    return bins.add(magnitudes >= _INFINITY, alpha=2)  # from the last bin, and the one that would follow


def _extremes(magnitudes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Whose maxima are a row's last two numbers, where they are above zero."""
    return torch.where(magnitudes < _INFINITY, magnitudes, 0), (-magnitudes & _MAGNITUDE) - (1 << 23)


def _tally(classes: torch.Tensor, number: int) -> torch.Tensor:
    """How often each class from 0 to number - 1 is there, of (n, columns)."""
    counts = torch.zeros(number, classes.shape[1], dtype=torch.int32, device=classes.device)
    counts.scatter_add_(0, classes.long(), torch.ones_like(classes, dtype=torch.int32))
    return counts.sum(1)


def _count_f32(words: torch.Tensor) -> torch.Tensor:
    """A row of FP32 words (n, _COLUMNS)."""
    magnitudes = words & _MAGNITUDE
    high, low = _extremes(magnitudes)
    return torch.cat([_tally(_classes(magnitudes), _WIDTH - 2), high.amax()[None], low.amax()[None]])


def _count_codes(codes: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    """A row of codes (n, columns) without signs below len(words); words: their FP32 bits."""
    counts = _tally(codes & (len(words) - 1), len(words))
    high, low = _extremes(torch.where(counts > 0, words, 0))
    row = torch.zeros(_WIDTH - 2, dtype=torch.int64, device=words.device)
    row.index_add_(0, _classes(words), counts)
    return torch.cat([row, high.amax()[None], low.amax()[None]])


def _count_f64(words: torch.Tensor) -> torch.Tensor:
    """A row of FP64 words (n, columns); what is beyond FP32's range is in the first bin or the last, and extremes
    are not known."""
    infinity = 0x7FF << 52
    magnitudes = words & (2**63 - 1)
    bins = (((magnitudes - 1) >> 52) - 1023 + 150).clamp(0, 277)
    bins = torch.where(magnitudes == 0, _ZERO, bins)
    bins = torch.where(magnitudes >= infinity, _ZERO + 2 - (magnitudes == infinity).int(), bins)
    counts = _tally(bins, _WIDTH - 2)
    return torch.cat([counts, torch.zeros(2, dtype=counts.dtype, device=counts.device)])


def _mixed(x: torch.Tensor) -> torch.Tensor:
    """mix64 of engine/backend/digest_functions.hpp."""

    def shifted(x: torch.Tensor, by: int) -> torch.Tensor:
        return (x >> by) & ((1 << (64 - by)) - 1)

    x = (x ^ shifted(x, 30)) * (0xBF58476D1CE4E5B9 - 2**64)
    x = (x ^ shifted(x, 27)) * (0x94D049BB133111EB - 2**64)
    return x ^ shifted(x, 31)


def _digest_words(words: torch.Tensor, positions: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """The digest of words; positions count from 1. (Multiples of an arange in here would be wrong: Inductor computes
    them as an index.)"""
    gamma = 0x9E3779B97F4A7C15 - 2**64
    return _mixed(words ^ _mixed(positions * gamma + key)).sum()


class Compiled:
    """A function as torch.compile has it, where that works and gives what the function gives; this is found out once,
    at the first call for a device, and costs some seconds."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        self._function = self._compiled = function
        self.failures: dict[torch.device, str | None] = {}  # None: compiled

    def __call__(self, *args: torch.Tensor) -> torch.Tensor:
        device = args[0].device
        if device in self.failures:
            return self._function(*args) if self.failures[device] else self._compiled(*args)
        own = self._function(*args)
        try:
            if not self.failures:
                self._compiled = torch.compile(self._function, dynamic=True)
            same = torch.equal(self._compiled(*args), own)
            self.failures[device] = None if same else "it gives other numbers"
        except Exception as error:  # a compiler that is missing, a device that Inductor does not know
            self.failures[device] = f"{type(error).__name__}"
        return own


_count_f32_fast, _count_codes_fast, _digest_fast = (
    Compiled(function) for function in (_count_f32, _count_codes, _digest_words)
)


@cache
def _library(device: torch.device) -> Callable[[torch.Tensor, str, torch.Tensor], None] | None:
    """Adds a tensor's counts to a row by the CUDA library's kernel (engine/backend/cuda/stream_histogram.hpp), in the
    current stream; None where that is not beside this package, has no code for the device, or counts otherwise than
    PyTorch does. This is found out once."""
    if device.type != "cuda":
        return None

    def count(values: torch.Tensor, format: str, row: torch.Tensor) -> None:
        stream = torch.cuda.current_stream(device).cuda_stream
        with torch.cuda.device(device):
            _core.count_on_stream(values.data_ptr(), values.numel(), format, row.data_ptr(), stream)

    words = (torch.arange(1 << 12, device=device) * 0x9E3779B1).to(torch.int32)
    row = torch.zeros(_WIDTH, dtype=torch.int64, device=device)
    try:
        count(words, "f32", row)
    except RuntimeError:
        return None
    return count if torch.equal(row, _count_f32(words.view(-1, _COLUMNS))) else None


def how(device: torch.device) -> str:
    """A line for people: what counts there."""
    if _library(device):
        return "by fp16lab's CUDA kernel"
    failures = {each.failures[device] for each in (_count_f32_fast, _count_codes_fast) if device in each.failures}
    failed = next((each for each in failures if each), None)
    if failed:
        return f"by operations of PyTorch one by one: torch.compile does not work ({failed})"
    return "by kernels of torch.compile" if failures else "by operations of PyTorch"


class DeviceCounts:
    """Rows of counts on one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._buffer = torch.zeros(0, _WIDTH, dtype=torch.int64, device=device)
        self._used = self._collected = 0
        self._stream: Any = None

    def new_row(self) -> int:
        if self._used == len(self._buffer):
            self._buffer = torch.cat([self._buffer, self._buffer.new_zeros(max(256, self._used), _WIDTH)])
        self._used += 1
        return self._used - 1

    def add(self, row: int, tensor: torch.Tensor) -> None:
        """Counts every element of a plain tensor, of any shape and strides. It may be written to afterwards.
        TypeError: it is not of FP64, FP32, FP16, BF16 or FP8."""
        if tensor.dtype not in (torch.float64, torch.float32, *_NAMES):
            raise TypeError(f"a histogram counts floating-point numbers of 64 bits or fewer, not {tensor.dtype}")
        self._follow_stream()
        values = flat(tensor)
        words = values.view(_WORDS[values.element_size()])
        whole = 0
        library = _library(self.device) if values.dtype in _OF_LIBRARY and values.data_ptr() % 16 == 0 else None
        if values.dtype == torch.float64:
            whole = words.numel()
            for part in words.split(_PART) if whole else ():
                self._put(row, _count_f64(part.view(-1, 1)))
        elif words.numel() >= _SMALL and library is not None:
            whole = words.numel()
            library(values, _OF_LIBRARY[values.dtype], self._buffer[row])
        elif words.numel() >= _SMALL:
            whole = words.numel() // _COLUMNS * _COLUMNS
            for part in words[:whole].split(_PART):
                if values.dtype == torch.float32:
                    self._put(row, _count_f32_fast(part.view(-1, _COLUMNS)))
                else:
                    columns = _COLUMNS if values.element_size() == 1 else 8
                    table = _words_of_codes(values.dtype, self.device)
                    self._put(row, _count_codes_fast(part.view(-1, columns), table))
        self._collect(row, values.dtype, words[whole:])

    def read(self) -> list[_core.Histogram]:
        """All rows, which are then forgotten: one copy to the host."""
        self._follow_stream()
        self._count_collected()
        rows = self._buffer[: self._used].cpu().numpy()
        self._buffer, self._used = torch.zeros_like(self._buffer), 0
        return [_histogram(row) for row in rows]

    def _put(self, row: int, counts: torch.Tensor) -> None:
        own = self._buffer[row]
        own[:-2] += counts[:-2]
        torch.maximum(own[-2:], counts[-2:], out=own[-2:])

    def _collect(self, row: int, dtype: torch.dtype, words: torch.Tensor) -> None:
        count = words.numel()
        if count == 0:
            return
        if not hasattr(self, "_words"):
            self._words, self._rows = (torch.empty(_ROOM, dtype=torch.int32, device=self.device) for _ in range(2))
        if self._collected + count > _ROOM:
            self._count_collected()
        if dtype != torch.float32:
            table = _words_of_codes(dtype, self.device)
            words = table[words.long() & (len(table) - 1)]
        place = slice(self._collected, self._collected + count)
        self._words[place] = words
        self._rows[place] = row
        self._collected += count

    def _count_collected(self) -> None:
        if self._collected == 0:
            return
        magnitudes, rows = self._words[: self._collected] & _MAGNITUDE, self._rows[: self._collected].long()
        self._collected = 0
        places = rows * _WIDTH + _classes(magnitudes)
        self._buffer.view(-1).scatter_add_(0, places, torch.ones_like(places))
        for column, extremes in zip((-2, -1), _extremes(magnitudes)):
            self._buffer[:, column].scatter_reduce_(0, rows, extremes.long(), "amax")

    def _follow_stream(self) -> None:
        """Backward passes and collectives may run in several streams."""
        if self.device.type not in ("cuda", "xpu"):
            return
        stream = torch.accelerator.current_stream(self.device)
        if self._stream is not None and self._stream != stream:
            stream.wait_stream(self._stream)
        self._stream = stream


def digest(tensor: torch.Tensor, key: int) -> torch.Tensor:
    """The digest of a plain tensor's bytes in row-major order (engine/backend/digest_functions.hpp, modulo 2^64), as
    int64 of no dimension where the tensor is."""
    data = flat(tensor.contiguous()).view(torch.uint8)
    if data.numel() % 8 or data.storage_offset() % 8:
        data = torch.cat([data, data.new_zeros(-data.numel() % 8)])
    total = torch.zeros((), dtype=torch.int64, device=data.device)
    words = data.view(torch.int64)
    keys = torch.full((), key, dtype=torch.int64, device=data.device)
    for first in range(0, len(words), _PART):
        part = words[first : first + _PART]
        total += _digest_fast(part, torch.arange(first + 1, first + len(part) + 1, device=data.device), keys)
    return total


@cache
def _words_of_codes(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """FP32 bits of all codes without sign."""
    kind = FORMATS[_NAMES[dtype]]
    fraction = kind.precision - 1
    fields = 1 << kind.exponent_bits
    ieee = kind.greatest == (fields >> 1) - 1
    words = []
    for code in range(fields << fraction):
        field, rest = code >> fraction, code & ((1 << fraction) - 1)
        significand = rest | (1 << fraction if field else 0)
        exponent = max(field, 1) + 1 - (fields >> 1) - fraction  # the value is significand * 2**exponent
        length = significand.bit_length()
        if (field == fields - 1 and ieee) or code == (fields << fraction) - 1:
            words.append(_INFINITY + (rest != 0))
        elif significand == 0 or length + exponent < -125:
            words.append(significand << max(0, exponent + 149))
        else:
            words.append(((length - 1 + exponent + 127) << 23) + ((significand << (24 - length)) & 0x7FFFFF))
    return torch.tensor(words, dtype=torch.int32).to(device)


def _histogram(row: np.ndarray[Any, Any]) -> _core.Histogram:
    greatest = int(row[-2])
    smallest = _INFINITY - int(row[-1]) if greatest else 0
    histogram = _core.Histogram.__new__(_core.Histogram)
    histogram.__setstate__(row[:-2].tobytes() + np.array([smallest, greatest], np.uint32).tobytes())
    return histogram
