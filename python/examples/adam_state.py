"""The second moments of a real run's Adam in FP16 and BF16: what is lost, and what would save it.

    pip download --no-deps Resemblyzer==0.1.4           # 16 MB; its wheel has the optimizer's state
    python python/examples/adam_state.py Resemblyzer-0.1.4-py3-none-any.whl

Any file of torch.save with {"optimizer_state": an Adam's state_dict} will do in the place of the wheel. The
finding: reports/findings/adam_state_of_a_real_run/README.md.
"""

import argparse
import io
import itertools
import math
import zipfile
from collections.abc import Callable

import torch

import fp16lab
from fp16lab.torch.counting import count

SAMPLE, BETA2, EPS = 20_000, 0.999, 1e-8


def load(path: str) -> dict[str, torch.Tensor]:
    """Both moments of all weights, flattened: {"exp_avg": ..., "exp_avg_sq": ...}."""
    if path.endswith(".whl"):
        with zipfile.ZipFile(path) as wheel:
            name = next(name for name in wheel.namelist() if name.endswith(".pt"))
            source = io.BytesIO(wheel.read(name))
    else:
        source = path
    states = torch.load(source, map_location="cpu", weights_only=True)["optimizer_state"]["state"].values()
    return {
        name: torch.cat([state[name].reshape(-1) for state in states]) for name in ("exp_avg", "exp_avg_sq")
    }


def show_zones(name: str, values: torch.Tensor) -> None:
    """Prints their zones in both formats, by the library's histograms."""
    histogram = count(values)
    nonzero = histogram.total - histogram.zero
    print(
        f"{name}: {histogram.total} values, {histogram.zero} of them zero, the others from "
        f"2^{math.log2(histogram.smallest):.1f} to 2^{math.log2(histogram.greatest):.1f}"
    )
    for format in ("f16", "bf16"):
        zones = histogram.zones(1.0, format)
        shares = "  ".join(
            f"{zone} {percent(zones[zone], nonzero)}" for zone in ("lost", "subnormal", "normal")
        )
        print(f"  {format}: {shares}")


def percent(counts: tuple[int, int], total: int) -> str:
    """The share; its lower and upper end where an edge of the zone is within a bin."""
    return "-".join(dict.fromkeys(f"{100 * count / total:.3f}" for count in counts)) + " %"


def largest_scale(values: torch.Tensor) -> int:
    """The largest k at which 2^k overflows none of them in FP16."""
    histogram = count(values)
    k = next(k for k in range(126, -127, -1) if histogram.zones(2.0**k, "f16")["overflow"][1] == 0)
    zones, nonzero = histogram.zones(2.0**k, "f16"), histogram.total - histogram.zero
    print(
        f"  the largest scale without an overflow in f16 is 2^{k}: lost {percent(zones['lost'], nonzero)}  "
        f"subnormal {percent(zones['subnormal'], nonzero)}"
    )
    return k


def rounding(format: str, mode: str = "nearest_even") -> Callable[[torch.Tensor], torch.Tensor]:
    """To a format, with other random numbers in every call."""
    seeds = itertools.count(1)
    return lambda x: fp16lab.round(x, format, mode, seed=next(seeds) if mode == "stochastic" else None)


def follow(v: torch.Tensor, steps: int, rounded, scale: float = 1.0) -> torch.Tensor:
    """v after `steps` steps, kept as rounded(scale v); the same gradients in every call."""
    deviation = v.sqrt()
    gradients = torch.Generator().manual_seed(2)
    kept = rounded(v * scale)
    for _ in range(steps):
        squared = (torch.randn(v.shape, generator=gradients) * deviation).square() * scale
        kept = rounded(BETA2 * kept + (1 - BETA2) * squared)
    return kept / scale


def judge(label: str, v: torch.Tensor, exact: torch.Tensor) -> None:
    ratio = (v.sqrt() + EPS) / (exact.sqrt() + EPS)
    within = float(((ratio - 1).abs() <= 0.1).double().mean())
    low, middle, high = ratio.quantile(torch.tensor([0.01, 0.5, 0.99])).tolist()
    zero, word = float((v == 0).double().mean()), "saved" if within >= 0.99 else "not saved"
    print(
        f"{label:28s} zero {100 * zero:6.2f} %  within 10 % {100 * within:6.2f} %  "
        f"sqrt(v) + eps against FP32: 1 % {low:.4g}, median {middle:.4g}, 99 % {high:.4g}  {word}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("state", help="the wheel, or a file of torch.save")
    parser.add_argument("--steps", type=int, default=5000)
    arguments = parser.parse_args()
    moments, steps = load(arguments.state), arguments.steps
    show_zones("first moments", moments["exp_avg"])
    show_zones("second moments", moments["exp_avg_sq"])
    k = largest_scale(moments["exp_avg_sq"])
    picked = torch.randperm(moments["exp_avg_sq"].numel(), generator=torch.Generator().manual_seed(3))[
        :SAMPLE
    ]
    v = moments["exp_avg_sq"][picked]
    v = v[v > 0]
    print(f"{steps} steps of {v.numel()} second moments:")
    exact = follow(v, steps, lambda x: x)
    judge("FP16, nearest", follow(v, steps, rounding("f16")), exact)
    judge("FP16, stochastic", follow(v, steps, rounding("f16", "stochastic")), exact)
    judge(f"FP16, nearest, scale 2^{k}", follow(v, steps, rounding("f16"), 2.0**k), exact)
    judge(f"FP16, stochastic, scale 2^{k}", follow(v, steps, rounding("f16", "stochastic"), 2.0**k), exact)
    judge("BF16, nearest", follow(v, steps, rounding("bf16")), exact)
    judge("BF16, stochastic", follow(v, steps, rounding("bf16", "stochastic")), exact)


if __name__ == "__main__":
    main()
