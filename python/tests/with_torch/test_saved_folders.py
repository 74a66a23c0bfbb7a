"""save and merge with replace=True: interrupted or killed at every line, the old run or the new one is there."""

import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
from torch import nn

import fp16lab
import fp16lab.torch as lab
from fp16lab.torch import recording

PACKAGE = os.path.dirname(recording.__file__)


def watched(steps):
    model = nn.Linear(3, 2)
    with lab.watch(model, every=1) as w:
        for _ in range(steps):
            model(torch.ones(2, 3)).sum().backward()
            w.step(loss=1.0)
            w.evaluate(loss=1.0)
    return w


def at_event(wanted, strike, act):
    """Calls act(), and strike() before line or instruction `wanted` of it within the package; instructions count in
    `new_folder`, which moves folders. False: it has fewer."""
    seen = 0

    def trace(frame, event, _):
        nonlocal seen
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        frame.f_trace_opcodes = frame.f_code.co_name == "new_folder"
        if event == ("opcode" if frame.f_trace_opcodes else "line"):
            seen += 1
            if seen == wanted:
                sys.settrace(None)
                strike()
        return trace

    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(None)
    return seen >= wanted


def steps_at(path):
    """The steps of the whole run at `path`; 0: there is none."""
    if not path.exists():
        return 0
    run = fp16lab.load_run(path, "numpy")
    assert run.damage == [] and run.notes == []
    assert {"config.toml", "histograms.jsonl", "manifest.json"} <= set(os.listdir(path))
    return len(run.steps)


def interrupt():
    raise KeyboardInterrupt


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def interrupted(wanted, act):
    with contextlib.suppress(KeyboardInterrupt):
        return at_event(wanted, interrupt, act)
    return True


def killed(wanted, act):
    child = os.fork()
    if child == 0:
        at_event(wanted, kill, act)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("stopped", [interrupted, killed])
@pytest.mark.parametrize("what", ["save", "merge"])
def test_the_old_run_or_the_new_one_is_there(tmp_path, what, stopped):
    old, new = watched(1), watched(2)
    place, source = tmp_path / "place", new.save(tmp_path / "source")
    path = place / "mine"
    acts = {
        "save": lambda: new.save(path, replace=True),
        "merge": lambda: lab.merge([source], path, replace=True),
    }
    seen, wanted, more = set(), 0, True
    while more:
        wanted += 1
        old.save(path, replace=True)
        assert os.listdir(place) == ["mine"]  # what the last one left is gone
        more = stopped(wanted, acts[what])
        seen.add(steps_at(path))
    assert seen == {1, 2} and wanted > 60
    assert os.listdir(place) == ["mine"]


def test_a_failing_write_leaves_the_old_run(tmp_path):
    path = watched(1).save(tmp_path / "mine")

    def fails(target):
        Path(target).mkdir()
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        recording.new_folder(path, fails, True)
    assert steps_at(path) == 1 and os.listdir(tmp_path) == ["mine"]
    with pytest.raises(RuntimeError, match="other: File exists"):  # another process made it meanwhile
        recording.new_folder(tmp_path / "other", lambda target: [os.mkdir(each) for each in (target, tmp_path / "other")], False)
    assert sorted(os.listdir(tmp_path)) == ["mine", "other"]


@pytest.mark.parametrize("mask", [0o077, 0o002])
def test_all_files_honour_the_umask(tmp_path, mask):
    w = watched(2)
    before = os.umask(mask)
    try:
        made = [w.save(tmp_path / "deep/er/mine"), lab.merge([tmp_path / "deep/er/mine"], tmp_path / "merged")]
        table = recording_table(tmp_path / "table.csv")
    finally:
        os.umask(before)
    folders = [*made, tmp_path / "deep", tmp_path / "deep/er"]
    files = [table, *(file for folder in made for file in folder.iterdir())]
    assert len(files) >= 11
    for paths, mode in ((folders, 0o777), (files, 0o666)):
        for path in paths:
            assert path.stat().st_mode & 0o777 == mode & ~mask, path


def recording_table(path):
    from fp16lab.torch.tables import save_csv

    save_csv(path, ["a", "b"], [["x,y", 1]])
    assert path.read_text() == 'a,b\n"x,y",1\n'
    return save_csv(path, ["a", "b"], [["x", 1]])  # replaces it


def test_a_damaged_run_is_not_merged(tmp_path):
    runs = [watched(2).save(tmp_path / f"rank{i}") for i in range(2)]
    counts = (runs[1] / "histograms.jsonl").read_text()
    (runs[1] / "histograms.jsonl").write_text(counts.replace('"zero":0', '"zero":1', 1))
    with pytest.raises(ValueError, match=r"rank1 is damaged: histograms\.jsonl is not what the run wrote"):
        lab.merge(runs, tmp_path / "all")
    assert sorted(os.listdir(tmp_path)) == ["rank0", "rank1"]
