import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'fp16lab[torch]'")
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def same_random_numbers():
    torch.manual_seed(1)
