"""Tests of fp16lab.torch; each file skips itself where PyTorch is not installed."""

import os

import pytest

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no pool of processes beside those of the tests


@pytest.fixture(autouse=True)
def same_random_numbers():
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(1)
