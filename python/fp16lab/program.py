"""The program `fp16lab` that this package carries: its answers as text, byte for byte."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Sequence

import numpy as np

from . import _core
from .arrays import codes_of

PATH = Path(__file__).parent / "bin" / "fp16lab"


class Text(str):
    """A command's answer; in a terminal or a notebook it is shown as it is."""

    def __repr__(self) -> str:
        return str(self)


class ProgramError(RuntimeError):
    """The program ended with another exit code than 0; the message is its own.

    exit_code: as `fp16lab --help` explains.
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def run(*arguments: str | os.PathLike[str], input: str | None = None) -> Text:
    """`fp16lab ARGUMENTS`: what it writes to stdout.

    Errors: ValueError with the program's own line where the arguments are wrong (exit code 2), ProgramError
    otherwise.

    >>> from fp16lab import program
    >>> program.run("mma", "--model", "hopper", input="3c00\\t3c00\\t3f800000\\n").split()
    ['3c00', '3c00', '3f800000', '40000000']
    """
    done = subprocess.run(
        [os.fspath(part) for part in (PATH, *arguments)],
        input=input,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return Text(done.stdout)
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    message = lines[-1] if lines else f"fp16lab {arguments[0]} ended with exit code {done.returncode}"
    if done.returncode == 2:
        raise ValueError(message)
    raise ProgramError(message, done.returncode)


def main() -> None:
    """The console script: becomes the program, under the name by which shells find it."""
    os.execv(PATH, ["fp16lab", *sys.argv[1:]])


def inspect(
    *values: Any,
    format: str | Sequence[str] = (),
    mode: str | Sequence[str] = (),
    json: bool = False,
    long: bool = False,
) -> Text:
    """Numbers in every format: bits, number, error; of one format, or with `long`, fields and neighbours.

    values: numbers of Python (the decimal that is shown), of numpy or ml_dtypes (these very bits), or text as
    the command takes it: "2^-24", "f16:0x3c00", "6,10:0x1234". format, mode: only these, as --format and
    --rounding. long: every rounding too. json: JSON instead of text, in full. Errors: ValueError. The answer
    is that of `fp16lab inspect`.

    >>> import fp16lab
    >>> print(fp16lab.inspect(0.1, format="f16", mode="upward").splitlines()[2])
      FP16 0x2e67 = 0.10003662109  error +3.662109e-05 = +0.6 ulp  [inexact]
    """
    arguments = ["inspect", *map(_as_value, values)]
    for option, chosen in (("--format", format), ("--rounding", mode)):
        for choice in [chosen] if isinstance(chosen, str) else chosen:
            arguments += [option, choice.upper() if option == "--format" else choice]
    return run(*arguments, *(["--json"] if json else []), *(["--long"] if long else []))


def _as_value(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, (bool, np.generic)):
        return repr(value)
    codes = codes_of(value, "the value")
    if codes.words.size != 1:
        raise ValueError(
            f"a value has shape {codes.words.shape}; one number each is needed: inspect(*x.ravel())"
        )
    return f"{codes.format}:0x{int(codes.words.reshape(())):0{2 * codes.words.itemsize}x}"


def replay(
    run_folder: Any,
    policies: str | Sequence[str] = (),
    interval: int | None = None,
    settings: dict[str, float] | None = None,
    steps: str = "all",
    out: str | os.PathLike[str] | None = None,
    json: bool = False,
) -> Text:
    """What every loss-scale policy would have done on a recorded run, and what it would have cost.

    run_folder: a path, or what load_run gave. policies: only these. interval: longer growth intervals become
    so many steps. settings: {"torch.growth_interval": 20, "scaler.initial_scale": 4}. steps: "all" or
    "recorded". out: a folder for replay.json, tables and a figure. The answer is that of `fp16lab replay`;
    its --help says what a replay is not.
    Errors: ValueError, ProgramError.
    """
    arguments = ["replay", os.fspath(run_folder), "--steps", steps]
    for policy in [policies] if isinstance(policies, str) else policies:
        arguments += ["--policy", policy]
    if interval is not None:
        arguments += ["--interval", str(interval)]
    for name, value in (settings or {}).items():
        arguments += ["--set", f"{name}={value!r}"]
    if out is not None:
        arguments += ["--out", os.fspath(out)]
    return run(*arguments, *(["--json"] if json else []))


def report(
    folders: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    file: str | os.PathLike[str],
    mix_builds: bool = False,
) -> Path:
    """One offline page of run folders, sweeps and replays: the report.html of `fp16lab report`, as `file`.

    The file is replaced as a whole, or left as it was. Gives its path. Errors: ValueError, ProgramError.
    """
    target = Path(file)
    if not target.parent.is_dir():
        raise ValueError(f"there is no folder {target.parent} for {target.name}")
    chosen = [folders] if isinstance(folders, (str, os.PathLike)) else list(folders)
    with tempfile.TemporaryDirectory(prefix="fp16lab-report-") as work:
        run("report", *chosen, "--out", work, *(["--mix-builds"] if mix_builds else []))
        _core.write_file_atomically(os.fspath(target), (Path(work) / "report.html").read_bytes())
    return target
