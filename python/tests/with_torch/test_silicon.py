"""What PyTorch computes on this processor is what the row avx512_bf16 and the plan onednn predict."""

from __future__ import annotations

import hashlib
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import fp16lab.torch as lab

EXAMPLE = Path(__file__).parents[2] / "examples" / "silicon.py"
sys.path.insert(0, str(EXAMPLE.parent))
import silicon  # noqa: E402


def test_products_and_trainings_are_predicted_bit_by_bit():
    result = subprocess.run(
        [sys.executable, str(EXAMPLE), "30"], capture_output=True, text=True, check=False
    )
    if result.returncode == 77:
        pytest.skip(result.stdout.strip())
    assert result.returncode == 0, result.stdout + result.stderr
    rows = re.findall(r"^(.{16}) +(\d+) +(\d+) +([\d.]+)% +([\d.]+)%$", result.stdout, re.MULTILINE)
    assert len(rows) == 21
    for name, outputs, differ, chain, hopper in rows:
        assert int(outputs) >= 250 and int(differ) == 0, name
        assert float(hopper) > 10, f"{name}: the operands tell orders apart"
        assert name.strip() == "conv2d, last" or float(chain) > 10, name  # its order is one chain
    assert result.stdout.count("every weight are equal in") == 6


def _operands(*shape: int, salt: int) -> torch.Tensor:
    """BF16 numbers of sixteen binades that any machine makes alike."""
    word = (torch.arange(math.prod(shape)) + salt) * 2654435761 % 2**32 // 2**13
    return ((word % 255 - 127) * 2.0 ** (word // 256 % 16)).bfloat16().reshape(shape)


def _opposite(x: torch.Tensor, dim: int, sign: int) -> torch.Tensor:
    """Its last elements along a dimension become the first ones in reversed order, times the sign."""
    half = x.shape[dim] // 2
    kept = x.narrow(dim, 0, x.shape[dim] - half)
    return torch.cat([kept, sign * kept.narrow(dim, 0, half).flip(dim)], dim)


def _digests(sizes: tuple[int, ...], layout: str) -> list[str]:
    """Digests of y and the gradients of x, weight and bias, where they are computed; "" where a plan has no rule."""
    n, c, h, w, k, r, stride, padding, groups = sizes
    y_shape = (n, k, (h + 2 * padding - r) // stride + 1, (w + 2 * padding - r) // stride + 1)
    x, weight, gradient = (
        _operands(*shape, salt=salt)
        for salt, shape in enumerate(((n, c, h, w), (k, c // groups, r, r), y_shape))
    )
    x, weight = _opposite(_opposite(x, 1, 1), 0, 1), _opposite(_opposite(weight, 1, -1), 0, -1)
    gradient = _opposite(_opposite(gradient, 1, 1), 0, -1)
    x, weight, gradient = (
        t.contiguous(memory_format=getattr(torch, layout)) for t in (x, weight, gradient)
    )
    bias, places = _operands(k, salt=5), ([stride] * 2, [padding] * 2, [1, 1], False, [0, 0], groups)

    def results() -> Iterator[torch.Tensor | None]:
        yield torch.ops.aten.convolution(x, weight, bias, *places)
        for i in range(3):
            wanted = [i == j for j in range(3)]
            try:
                yield torch.ops.aten.convolution_backward(gradient, x, weight, [k], *places, wanted)[i]
            except lab.EmulationError:
                yield None

    def digest(result: torch.Tensor | None) -> str:
        if result is None:
            return ""
        words = result.contiguous().view(torch.int16).numpy()
        return hashlib.sha256(words.tobytes()).hexdigest()[:12]

    return [digest(result) for result in results()]


#: What PyTorch 2.15 gave on a Zen 5 processor in one thread, of (N, C, H, W, K, R, stride, padding, groups).
CONVOLUTIONS = {
    ((3, 20, 9, 11, 18, 3, 1, 1, 1), "contiguous_format"): ["250fb7666197", "3a28efa5e7c0", "f8de7be1ac15", "a283d306e592"],
    ((3, 20, 9, 11, 18, 3, 1, 1, 1), "channels_last"): ["18e9a81ce678", "f82fe0fb453e", "f8de7be1ac15", "a283d306e592"],
    ((2, 17, 12, 12, 8, 5, 1, 2, 1), "contiguous_format"): ["4a66317eaec9", "e0017faad54d", "2d74df9293da", "8eaf6038e596"],
    ((2, 17, 12, 12, 8, 5, 1, 2, 1), "channels_last"): ["951540eadbc3", "36855e800495", "2d74df9293da", "8eaf6038e596"],
    ((4, 3, 14, 14, 8, 3, 1, 1, 1), "contiguous_format"): ["68cd7145653e", "d457f40627ce", "7bc9a5746c5d", "75820459eae9"],
    ((2, 1, 22, 22, 6, 3, 1, 0, 1), "contiguous_format"): ["bce0cbb082cd", "266c6aec7e1d", "df7cd6aaa7fd", "ce8ba9df2551"],
    ((2, 16, 15, 15, 32, 3, 2, 1, 1), "contiguous_format"): ["558a27057011", "7177c5834abc", "880e76fa2d44", "f5a5fd42d16a"],
    ((2, 16, 15, 15, 32, 3, 2, 1, 1), "channels_last"): ["558a27057011", "7177c5834abc", "880e76fa2d44", "f5a5fd42d16a"],
    ((2, 40, 6, 6, 16, 1, 1, 0, 1), "contiguous_format"): ["ddbd0b697ad3", "cff642401e03", "bfe492baf731", "66687aadf862"],
    ((2, 40, 6, 6, 16, 1, 1, 0, 1), "channels_last"): ["ddbd0b697ad3", "cff642401e03", "bfe492baf731", "66687aadf862"],
    ((2, 1040, 2, 2, 4, 1, 1, 0, 1), "contiguous_format"): ["40fe81b57f83", "af06c95b0664", "a374b91cb398", "af5570f5a181"],
    ((2, 32, 8, 8, 32, 3, 1, 1, 32), "contiguous_format"): ["c0b2bd25d930", "52d222c18100", "", ""],
    ((2, 32, 8, 8, 32, 3, 1, 1, 32), "channels_last"): ["c0b2bd25d930", "52d222c18100", "", ""],
    ((2, 6, 10, 10, 10, 3, 1, 0, 1), "contiguous_format"): ["798efd8a155e", "72e1b5baefc7", "d20d5d685a1f", "de47c9b27eb8"],
    ((2, 6, 10, 10, 10, 3, 1, 0, 1), "channels_last"): ["798efd8a155e", "", "bff740d9c785", "de47c9b27eb8"],
}


@pytest.mark.parametrize("sizes,layout", CONVOLUTIONS)
def test_convolutions_have_the_bits_of_a_zen_5_processor(sizes, layout):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with lab.emulate("avx512_bf16", library="onednn"):
            assert _digests(sizes, layout) == CONVOLUTIONS[sizes, layout]
    finally:
        torch.set_num_threads(threads)


#: m, n, k (n 0: mv; m 0 too: dot) and which operands memory holds transposed.
PRODUCTS = [
    *((m, 0, 126, layout) for m in (1, 30, 300) for layout in ("nn", "tn")),
    *((0, 0, k, "nn") for k in (500, 5000)),
    *((m, n, 126, layout) for m, n in ((30, 20), (1, 20), (20, 1)) for layout in ("nn", "nt", "tn")),
]


def test_vectors_and_fp16_are_predicted_as_well():
    if other := silicon.another_order():
        pytest.skip(other)
    draw = torch.Generator().manual_seed(3)
    for m, n, k, layout in PRODUCTS:
        for dtype in (torch.bfloat16, torch.float16):
            a, b = torch.randn(max(m, 1), k, generator=draw), torch.randn(k, max(n, 1), generator=draw)
            a *= torch.exp2(torch.randint(-4, 5, (1, k), generator=draw).float())
            a[:, k // 2 :], b[k // 2 :] = -a[:, : k // 2], b[: k // 2]
            order = torch.randperm(k, generator=draw)
            a, b = a[:, order].to(dtype), b[order].to(dtype)
            a = a.mT.contiguous().mT if layout[0] == "t" else a
            b = b.mT.contiguous().mT if layout[1] == "t" else b
            a, b = a if m else a[0], b if n else b[:, 0]
            with lab.emulate("avx512_bf16", library="onednn"):
                predicted = a @ b
            assert torch.equal(predicted.view(torch.int16), (a @ b).view(torch.int16)), (m, n, k, layout, dtype)


def test_what_the_plan_does_not_know_is_refused_by_name():
    with lab.emulate("avx512_bf16", library="onednn"):
        image, kernel = torch.randn(1, 3, 8, 8).bfloat16(), torch.randn(4, 3, 3, 3).bfloat16()
        with pytest.raises(lab.EmulationError, match="output of a convolution only with .* no dilation"):
            torch.conv2d(image, kernel, dilation=2)
        with pytest.raises(lab.EmulationError, match="aten::addmv: plan 'onednn' has no rule for addmv"):
            torch.addmv(torch.ones(3).bfloat16(), torch.ones(3, 4).bfloat16(), torch.ones(4).bfloat16())
        with pytest.raises(lab.EmulationError, match="has no rule for transposed convolutions"):
            torch.conv_transpose2d(image, kernel.transpose(0, 1))
        q = torch.randn(1, 2, 8, 4).bfloat16()
        with pytest.raises(lab.EmulationError, match="the order of its flash kernel is not known"):
            torch.nn.functional.scaled_dot_product_attention(q, q, q)
    with pytest.raises(ValueError, match="library is 'mkl'; one of instruction, onednn, cublaslt-12.8"):
        lab.emulate("hopper", library="mkl")
    with pytest.raises(ValueError, match='adds in FP32: accumulator "f32" is needed'):
        lab.emulate("hopper", "f16", library="cublaslt-12.8")
