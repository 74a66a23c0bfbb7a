"""lab.autocast in a training: scopes, gradients, and what a backward pass computes again."""

import threading

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.utils.checkpoint import checkpoint

import fp16lab.torch as lab
from autocast_calls import Seen, cuda_autocast
from fp16lab.torch import autocast_kernels
from fp16lab.torch.autocast_scopes import thread

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32


def lists():
    """Whose lists count here: CUDA's take softmax to FP32, the CPU's leave it in 16 bits."""
    x = torch.ones(2, 2)
    dtype = torch.get_autocast_dtype("cpu")
    if (x @ x).dtype is F32:
        return "off"
    return {F32: "cuda", dtype: "cpu"}[x.to(dtype).softmax(-1).dtype]


class Block(nn.Module):
    """Operations that CUDA's lists and the CPU's treat differently, and a parameter that is used twice."""

    def __init__(self, size=4):
        super().__init__()
        self.weight, self.norm = nn.Parameter(torch.randn(size, size)), nn.LayerNorm(size)

    def forward(self, x):
        twice = torch.einsum("ij,jk->ik", x, self.weight) + torch.einsum("ij,jk->ik", x * 2, self.weight)
        return self.norm(twice).softmax(-1) + torch.mv(x, self.weight[0])[:, None]


def gradients(model, forward=None):
    """Gradients of the parameters and the input, after a step at a loss scale that matters in FP16."""
    model.zero_grad()
    x = torch.rand(3, 4, generator=torch.Generator().manual_seed(2), requires_grad=True)
    with lab.autocast(F16):
        y = (forward or model)(x)
    (y.float() ** 2).sum().mul(1 / 64).backward()
    return [p.grad.clone() for p in model.parameters()] + [x.grad]


# ---- scopes ----


def test_scopes_nest_as_torch_autocast_does_and_lists_are_the_innermost_ones():
    assert lists() == "off" and not torch.is_autocast_enabled("cpu")
    with lab.autocast(F16):
        assert lists() == "cuda" and torch.is_autocast_enabled("cpu")
        assert torch.get_autocast_dtype("cpu") is F16
        with torch.autocast("cpu", BF16):
            assert lists() == "cuda" and torch.get_autocast_dtype("cpu") is BF16
        with torch.autocast("cpu", enabled=False):
            assert lists() == "off"
            with lab.autocast(BF16, lists="cpu"):
                assert lists() == "cpu"
                with lab.autocast():
                    assert lists() == "cuda"
                with lab.autocast(enabled=False):
                    assert lists() == "off"
                assert lists() == "cpu"
        assert lists() == "cuda" and torch.get_autocast_dtype("cpu") is F16
    assert lists() == "off"
    with torch.autocast("cpu", F16):
        assert lists() == "cpu"
        with lab.autocast(F16):
            assert lists() == "cuda"
        assert lists() == "cpu"


def test_exceptions_end_scopes():
    with pytest.raises(ZeroDivisionError), lab.autocast(F16), lab.autocast(BF16):
        _ = 1 / 0
    assert lists() == "off" and torch.backends.mha.get_fastpath_enabled()
    with pytest.raises(RuntimeError, match="unsafe to autocast"), lab.autocast():
        nn.functional.binary_cross_entropy(torch.rand(3), torch.rand(3))
    with lab.autocast(F16):
        with pytest.raises(RuntimeError, match="cannot promote torch.bfloat16"):
            torch.dot(torch.rand(3, dtype=BF16), torch.rand(3, dtype=BF16))
        assert lists() == "cuda"


def test_it_decorates_functions_that_call_themselves():
    @lab.autocast(F16)
    def deep(n):
        """Whose lists count, n calls deep."""
        inner = deep(n - 1) if n else []
        return inner + [lists()]

    assert deep.__name__ == "deep" and deep.__doc__.startswith("Whose")
    assert deep(2) == ["cuda"] * 3
    assert lists() == "off"


def test_other_threads_keep_their_lists():
    found = {}
    inside, done = threading.Event(), threading.Event()

    def other():
        with torch.autocast("cpu", F16):
            inside.wait()
            found["torch"] = lists()
        found["none"] = lists()
        with lab.autocast(F16):
            found["lab"] = lists()
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    with lab.autocast(F16):
        inside.set()
        done.wait()
        assert lists() == "cuda"
        assert not torch.backends.mha.get_fastpath_enabled()
    thread.join()
    assert found == {"torch": "cpu", "none": "off", "lab": "cuda"}


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"dtype": F32}, r"dtype torch.float32 is not torch.float16 or torch.bfloat16"),
        ({"lists": "gpu"}, r"lists='gpu' is not \"cuda\" or \"cpu\""),
    ],
)
def test_wrong_arguments_in_one_line(wrong, message):
    with pytest.raises(ValueError, match=message):
        lab.autocast(**wrong)


def test_an_operation_that_only_pytorch_lists_is_an_error(monkeypatch):
    """A later PyTorch may list more: nothing runs in an unchecked dtype."""
    monkeypatch.delitem(autocast_kernels.CUDA_POLICIES, "aten::exp")
    kernel, keys = autocast_kernels._kernel("aten::exp"), torch._C._dispatch_keyset_full()
    refused = pytest.raises(NotImplementedError, match="aten.exp.default.*a row is missing in .*py")
    with lab.autocast(), refused:
        kernel(keys, torch.ones(2))


# ---- gradients ----


def test_a_parameters_cast_is_made_once_and_its_gradients_add_up_in_16_bits():
    w = nn.Parameter(torch.ones(1, 1))
    x, y = torch.tensor([[1.0]]), torch.tensor([[2.0**-12]])
    for cached in (True, False):
        w.grad = None
        with lab.autocast(F16, cache_enabled=cached), Seen(), lab.op_stats() as stats:
            z = torch.einsum("ij,jk->ik", x, w) + torch.einsum("ij,jk->ik", y, w)
        z.backward()
        assert stats.total("cast", "f16") == (3 if cached else 4)  # x, y, w once or twice
        # 1 + 2^-12 is no FP16 number: it needs the sum of two casts back to FP32.
        assert w.grad.item() == (1 if cached else 1 + 2**-12) and w.grad.dtype is F32
    assert not thread.casts


def test_casts_are_kept_of_what_pytorch_keeps_them_of():
    """autocast keeps casts of parameters, not of a leaf that is a view, as the gradients of products show."""
    x, y = torch.tensor([[1.0]]), torch.tensor([[2.0**-12]])
    products = [torch.matmul, lambda a, b: torch.einsum("ij,jk->ik", a, b)]  # PyTorch's kernel, and ours
    for leaf, wanted in ((torch.ones(1, 1), 1), (torch.ones(1).view(1, 1), 1 + 2**-12)):
        leaf.requires_grad_()
        for product in products:
            leaf.grad = None
            with lab.autocast(F16):
                z = product(x, leaf) + product(y, leaf)
            z.backward()
            assert leaf.grad.item() == wanted


def test_a_cast_without_gradients_or_from_before_a_change_serves_no_later_use():
    w = nn.Parameter(torch.ones(2, 2))
    with lab.autocast(F16):
        with torch.no_grad():
            before = torch.mv(w, torch.ones(2))
        torch.mv(w, torch.ones(2)).sum().backward()
        with torch.no_grad():
            w.mul_(2)
            after = torch.mv(w, torch.ones(2))
    assert torch.equal(w.grad, torch.ones(2, 2)) and torch.equal(after, 2 * before)


@pytest.mark.parametrize("dtype", [F16, BF16])
def test_a_training_with_a_grad_scaler(dtype):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.GELU(), nn.Flatten(), nn.Linear(144, 4))
    optimizer, scaler = torch.optim.Adam(model.parameters(), lr=0.01), lab.GradScaler("torch", device="cpu")
    x = torch.randn(64, 1, 8, 8)
    labels = x.view(64, 4, 16).sum(2).argmax(1)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        with lab.autocast(dtype):
            y = model(x)
            loss = nn.functional.cross_entropy(y, labels)
        assert y.dtype is dtype and loss.dtype is F32
        scaler.scale(loss).backward()
        assert all(p.grad.dtype is F32 for p in model.parameters())
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]


def test_double_backward():
    torch.manual_seed(1)
    model, x = Block(), torch.rand(3, 4, requires_grad=True)
    with lab.autocast(F16), lab.op_stats() as stats:
        (slope,) = torch.autograd.grad(model(x).pow(2).sum(), x, create_graph=True)
        slope.pow(2).sum().backward()
    exact = Block().double()
    exact.load_state_dict(model.state_dict())
    z = x.detach().double().requires_grad_()
    (slope,) = torch.autograd.grad(exact(z).pow(2).sum(), z, create_graph=True)
    slope.pow(2).sum().backward()
    assert x.grad.dtype is F32 and stats.total("bmm", "f16") > 2
    assert torch.allclose(x.grad.double(), z.grad, rtol=0, atol=0.02 * z.grad.abs().max())


@pytest.mark.parametrize("of", ["vmap", "jacrev"])
def test_transforms_of_functions_meet_the_kernels(of):
    """With dtypes that CUDA's autocast has under them as well."""
    functions = {"exp": torch.exp, "norm": lambda r: nn.functional.layer_norm(r, (4,)), "sum": torch.sum}
    for name, function in functions.items():
        with lab.autocast(F16):
            got = getattr(torch.func, of)(function)(torch.rand(3, 4).half()[0 if of == "jacrev" else ...])
        if of == "vmap":
            with FakeTensorMode(), cuda_autocast(F16):
                wanted = torch.func.vmap(function)(torch.rand(3, 4, device="cuda", dtype=F16))
            assert got.dtype is wanted.dtype is F32, name
        assert got.isfinite().all(), name


# ---- forward again, in the backward pass ----


@pytest.mark.filterwarnings("ignore:None of the inputs")
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("depth", [1, 2])
def test_checkpoints_compute_again_under_the_lists_of_the_first_time(reentrant, depth):
    torch.manual_seed(1)
    model = Block()
    plain = gradients(model)

    def again(x, depth=depth):
        if depth:
            return checkpoint(again, x, depth - 1, use_reentrant=reentrant)
        return model(x)

    assert all(map(torch.equal, gradients(model, again), plain))
    with lab.autocast(F16):  # begins with no casts of before
        assert not thread.casts
    # The other way round: what ran under the CPU's lists does so again, after scopes with CUDA's.
    seen = []

    def watched(x):
        seen.append(lists())
        return x @ x

    x = torch.rand(2, 2, requires_grad=True)
    with torch.autocast("cpu", F16):
        y = checkpoint(watched, x, use_reentrant=reentrant)
    gradients(model, again)
    y.float().sum().backward()
    assert seen == ["cpu", "cpu"]


def test_a_backward_pass_in_the_scope():
    torch.manual_seed(1)
    model, x = Block(), torch.rand(3, 4)
    with lab.autocast(F16):
        y = checkpoint(model, x, use_reentrant=False)
        y.float().sum().backward()
    assert model.weight.grad.isfinite().all()


def test_functions_with_custom_fwd_go_back_under_their_lists():
    seen = []

    class Twice(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cpu")
        def forward(ctx, x):
            seen.append(lists())
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="cpu")
        def backward(ctx, gradient):
            seen.append(lists())
            return gradient * 2

    x = torch.ones(2, requires_grad=True)
    with lab.autocast(F16):
        y = Twice.apply(x)
    y.sum().backward()
    with torch.autocast("cpu", F16):
        y = Twice.apply(x)
    y.sum().backward()
    assert seen == ["cuda", "cuda", "cpu", "cpu"]
