"""What a call from Python costs beside the same call of the C++ library, in one process: a table of ratios.

    python python/bench.py PREFIX/lib/libfp16lab.so

The yardstick is the shared library of an installed fp16lab, the same kernels, called with ctypes on arrays
that are there already (a microsecond a call). Pairs of calls alternate; a ratio is the median over pairs of
the library's time divided by Python's, 1.00 where the package costs nothing. One thread. Exit code 1 if a
ratio is below 0.9.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import sys
import time
from pathlib import Path
from typing import Callable

import numpy as np

# The sources beside this script have no compiled module: what is measured is the installed package.
sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != Path(__file__).resolve().parent]
import fp16lab  # noqa: E402

# fp16lab.h
CODE = {"f32": 0, "f16": 1, "bf16": 2, "f64": 3, "e4m3": 6, "e5m2": 7, "tf32": 8}
WORD = {"f32": "u4", "f16": "u2", "bf16": "u2", "f64": "u8", "e4m3": "u1", "e5m2": "u1", "tf32": "u4"}


class Matrix(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("row_stride", ctypes.c_ssize_t),
        ("column_stride", ctypes.c_ssize_t),
    ]


class Library:
    """The functions of fp16lab.h that are measured; arrays are contiguous words."""

    def __init__(self, path: Path) -> None:
        self.c = ctypes.CDLL(str(path))
        size, pointer = ctypes.c_size_t, ctypes.c_void_p
        stride, code, wide = ctypes.c_ssize_t, ctypes.c_int, ctypes.c_int64
        for name in ("fp16lab_round", "fp16lab_round_f64"):
            getattr(self.c, name).argtypes = [code, code, pointer, stride, pointer, stride, size]
        self.c.fp16lab_widen.argtypes = [code, pointer, stride, pointer, stride, size]
        self.c.fp16lab_count.argtypes = [code, pointer, stride, size, pointer, code]
        self.c.fp16lab_gemm.argtypes = [
            *(
                ctypes.c_char_p,
                code,
                wide,
                wide,
                wide,
                code,
                Matrix,
                code,
                Matrix,
                pointer,
                pointer,
                stride,
                code,
            )
        ]
        self.counts = (ctypes.c_uint64 * 300)()

    def check(self, status: int) -> None:
        if status != 0:
            raise RuntimeError(f"the library answers {status}")

    def round(self, format: str, x: np.ndarray, to: np.ndarray) -> None:
        function = self.c.fp16lab_round_f64 if x.dtype == np.float64 else self.c.fp16lab_round
        self.check(function(CODE[format], 0, x.ctypes.data, 1, to.ctypes.data, 1, x.size))

    def widen(self, format: str, x: np.ndarray, to: np.ndarray) -> None:
        self.check(self.c.fp16lab_widen(CODE[format], x.ctypes.data, 1, to.ctypes.data, 1, x.size))

    def count(self, format: str, x: np.ndarray) -> None:
        self.counts = (ctypes.c_uint64 * 300)()
        self.check(self.c.fp16lab_count(CODE[format], x.ctypes.data, 1, x.size, self.counts, 1))

    def gemm(self, model: str, sums: str, format: str, a: np.ndarray, b: np.ndarray, d: np.ndarray) -> None:
        (m, k), n = a.shape, b.shape[1]
        left, right = (Matrix(x.ctypes.data, *(s // x.itemsize for s in x.strides)) for x in (a, b))
        code = CODE[format]
        self.check(
            self.c.fp16lab_gemm(
                *(model.encode(), CODE[sums], m, n, k, code, left, code, right, None, d.ctypes.data, n, 1)
            )
        )


def cases(
    library: Library, count: int, size: int
) -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
    """Name: (Python's call, the library's)."""
    random = np.random.default_rng(1)
    x, double = random.standard_normal(count).astype(np.float32), random.standard_normal(count)
    found: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {}
    wide = np.empty_like(x)
    for format in ("f16", "bf16", "tf32", "e4m3", "e5m2"):
        codes = np.empty(count, WORD[format])
        found[f'round(f32, "{format}", out="bits")'] = (
            lambda f=format: fp16lab.round(x, f, out="bits", threads=1),
            lambda f=format, to=codes: library.round(f, x, to),
        )
    half = np.empty(count, "u2")
    found['round(f32, "f16", out=array)'] = (
        lambda: fp16lab.round(x, "f16", out=half, threads=1),
        lambda: library.round("f16", x, half),
    )
    found['round(f64, "f16", out="bits")'] = (
        lambda: fp16lab.round(double, "f16", out="bits", threads=1),
        lambda: library.round("f16", double, half),
    )

    def there_and_back() -> None:
        library.round("f16", x, half)
        library.widen("f16", half, wide)

    found['round(f32, "f16")'] = (lambda: fp16lab.round(x, "f16", threads=1), there_and_back)
    for format, dtype in (("f32", np.float32), ("f16", np.float16)):
        values = x.astype(dtype)
        found[f"histogram({format})"] = (
            lambda v=values: fp16lab.histogram(v, threads=1),
            lambda f=format, v=values: library.count(f, v),
        )
    for model, format, sums in (
        *(("hopper", "f16", "f32"), ("ampere", "f16", "f32"), ("volta", "f16", "f32")),
        *(("hopper", "f16", "f16"), ("hopper", "tf32", "f32")),
    ):
        dtype, d = np.float32 if format == "tf32" else np.float16, np.empty((size, size), WORD[sums])
        a, b = (random.standard_normal((size, size)).astype(dtype) for _ in range(2))
        for name, right in (("a b", b), ("a b^T", b.T)):
            found[f"matmul({name}), {model}, {format}, sums in {sums}"] = (
                lambda a=a, b=right, m=model, s=sums: fp16lab.matmul(a, b, m, s, s, threads=1),
                lambda a=a, b=right, m=model, s=sums, f=format, d=d: library.gemm(m, s, f, a, b, d),
            )
    return found


def seconds(call: Callable[[], object], repeats: int) -> float:
    began = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - began) / repeats


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("library", type=Path, help="libfp16lab.so of an installed fp16lab")
    parser.add_argument("--pairs", type=int, default=41, help="of alternating calls (default: 41)")
    parser.add_argument("--count", type=int, default=1 << 20, help="elements of an array (default: 2^20)")
    parser.add_argument("--size", type=int, default=512, help="rows and columns of a matrix (default: 512)")
    arguments = parser.parse_args()
    worst = 1.0
    print(f"{'':48} {'Python':>9} {'C++':>9}  ratio")
    for name, (ours, theirs) in cases(Library(arguments.library), arguments.count, arguments.size).items():
        repeats = max(1, round(2e-3 / max(seconds(theirs, 2), 1e-6)))
        pairs = [(seconds(ours, repeats), seconds(theirs, repeats)) for _ in range(arguments.pairs)]
        ratio = statistics.median(b / a for a, b in pairs)
        worst = min(worst, ratio)
        times = [statistics.median(side) * 1e3 for side in zip(*pairs)]
        print(f"{name:48} {times[0]:6.3f} ms {times[1]:6.3f} ms  {ratio:5.2f}")
    print(f"worst: {worst:.2f}")
    return 0 if worst >= 0.9 else 1


if __name__ == "__main__":
    sys.exit(main())
