"""Draws which share of each tensor's gradients underflowed, of runs that lab.watch recorded within lab.emulate.

    python layers.py results/minilm/hopper-none-1 results/minilm/hopper-torch-1 -o layers.png

A bar is a tensor, from the network's input (bottom) to its loss: of the values of its gradient that were not
zero before products rounded them to FP16, over all counted steps, those that became zero, and those that
became subnormal and so lost bits. Tensors whose gradient no product gives (sums of two paths) are left out.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt

import fp16lab


def shares(folder: Path) -> dict[str, tuple[float, float]]:
    """Of each tensor, percent that became zero and percent that became subnormal."""
    sums: dict = {}
    rows = fp16lab.load_run(folder, "numpy").read_histograms("gradients")
    for tensor, before, after in zip(rows["tensor"], rows["before"], rows["after"]):
        if before != after:
            total = sums.setdefault(tensor, [fp16lab.Histogram(), fp16lab.Histogram()])
            total[0] += before
            total[1] += after
    found = {}
    for tensor, (before, after) in sums.items():
        values = before.total - before.zero - before.infinite - before.nan
        subnormal = after.zones(1.0, "f16")["subnormal"][0]
        found[tensor] = 100 * (after.zero - before.zero) / values, 100 * subnormal / values
    return dict(reversed(found.items()))  # a backward pass comes to the last layer first


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("-o", "--output", type=Path, default=Path("layers.png"))
    given = parser.parse_args()
    found = {run.name: shares(run) for run in given.runs}
    tensors = list(dict.fromkeys(tensor for each in found.values() for tensor in each))
    size = (3 + 3 * len(found), 1 + 0.16 * len(tensors))
    figure, columns = plt.subplots(1, len(found), sharey=True, sharex=True, figsize=size, squeeze=False)
    for axes, (name, each) in zip(columns[0], found.items()):
        lost, subnormal = zip(*(each.get(tensor, (0, 0)) for tensor in tensors))
        axes.barh(tensors, lost, color="#c44e52", label="became zero")
        axes.barh(tensors, subnormal, left=lost, color="#dd8452", label="became subnormal")
        axes.set(title=name, xlabel="% of the gradient's values", ylim=(-0.6, len(tensors) - 0.4))
        axes.tick_params(axis="y", labelsize=6)
        axes.grid(axis="x", alpha=0.4)
    columns[0][0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(given.output, dpi=130)


if __name__ == "__main__":
    main()
