"""Fine-tunes a pretrained network in FP32 and with the products of emulated tensor cores: what minilm.py and
efficientnet.py have in common. Each run gets a run folder, ROOT/NAME-SEED; those that are there are kept.

A run's name says what it is: "hopper-torch" has the products of Hopper and torch's policy of the loss scale,
"fp32" neither; "-twin" begins from weights that are one ulp away."""

import argparse
import math
import random
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import variance

import torch

import fp16lab
import fp16lab.torch as lab


RUNS = "fp32 fp32-twin hopper-none hopper-lost-mass hopper-torch hopper-torch-twin volta-torch ampere-torch"
SEEDS = range(1, 6)


@dataclass
class Task:
    learned: list  # of examples
    tested: list
    model: object  # () -> the pretrained network
    result: object  # (model, examples) -> logits, targets
    lr: float


def train(task: Task, name: str, seed: int, folder: Path, steps: int, rows: int) -> None:
    core, _, policy = name.removesuffix("-twin").partition("-")
    emulated = core != "fp32"
    torch.manual_seed(seed)  # of the new last layer, and of dropout
    model = task.model()
    if name.endswith("-twin"):
        lab.perturb_ulps(model, seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=task.lr)
    scaler = lab.GradScaler(policy or "none", device="cpu", enabled=emulated)
    half = lab.autocast(torch.float16) if emulated else nullcontext()
    draw = random.Random(seed)

    def answers(examples: list):
        with half:
            logits, targets = task.result(model, examples)
            return torch.nn.functional.cross_entropy(logits, targets), (logits.argmax(1) == targets)

    w = lab.watch(model, every=max(1, steps // 5), optimizer=optimizer, scaler=scaler)
    with lab.emulate(core) if emulated else nullcontext() as run, w:
        model.train()
        for step in range(steps):
            for group in optimizer.param_groups:  # warm-up, then linear decay
                group["lr"] = task.lr * min(1, (step + 1) / (0.1 * steps + 1)) * (1 - step / steps)
            optimizer.zero_grad()
            scaler.scale(answers(draw.sample(task.learned, rows))[0]).backward()
            scaler.step(optimizer)
            scaler.update()
        model.eval()
        with torch.no_grad():
            parts = [answers(task.tested[i : i + rows]) for i in range(0, 20 * rows, rows)]
        loss = torch.stack([loss for loss, _ in parts]).mean().item()
        accuracy = torch.cat([right for _, right in parts]).float().mean().item()
        w.evaluate(loss=loss, accuracy=accuracy)
    w.save(folder)
    if emulated:
        run.save(folder / "products.csv")
    print(f"{folder}: test loss {loss:.4f}, {100 * accuracy:.1f} % right", flush=True)


def judge(root: Path) -> None:
    """The criteria, fixed before the runs: final test loss, pairs of a seed, margin 1 %."""

    def folders(name: str) -> list[Path]:
        return [root / f"{name}-{seed}" for seed in SEEDS]

    for reference, others in {
        "fp32": ("fp32-twin", "hopper-none", "hopper-torch", "hopper-lost-mass"),
        "hopper-torch": ("hopper-torch-twin", "volta-torch", "ampere-torch"),
    }.items():
        runs = {name: folders(name) for name in others}
        for name, verdict in fp16lab.verdict(runs, folders(reference)).items():
            low, high = verdict.interval
            print(
                f"{name:18} against {reference}: {verdict.mean:+.2f} % [{low:+.2f}, {high:+.2f}]  {verdict}"
            )

    def spread(names: tuple) -> list[float]:
        """For each seed, the variance of the logarithm of the loss over these runs."""
        runs = [[fp16lab.load_run(run, "numpy") for run in folders(name)] for name in names]
        return [variance(math.log(run.evaluations["loss"][-1]) for run in same) for same in zip(*runs)]

    def ratio(pairs: list) -> float:
        return math.log(sum(core for core, _ in pairs) / sum(ulp for _, ulp in pairs)) / 2

    cores = ("volta-torch", "ampere-torch", "hopper-torch")
    pairs = list(zip(spread(cores), spread(("hopper-torch", "hopper-torch-twin"))))
    n = len(SEEDS)
    left_out = [ratio(pairs[:i] + pairs[i + 1 :]) for i in range(n)]
    reach = 2.776 * (n - 1) * math.sqrt(variance(left_out) / n)  # jackknife; Student's t of 4 degrees, 95 %
    low, middle, high = (math.exp(ratio(pairs) + shift) for shift in (-reach, 0, reach))
    print(f"generations scatter {middle:.2f} times as far as one ulp [{low:.2f}, {high:.2f}]; limit 1.5")


def main(task: Task, description: str) -> None:
    parser = argparse.ArgumentParser(description=description.split("\n\n")[0])
    parser.add_argument("root", type=Path)
    parser.add_argument("--only", help="one run, NAME-SEED")
    parser.add_argument("--judge", action="store_true")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rows", type=int, default=16, help="of a batch")
    given = parser.parse_args()
    if given.judge:
        return judge(given.root)
    for name, seed in [(name, seed) for name in RUNS.split() for seed in SEEDS]:
        folder = given.root / f"{name}-{seed}"
        if given.only in (None, folder.name) and not (folder / "manifest.json").exists():
            train(task, name, seed, folder, given.steps, given.rows)
