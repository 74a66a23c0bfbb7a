"""Evaluations, twins and verdicts: a study of one's own training."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import fp16lab
import fp16lab.torch as lab


def train(seed: int, folder, *, lr: float = 0.05, twin: bool = False, broken: bool = False):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
    if twin:
        lab.perturb_ulps(model, seed)
    x = torch.randn(64, 6)
    y = (x.sum(1) > 0).long()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    with lab.watch(model, every=10, optimizer=optimizer) as w:
        for _ in range(20):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            w.step(loss=loss)
        with torch.no_grad():
            logits = model(x)
            loss = nn.functional.cross_entropy(logits, y)
        w.evaluate(10, loss=9.0, split="train")
        w.evaluate(loss=math.nan if broken else loss, accuracy=(logits.argmax(1) == y).float().mean())
    return w.save(folder)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    made = {"full": {}, "twin": {"twin": True}, "slow": {"lr": 0.001}, "broken": {"broken": True}}
    return {
        name: [train(seed, place / f"{name}-{seed}", **options) for seed in range(1, 6)]
        for name, options in made.items()
    }


def test_evaluations_stand_in_the_folder(runs):
    table = fp16lab.load_run(runs["full"][0]).evaluations
    assert list(table["step"]) == [10, 20] and list(table["split"]) == ["train", "test"]
    assert 0 < table["loss"][1] < 1 and 0.5 < table["accuracy"][1] <= 1


def test_verdicts(runs):
    verdicts = fp16lab.verdict({name: runs[name] for name in ("twin", "slow", "broken")}, runs["full"])
    assert verdicts["twin"].word == "equal" and abs(verdicts["twin"].mean) < 1e-3
    assert verdicts["slow"].word == "worse" and verdicts["slow"].mean > 10
    assert verdicts["broken"].word == "worse" and "5 of 5 diverged" in verdicts["broken"].text
    assert str(verdicts["twin"]) == "equal within 1 %" or "measurably" in str(verdicts["twin"])
    alone = fp16lab.verdict(runs["slow"], runs["full"], metric="accuracy", margin=2)
    assert alone.pairs == 5 and alone.interval[0] <= alone.mean <= alone.interval[1]
    assert fp16lab.verdict(runs["slow"][:2], runs["full"][:2]).word == "cannot tell"


def test_differences_are_those_of_the_definition(runs):
    values = {
        name: [fp16lab.load_run(run).evaluations["loss"][1] for run in runs[name]]
        for name in ("slow", "full")
    }
    # In percent, of the geometric mean of the ratios.
    ratios = [a / b for a, b in zip(values["slow"], values["full"])]
    expected = 100 * (math.prod(ratios) ** (1 / len(ratios)) - 1)
    assert fp16lab.verdict(runs["slow"], runs["full"]).mean == pytest.approx(expected, rel=1e-12)


def test_what_cannot_be_judged(runs, tmp_path):
    with pytest.raises(ValueError, match="4 runs of 'slow' and 5 of the reference"):
        fp16lab.verdict({"slow": runs["slow"][:4]}, runs["full"])
    with pytest.raises(ValueError, match="'half-1' is one folder; a list"):
        fp16lab.verdict("half-1", ["full-1"])
    with pytest.raises(ValueError, match="metric is 'f1'"):
        fp16lab.verdict(runs["slow"], runs["full"], metric="f1")
    with pytest.raises(ValueError, match="margin is 0"):
        fp16lab.verdict(runs["slow"], runs["full"], margin=0)
    model = nn.Linear(2, 1)
    with lab.watch(model, every=1) as w:
        model(torch.ones(1, 2)).sum().backward()
        w.step(loss=1.0)
    none = w.save(tmp_path / "none")
    with pytest.raises(ValueError, match="has no loss of an evaluation"):
        fp16lab.verdict([none] * 3, runs["full"][:3])


def test_what_cannot_be_evaluated():
    model = nn.Linear(2, 1)
    with lab.watch(model, every=1) as w:
        model(torch.ones(1, 2)).sum().backward()
        w.step(loss=1.0)
        with pytest.raises(ValueError, match=r"w.evaluate\(2\): a step from 0 to 1"):
            w.evaluate(2, loss=1.0)
        with pytest.raises(ValueError, match="split is 'dev'"):
            w.evaluate(loss=1.0, split="dev")
        with pytest.raises(ValueError, match="accuracy is 98"):
            w.evaluate(loss=1.0, accuracy=98)
        w.evaluate(1, loss=1.0)
        with pytest.raises(ValueError, match="a step from 1 to 1"):
            w.evaluate(0, loss=1.0)


def test_twins_move_every_weight_by_one_ulp():
    model = nn.Sequential(nn.Linear(8, 64), nn.LayerNorm(64), nn.Linear(64, 3).half())
    model[0].bias.data[:4] = torch.tensor([0.0, -0.0, math.inf, 1e-45])
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    lab.perturb_ulps(model, seed=3)
    ups = 0
    for name, parameter in model.named_parameters():
        old, new = before[name], parameter.detach()
        if old.dtype == torch.float16:
            assert new.equal(old)
            continue
        moved = new.view(torch.int32) - old.view(torch.int32)
        still = (old == 0) | old.isinf()
        assert (moved[still] == 0).all() and (moved[~still].abs() == 1).all()
        ups += int((moved == 1).sum())
    assert 200 < ups < 450
    again = nn.Linear(8, 64)
    again.load_state_dict({"weight": before["0.weight"], "bias": before["0.bias"]})
    lab.perturb_ulps(again, seed=4)
    assert not again.weight.equal(model[0].weight)


def test_twins_are_those_of_the_command_line(tmp_path):
    """train.perturb_ulps moves the same elements the same way."""
    settings = ["data.name=random-images", "train.steps=1", "train.seed=5"]

    def initial(*more: str):
        file = tmp_path / f"weights{len(more)}.safetensors"
        arguments = ["train", "-c", "classifier", "--quiet", "-o", str(tmp_path / f"run{len(more)}")]
        for setting in [*settings, *more]:
            arguments += ["--set", setting]
        fp16lab.program.run(*arguments, "--dump-initial", str(file))
        return safetensors_of(file)

    plain, moved = initial(), initial("train.perturb_ulps=1")
    holder = nn.Module()
    for name, values in plain.items():
        part = holder
        *path, leaf = name.split(".")
        for step in path:
            if not hasattr(part, step):
                part.add_module(step, nn.Module())
            part = getattr(part, step)
        part.register_parameter(leaf, nn.Parameter(values))
    lab.perturb_ulps(holder, seed=5)
    for name, parameter in holder.named_parameters():
        assert parameter.detach().equal(moved[name]), name
    with pytest.raises(ValueError, match="ulps is 0"):
        lab.perturb_ulps(holder, seed=5, ulps=0)
    for seed in (-1, "a", 1 << 64):
        with pytest.raises(ValueError, match=r"^perturb_ulps: seed is .*; a whole number from 0 to 2\^64 - 1"):
            lab.perturb_ulps(holder, seed)
    with pytest.raises(ValueError, match="no parameters in float32"):
        lab.perturb_ulps(nn.Linear(2, 2).half(), seed=5)


def safetensors_of(file):
    import json

    data = file.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    return {
        name: torch.frombuffer(
            bytearray(data[8 + length :][slice(*entry["data_offsets"])]), dtype=torch.float32
        )
        .reshape(entry["shape"])
        .clone()
        for name, entry in header.items()
        if name != "__metadata__"
    }
