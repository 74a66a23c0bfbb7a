#!/usr/bin/env python3
"""The plan cublaslt-12.8 against mmaemu 0.1.0: scripts/compare_with_mmaemu.py [--quick]

mmaemu (PyPI) gives FP8 products as it recorded them of cuBLASLt 12.8 on an H100 PCIe and an RTX 4060, and shares no code with
us. For both chips, both accumulations, one part of K and several in both of the library's schemes, every bit of FP32
accumulators is compared, on operands near cancellation; then what differs under other plans, which shows that the operands
distinguish them. Exit code 1 if an output differs. Needs torch, mmaemu and fp16lab in this Python; the target `cublaslt`
of the build installs mmaemu.
"""
import sys
import warnings

import mmaemu
import numpy as np
import torch

import fp16lab
import fp16lab.torch as lab

warnings.simplefilter("ignore", mmaemu.UnverifiedSplitWarning)
# mmaemu's profile, our row, and how the chip joins parts.
CHIPS = [("hopper", "hopper-wgmma", {"contiguous": "serial"}), ("ada", "ada", {"serial": "serial", "pairwise": "pairwise"})]
SHAPES = [(3, 5, 128), (16, 8, 640), (7, 33, 1000), (2, 4, 4096), (5, 3, 48)]


def operands(m, n, k, seed):
    """E4M3 numbers of both signs, the second half of each row nearly the first with the other sign."""
    draw = torch.Generator().manual_seed(seed)
    a = torch.randn(m, k, generator=draw) * 40
    b = torch.randn(n, k, generator=draw) * 2
    a[:, k // 2 : 2 * (k // 2)] = -a[:, : k // 2] * (1 + 2.0**-4 * torch.randint(0, 2, (m, k // 2), generator=draw))
    b[:, k // 2 : 2 * (k // 2)] = b[:, : k // 2]
    return a.clamp(-448, 448).to(torch.float8_e4m3fn), b.clamp(-448, 448).to(torch.float8_e4m3fn)


def differing(ours, theirs):
    x, y = np.asarray(ours).view(np.uint32), theirs.numpy().view(np.uint32)
    return int((x != y).sum())


def main():
    shapes = SHAPES[:2] if "--quick" in sys.argv else SHAPES
    compared = wrong = told_apart = 0
    for profile, row, schemes in CHIPS:
        for m, n, k in shapes:
            a, b = operands(m, n, k, seed=m * n + k)
            for fast in (False, True):
                for parts in (1, 2, 3, 5):
                    if parts > -(-k // (128 if profile == "hopper" else 64)):
                        continue  # a part without a tile, which was never recorded
                    for scheme, join in schemes.items() if parts > 1 else [("none", "serial")]:
                        split = mmaemu.SplitK(parts, scheme)
                        try:
                            theirs = mmaemu.accumulate(a, b, use_fast_accum=fast, profile=profile, splitk=split)
                        except mmaemu.MmaemuError:
                            continue
                        plan = fp16lab.Plan("cublaslt-12.8", parts=parts, fast_accumulation=fast, join=join)
                        ours = fp16lab.matmul(a, b.T, row, out="f32", plan=plan)
                        other = fp16lab.matmul(a, b.T, row, out="f32")
                        here = differing(ours, theirs)
                        compared += m * n
                        wrong += here
                        told_apart += differing(other, theirs) if parts > 1 or not fast else 0
                        if here:
                            print(f"{profile}, {m} x {n} x {k}, fast {fast}, {parts} parts, {scheme}: {here} of {m * n} differ")
    # Whole calls: scales, the rounding to BF16, and use_fast_accum as torch passes it.
    a, b = operands(16, 16, 640, seed=9)
    scales = torch.tensor(1 / 3), torch.tensor(0.7)
    for profile, row, _ in CHIPS:
        for fast in (False, True):
            with lab.emulate(row, library="cublaslt-12.8"):
                ours = torch._scaled_mm(a, b.T, *scales, out_dtype=torch.bfloat16, use_fast_accum=fast)
            theirs = mmaemu.scaled_mm(
                a, b.T, *scales, out_dtype=torch.bfloat16, use_fast_accum=fast, profile=profile, splitk=mmaemu.SplitK(1, "none")
            )
            here = int((ours.view(torch.int16) != theirs.view(torch.int16)).sum())
            compared, wrong = compared + ours.numel(), wrong + here
            if here:
                print(f"_scaled_mm, {profile}, fast {fast}: {here} of {ours.numel()} differ")
    print(f"{compared} outputs compared with mmaemu {mmaemu.__version__}: {wrong} differ; one chain differs in {told_apart}")
    return 1 if wrong or compared == 0 or told_apart == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
