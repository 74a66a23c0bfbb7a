"""Muon's Newton-Schulz iteration in BF16, FP16 and TF32 on the tensor cores of several generations.

    python newton_schulz.py RESULTS.json     10 matrices of each spectrum, some minutes on one processor; then the claims

Muon makes a gradient nearly orthogonal by five steps x <- a x + (b x x' + c (x x')^2) x, which
torch.optim.Muon computes in BF16. Here the same steps run in each format, every product emulated, and are compared with FP64.
"""

import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from mismatch_claims import typical
from torch.optim._muon import DEFAULT_A, DEFAULT_B, DEFAULT_C, EPS, _zeropower_via_newtonschulz

import fp16lab.torch as lab

ROWS, COLUMNS, SEEDS = 256, 512, range(1, 11)
#: Singular values: those of a normal matrix; 1/i; and evenly over six decades.
SPECTRA: dict[str, Callable[[torch.Tensor], torch.Tensor] | None] = {
    "normal": None,
    "1/i": lambda i: 1 / i,
    "six decades": lambda i: 10 ** (-6 * (i - 1) / (ROWS - 1)),
}
#: Name: dtype, and how lab.emulate multiplies.
ENGINES = {
    "bf16, exact sums": (torch.bfloat16, None),
    "bf16, a100": (torch.bfloat16, ("a100", "f32", "native")),
    "bf16, h100": (torch.bfloat16, ("h100", "f32", "native")),
    "f16, v100": (torch.float16, ("v100", "f32", "native")),
    "f16, a100": (torch.float16, ("a100", "f32", "native")),
    "f16, h100": (torch.float16, ("h100", "f32", "native")),
    "f16, h100, FP16 sums": (torch.float16, ("h100", "f16", "native")),
    "tf32, a100": (torch.float32, ("a100", "f32", "tf32")),
    "tf32, h100": (torch.float32, ("h100", "f32", "tf32")),
}


def gradient(spectrum: str, seed: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    values = torch.randn(ROWS, COLUMNS, generator=draw, dtype=torch.float64)
    shape = SPECTRA[spectrum]
    if shape is not None:
        u, _, v = torch.linalg.svd(values, full_matrices=False)
        values = u @ torch.diag(shape(torch.arange(1, ROWS + 1, dtype=torch.float64))) @ v
    return values.float()


def newton_schulz(gradient: torch.Tensor, dtype: torch.dtype, steps: int = 5) -> torch.Tensor:
    """torch.optim.Muon's, with the dtype as an argument."""
    x = gradient.to(dtype, copy=True)
    x.div_(x.norm().clamp(min=EPS))
    for _ in range(steps):
        gram = x @ x.T
        update = torch.addmm(gram, gram, gram, beta=DEFAULT_B, alpha=DEFAULT_C)
        x = torch.addmm(x, update, x, beta=DEFAULT_A)
    return x


def exactly_summed(gradient: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The same with products in FP64, each rounded once: what storage alone does."""
    x = gradient.to(dtype)
    x = (x / x.norm().clamp(min=EPS)).double()
    for _ in range(5):
        gram = (x @ x.T).to(dtype).double()
        update = (DEFAULT_B * gram + DEFAULT_C * (gram @ gram)).to(dtype).double()
        x = (DEFAULT_A * x + update @ x).to(dtype).double()
    return x


def computed(gradient: torch.Tensor, engine: str) -> torch.Tensor:
    dtype, how = ENGINES[engine]
    if how is None:
        return exactly_summed(gradient, dtype)
    with lab.emulate(how[0], accumulator=how[1], f32=how[2]):
        return newton_schulz(gradient, dtype)


def measured(spectrum: str, seed: int) -> dict[str, dict[str, float]]:
    """For each engine: distance to FP64 and to others, relative in norm, and its smallest and largest singular value."""
    given = gradient(spectrum, seed)
    exact = newton_schulz(given, torch.float64)
    results = {engine: computed(given, engine).double() for engine in ENGINES}
    with lab.emulate("h100"):
        theirs = _zeropower_via_newtonschulz(given, (DEFAULT_A, DEFAULT_B, DEFAULT_C), 5, EPS)
    assert torch.equal(theirs.double(), results["bf16, h100"])
    up = torch.randint(0, 2, given.shape, generator=torch.Generator().manual_seed(-seed)).float()
    moved = given * (1 + 2.0**-23 * up)
    results["bf16, h100, twin"] = computed(moved, "bf16, h100").double()
    # Added after the first run, in which BF16's own cast hid that ulp in some matrices: one bit of one BF16 number.
    flipped = given.bfloat16()
    flipped.view(torch.int16)[seed, seed] ^= 1
    results["bf16, h100, one bit"] = computed(flipped, "bf16, h100").double()
    told = {}
    for engine, x in results.items():
        values = torch.linalg.svdvals(x) if bool(x.isfinite().all()) else torch.full((1,), math.nan)
        told[engine] = {"to FP64": _distance(x, exact), "least": float(values.min()), "greatest": float(values.max())}
        told[engine] |= {f"to {other}": _distance(x, results[other]) for other in results if other != engine}
    values = torch.linalg.svdvals(exact)
    told["FP64"] = {"to FP64": 0.0, "least": float(values.min()), "greatest": float(values.max())}
    return told


def _distance(x: torch.Tensor, y: torch.Tensor) -> float:
    return float((x - y).norm() / y.norm())


def ratio(runs: list[dict], above: tuple[str, str], below: tuple[str, str]) -> tuple[float, float, float]:
    """Geometric mean over the matrices of one distance over another, with its 95 % interval (Student's t, of the logarithms)."""
    return typical([run[above[0]][above[1]] / run[below[0]][below[1]] for run in runs])


#: Claim: two distances, and what their ratio must be, as an interval that holds the whole 95 % interval.
CLAIMS = {
    "1. BF16: Hopper is nearer to Ampere than a tenth of what BF16 costs": (
        ("bf16, h100", "to bf16, a100"),
        ("bf16, h100", "to FP64"),
        (0, 0.1),
    ),
    "2. BF16: the tensor core costs nothing beside storage (exact sums)": (
        ("bf16, h100", "to FP64"),
        ("bf16, exact sums", "to FP64"),
        (0.95, 1.05),
    ),
    "3. BF16: the generation moves no more than one ulp of the FP32 gradient": (
        ("bf16, h100", "to bf16, a100"),
        ("bf16, h100, twin", "to bf16, h100"),
        (0, 1),
    ),
    "3a. ... than the last bit of one BF16 element (added after the run)": (
        ("bf16, h100", "to bf16, a100"),
        ("bf16, h100, one bit", "to bf16, h100"),
        (0, 1),
    ),
    "4. FP16 is at least four times nearer to FP64 than BF16": (
        ("bf16, h100", "to FP64"),
        ("f16, h100", "to FP64"),
        (4, math.inf),
    ),
    "5. Volta's truncated sums cost FP16 at most a tenth more than Hopper's": (
        ("f16, v100", "to FP64"),
        ("f16, h100", "to FP64"),
        (0, 1.1),
    ),
    "6. FP16 sums cost FP16 less than a factor of two": (
        ("f16, h100, FP16 sums", "to FP64"),
        ("f16, h100", "to FP64"),
        (0, 2),
    ),
    "7. TF32 is nearer than FP16, which has as many digits": (
        ("tf32, h100", "to FP64"),
        ("f16, h100", "to FP64"),
        (0, 1),
    ),
}


def judge(told: dict[str, list[dict]]) -> None:
    for claim, (above, below, (least, most)) in CLAIMS.items():
        words = []
        for spectrum, runs in told.items():
            hidden = sum(run[below[0]][below[1]] == 0 for run in runs)
            if hidden:
                words.append(f"{spectrum}: the second distance is 0 in {hidden} of {len(runs)}: cannot tell")
                continue
            mean, low, high = ratio(runs, above, below)
            holds, fails = least <= low and high <= most, high < least or low > most
            verdict = "holds" if holds else "fails" if fails else "cannot tell"
            words.append(f"{spectrum}: {mean:.3g} [{low:.3g}, {high:.3g}] {verdict}")
        print(claim, *words, sep="\n    ")
    print("\nmean distance to FP64; least and greatest singular value")
    for engine in [*ENGINES, "bf16, h100, twin", "bf16, h100, one bit", "FP64"]:
        cells = []
        for runs in told.values():
            means = [sum(run[engine][key] for run in runs) / len(runs) for key in ("to FP64", "least", "greatest")]
            cells.append("{:9.2e} {:8.2e} {:5.3f}".format(*means))
        print(f"{engine:22}", *cells, sep="  ")


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    path = Path(sys.argv[1])
    if path.exists():
        judge(json.loads(path.read_text()))
        return
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    told = {spectrum: [measured(spectrum, seed) for seed in SEEDS] for spectrum in SPECTRA}
    part = path.with_suffix(".part")
    part.write_text(json.dumps(told))
    part.replace(path)
    judge(told)


if __name__ == "__main__":
    main()
