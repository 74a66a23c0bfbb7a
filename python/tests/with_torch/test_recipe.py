"""lab.recipe: linear layers of unchanged models in MX, NVFP4 and FP8 with scales."""

from __future__ import annotations

import csv
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import fp16lab
import fp16lab.torch as lab

pytestmark = pytest.mark.filterwarnings("ignore")
RECIPES = list(lab.recipes())


def operands(tokens=64, inputs=96, outputs=128, seed=0):
    torch.manual_seed(seed)
    x = (torch.randn(tokens, inputs) * torch.logspace(-3, 2, inputs)).requires_grad_()
    layer = nn.Linear(inputs, outputs)
    g = torch.randn(tokens, outputs) * torch.logspace(-6, -1, tokens)[:, None]
    return x, layer, g


def run(recipe, x, layer, g, **kwargs):
    """y, dx, dw and db in the scope."""
    x = x.detach().requires_grad_()
    layer.zero_grad()
    with lab.recipe(recipe, **kwargs) as scope:
        y = layer(x)
        y.backward(g.to(y.dtype))
    return scope, (y.detach(), x.grad, layer.weight.grad, layer.bias.grad)


def test_mxfp8_is_torchaos_emulated_training():
    mxfp8_linear = pytest.importorskip("torchao.prototype.moe_training.mxfp8_linear", reason="torchao is not installed")
    from torchao.prototype.mx_formats.config import (
        MXFP8Dim0CastKernelChoice,
        MXFP8Dim1CastKernelChoice,
        ScaleCalculationMode,
    )
    from torchao.quantization.quantize_.common.kernel_preference import KernelPreference

    x, layer, g = operands()
    for rule in ("floor", "rceil"):
        of = replace(fp16lab.quantizers()["mxfp8"], rule=rule)
        _, ours = run(replace(lab.recipes()["mxfp8"], x=of, weight=of, g=of), x, layer, g)
        theirs_x, weight = x.detach().requires_grad_(), layer.weight.detach().requires_grad_()
        e4m3 = torch.float8_e4m3fn
        y = mxfp8_linear.mx_mm.apply(
            theirs_x, weight, e4m3, e4m3, e4m3, 32, KernelPreference.EMULATED, MXFP8Dim0CastKernelChoice.TORCH,
            MXFP8Dim1CastKernelChoice.TORCH, ScaleCalculationMode[rule.upper()], False,
        )
        y.backward(g)
        assert torch.equal(ours[0], y.detach() + layer.bias)
        assert torch.equal(ours[1], theirs_x.grad)
        assert torch.equal(ours[2], weight.grad)


@pytest.mark.parametrize("name", RECIPES)
def test_products_are_those_of_what_quantizing_leaves(name):
    recipe = replace(lab.recipes()[name], stochastic=False, hadamard=0, delayed=0)
    x, layer, g = operands(128, 128, 256)

    def left(of, matrix):
        return fp16lab.quantize(matrix.detach().contiguous(), of).dequantize()

    _, (y, dx, dw, db) = run(recipe, x, layer, g)
    weight = layer.weight
    assert torch.equal(y, left(recipe.x, x) @ left(recipe.weight, weight).T + layer.bias)
    assert torch.equal(dx, left(recipe.g, g) @ left(recipe.weight, weight.T).T)
    assert torch.equal(dw, left(recipe.g, g.T) @ left(recipe.x, x.T).T)
    assert torch.equal(db, g.sum(0))


def test_hadamard_transforms_keep_the_product_and_spread_one_large_token():
    x, layer, g = operands(64)
    with torch.no_grad():
        x[5] *= 1000
    exact = g.T @ x.detach()
    plain = replace(lab.recipes()["nvfp4"], stochastic=False, hadamard=0)
    errors = []
    for recipe in (plain, replace(plain, hadamard=16)):
        dw = run(recipe, x, layer, g)[1][2]
        errors.append(float((dw - exact).norm() / exact.norm()))
    assert 0 < errors[1] < 0.3 and errors[0] != errors[1]


def test_stochastic_gradients_are_right_on_average_and_follow_the_seed():
    recipe = replace(lab.recipes()["nvfp4"], hadamard=0)
    x, layer, g = operands(32, 32, 32)
    exact = run(replace(recipe, stochastic=False), x, layer, g)[1][1]
    total = torch.zeros_like(exact, dtype=torch.float64)
    results = [run(recipe, x, layer, g, seed=seed)[1][1] for seed in range(200)]
    for each in results:
        total += each
    unrounded = g @ fp16lab.quantize(layer.weight.detach().T.contiguous(), recipe.weight).dequantize().T
    mean_error = (total / 200 - unrounded).norm() / unrounded.norm()
    assert mean_error < 0.5 * (exact - unrounded).norm() / unrounded.norm()
    assert torch.equal(results[3], run(recipe, x, layer, g, seed=3)[1][1])
    assert not torch.equal(results[3], results[4])


def test_delayed_scales_are_those_of_the_calls_before():
    x, layer, g = operands()
    with lab.recipe("te-delayed") as scope:
        layer(x)
        layer(100 * x)
    first = next(row for row in scope.losses() if row["operand"] == "x")
    # The first call has scale 1, the second one the scale of the first one's amax.
    assert first["saturated"] > 0 and first["blocks"] == 2
    with lab.recipe("te-current") as scope:
        layer(100 * x)
    assert scope.losses()[0]["saturated"] == 0


def test_dimensions_that_are_no_multiple_of_a_block_are_filled():
    for name in RECIPES:
        x, layer, g = operands(7, 40, 10)
        _, (y, dx, dw, db) = run(name, x, layer, g)
        assert y.shape == (7, 10) and dx.shape == (7, 40) and dw.shape == (10, 40) and db.shape == (10,)
        reference = x @ layer.weight.T + layer.bias
        assert (y - reference).norm() < 0.3 * reference.norm(), name


def test_any_caller_of_linear_is_seen_under_its_name():
    torch.manual_seed(1)
    model = nn.Sequential(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), nn.Linear(32, 8))
    with lab.recipe("mxfp8", model, wide=["1"]) as scope:
        model(torch.randn(2, 16, 32)).sum().backward()
    layers = {(row["layer"], row["weight"]) for row in scope.losses()}
    assert layers == {("0.self_attn", "96x32"), ("0.self_attn", "32x32"), ("0.linear1", "64x32"), ("0.linear2", "32x64")}
    assert scope.table().splitlines()[0].split()[:3] == ["layer", "product", "operand"]


def test_without_gradients_and_in_inference_mode():
    x, layer, _ = operands()
    with lab.recipe("mxfp8"):
        expected = layer(x).detach()
        with torch.no_grad():
            assert torch.equal(layer(x), expected)
        with torch.inference_mode():
            assert torch.equal(layer(x), expected)
    assert not torch.equal(layer(x), expected)


@pytest.mark.parametrize("autocast", [torch.autocast, lab.autocast])
def test_autocast_comes_first(autocast):
    x, layer, _ = operands()
    scope = autocast("cpu", torch.bfloat16) if autocast is torch.autocast else autocast(torch.bfloat16)
    with lab.recipe("mxfp8"), scope:
        y = layer(x)
    half = nn.Linear(96, 128).bfloat16()
    half.load_state_dict(layer.state_dict())
    with lab.recipe("mxfp8"):
        assert y.dtype == torch.bfloat16 and torch.equal(y, half(x.bfloat16()))


@pytest.mark.parametrize("name", ["mxfp8", "nvfp4", "deepseek-fp8", "te-current"])
def test_sums_of_the_tensor_core(name):
    recipe = replace(lab.recipes()[name], stochastic=False, hadamard=0)
    x, layer, g = operands(128, 128, 256)
    _, (y, dx, dw, _) = run(recipe, x, layer, g, sums="row")

    def product(of_a, a, of_b, b):
        a, b = a.detach().contiguous(), b.detach().contiguous()
        return fp16lab.quantized_matmul(fp16lab.quantize(a, of_a), fp16lab.quantize(b, of_b, axis=-2))

    assert torch.equal(y, product(recipe.x, x, recipe.weight, layer.weight.T) + layer.bias)
    assert torch.equal(dx, product(recipe.g, g, recipe.weight, layer.weight))
    assert torch.equal(dw, product(recipe.g, g.T, recipe.x, x))
    assert not torch.equal(y, run(recipe, x, layer, g)[1][0])


def test_training_learns():
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    x = torch.randn(256, 32)
    y = (x @ torch.randn(32, 4)).argmax(1)
    for _ in range(60):
        with lab.recipe("nvfp4", model, wide=["4"]):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
        optimizer.step()
    assert loss < 0.5


def test_losses_are_saved(tmp_path):
    x, layer, g = operands()
    scope, _ = run("mxfp4", x, layer, g)
    with open(scope.save(tmp_path / "losses.csv")) as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6 and {row["product"] for row in rows} == {"forward", "dx", "dw"}
    q = fp16lab.quantize(x.detach(), "mxfp4")
    assert int(rows[0]["made_zero"]) == int(q.made_zero.sum())
    assert int(rows[0]["saturated"]) == int(q.saturated.sum())
    error = (q.dequantize() - x.detach()).norm() / x.detach().norm()
    assert float(rows[0]["error"]) == pytest.approx(float(error), rel=1e-5)
    assert float(rows[0]["mean_headroom"]) == pytest.approx(float(np.nanmean(q.headroom)), abs=1e-6)
    assert float(rows[0]["least_headroom"]) == float(np.nanmin(q.headroom))
    assert int(rows[0]["saturated_blocks"]) == int((q.saturated > 0).sum())


def watched(recipe_of, steps=1, every=1, evaluate=False):
    """A network that is trained in both scopes, and looked at in between."""
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
    optimizer, x = torch.optim.SGD(model.parameters(), 0.1), torch.randn(16, 32)
    tensors = "gradients", "activations"
    with recipe_of(model) as scope, lab.watch(model, optimizer=optimizer, every=every, tensors=tensors) as w:
        for _ in range(steps):
            model(x).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            if evaluate:
                with torch.no_grad():
                    model(x)
    return scope, w


def test_a_watch_records_what_operands_lost(tmp_path):
    scope, w = watched(lambda model: lab.recipe("nvfp4", model))
    run = fp16lab.load_run(w.save(tmp_path / "run"))
    part, place = {"x": "input", "weight": "weight", "g": "output"}, ("layer", "operand", "weight", "error")
    expected = [
        {"step": 1, "tensor": f"{row['layer']}.{part[row['operand']]}"}
        | {name: value for name, value in row.items() if name not in place}
        for row in scope.losses()
    ]
    rows = {(row["tensor"], row["product"]): row for row in run.rows("recipe")}
    assert rows == {(row["tensor"], row["product"]): row for row in expected}
    assert len(rows) == 10 and any(row["made_zero"] for row in rows.values())
    recipe = {"recipe": "nvfp4", "recipe_stochastic": True, "recipe_hadamard": True}
    assert run.config["amp"] == {"level": "O1", "dtype": "f32", **recipe}
    table = w.table()
    assert "The recipe zeroed" in table and "what lab.recipe left of operands" in table
    (line,) = [each.split() for each in table.splitlines() if each.split()[:2] == ["2.input", "forward"]]
    row = rows["2.input", "forward"]
    assert line[2] == str(row["values"])
    assert float(line[3]) == pytest.approx(100 * row["made_zero"] / row["values"], rel=0.01)
    for both in fp16lab.load_run(lab.merge([tmp_path / "run"] * 2, tmp_path / "both")).rows("recipe"):
        once = rows[both["tensor"], both["product"]]
        assert both["made_zero"] == (1 if once["tensor"].endswith("weight") else 2) * once["made_zero"]
        assert both["mean_headroom"] == pytest.approx(once["mean_headroom"])


def test_a_watch_records_counted_steps_without_evaluations():
    alone, more = (
        watched(lambda model: lab.recipe("mxfp4", model, wide=["0"]), 4, 2, evaluate)[1].recording.operands
        for evaluate in (False, True)
    )
    assert alone == more and list(alone) == [1, 2, 4]
    assert {row["tensor"] for row in alone[1]} == {"2.input", "2.weight", "2.output"}


def test_a_watch_knows_layers_of_its_network_alone():
    def lost(*network):
        return watched(lambda model: lab.recipe("mxfp4", *(of(model) for of in network)))[1]

    own = lost(lambda model: model).recording.operands
    assert own == lost(lambda model: nn.ModuleDict({"part": model})).recording.operands != {}
    assert {row["tensor"] for row in lost(lambda model: model[2]).recording.operands[1]} == {
        "2.input", "2.weight", "2.output",
    }
    assert lost(lambda model: nn.Linear(4, 4)).recording.operands == {}
    without = lost()
    assert without.recording.operands == {}
    assert "operands of lab.recipe (it was given no model)" in without.table()


def test_what_does_not_fit_is_one_line():
    model = nn.Sequential(nn.Linear(4, 4))
    for call, message in (
        (lambda: lab.recipe("nvfp5"), "no recipe 'nvfp5'; mxfp8, "),
        (lambda: lab.recipe(model), "name is of Sequential"),
        (lambda: lab.recipe("nvfp4", "model"), "model is of str"),
        (lambda: lab.recipe("nvfp4", wide=["0"]), "none is given"),
        (lambda: lab.recipe("nvfp4", model, wide="0"), "a list is needed"),
        (lambda: lab.recipe("nvfp4", model, sums="exact"), "sums is 'exact'; \"fp32\", \"row\" or one of volta"),
        (lambda: lab.recipe("nvfp4", model, wide=["head"]), "'head' names no module of the model; its linear layers are 0"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            call()
    with lab.recipe("mxfp8"), pytest.raises(RuntimeError, match="scopes do not nest"):
        lab.recipe("mxfp4").__enter__()
    x, layer, _ = operands()
    with lab.recipe("mxfp8"):
        y = layer(x)
        (gradient,) = torch.autograd.grad((y * y).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()
