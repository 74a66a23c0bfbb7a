"""Run folders as tables, and commands that the package carries: the command line's files and bytes."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import sys
import types
import typing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import command

import fp16lab
from fp16lab import rows


def lines_of(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture(params=["numpy", "pandas"])
def tables(request) -> str:
    if request.param == "pandas":
        pytest.importorskip("pandas")
    return request.param


def test_steps_and_evaluations_are_the_files(trained, tables):
    run = fp16lab.load_run(trained, tables)
    for table, file in ((run.steps, "steps.csv"), (run.evaluations, "evaluations.csv")):
        rows = list(csv.DictReader((Path(trained) / file).open()))
        assert len(table) == len(rows) > 0
        for name in rows[0]:
            for ours, text in zip(table[name], (row[name] for row in rows)):
                if name == "split":
                    assert ours == text
                elif name == "state_hash":
                    assert int(ours) == int(text, 16)
                elif text == "":
                    assert np.isnan(ours)
                else:
                    assert ours == float(text) or (np.isnan(ours) and text == "nan")
    assert run.steps["found_inf"].dtype == bool and run.steps["found_inf"].sum() > 0
    assert run.finished and run.damage == [] and run.notes == []


def test_histograms_and_overflows_are_the_files(trained, tables):
    run = fp16lab.load_run(trained, tables)
    rows = lines_of(Path(trained) / "histograms.jsonl")
    assert len(run.histograms) == len(rows) > 20
    assert set(run.histograms["observed"]) == {"gradients", "weights", "updates"}
    for i, row in enumerate(rows):
        ours = {name: run.histograms[name][i] for name in ("step", "tensor", "dtype", "loss_scale", "kind")}
        assert ours == {name: row[name] for name in ours}
        for side in ("before", "after"):
            h, theirs = run.histograms[side][i], row[side]
            assert (h.zero, h.infinite, h.nan) == (theirs["zero"], theirs["inf"], theirs["nan"])
            bins = np.zeros(278, np.uint64)
            first = theirs["first_exponent"] + 150
            bins[first : first + len(theirs["counts"])] = theirs["counts"]
            np.testing.assert_array_equal(h.bins, bins)
    gradients = run.read_histograms()
    assert len(gradients) == sum("observed" not in row for row in rows)
    overflows = lines_of(Path(trained) / "overflows.jsonl")
    assert run.overflows["step"].tolist() == [row["step"] for row in overflows] != []
    assert run.overflows["parameters"].tolist() == [row["parameters"] for row in overflows]


def is_of(value: object, type_: Any) -> bool:
    """Is it what the annotation says?"""
    arguments = typing.get_args(type_)
    if typing.is_typeddict(type_):
        hints = typing.get_type_hints(type_)
        return type(value) is dict and list(value) == list(hints) and all(is_of(value[k], hints[k]) for k in hints)
    if isinstance(type_, types.UnionType):
        return any(is_of(value, each) for each in arguments)
    if typing.get_origin(type_) is typing.Literal:
        return value in arguments
    if typing.get_origin(type_) is list:
        return type(value) is list and all(is_of(item, arguments[0]) for item in value)
    return type(value) is type_


def test_rows_have_their_types(trained):
    run = fp16lab.load_run(trained)
    for table, type_ in (
        ("steps", rows.StepRow),
        ("evaluations", rows.EvaluationRow),
        ("histograms", rows.HistogramRow),
        ("overflows", rows.OverflowRow),
        ("culprits", rows.CulpritRow),
    ):
        found = run.rows(table)
        assert found and all(is_of(row, type_) for row in found), table
        if table != "culprits":
            assert [row["step"] for row in found] == getattr(run, table)["step"].tolist()
    first = next(csv.DictReader((Path(trained) / "steps.csv").open()))
    assert list(run.rows("steps")[0]) == list(first) and not is_of({**run.rows("steps")[0], "loss": 1}, rows.StepRow)
    with pytest.raises(ValueError, match="there is no table 'moments'; known are steps"):
        run.rows("moments")


def test_rows_of_a_recipe(trained, tmp_path):
    assert fp16lab.load_run(trained).rows("recipe") == []
    tiny, folder = Path(trained).parent / "tiny.toml", tmp_path / "run"
    sets = ("--set", "amp.recipe=mxfp4", "--set", "observe.explain_overflow=false")
    fp16lab.program.run("train", "-c", tiny, "--out", folder, "--quiet", "--threads", "1", *sets)
    found = fp16lab.load_run(folder).rows("recipe")
    assert found and all(is_of(row, rows.RecipeRow) for row in found)
    for row, line in zip(found, lines_of(folder / "recipe.jsonl"), strict=True):
        assert row == dict.fromkeys(row) | line


def test_manifest_and_config(trained):
    run = fp16lab.load_run(trained)
    assert run.manifest["state"] == "finished" and run.manifest["rows"]["steps.csv"] == 12
    assert run.config["scaler"]["policy"] == "torch"
    assert "finished, 12 steps" in repr(run)


def test_numpy_tables_without_pandas(trained, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    run = fp16lab.load_run(trained)
    assert isinstance(run.steps, np.ndarray) and run.steps.dtype.names[:3] == ("step", "loss", "loss_scale")
    assert run.steps[0]["loss_scale"] == 2.0**20
    with pytest.raises(ImportError, match='^tables="pandas" needs pandas: pip install pandas$'):
        fp16lab.load_run(trained, "pandas").steps


def test_a_killed_or_damaged_run(trained, tmp_path):
    folder = shutil.copytree(trained, tmp_path / "run")
    steps = (folder / "steps.csv").read_text()
    (folder / "steps.csv").write_text(steps[:-10])
    run = fp16lab.load_run(folder)
    assert len(run.steps) == 11 and not run.finished
    assert any("steps.csv" in note for note in [*run.notes, *run.damage])
    (folder / "steps.csv").write_text(steps.replace(",0.1\n", ",zero\n", 1))
    with pytest.raises(RuntimeError, match=r"steps\.csv:2: ") as error:
        fp16lab.load_run(folder)
    assert "\n" not in str(error.value)
    (folder / "steps.csv").write_text(steps.replace(",0.1", ",0.2", 1))
    run = fp16lab.load_run(folder)
    assert run.damage == ["steps.csv is not what the run wrote (it has another SHA-256)"]
    assert len(run.steps) == 12 and not run.finished
    with pytest.raises(ValueError, match=r"run is damaged: steps\.csv is not what the run wrote"):
        fp16lab.verdict([folder] * 3, [folder] * 3)
    with pytest.raises(FileNotFoundError, match="no run folder: it has no manifest.json"):
        fp16lab.load_run(tmp_path)
    with pytest.raises(ValueError, match="nothing that can be observed is called 'losses'"):
        fp16lab.load_run(trained).read_histograms("losses")
    with pytest.raises(ValueError, match='tables is \'csv\'; "numpy", "pandas" or None is needed'):
        fp16lab.load_run(trained, "csv")


@pytest.mark.parametrize("name", ["steps.csv", "histograms.jsonl", "overflows.jsonl", "config.toml"])
def test_a_fifo_in_a_run_folder_is_an_error_at_once(trained, tmp_path, name):
    folder = shutil.copytree(trained, tmp_path / "run")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    signal.alarm(60)  # a hang ends the tests
    with pytest.raises(RuntimeError, match=f"{name}: not a regular file"):
        fp16lab.load_run(folder).config
    signal.alarm(0)


@pytest.mark.parametrize("name", ["manifest.json", "histograms.jsonl", "overflows.jsonl"])
def test_deep_json_is_an_error_and_no_crash(trained, tmp_path, name):
    folder = shutil.copytree(trained, tmp_path / "run")
    (folder / name).write_text("[" * 100_000 + "\n")
    with pytest.raises(RuntimeError, match="nested deeper than 64"):
        run = fp16lab.load_run(folder)
        run.read_histograms()
        run.overflows


def test_inspect_has_the_bytes_of_the_command_line():
    assert fp16lab.inspect(0.1) == command("inspect", "0.1")
    assert fp16lab.inspect("2^-24", 65519.99, format=["f16", "6,10"], mode="upward") == command(
        "inspect", "2^-24", "65519.99", "--format", "F16", "--format", "6,10", "--rounding", "upward"
    )
    assert fp16lab.inspect(np.float16(0.1)) == command("inspect", "f16:0x2e66")
    assert fp16lab.inspect(np.float32(-0.1)) == command("inspect", "f32:0xbdcccccd")
    assert fp16lab.inspect(-1.5, json=True) == command("inspect", "-1.5", "--json")
    assert fp16lab.inspect(1, long=True) == command("inspect", "1", "--long")
    assert fp16lab.inspect(float("-inf"), 1) == command("inspect", "-inf", "1")
    with pytest.raises(ValueError, match="one number each is needed"):
        fp16lab.inspect(np.ones(3))
    with pytest.raises(ValueError) as error:
        fp16lab.inspect("a tenth")
    assert "a tenth" in str(error.value) and "\n" not in str(error.value)


def test_replay_has_the_bytes_of_the_command_line(trained, tmp_path):
    run = fp16lab.load_run(trained)
    assert fp16lab.replay(run, interval=3) == command("replay", trained, "--interval", "3")
    ours = fp16lab.replay(
        trained, ["torch", "megatron"], settings={"torch.growth_interval": 2}, steps="recorded", json=True
    )
    theirs = command(
        *("replay", trained, "--policy", "torch", "--policy", "megatron", "--set", "torch.growth_interval=2"),
        *("--steps", "recorded", "--json"),
    )
    timing = re.compile(r'"seconds":[^,}]+')
    assert timing.sub("", ours) == timing.sub("", theirs)
    fp16lab.replay(run, out=tmp_path / "replay")
    assert (tmp_path / "replay" / "replay.json").is_file()
    with pytest.raises(ValueError, match="torhc"):
        fp16lab.replay(run, "torhc")
    with pytest.raises(ValueError, match="nothing: no such run folder"):
        fp16lab.replay(tmp_path / "nothing")
    damaged = shutil.copytree(trained, tmp_path / "damaged")
    (damaged / "manifest.json").write_text("{")
    with pytest.raises(fp16lab.ProgramError, match="damaged.manifest.json") as error:
        fp16lab.replay(damaged)
    assert error.value.exit_code == 1 and "\n" not in str(error.value)


@pytest.mark.parametrize("mask", [0o077, 0o002])
def test_a_report_honours_the_umask(trained, tmp_path, mask):
    before = os.umask(mask)
    try:
        page = fp16lab.report(trained, tmp_path / "page.html")
        fp16lab.report(trained, page)  # the one that replaces it too
    finally:
        os.umask(before)
    assert page.stat().st_mode & 0o777 == 0o666 & ~mask


def test_report_has_the_bytes_of_the_command_line(trained, tmp_path):
    page = fp16lab.report([trained], tmp_path / "page.html")
    command("report", trained, "--out", str(tmp_path / "theirs"))

    def without_the_time(file: Path) -> str:
        text, count = re.subn(r"written \d{4}-\d\d-\d\dT[\d:]+Z", "", file.read_text())
        assert count == 1
        return text

    assert without_the_time(page) == without_the_time(tmp_path / "theirs" / "report.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "theirs"]
    before = page.read_bytes()
    with pytest.raises((ValueError, fp16lab.ProgramError)):
        fp16lab.report([tmp_path / "nothing"], page)
    assert page.read_bytes() == before and sorted(p.name for p in tmp_path.iterdir()) == [
        "page.html",
        "theirs",
    ]
    with pytest.raises(ValueError, match="there is no folder .*nowhere for page.html"):
        fp16lab.report(trained, tmp_path / "nowhere" / "page.html")
