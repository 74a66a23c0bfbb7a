"""A run folder that the program wrote: twelve steps on numbers drawn from a seed, the first ones overflow."""

from __future__ import annotations

import pytest

from fp16lab import program

CONFIGURATION = """
[model]
loss = "mse"
layer = [
  { name = "fc1", type = "linear", out_features = 8 },
  { type = "relu" },
  { name = "fc2", type = "linear" },
]
[data]
name = "normal"
inputs = 6
outputs = 3
[train]
steps = 12
batch_size = 16
evaluate_every = 6
[amp]
level = "O1"
[scaler]
policy = "torch"
initial_scale = 1048576
[observe]
histograms_every = 3
explain_overflow = true
tensors = ["gradients", "weights", "updates"]
"""


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("runs")
    (folder / "tiny.toml").write_text(CONFIGURATION)
    program.run("train", "-c", folder / "tiny.toml", "--out", folder / "run", "--quiet", "--threads", "1")
    return str(folder / "run")
