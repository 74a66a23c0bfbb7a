"""lab.batch_invariance on layers whose bits do, or do not, depend on the batch by construction."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fp16lab.torch as lab
from fp16lab.torch import Engine
from test_mismatch import Attends, Net, cancels

IDS = torch.randint(16, (1, 2), generator=torch.Generator().manual_seed(1))


class Follows(nn.Module):
    """Adds a row's values in another order where there are more than two rows."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Tanh(), nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.before(x)
        sums = (y[:, 0] + y[:, 1]) + y[:, 2] if len(x) <= 2 else y[:, 0] + (y[:, 1] + y[:, 2])
        return self.after(sums)


def test_the_first_that_follows_the_batch_is_named():
    x = torch.tensor([[20.0, 1.234567e-4, -20.0]])  # (1 + x) - 1 rounds x to 2^-23, 1 + (x - 1) to 2^-24
    model = Follows().eval()
    told = lab.batch_invariance(model, x, (1, 2, 4))
    expected = float(abs(model(x) - model(x.repeat(4, 1))[0]))
    assert expected > 0 and not told.invariant
    assert [(row["size"], row["op"], row["layer"]) for row in told.sizes] == [(2, "", ""), (4, "add", "")]
    assert told.sizes[1]["largest"] == expected and told.sizes[0]["differing"] == 0
    assert told.sizes[1]["differing"] < told.sizes[1]["results"]  # tanh, and others before, are equal


def test_a_plan_that_follows_the_batch_is_found_and_a_fixed_one_is_not():
    onednn = lab.batch_invariance(cancels(), IDS, (1, 4), engine=Engine("avx512_bf16", "onednn"))
    assert (onednn.sizes[0]["op"], onednn.sizes[0]["layer"]) == ("mm", "1")
    assert lab.batch_invariance(cancels(), IDS, (1, 4), engine="avx512_bf16").invariant


@pytest.mark.parametrize("model", [Net, Attends])
def test_an_instruction_knows_no_batch(model):
    assert lab.batch_invariance(model().eval(), IDS, (1, 2, 5), engine="h100").invariant


def test_copies_for_a_layout_are_no_result():
    """transformers' attention copies keys of several rows, and not those of one."""
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, vocab_size=16
    )
    model = transformers.LlamaForCausalLM(config).eval()
    assert lab.batch_invariance(model, IDS, (1, 2), engine="h100").invariant


def test_a_sequence_may_come_first():
    class SequenceFirst(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.fc = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(x.transpose(0, 1).contiguous().view(-1, 8))

    assert lab.batch_invariance(SequenceFirst().eval(), torch.randn(1, 3, 8), engine="h100").invariant


def test_a_fixed_size_is_timed():
    told = lab.batch_invariance(nn.Linear(8, 8).eval(), torch.ones(1, 8), (1, 4), measure=3)
    assert [row["size"] for row in told.cost] == [1, 4]
    assert all(row["many"] > 0 and row["one"] > 0 for row in told.cost) and "fixed size" in str(told)


@pytest.mark.parametrize(
    "call, error, told",
    [
        (lambda: lab.batch_invariance(nn.Linear(2, 2), torch.ones(1, 2)), ValueError, "model.eval()"),
        (lambda: lab.batch_invariance("model", torch.ones(1, 2)), TypeError, "an nn.Module is needed"),
        (lambda: lab.batch_invariance(Net().eval(), IDS, (1,)), ValueError, "sizes is (1,)"),
        (lambda: lab.batch_invariance(Net().eval(), IDS, (1, 0)), ValueError, "sizes is (1, 0)"),
        (lambda: lab.batch_invariance(Net().eval(), 3), TypeError, "sample is of int"),
        (lambda: lab.batch_invariance(Net().eval(), IDS, engine=Engine(batch=2)), ValueError, "no meaning"),
    ],
)
def test_errors(call, error, told):
    with pytest.raises(error) as raised:
        call()
    assert told in str(raised.value)
