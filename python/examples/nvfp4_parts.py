"""Judges the sweep experiments/configs/nvfp4.toml: which parts of NVFP4's recipe matter, and what sums of 14 bits do.

    fp16lab sweep -c experiments/configs/nvfp4.toml --twin -o results/nvfp4 --jobs 2 --threads 1
    python nvfp4_parts.py results/nvfp4

A family is the pairs of one line of FAMILIES on one network: each variant against the family's first, seed by seed, on the last
test loss, margin 1 %.
"""

import sys
from pathlib import Path

import fp16lab

NETWORKS = {"classifier": "fc4", "deep_autoencoder": "fc8", "charlm_transformer": "head"}  # and their last layer
SEEDS = range(11, 21)
FAMILIES = {
    "16 bits and 4": ["fp32", "fp32-twin", "bf16", "nvfp4", "te-current", "deepseek-fp8"],
    "parts of the recipe": ["nvfp4", "nvfp4-nearest", "nvfp4-without-hadamard", "nvfp4-1d-weights", "nvfp4-wide-{last}"],
    "sums of FP8": ["te-current-25-bits", "te-current", "deepseek-fp8"],
}


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
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
