"""Shows which share of each tensor's gradients underflowed, of runs that lab.watch recorded in lab.emulate.

    python layers.py results/minilm/hopper-none-* results/minilm/hopper-torch-* -o layers.png

A bar is a tensor, from the network's input (bottom) to its loss: of the values of its gradient that were not
zero before products rounded them to FP16, over all counted steps, those that became zero, and those that
became subnormal and so lost bits. Tensors whose gradient no product gives are left out: sums of two paths,
what BatchNorm or another operation rounds. Only their zeros are known, and printed.
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


class Run:
    """The gradients of a run, over all counted steps."""

    def __init__(self, folder: Path) -> None:
        before, after = {}, {}
        rows = fp16lab.load_run(folder, "numpy").read_histograms("gradients")
        for tensor, unrounded, rounded in zip(rows["tensor"], rows["before"], rows["after"]):
            for sums, histogram in ((before, unrounded), (after, rounded)):
                total = sums.setdefault(tensor, fp16lab.Histogram())
                total += histogram
        self.rounded: dict[str, Counts] = {}  # by products; from the network's input to its loss
        self.stored: dict[str, Counts] = {}  # the others: all values, zeros
        for tensor in reversed(before):  # a backward pass comes to the last layer first
            was, now = before[tensor], after[tensor]
            if was == now:
                self.stored[tensor] = now.total, now.zero, 0
            else:
                values = was.total - was.zero - was.infinite - was.nan
                subnormal = now.zones(1.0, "f16")["subnormal"][0]
                self.rounded[tensor] = values, now.zero - was.zero, subnormal
        if not self.rounded:
            raise SystemExit(f"{folder}: no product's rounding was counted; lab.watch sees it in lab.emulate")


def share(counts: list[Counts], which: int = 1) -> float:
    """Percent that became zero (which = 1) or subnormal (2)."""
    return 100 * sum(each[which] for each in counts) / max(1, sum(each[0] for each in counts))


def tell(name: str, runs: list[Run]) -> None:
    def span(shares: list[float]) -> str:
        return f"{min(shares):.2f} to {max(shares):.2f} %"

    parts = [list(run.rounded.values()) for run in runs]
    half = len(parts[0]) // 2
    worst = max(runs[0].rounded, key=lambda tensor: share([runs[0].rounded[tensor]]))
    print(
        f"{name}, {len(runs)} runs: of the gradients of {len(parts[0])} tensors that products gave"
        f" {span([share(part) for part in parts])} became zero; in the half of them at the input"
        f" {span([share(part[:half]) for part in parts])}, at the loss"
        f" {span([share(part[half:]) for part in parts])}; most in {worst}"
    )
    zeros = [share(list(run.stored.values())) for run in runs]
    print(f"  of {len(runs[0].stored)} other tensors {span(zeros)} is zero, whatever made it so")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("-o", "--output", type=Path, default=Path("layers.png"))
    given = parser.parse_args()
    groups: dict[str, list[Run]] = {}
    for run in given.runs:
        groups.setdefault(run.name.rstrip("0123456789").rstrip("-"), []).append(Run(run))
    tensors = list(
        dict.fromkeys(tensor for runs in groups.values() for run in runs for tensor in run.rounded)
    )
    size = (3 + 3 * len(groups), 1 + 0.16 * len(tensors))
    figure, columns = plt.subplots(1, len(groups), sharey=True, sharex=True, figsize=size, squeeze=False)
    for axes, (name, runs) in zip(columns[0], groups.items()):
        tell(name, runs)
        each = [[run.rounded.get(tensor, (0, 0, 0)) for run in runs] for tensor in tensors]
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
    figure.legend(*columns[0][0].get_legend_handles_labels(), loc="lower center", ncols=2, fontsize=8)
    figure.tight_layout(rect=(0, 0.02, 1, 1))
    figure.savefig(given.output, dpi=130, bbox_inches="tight")


if __name__ == "__main__":
    main()
