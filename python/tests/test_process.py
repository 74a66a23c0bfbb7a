"""What a process may do around the kernels: another floating-point mode, threads, fork."""

from __future__ import annotations

import ctypes
import ctypes.util
import multiprocessing
import os
import struct
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from support import float32_patterns

import fp16lab

_libm = ctypes.CDLL(ctypes.util.find_library("m"))
FTZ, DAZ, DOWNWARD = 0x8000, 0x0040, 0x2000


class Mode:
    """This thread's floating-point mode (fegetenv of glibc on x86-64: MXCSR is the last of 8 words)."""

    def __init__(self, bits: int):
        self.bits = bits

    @staticmethod
    def get() -> int:
        environment = (ctypes.c_uint32 * 8)()
        assert _libm.fegetenv(environment) == 0
        return environment[7] & ~0x3F  # without the exception flags

    @staticmethod
    def set(mxcsr: int) -> None:
        environment = (ctypes.c_uint32 * 8)()
        _libm.fegetenv(environment)
        environment[7] = mxcsr
        assert _libm.fesetenv(environment) == 0

    def __enter__(self) -> None:
        self.found = self.get()
        self.set(self.found | self.bits)

    def __exit__(self, *_) -> None:
        self.set(self.found)


def everything(threads: int) -> list[bytes]:
    """Answers in which every subnormal shows."""
    x = float32_patterns().view(np.float32)
    half = np.arange(1 << 16, dtype=np.uint16).view(np.float16)[: 1 << 15].reshape(128, 256)
    finite = (
        np.where((half.view("u2") & 0x7C00) != 0x7C00, half.view("u2"), 1).astype(np.uint16).view(np.float16)
    )
    answers = []
    for format in ("f16", "bf16", "tf32", "e4m3", "e5m2", (6, 10)):
        answers.append(fp16lab.round(x, format, out="bits", threads=threads))
        answers.append(fp16lab.round(x, format, "upward", threads=threads))
        answers.append(fp16lab.round(x, format, "stochastic", seed=1, threads=threads))
    answers.append(fp16lab.matmul(finite[:16], finite[16:32].T, "volta", out="f32", threads=threads))
    answers.append(fp16lab.matmul(finite[:16], finite[16:32].T, "ampere", "f16", threads=threads))
    answers.append(fp16lab.matmul(TINY, np.eye(4, dtype=np.float32), c=TINY, threads=threads))
    tiny = (np.arange(1 << 15, dtype=np.uint32) << 9).view(np.float32).reshape(128, 256)  # to 2**-125
    answers.append(fp16lab.random_hadamard(tiny, 16, threads=threads))
    lost = []
    for name in ("mxfp8", "nvfp4", "fp8-1x128"):
        q = fp16lab.quantize(tiny, name, threads=threads)
        across = fp16lab.quantize(tiny.T, name, axis=-2, threads=threads)
        product = fp16lab.quantized_matmul(q, across, threads=threads)
        answers += [q.codes, q.scales, q.headroom, q.dequantize(threads), product]
        lost.append(f"{q.tensor_scale} {q.changed(tiny, threads)}")
    history = fp16lab.AmaxHistory("e4m3")
    history.see(2.0**-130 * 448)  # the scale is subnormal
    lost.append(str(history.scale))
    counts = fp16lab.histogram(x, threads=threads)
    answers.append(counts.bins)
    zones = [
        str(counts.zones(scale, format)) for scale in (2.0**-100, 1.0, 3.0) for format in ("f16", "bf16")
    ]
    dot = fp16lab.explain(finite[3], finite[5], 0.0)
    order = fp16lab.reveal(lambda t: fp16lab.matmul(t.astype("f4"), np.ones(12, "f4"), "ampere"), 12)
    policy = fp16lab.Policy(
        "torch", initial_scale=2.0**-126, growth_interval=1, growth_factor=1.1, backoff_factor=0.7
    )
    for found_inf in (True, True, False, False):
        policy.update(found_inf)
    extremes = struct.pack("<dd", counts.smallest, counts.greatest).hex()
    told = str(fp16lab.compare(x, fp16lab.round(x, "e5m2"), scale_b=3.0))
    texts = [*zones, *lost, extremes, told, order.text, str(counts.suggest_scale("f16")), str(dot), repr(policy.state)]
    return [np.ascontiguousarray(answer).tobytes() for answer in answers] + [text.encode() for text in texts]


TINY = np.full((4, 4), 1 << 9, np.uint32).view(np.float32)  # 2**-140


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("bits", [FTZ, DAZ, FTZ | DAZ, DOWNWARD, FTZ | DAZ | DOWNWARD])
def test_the_callers_mode_changes_no_bit_and_stays(bits, threads):
    expected = everything(threads)
    subnormal = np.array([1], np.uint32).view(np.float32)
    with Mode(bits):
        before = Mode.get()
        assert before & bits == bits
        if bits & DAZ:
            assert (subnormal + subnormal)[0] == 0  # the mode is on
        ours = everything(threads)
        after = Mode.get()
    assert after == before
    assert ours == expected


def test_workers_that_were_hired_in_another_mode():
    """Threads begin in the mode of the thread that makes them."""

    expected = b"".join(everything(1))
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=_hires_in_another_mode, args=(sender,))
    process.start()
    assert receiver.poll(60), "the child does not answer"
    assert receiver.recv_bytes() == expected
    process.join(60)
    assert process.exitcode == 0


def _hires_in_another_mode(pipe) -> None:
    with Mode(FTZ | DAZ | DOWNWARD):
        pipe.send_bytes(b"".join(everything(3)))


def test_threads_change_no_bit():
    one = everything(1)
    for threads in (2, 3, 8, 64):
        assert everything(threads) == one
    assert everything(None) == one


def test_the_interpreter_runs_while_a_kernel_does():
    """A thread counts while another one multiplies: the lock is free for most of the product's time."""
    x = np.random.default_rng(1).standard_normal((768, 768)).astype(np.float16)
    counter, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            counter[0] += 1
            time.sleep(0)

    fp16lab.matmul(x[:64], x, threads=1)
    thread = threading.Thread(target=count)
    thread.start()
    try:
        seen = []
        for _ in range(3):
            before = counter[0]
            fp16lab.matmul(x, x, threads=1)
            seen.append(counter[0] - before)
    finally:
        stop.set()
        thread.join()
    # With the lock held, at most a few turns before and after each call.
    assert max(seen) > 50, seen


def test_calls_of_many_threads_at_once_have_the_same_bits():
    random = np.random.default_rng(5)
    a, b = (random.standard_normal((96, 96)).astype(np.float16) for _ in range(2))
    x = random.standard_normal(1 << 19).astype(np.float32)
    product, rounded, counts = fp16lab.matmul(a, b), fp16lab.round(x, "bf16"), fp16lab.histogram(x)
    wrong = []

    def work():
        for _ in range(5):
            if not (
                np.array_equal(fp16lab.matmul(a, b, threads=2), product)
                and np.array_equal(fp16lab.round(x, "bf16", threads=2), rounded)
                and fp16lab.histogram(x, threads=2) == counts
            ):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def _in_child(pipe, a) -> None:
    pipe.send_bytes(fp16lab.matmul(a, a, threads=4).tobytes())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_computes_after_its_parent_did():
    """A data loader's worker: the parent's threads are not there, and the child goes on without them."""
    a = np.random.default_rng(3).standard_normal((256, 256)).astype(np.float16)
    expected = fp16lab.matmul(a, a, threads=4).tobytes()
    context = multiprocessing.get_context("fork")
    for _ in range(3):
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=_in_child, args=(sender, a))
        child.start()
        answered = receiver.poll(60)
        if not answered:
            child.kill()
        assert answered, "the child hangs"
        assert receiver.recv_bytes() == expected
        child.join(60)
        assert child.exitcode == 0
        assert fp16lab.matmul(a, a, threads=4).tobytes() == expected


def test_one_openmp_at_most():
    """No runtime of threads comes with the module: nothing to hang in a child, nothing to meet torch's."""
    with open(f"/proc/{os.getpid()}/maps") as maps:
        libraries = {line.split()[-1] for line in maps if ".so" in line}
    assert not any("libiomp" in name or "libomp" in name for name in libraries)
    assert len({name for name in libraries if "libgomp" in name}) <= 1, libraries


def test_files_never_get_the_descriptors_of_closed_standard_streams(tmp_path):
    """Python is started without stdin, stdout and stderr: what opens a file after the import gets another number."""
    code = "import fp16lab, os; os._exit(os.open('file', os.O_CREAT | os.O_WRONLY))"
    closed = subprocess.run(
        ["/bin/sh", "-c", 'exec "$0" -c "$1" <&- >&- 2>&-', sys.executable, code], cwd=tmp_path, check=False
    )
    assert closed.returncode > 2
