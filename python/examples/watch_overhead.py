"""What lab.watch costs: one step of a transformer of 10 million parameters, watched and not, in turn.

    python python/examples/watch_overhead.py            # a minute or two
    python python/examples/watch_overhead.py --pairs 3 --width 96

Pairs of a plain and a watched step alternate in one process, and the median of their ratios is shown: of wall
time, and of the process's CPU time, which other programs disturb less. every=1 counts in each step; with
every=10 one step in ten is like that, and nine are watched but not counted.
"""

import argparse
import statistics
import time

import torch
from torch import nn

import fp16lab.torch as lab

VOCABULARY, TOKENS, BATCH = 256, 128, 4


class Transformer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        layer = nn.TransformerEncoderLayer(
            width, 6, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embedding(tokens)))


def measure(model: nn.Module, counting: bool, pairs: int) -> tuple[float, float, int]:
    """Median ratios of a watched step to a plain one, by wall and by CPU time; and how many tensors are
    counted."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(VOCABULARY, (BATCH, TOKENS + 1))

    def step() -> tuple[float, float]:
        wall, cpu = time.perf_counter(), time.process_time()
        optimizer.zero_grad()
        scores = model(tokens[:, :-1]).flatten(0, 1)
        nn.functional.cross_entropy(scores, tokens[:, 1:].flatten()).backward()
        optimizer.step()
        return time.perf_counter() - wall, time.process_time() - cpu

    w = lab.watch(model, every=1 if counting else 10**9, tensors=["gradients"], optimizer=optimizer)
    for _ in range(3):
        step()  # memory, and the optimizer's state
    ratios = []
    for pair in range(pairs + 1):
        plain = step() if pair % 2 else None
        with w:
            watched = step()
        plain = plain or step()
        if pair:  # step 1 is always counted
            ratios.append((watched[0] / plain[0], watched[1] / plain[1]))
    counted = sum(row.step == 1 for row in w.recording.counts)
    return statistics.median(r[0] for r in ratios), statistics.median(r[1] for r in ratios), counted


def of_command_line(description: str, pairs: int) -> tuple[nn.Module, int]:
    """The model, of which a line is printed, and how many pairs of steps are wanted."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=pairs, help="pairs of steps, of one kind and the other")
    parser.add_argument(
        "--width", type=int, default=384, help="a multiple of 6; 384: 10.8 million parameters"
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    model = Transformer(arguments.width)
    parameters = sum(p.numel() for p in model.parameters())
    print(
        f"{parameters / 1e6:.1f} million parameters, {BATCH} x {TOKENS} tokens, {arguments.threads} threads,"
        f" medians of {arguments.pairs} pairs"
    )
    return model, arguments.pairs


def main() -> None:
    model, pairs = of_command_line(__doc__, 40)
    counted, others = measure(model, True, pairs), measure(model, False, pairs)
    for every in (1, 10):
        wall, cpu = (100 * ((counted[i] + (every - 1) * others[i]) / every - 1) for i in (0, 1))
        print(f"every={every}: {wall:+.1f} % wall time, {cpu:+.1f} % CPU time")
    print(f"{counted[2]} tensors' gradients in a counted step")


if __name__ == "__main__":
    main()
