"""What a model says about "cuda" means the CPU tensors of lab.autocast: beside CUDA's own autocast, on tensors of the
device "cuda" without memory."""

from __future__ import annotations

import warnings
from random import Random
from typing import Any

import pytest
import torch
from autocast_calls import cuda_autocast
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.amp import custom_bwd, custom_fwd
from torch.utils.checkpoint import checkpoint

import fp16lab.torch as lab

pytestmark = pytest.mark.filterwarnings("ignore")
F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32
seen: list[Any] = []


class CastsToFp32(torch.autograd.Function):
    @staticmethod
    @custom_fwd(device_type="cuda", cast_inputs=F32)
    def forward(ctx, x):
        seen.append((x.dtype, torch.is_autocast_enabled("cuda"), (x @ x).dtype))
        return x * 1

    @staticmethod
    @custom_bwd(device_type="cuda")
    def backward(ctx, gradient):
        seen.append(("backward", torch.is_autocast_enabled("cuda"), (gradient @ gradient).dtype))
        return gradient


class KeepsAutocast(CastsToFp32):
    @staticmethod
    @custom_fwd(device_type="cuda")
    def forward(ctx, x):
        seen.append((x.dtype, torch.is_autocast_enabled("cuda"), (x @ x).dtype))
        return x * 1


@torch.autocast("cuda", enabled=False)
def decorated(x):
    return (x @ x).dtype


def observe(device: str) -> None:
    x = torch.ones(2, 2, device=device)
    seen.append((x @ x).dtype)
    seen.append(torch.softmax(x.half(), -1).dtype)
    seen.append((torch.is_autocast_enabled("cuda"), torch.is_autocast_enabled()))
    seen.append((torch.get_autocast_dtype("cuda"), torch.get_autocast_gpu_dtype()))
    seen.append(decorated(x))
    for function in (CastsToFp32, KeepsAutocast):
        seen.append(function.apply(x.half()).dtype)


def program(random: Random, device: str, depth: int) -> None:
    """Islands in islands."""
    observe(device)
    for _ in range(random.randint(0, 2) if depth else 0):
        island = random.choice(
            [
                lambda: torch.autocast("cuda", enabled=False),
                lambda: torch.autocast("cuda"),
                lambda: torch.autocast("cuda", BF16),
                lambda: torch.autocast(device_type="cuda", dtype=F16, cache_enabled=False),
                lambda: torch.cuda.amp.autocast(enabled=False),
                lambda: torch.cuda.amp.autocast(dtype=BF16),
            ]
        )
        with island():
            program(random, device, depth - 1)
            observe(device)
    observe(device)


@pytest.fixture
def as_with_a_gpu(monkeypatch):
    """torch.autocast("cuda") of fake tensors switches on."""
    monkeypatch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *_: True)


@pytest.mark.parametrize("dtype", [F16, BF16])
@pytest.mark.parametrize("seed", range(12))
def test_islands_and_functions_do_what_they_do_on_a_gpu(seed, dtype, as_with_a_gpu):
    found = []
    for device, scope in (("cpu", lambda: lab.autocast("cuda", dtype)), ("cuda", lambda: cuda_autocast(dtype))):
        seen.clear()
        if device == "cuda":
            with FakeTensorMode(), scope():
                program(Random(seed), device, 3)
        else:
            with scope():
                program(Random(seed), device, 3)
        found.append(list(seen))
    assert found[0] == found[1]
    assert not torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") is F16


def test_backward_passes_are_in_the_autocast_of_their_forward_pass():
    weight = nn.Parameter(torch.ones(2, 2))
    with lab.autocast("cuda", F16):
        results = [CastsToFp32.apply(weight @ weight), KeepsAutocast.apply(weight @ weight)]
    seen.clear()
    sum(result.float().sum() for result in results).backward()
    assert sorted(seen, key=str) == [("backward", False, F32), ("backward", True, F16)]


def test_no_warning_and_no_trace_is_left():
    before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda"), torch.is_autocast_enabled("cpu")
    network = nn.Linear(2, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with lab.autocast("cuda", F16), torch.autocast("cuda", BF16):
            y = checkpoint(network, torch.ones(2, 2, requires_grad=True), use_reentrant=False)
        y.sum().backward()
    after = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda"), torch.is_autocast_enabled("cpu")
    assert before == after
    scripted = torch.jit.script(nn.TransformerEncoderLayer(8, 2, 16).eval())  # asks torch.is_autocast_enabled()
    assert scripted(torch.ones(1, 3, 8)).shape == (1, 3, 8)
    compiled = torch.compile(lambda x: (x * 2, torch.is_autocast_enabled("cuda")), backend="eager", fullgraph=True)
    assert compiled(torch.ones(2))[1] is False


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_torchs_warning_names_the_users_line():
    with lab.autocast(F16):
        pass
    with pytest.warns(UserWarning, match="^CUDA is not available") as told:
        switched_off = torch.autocast("cuda", F16)
    assert [each.filename for each in told] == [__file__] and not switched_off._enabled


@pytest.mark.parametrize(
    "given",
    [
        lambda: lab.autocast("cuda", BF16),
        lambda: lab.autocast(device_type="cuda", dtype=BF16),
        lambda: lab.autocast(BF16),
        lambda: lab.autocast(BF16, "cuda"),
        lambda: lab.autocast(BF16, lists="cuda"),
        lambda: lab.autocast("cuda", BF16, True, False),
    ],
)
def test_takes_the_arguments_of_torch_autocast(given):
    x = torch.ones(2, 2)
    with given():
        assert (x @ x).dtype is BF16 and (x @ x).softmax(-1).dtype is F32
    with lab.autocast("cuda", enabled=False):
        assert (x @ x).dtype is F32
    with pytest.raises(ValueError, match="are two; one is needed"):
        lab.autocast("cuda", lists="cpu")
    with pytest.raises(ValueError, match="dtype 'float16' is not torch.float16"):
        lab.autocast("cuda", "float16")


def test_says_where_it_has_no_effect():
    with FakeTensorMode(), pytest.warns(UserWarning, match="these are on cuda:0, where it has no effect") as told:
        for _ in range(2):
            with lab.autocast():
                nn.ReLU()(torch.ones(2, device="cuda"))
                nn.ReLU()(torch.ones(2, device="cuda"))
    assert len(told) == 2  # once a scope


def test_emulate_says_which_switches_it_does_not_follow():
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_fp16_accumulation, matmul.fp32_precision
    try:
        matmul.allow_fp16_accumulation, matmul.fp32_precision = True, "tf32"
        with pytest.warns(UserWarning) as told, lab.emulate("ampere"):
            pass
        assert [str(each.message).split()[0].rpartition(".")[2] for each in told] == [
            "allow_fp16_accumulation",
            "fp32_precision",
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with lab.emulate("ampere", accumulator="f16", f32="tf32"):
                pass
    finally:
        matmul.allow_fp16_accumulation, matmul.fp32_precision = before
