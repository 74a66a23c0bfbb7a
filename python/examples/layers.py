"""Shows which share of each tensor's gradients underflowed, of runs that lab.watch recorded in lab.emulate.

    python layers.py results/minilm/hopper-none-* results/minilm/hopper-torch-* -o layers.png

A bar is a tensor, from the network's input (bottom) to its loss: of the values of its gradient that were not
zero before products rounded them to FP16, over all counted steps, those that became zero, and those that
became subnormal and so lost bits. Tensors whose gradient no product gives (sums of two paths) are left out.
Runs whose names differ in the seed alone are one column: bars have the sums, and lines and what is printed go
from the lowest to the highest of them.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt

import fp16lab

Counts = tuple[
    int, int, int
]  # values that were not zero; those that became zero; those that became subnormal


def counted(folder: Path) -> dict[str, Counts]:
    """Of each tensor, from the network's input to its loss."""
    sums: dict[str, list] = {}
    rows = fp16lab.load_run(folder, "numpy").read_histograms("gradients")
    for tensor, before, after in zip(rows["tensor"], rows["before"], rows["after"]):
        if before != after:
            total = sums.setdefault(tensor, [fp16lab.Histogram(), fp16lab.Histogram()])
            total[0] += before
            total[1] += after
    found = {}
    for tensor, (before, after) in sums.items():
        values = before.total - before.zero - before.infinite - before.nan
        found[tensor] = values, after.zero - before.zero, after.zones(1.0, "f16")["subnormal"][0]
    return dict(reversed(found.items()))  # a backward pass comes to the last layer first


def share(counts: list[Counts], which: int = 1) -> float:
    """Percent that became zero (which = 1) or subnormal (2)."""
    return 100 * sum(each[which] for each in counts) / max(1, sum(each[0] for each in counts))


def tell(name: str, runs: list[dict[str, Counts]]) -> None:
    def span(part: slice) -> str:
        shares = [share(list(run.values())[part]) for run in runs]
        return f"{min(shares):.2f} to {max(shares):.2f} %"

    half = len(runs[0]) // 2
    worst = max(runs[0], key=lambda tensor: share([run.get(tensor, (0, 0, 0)) for run in runs]))
    print(
        f"{name} ({len(runs)} runs, {len(runs[0])} tensors): became zero {span(slice(None))}; in the half of"
        f" them at the input {span(slice(half))}, at the loss {span(slice(half, None))}; most in {worst}:"
        f" {share([run.get(worst, (0, 0, 0)) for run in runs]):.1f} %"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("-o", "--output", type=Path, default=Path("layers.png"))
    given = parser.parse_args()
    groups: dict[str, list[dict[str, Counts]]] = {}
    for run in given.runs:
        groups.setdefault(run.name.rstrip("0123456789").rstrip("-"), []).append(counted(run))
    tensors = list(dict.fromkeys(tensor for runs in groups.values() for run in runs for tensor in run))
    size = (3 + 3 * len(groups), 1 + 0.16 * len(tensors))
    figure, columns = plt.subplots(1, len(groups), sharey=True, sharex=True, figsize=size, squeeze=False)
    for axes, (name, runs) in zip(columns[0], groups.items()):
        tell(name, runs)
        each = [[run.get(tensor, (0, 0, 0)) for run in runs] for tensor in tensors]
        lost = [share(counts) for counts in each]
        axes.barh(tensors, lost, color="#c44e52", label="became zero")
        subnormal = [share(counts, 2) for counts in each]
        axes.barh(tensors, subnormal, left=lost, color="#dd8452", label="became subnormal")
        for row, counts in enumerate(each):
            seeds = [share([count]) for count in counts]
            axes.plot((min(seeds), max(seeds)), (row, row), color="black", linewidth=0.8)
        axes.set(title=name, xlabel="% of the gradient's values", ylim=(-0.6, len(tensors) - 0.4))
        axes.tick_params(axis="y", labelsize=6)
        axes.grid(axis="x", alpha=0.4)
    columns[0][0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(given.output, dpi=130)


if __name__ == "__main__":
    main()
