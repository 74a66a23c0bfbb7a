"""Judges the sweep experiments/configs/nvfp4.toml: which parts of NVFP4's recipe matter, and what sums of 14 bits do.

    fp16lab sweep -c experiments/configs/nvfp4.toml --twin -o results/nvfp4 --jobs 2 --threads 1
    python nvfp4_parts.py results/nvfp4
    python nvfp4_parts.py --products        errors of products alone, by the length of their sums: some seconds

A family is the pairs of one line of FAMILIES on one network: each variant against the family's first, seed by seed, on the last
test loss, margin 1 %.
"""

import sys
from pathlib import Path

import numpy as np

import fp16lab

NETWORKS = {"classifier": "fc4", "deep_autoencoder": "fc8", "charlm_transformer": "head"}  # and their last layer
SEEDS = range(11, 21)
FAMILIES = {
    "16 bits and 4": ["fp32", "fp32-twin", "bf16", "nvfp4", "te-current", "deepseek-fp8"],
    "parts of the recipe": ["nvfp4", "nvfp4-nearest", "nvfp4-without-hadamard", "nvfp4-1d-weights", "nvfp4-wide-{last}"],
    "sums of FP8": ["te-current-25-bits", "te-current", "deepseek-fp8"],
}


#: Quantizer of both operands, and the row that sums.
PRODUCTS = [("fp8-tensor", "hopper-wgmma"), ("fp8-1x128", "hopper-wgmma"), ("fp8-tensor", "blackwell-tcgen05")]


def products() -> None:
    """64 x 64 sums of each length, three times: the error of the sums alone, and of quantized operands with exact sums."""
    for title, draw in (("uniform in [0, 1)", np.random.Generator.random), ("normal", np.random.Generator.standard_normal)):
        for k in (1024, 4096, 16384):
            print(f"\n{title}, sums of {k}: relative error in norm, of the sums and of the quantized operands")
            for quantizer, row in PRODUCTS:
                sums, codes = [], []
                for seed in range(3):
                    rng = np.random.default_rng(seed)
                    a, b = (draw(rng, (64, k), dtype=np.float32) for _ in range(2))
                    left = fp16lab.quantize(a, quantizer)
                    right = fp16lab.quantize(np.ascontiguousarray(b.T), quantizer, axis=-2)
                    exact = left.dequantize().astype(np.float64) @ right.dequantize().astype(np.float64)
                    wide = a.astype(np.float64) @ b.T.astype(np.float64)
                    sums.append(np.linalg.norm(fp16lab.quantized_matmul(left, right, row) - exact) / np.linalg.norm(exact))
                    codes.append(np.linalg.norm(exact - wide) / np.linalg.norm(wide))
                print(f"    {quantizer:12}{row:20}{np.mean(sums):10.2e}{np.mean(codes):10.2e}")


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if sys.argv[1] == "--products":
        products()
        return
    for network, last in NETWORKS.items():
        for title, variants in FAMILIES.items():
            first, *others = [variant.format(last=last) for variant in variants]
            runs = {v: [Path(sys.argv[1]) / f"{network}-{v}-seed{seed}" for seed in SEEDS] for v in (first, *others)}
            losses = [float(fp16lab.load_run(run).evaluations["loss"].iloc[-1]) for run in runs[first]]
            print(f"\n{network}, {title}, against {first} (test loss {sum(losses) / len(losses):.5g})")
            for variant, verdict in fp16lab.verdict({v: runs[v] for v in others}, runs[first]).items():
                interval = "" if verdict.interval is None else " [{:+.2f}, {:+.2f}]".format(*verdict.interval)
                print(f"    {variant:24}{verdict.mean:+.2f} %{interval}: {verdict.word} ({verdict})")


if __name__ == "__main__":
    main()
