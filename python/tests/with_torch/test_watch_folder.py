"""The folder that lab.watch saves, read by the program fp16lab, and folders of ranks merged."""

import csv
import json
import os
import shutil
import subprocess
import tomllib
from contextlib import ExitStack
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
from torch import nn

import fp16lab
import fp16lab.torch as lab

CHECKOUT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def program():
    """The program fp16lab: the package's own, on PATH, or built in this checkout."""
    places = (Path(fp16lab.__file__).parent / "bin/fp16lab", "fp16lab", CHECKOUT / "build/bin/fp16lab")
    found = next(filter(None, (shutil.which(str(place)) for place in places)), None)
    if found is None:
        pytest.skip("the program fp16lab is neither in the package, nor on PATH, nor built in this checkout")

    def run(*arguments):
        done = subprocess.run([found, *map(str, arguments)], capture_output=True, text=True, timeout=120)
        assert done.returncode in (0, 5), done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def training(seed=1, amp=False, steps=8, every=1, scaler=None, tensors=("gradients",)):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 5))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    data = torch.Generator().manual_seed(0)
    with lab.watch(model, every=every, tensors=tensors, optimizer=optimizer, scaler=scaler) as w:
        for _ in range(steps):
            x = torch.randn(16, 12, generator=data)
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16, enabled=amp):
                loss = nn.functional.mse_loss(model(x), x[:, :5])
            if scaler is None:
                loss.backward()
                optimizer.step()
            else:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            w.step(loss=loss)
    return w


ALL = ("gradients", "activations", "weights", "optimizer_state")


def test_hist_shows_a_run(program, tmp_path):
    path = training(tensors=ALL, every=2).save(tmp_path / "mine")
    assert path == tmp_path / "mine"
    shown = program("hist", path, "--all")
    assert "2.weight" in shown and "loss.prediction" in shown and "step 8" in shown
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest["state"] == "finished" and "torch" in manifest["git_hash"]
    rows = [json.loads(line) for line in (path / "histograms.jsonl").read_text().splitlines()]
    assert {row.get("observed", "gradients") for row in rows} == set(ALL)
    assert {row["step"] for row in rows} == {1, 2, 4, 6, 8}


def test_hist_and_report_say_what_they_cannot_see(program, tmp_path):
    """PyTorch rounds inside of its operations: both histograms of such a row are the same, Inf or not."""
    scaler = lab.GradScaler("torch", device="cpu", init_scale=2.0**26)
    w = training(amp=True, scaler=scaler, tensors=("gradients", "weights"))
    path = w.save(tmp_path / "mine")
    counts = [row.after for row in w.recording.counts if row.observed == "gradients"]
    zones = ("total", "infinite", "nan", "zero")
    total, infinite, nan, zero = (sum(getattr(each, zone) for each in counts) for zone in zones)
    assert infinite > 0
    bad = {row.step for row in w.recording.counts if row.after.infinite or row.after.nan}
    told = json.loads(program("hist", path, "--json", "--quiet"))
    assert told["all_steps"]["as_stored"] == {
        "values": total,
        "zero": zero,
        "infinite": infinite,
        "nan": nan,
        "steps_not_finite": sorted(bad),
    }
    shown = program("hist", path)
    skipped = sum(step.skipped for step in w.recording.steps)
    assert f"skipped {skipped} of 8 steps" in shown.splitlines()[0].lower()
    assert "casts cannot be observed" in shown and "Casts to" not in shown
    # The table says the same, and what to do next.
    account, next_line = shown.split("\n\n")[0], "Next: "
    assert w.table().startswith(account + "\n" + next_line) and "/tmp" not in w.table()
    weights = program("hist", path, "--tensors", "weights")  # autocast's casts are seen
    assert f"the casts to FP16 rounded 0 of {8 * (12 * 32 + 32 + 32 * 5 + 5)} finite" in weights
    program("report", path, "-o", tmp_path / "out")
    assert '"casts":[[null' in (tmp_path / "out/report.html").read_text()


def test_replay_judges_every_policy_on_an_fp32_run(program, tmp_path):
    path = training().save(tmp_path / "fp32")
    program("replay", path, "-o", path)
    with open(path / "replay.csv") as file:
        told = {row["policy"]: row for row in csv.DictReader(file)}
    assert {"torch", "megatron", "lost-mass"} <= set(told)


@pytest.mark.parametrize("policy", ["torch", "megatron", "mindspore", "keras3"])
def test_replay_of_the_runs_own_policy_makes_the_decisions_that_pytorch_made(program, tmp_path, policy):
    scaler = lab.GradScaler(policy, device="cpu", initial_scale=2.0**24, growth_interval=4)
    w = training(amp=True, scaler=scaler, steps=30)
    skipped = [step.skipped for step in w.recording.steps]
    assert any(skipped) and not all(skipped)
    told = program("replay", w.save(tmp_path / "mine"), "--policy", "torch")
    assert f"measured: policy {policy}: the scales and skips of all 30 steps" in told and "HOLDS" in told


def test_compare_finds_the_same_bits_and_others(program, tmp_path):
    a, b = training().save(tmp_path / "a"), training().save(tmp_path / "b")
    c = training(seed=2).save(tmp_path / "c")
    assert "Gradients: 0 of 7 tensors have different histograms" in program("compare", a, b)
    differ = program("compare", a, c)
    assert "their states diverge at step 1" in differ


def test_load_run_gives_the_numbers_back(tmp_path):
    if not hasattr(fp16lab, "load_run"):
        pytest.skip("this build of fp16lab has no load_run")
    w = training(every=2, tensors=ALL, scaler=lab.GradScaler("torch", device="cpu"))
    run = fp16lab.load_run(w.save(tmp_path / "mine"), tables="numpy")
    assert run.finished and run.manifest["name"] == "Sequential"
    assert run.config["scaler"]["policy"] == "torch" and run.config["scaler"]["growth_interval"] == 2000
    for name in ("step", "loss", "loss_scale", "grad_norm", "lr", "state_hash", "skipped"):
        assert list(run.steps[name]) == [getattr(step, name) for step in w.recording.steps]
    told = [(row["step"], row["observed"], row["tensor"], row["before"]) for row in run.histograms]
    assert told == [(row.step, row.observed, row.tensor, row.before) for row in w.recording.counts]


def test_report_of_scaled_and_plain_runs(program, tmp_path):
    scaled = training(amp=True, scaler=lab.GradScaler("torch", device="cpu", init_scale=2.0**26), tensors=ALL)
    assert scaled.recording.overflows
    folders = [training(tensors=ALL).save(tmp_path / "fp32"), scaled.save(tmp_path / "amp")]
    program("report", *folders, "-o", tmp_path / "out")
    page = (tmp_path / "out/report.html").read_text()
    assert "fp32" in page and "amp" in page and "2.weight" in page
    overflows = [json.loads(line) for line in (folders[1] / "overflows.jsonl").read_text().splitlines()]
    assert overflows[0]["step"] == 1 and "2.weight" in overflows[0]["parameters"]
    with open(folders[1] / "steps.csv") as file:
        steps = list(csv.DictReader(file))
    assert [float(step["loss_scale"]) for step in steps[:2]] == [2.0**26, 2.0**25]
    assert steps[0]["skipped"] == steps[0]["found_inf"] == "1" and float(steps[0]["loss"]) > 0


def test_a_folder_is_there_as_a_whole_or_not_at_all(tmp_path):
    w = training()
    path = w.save(tmp_path / "deep/er/mine")
    with pytest.raises(FileExistsError, match="mine exists .*replace=True"):
        w.save(path)
    before = (path / "histograms.jsonl").read_bytes()
    assert training(steps=9).save(path, replace=True) == path
    assert (path / "histograms.jsonl").read_bytes() != before
    assert os.listdir(path.parent) == ["mine"]
    (tmp_path / "notes").mkdir()
    with pytest.raises(FileExistsError, match="it holds no run"):
        w.save(tmp_path / "notes", replace=True)
    w.recording.counts[3] = "no row"  # fails in the middle
    with pytest.raises(AttributeError):
        w.save(tmp_path / "failing")
    assert sorted(os.listdir(tmp_path)) == ["deep", "notes"]


def test_saved_while_it_runs_and_after_an_error(tmp_path):
    model = nn.Linear(3, 3)
    with pytest.raises(ZeroDivisionError):
        with lab.watch(model, every=1) as w:
            model(torch.ones(2, 3)).sum().backward()
            w.step(loss=1.0)
            stopped = w.save(tmp_path / "running")
            1 / 0
    failed = w.save(tmp_path / "after")
    assert [json.loads((path / "manifest.json").read_text())["state"] for path in (stopped, failed)] == [
        "stopped",
        "failed",
    ]


def test_ranks_merge_by_adding_histograms(tmp_path):
    runs = [training(seed=1), training(seed=3), training(seed=4)]
    merged = lab.merge([w.save(tmp_path / f"rank{i}") for i, w in enumerate(runs)], tmp_path / "all")
    rows = [json.loads(line) for line in (merged / "histograms.jsonl").read_text().splitlines()]
    total = runs[0].histogram("0.weight", step=5)
    for w in runs[1:]:
        total += w.histogram("0.weight", step=5)
    row = next(row for row in rows if (row["tensor"], row["step"]) == ("0.weight", 5))
    assert sum(row["before"]["counts"]) == sum(total.bins) == 3 * 12 * 32
    begin = row["before"]["first_exponent"] + 150
    assert row["before"]["counts"] == list(total.bins[begin : begin + len(row["before"]["counts"])])
    with open(merged / "steps.csv") as file:
        loss = float(list(csv.DictReader(file))[4]["loss"])
    assert loss == pytest.approx(sum(w.recording.steps[4].loss for w in runs) / 3)
    with pytest.raises(ValueError, match="not ranks of one training: 3 and 8 steps"):
        lab.merge([tmp_path / "rank0", training(steps=3).save(tmp_path / "short")], tmp_path / "other")
    with pytest.raises(ValueError, match='folders is ".*rank0"; a list is needed'):
        lab.merge(tmp_path / "rank0", tmp_path / "other")
    with pytest.raises(FileNotFoundError, match=r"ranc1: there is no such folder; did you mean .*rank1\?$"):
        lab.merge([tmp_path / "rank0", tmp_path / "ranc1"], tmp_path / "other")
    with pytest.raises(FileNotFoundError, match=r"nothing/rank1: there is no such folder$"):
        lab.merge([tmp_path / "nothing/rank1"], tmp_path / "other")
    assert not (tmp_path / "other").exists()
    with pytest.raises(FileExistsError):
        lab.merge([tmp_path / "rank0"], merged)


def test_table_and_lookup():
    w = training(every=4, tensors=ALL)
    table = w.table()
    assert "\n\nstep 8, in f16" in table and "2.weight.second_moment" in table
    assert table.startswith("Nothing to fix") and '\nNext: w.save("results/mine"), then fp16lab ' in table
    assert "\n\nstep 4, in bf16" in w.table(4, "bf16")
    with pytest.raises(KeyError, match="step 5 was not counted; counted are 1, 4, 8"):
        w.table(5)
    with pytest.raises(KeyError, match="no gradients of '7.weight' of step 4 were counted"):
        w.histogram("7.weight", step=4)


@pytest.mark.parametrize(
    ("dtype", "stored", "scope", "amp"),
    [
        (None, None, None, {"level": "O0"}),
        (torch.float16, None, None, {"level": "O1", "dtype": "f16"}),
        (torch.bfloat16, None, None, {"level": "O1", "dtype": "bf16"}),
        (None, torch.bfloat16, None, {"level": "O3", "dtype": "bf16"}),
        (torch.float16, None, "V100", {"level": "O1", "dtype": "f16"}),
    ],
)
def test_a_run_knows_what_it_is(tmp_path, dtype, stored, scope, amp):
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)).to(stored or torch.float32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(4, 8, dtype=stored or torch.float32)
    with lab.watch(model, every=1, optimizer=optimizer, name="mine", seed=7) as w:
        with ExitStack() as scopes:
            if scope is not None:
                scopes.enter_context(lab.emulate(scope))
            with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
                loss = model(x).float().square().mean()
            loss.backward()
        optimizer.step()
    folder = w.save(tmp_path / "run")
    config = tomllib.loads((folder / "config.toml").read_text())
    assert config["amp"] == amp
    assert config.get("backend") == ({"tensor_core": "volta", "accumulator": "f32"} if scope else None)
    assert config["train"]["seed"] == 7
    assert json.loads((folder / "manifest.json").read_text())["name"] == "mine"


def test_a_seed_is_a_whole_number():
    with pytest.raises(ValueError, match=r"seed=-1\)"):
        lab.watch(nn.Linear(2, 2), seed=-1)
