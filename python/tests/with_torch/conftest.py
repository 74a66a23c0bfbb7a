"""Tests of fp16lab.torch; each file skips itself where PyTorch is not installed."""

import pytest


@pytest.fixture(autouse=True)
def same_random_numbers():
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(1)
