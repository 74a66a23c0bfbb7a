"""lab.op_stats: calls by operation, layer, pass and dtype."""

import csv

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
from torch import nn
from torch.utils.checkpoint import checkpoint

import fp16lab.torch as lab


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(3, 4, 3), nn.LayerNorm(6), nn.Linear(4 * 36, 5)

    def forward(self, x):
        return self.fc(self.norm(self.conv(x)).flatten(1))


def step(model, optimizer=None, dtype=None):
    x = torch.randn(2, 3, 8, 8)
    with torch.autocast("cpu", dtype or torch.float16, enabled=dtype is not None):
        loss = nn.functional.cross_entropy(model(x), torch.tensor([1, 2]))
    loss.backward()
    if optimizer:
        optimizer.step()


def calls(stats, op, layer, pass_):
    return {dtype: n for dtype, n in stats.counts.get((op, layer, pass_), {}).items() if n}


@pytest.mark.parametrize("dtype, column", [(torch.float16, "f16"), (torch.bfloat16, "bf16"), (None, "f32")])
def test_products_by_layer_pass_and_dtype(dtype, column):
    model = Net()
    with lab.op_stats(model) as stats:
        step(model, torch.optim.SGD(model.parameters(), lr=0.1), dtype)
    assert calls(stats, "addmm", "fc", "forward") == {column: 1}
    assert calls(stats, "mm", "fc", "backward") == {column: 2}  # of the input and of the weight
    assert calls(stats, "convolution", "conv", "forward") == {column: 1}
    assert calls(stats, "convolution_backward", "conv", "backward") == {column: 1}
    assert calls(stats, "native_layer_norm_backward", "norm", "backward") == {column: 1}
    assert calls(stats, "_log_softmax", "", "forward") == {"f32": 1}
    assert stats.total("mm", column) == 2
    if dtype is None:
        assert not any(op == "cast" for op, _, _ in stats.counts)
    else:
        assert calls(stats, "cast", "fc", "forward") == {column: 2}  # weight and bias
        assert calls(stats, "cast", "conv", "forward") == {column: 3}
        assert calls(stats, "cast", "fc", "backward") == {"f32": 2}
    assert any(pass_ == "optimizer" for _, _, pass_ in stats.counts)


def test_counts_add_up_over_steps_and_stop_with_the_context():
    model = Net()
    with lab.op_stats(model) as stats:
        step(model)
        step(model)
    step(model)
    assert calls(stats, "addmm", "fc", "forward") == {"f32": 2} and calls(stats, "mm", "fc", "backward") == {
        "f32": 4
    }
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in model.modules())


def test_without_a_model_layers_are_empty():
    with lab.op_stats() as stats:
        step(Net())
    assert calls(stats, "addmm", "", "forward") == {"f32": 1} and calls(stats, "mm", "", "backward") == {
        "f32": 2
    }


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_layers_run_forward_twice(reentrant):
    blocks = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    x = torch.randn(3, 4, requires_grad=True)
    with lab.op_stats(blocks) as stats:
        checkpoint(blocks, x, use_reentrant=reentrant).sum().backward()
    assert calls(stats, "addmm", "0", "forward")["f32"] == 2
    assert calls(stats, "mm", "0", "backward") == {"f32": 2}
    assert calls(stats, "tanh_backward", "1", "backward") == {"f32": 1}


def test_bits_do_not_change():
    gradients = []
    for watched in (False, True):
        torch.manual_seed(1)
        model = Net()
        if watched:
            with lab.op_stats(model):
                step(model, dtype=torch.float16)
        else:
            step(model, dtype=torch.float16)
        gradients.append([p.grad for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients))


def test_table_and_csv(tmp_path):
    model = Net()
    with lab.op_stats(model) as stats:
        step(model, dtype=torch.float16)
    table = stats.table().splitlines()
    assert table[0].split() == ["op", "layer", "pass", "f16", "f32"] and table[-1].startswith("total")
    with open(stats.save(tmp_path / "op_stats.csv")) as file:
        rows = list(csv.DictReader(file))
    assert {
        "op": "mm",
        "layer": "fc",
        "pass": "backward",
        "f16": "2",
        "bf16": "0",
        "f32": "0",
        "f64": "0",
        "other": "0",
    } in rows
    assert [path.name for path in tmp_path.iterdir()] == ["op_stats.csv"]


def test_watch_inside_adds_no_operation():
    def counted(watched):
        torch.manual_seed(1)
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with lab.op_stats(model) as stats:
            if watched:
                with lab.watch(
                    model,
                    tensors=["gradients", "activations", "weights", "optimizer_state"],
                    optimizer=optimizer,
                ):
                    step(model, optimizer, torch.float16)
            else:
                step(model, optimizer, torch.float16)
        return stats.counts

    assert counted(True) == counted(False)


def test_refuses_a_compiled_module():
    with pytest.raises(ValueError, match="torch.compile fuses the operations"):
        lab.op_stats(torch.compile(Net(), backend="eager"))
