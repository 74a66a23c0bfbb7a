"""lab.emulate on networks that were not written for it."""

from __future__ import annotations

import pytest
import torch
from product_oracle import Recorder, check
from ten_models import ten_models
from torch import nn

import fp16lab.torch as lab


@pytest.mark.parametrize("index", range(10), ids=[name for name, *_ in ten_models()])
def test_a_step_of_training(index):
    torch.manual_seed(5)
    name, network, inputs = ten_models()[index]
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    scaler = lab.GradScaler("torch", init_scale=256.0, device="cpu")
    recorder = Recorder()
    with lab.emulate("volta") as run, lab.op_stats(network) as whole, recorder:
        with lab.autocast(torch.float16):
            loss = network(*inputs).float().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    assert loss.isfinite() and all(
        p.grad is not None and p.grad.isfinite().all() for p in network.parameters()
    )
    assert run.total("native") == 0 and run.total("emulated") >= 5
    assert check(recorder.calls, "volta", samples=1) >= 5
    # Everything that ran is in op_stats: as many products, and as many of the rest.
    assert run.total("emulated") == sum(
        row[column]
        for row in whole.rows()
        for column in ("f16", "bf16", "f32", "f64")
        if row["op"] in PRODUCTS
    )


PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward"}


@pytest.mark.parametrize("index", range(10), ids=[name for name, *_ in ten_models()])
def test_close_to_fp32(index):
    """Half precision with a tensor core's sums is near FP32: a wrong transpose or stride would not be."""
    torch.manual_seed(5)
    name, network, inputs = ten_models()[index]
    network.eval()
    torch.manual_seed(7)
    expected = network(*inputs)
    torch.manual_seed(7)
    with lab.emulate("hopper"), lab.autocast(torch.float16):
        result = network(*inputs)
    scale = expected.abs().max()
    assert (result.float() - expected).abs().max() <= 0.02 * scale
