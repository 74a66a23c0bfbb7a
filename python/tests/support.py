"""What tests share: the program that the package carries, bit patterns, and a check of types."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fp16lab import program
from fp16lab.arrays import FORMATS

GOLDEN = Path(__file__).parents[2] / "tests" / "golden"
MODES = ("nearest_even", "toward_zero", "upward", "downward", "nearest_away")
TESTFLOAT_MODE = dict(zip(MODES, ("near_even", "minMag", "max", "min", "near_maxMag")))


def command(*arguments: str) -> str:
    """What the program says on stdout."""
    return subprocess.run([program.PATH, *arguments], capture_output=True, text=True, check=True).stdout


def filtered(lines: list[str], *arguments: str) -> list[str]:
    """The program as a filter, without the package's own way to call it."""
    done = subprocess.run(
        [program.PATH, *arguments], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def command_rounds(words: np.ndarray, from_format: str, to_format: str, mode: str) -> np.ndarray:
    """Codes of `to_format` by `fp16lab softfloat FROM_to_TO`."""
    digits = -(-FORMATS[from_format].width // 4)
    lines = [f"{word:0{digits}X}" for word in words.ravel().tolist()]
    answers = filtered(
        lines, "softfloat", f"{from_format}_to_{to_format}", "--rounding", TESTFLOAT_MODE[mode]
    )
    return np.array([int(answer.split(" ")[1], 16) for answer in answers], np.uint64).reshape(words.shape)


def float32_patterns() -> np.ndarray:
    """2**16 FP32 words: every upper half, with lower halves that are random, ties, and next to ties."""
    random = np.random.default_rng(1).integers(0, 1 << 16, 1 << 16, np.uint32)
    low = np.select(
        [np.arange(1 << 16) % 5 == i for i in range(4)],
        [np.uint32(0), np.uint32(0x8000), np.uint32(0x1000), np.uint32(1)],
        random,
    )
    return (np.arange(1 << 16, dtype=np.uint32) << 16) | low.astype(np.uint32)


def errors_of_types(folder: Path, *what: str) -> tuple[str, list[str]]:
    """What mypy says of `what`, else of the installed package, and its errors alone. `folder` gets its cache.

    Strict: every function of ours has types. Torch's classes and decorators have not all of theirs.
    """
    pytest.importorskip("mypy", reason="mypy is not installed")
    options = ["--strict", "--allow-any-generics", "--allow-untyped-calls", "--allow-untyped-decorators"]
    command = [sys.executable, "-P", "-m", "mypy", *options, "--ignore-missing-imports"]
    command += ["--cache-dir", str(folder / "mypy"), *(what or ("-p", "fp16lab"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert "checked" in done.stdout or "no issues" in done.stdout, done.stdout + done.stderr
    return done.stdout, [line for line in done.stdout.splitlines() if ": error: " in line]
