"""lab.autocast around whole networks: layers' dtypes, recurrent, compiled and inferring networks."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.utils._pytree import tree_leaves

import fp16lab.torch as lab
from autocast_calls import Seen, cuda_autocast

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32


def cells():
    yield nn.LSTM(4, 5, num_layers=2, bidirectional=True), (6, 2, 4)
    yield nn.LSTM(4, 5, proj_size=3, batch_first=True), (2, 6, 4)
    yield nn.GRU(4, 5, num_layers=2, dropout=0.5), (6, 2, 4)
    yield nn.RNN(4, 5, nonlinearity="relu", bias=False), (6, 2, 4)
    yield nn.RNN(4, 5), (6, 4)


@pytest.mark.parametrize("index", range(5))
def test_recurrent_networks(index):
    torch.manual_seed(1)
    model, shape = list(cells())[index]
    for dtype in (F16, BF16):
        x = torch.rand(shape, requires_grad=True)
        with lab.op_stats() as stats:
            with lab.autocast(dtype):
                out, states = model(x)
            out.float().pow(2).sum().backward()
        tensors = [out, *(states if isinstance(states, tuple) else [states])]
        assert {t.dtype for t in tensors} == {F16}  # cuDNN's under BF16, too
        assert stats.total("mm", "f16") > 2
        assert not stats.total("mm", "bf16") + stats.total("mm", "f32")
        assert all(p.grad.dtype is F32 and p.grad.abs().sum() > 0 for p in model.parameters())
        if not model.dropout:
            torch.testing.assert_close(out.float(), model(x)[0], rtol=0, atol=5e-3)
    assert torch.backends.mkldnn.enabled


def test_packed_sequences_and_single_cells():
    torch.manual_seed(1)
    packed = nn.utils.rnn.pack_padded_sequence(torch.rand(6, 2, 4), [6, 4])
    with lab.autocast(F16):
        for model in (nn.LSTM(4, 5), nn.GRU(4, 5)):
            out, _ = model(packed)
            assert out.data.dtype is F16
        for cell in (nn.LSTMCell(4, 5), nn.GRUCell(4, 5), nn.RNNCell(4, 5)):
            state = cell(torch.rand(2, 4))
            assert (state[0] if isinstance(state, tuple) else state).dtype is F16


def test_recurrent_networks_are_no_operation_of_onednns():
    """Which some processors have in FP16 and most have not: the same operations run everywhere."""

    class Watching(Seen):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            onednn.add(torch.backends.mkldnn.enabled)
            return super().__torch_dispatch__(func, types, args, kwargs)

    model, x, onednn = nn.LSTM(4, 5), torch.rand(6, 2, 4), set()
    states = torch.zeros(2, 1, 2, 5).unbind()
    with lab.autocast(F16), Watching() as seen:
        model(x, states)
    assert onednn == {False} and [name for name, _ in seen.kernels].count("addmm") == 7


def test_lstm_by_the_cpus_lists_runs_or_ends_with_what_would_be_right():
    model, x = nn.LSTM(4, 5), torch.rand(6, 2, 4)
    try:
        with lab.autocast(F16, lists="cpu"):
            assert model(x)[0].dtype is F16
    except RuntimeError as error:
        assert str(error).startswith("oneDNN has no nn.LSTM in torch.float16 on this processor: use lab.")
    with lab.autocast(F16, lists="cpu"), torch.backends.mkldnn.flags(enabled=False):
        assert model(x)[0].isfinite().all()


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out, self.norm = nn.Linear(8, 24), nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        weights = (torch.einsum("bik,bjk->bij", q, k) / 8**0.5).softmax(-1)
        return x + self.out(weights @ v)


def networks():
    pooled = nn.Sequential(nn.BatchNorm2d(4), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten())
    yield nn.Sequential(nn.Conv2d(1, 4, 3), pooled, nn.Linear(36, 3))
    attention = nn.Sequential(Attention(), nn.GELU(), nn.RMSNorm(8), nn.Softplus())
    yield nn.Sequential(nn.Flatten(1, 2), attention, nn.Linear(8, 3))
    grown = nn.Sequential(nn.GroupNorm(2, 4), nn.PReLU(), nn.Upsample(scale_factor=2), nn.SiLU())
    yield nn.Sequential(nn.ConvTranspose2d(1, 4, 2), grown)
    encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    yield nn.Sequential(nn.Flatten(1, 2), encoder, nn.LogSoftmax(-1))


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("index", range(4))
def test_every_layer_of_a_network_has_the_dtype_that_it_has_on_cuda(index, train):
    def dtypes(device, scope):
        with torch.device(device):
            model, found = list(networks())[index].train(train), []
        for name, layer in model.named_modules():
            layer.register_forward_hook(
                lambda _, __, out, name=name: found.append((name, tree_leaves(out)[0].dtype))
            )
        with scope, torch.set_grad_enabled(train):
            y = model(torch.rand(2, 1, 8, 8, device=device))
            loss = y.sum() + nn.functional.mse_loss(y, torch.zeros_like(y)) + y.norm() + y.mean()
        return found + [("loss", loss.dtype)]

    for dtype in (F16, BF16):
        with FakeTensorMode():
            wanted = dtypes("cuda", cuda_autocast(dtype))
        assert dtypes("cpu", lab.autocast(dtype)) == wanted


def test_compiled_networks_run_as_they_are_written():
    torch._dynamo.reset()
    network = torch.compile(lambda x: (x @ x).softmax(-1), backend="aot_eager")
    x = torch.rand(2, 2)
    for _ in range(2):
        with torch.autocast("cpu", F16):
            assert network(x).dtype is F16
        with lab.autocast(F16):
            assert network(x).dtype is F32
    torch._dynamo.reset()


def test_inference_mode():
    """With parameters made inside of it as well, which count no versions."""
    made = nn.Sequential(nn.Linear(4, 4), nn.LSTMCell(4, 4))
    with torch.inference_mode(), lab.autocast(F16):
        for model in (made, nn.Sequential(nn.Linear(4, 4), nn.LSTMCell(4, 4))):
            hidden, cell = model(torch.rand(3, 4))
            assert hidden.dtype is cell.dtype is F16 and hidden.softmax(-1).dtype is F32
