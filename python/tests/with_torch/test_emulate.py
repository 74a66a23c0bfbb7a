"""lab.emulate: the bits of every product are those of `fp16lab mma`, and nothing goes by unseen."""

from __future__ import annotations

import pytest
import torch
from gloo import on_ranks
from product_oracle import Recorder, check
from torch import nn

import fp16lab
import fp16lab.torch as lab

F = nn.functional


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(3)


def emulated(function, model="volta", dtype=torch.float16, **options):
    """Runs function() under autocast and emulation; returns the scope and the products that it recorded."""
    recorder = Recorder()
    with lab.emulate(model, **options) as run, recorder:
        with torch.autocast("cpu", dtype):
            value = function()
        if value is not None and value.requires_grad:
            (value.float() * 64).sum().backward()
    return run, recorder.calls


def ops_of(calls) -> set[str]:
    return {func._schema.name.removeprefix("aten::") for func, *_ in calls}


NETWORKS = {
    "linear": (lambda: nn.Sequential(nn.Linear(19, 33), nn.ReLU(), nn.Linear(33, 7)), (5, 19)),
    "no_bias": (lambda: nn.Linear(19, 7, bias=False), (2, 3, 19)),
    "convolution": (lambda: nn.Conv2d(3, 8, 3, stride=2, padding=1), (2, 3, 9, 8)),
    "grouped": (lambda: nn.Conv2d(6, 8, (3, 2), groups=2, dilation=2, padding=(2, 1)), (2, 6, 9, 8)),
    "depthwise": (lambda: nn.Conv2d(8, 8, 3, groups=8, padding=1, bias=False), (2, 8, 7, 7)),
    "transposed": (
        lambda: nn.ConvTranspose2d(6, 4, 3, stride=2, padding=1, output_padding=1, groups=2),
        (2, 6, 5, 6),
    ),
    "one_dimensional": (lambda: nn.Conv1d(4, 6, 5, stride=2, padding=2, groups=2), (3, 4, 21)),
    "transposed_1d": (lambda: nn.ConvTranspose1d(4, 6, 3, stride=2), (3, 4, 10)),
    "volumes": (lambda: nn.Conv3d(3, 4, (2, 3, 2), stride=(1, 2, 1), padding=(1, 0, 1)), (2, 3, 3, 6, 4)),
    "grouped_3d": (lambda: nn.Conv3d(4, 6, 2, groups=2, dilation=(1, 2, 1), bias=False), (2, 4, 3, 5, 3)),
    "transposed_3d": (
        lambda: nn.ConvTranspose3d(4, 2, 2, stride=2, padding=1, output_padding=1, groups=2),
        (2, 4, 3, 2, 3),
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("model, accumulator", [("volta", "f32"), ("hopper", "f32"), ("ampere", "f16")])
def test_products_have_the_bits_of_mma(name, model, accumulator):
    make, shape = NETWORKS[name]
    network, x = make(), torch.randn(shape, requires_grad=True)
    run, calls = emulated(lambda: network(x), model, accumulator=accumulator)
    assert check(calls, model, accumulator) >= 6
    assert {row["computed"] for row in run.op_stats() if row["shapes"]} == {"emulated"}
    assert x.grad is not None and all(p.grad is not None for p in network.parameters())


@pytest.mark.parametrize("name", ["linear", "convolution", "depthwise", "transposed", "volumes"])
def test_bf16_and_tf32(name):
    make, shape = NETWORKS[name]
    network, x = make(), torch.randn(shape, requires_grad=True)
    _, calls = emulated(lambda: network(x), "ampere", torch.bfloat16)
    assert check(calls, "ampere") >= 6
    recorder = Recorder()
    with lab.emulate("ampere", f32="tf32") as run, recorder:
        network(x).square().sum().backward()
    assert run.total("native") == 0 and run.total("emulated") >= 2
    # A TF32 register ignores low bits; the emulation rounds them first.
    rounded = [
        (func, tuple(to_tf32(a) for a in args), kwargs, result)
        for func, args, kwargs, result in recorder.calls
    ]
    assert check(rounded, "ampere") >= 6


def to_tf32(x):
    """To nearest, ties away from zero, as cvt.rna.tf32 does. A bias stays FP32."""
    if not isinstance(x, torch.Tensor) or x.ndim < 2:
        return x
    return ((x.detach().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


@pytest.mark.parametrize("name", ["convolution", "grouped", "transposed", "volumes", "transposed_3d"])
def test_channels_last(name):
    make, shape = NETWORKS[name]
    last = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    network = make().to(memory_format=last)
    x = torch.randn(shape).contiguous(memory_format=last).requires_grad_()
    _, calls = emulated(lambda: network(x), "volta")
    assert check(calls, "volta") >= 6
    assert calls[0][3][0].is_contiguous(memory_format=last)


def test_double_backward():
    network = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(64, 3))
    x = torch.randn(2, 2, 6, 6, requires_grad=True)
    recorder = Recorder()
    with lab.emulate("volta") as run, recorder:
        with torch.autocast("cpu", torch.float16):
            (gradient,) = torch.autograd.grad(network(x).float().sum(), x, create_graph=True)
        first = run.total("emulated")
        (gradient * 100).square().sum().backward()
    assert run.total("emulated") > first > 3
    assert check(recorder.calls, "volta") > 20


def test_in_place_out_and_scaled_forms():
    a, b = torch.randn(4, 6).half(), torch.randn(6, 5).half()
    c = torch.randn(4, 5).half()
    product = fp16lab.matmul(a, b, "volta", out="f32")
    with lab.emulate("volta") as run:
        out = torch.empty(4, 5).half()
        torch.mm(a, b, out=out)
        assert torch.equal(out, product.half())
        torch.addmm(c, a, b, out=out)
        assert torch.equal(out, (product + c.float()).half())
        changed = c.clone()
        assert changed.addmm_(a, b) is changed
        assert torch.equal(changed, out)
        assert torch.equal(torch.addmm(c, a, b, beta=0.5, alpha=3), (product * 3 + c.float() * 0.5).half())
        assert torch.equal(torch.addmm(torch.full_like(c, torch.nan), a, b, beta=0), product.half())
        assert torch.equal(torch.baddbmm(c[None], a[None], b[None])[0], out)
        assert torch.equal(torch.mv(a, b[:, 0]), product[:, 0].half())
        assert torch.equal(torch.addmv(c[:, 0], a, b[:, 0]), out[:, 0])
        assert torch.equal(torch.dot(a[0], b[:, 0]), product[0, 0].half())
        assert torch.equal(torch.addr(c, a[:, 0], b[0]), (a[:, :1].float() * b[:1].float() + c).half())
        twice = (product + (product + c.float()).half().float()).half()
        assert torch.equal(torch.addbmm(c, torch.stack([a, a]), torch.stack([b, b])), twice)
        assert torch.einsum("ij,jk->ik", a, b).equal(product.half())
        assert torch.tensordot(a, b, 1).equal(product.half())
        assert torch.addmm(c[0, 0], a, b[:, :1]).equal((product[:, :1] + c[0, 0].float()).half())
        assert torch.addmm(c[:, :1], a, b).equal((product + c[:, :1].float()).half())
        assert torch.addmm(c[0], a, b).equal((product + c[0].float()).half())
        assert torch.mm(a[:, :0], b[:0]).equal(torch.zeros(4, 5).half())
        assert torch.mm(a[:0], b).shape == (0, 5)
        assert torch.addmm(c, a[:, :0], b[:0]).equal(c)
    assert run.total("native") == 0


def test_fp8():
    a = torch.randn(16, 32).to(torch.float8_e4m3fn)
    b = torch.randn(16, 32).to(torch.float8_e4m3fn).t()
    two, half = torch.tensor(2.0), torch.tensor(0.5)
    with lab.emulate("hopper") as run:
        result = torch._scaled_mm(a, b, two, half, out_dtype=torch.bfloat16)
    assert result.equal(fp16lab.matmul(a, b, "hopper", out="f32").bfloat16())
    assert run.total("emulated") == 1


def test_fp32_products_are_native_fma_or_tf32_and_counted():
    a, b = torch.randn(9, 300), torch.randn(300, 4)
    with pytest.warns(UserWarning, match="emulated none"), lab.emulate(f32="native") as run:
        assert torch.mm(a, b).equal(torch.mm(a, b))
        torch.mm(a.double(), b.double())
    assert (run.total("native"), run.total("emulated")) == (3, 0)
    with lab.emulate(f32="fma") as run:
        chain = torch.mm(a, b)
    exact = a.double() @ b.double()
    assert run.total("emulated") == 1 and not chain.equal(exact.float())
    assert (chain - exact).abs().max() < 300 * 2**-24 * (a.abs().double() @ b.abs().double()).max()


def test_bits_do_not_depend_on_threads():
    a, b = torch.randn(3, 130, 200).half(), torch.randn(3, 200, 90).half()
    x, weight = torch.randn(4, 8, 20, 20).half(), torch.randn(16, 8, 3, 3).half()
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            with lab.emulate("volta"):
                results.append((torch.bmm(a, b), F.conv2d(x, weight, padding=1)))
    finally:
        torch.set_num_threads(before)
    for result in results[1:]:
        assert all(one.equal(other) for one, other in zip(result, results[0]))


# ---- attention, recurrent layers, encoders


@pytest.mark.parametrize(
    "causal, masked, dropout", [(False, False, 0), (True, False, 0), (False, True, 0.25)]
)
def test_attention_is_the_stated_algorithm(causal, masked, dropout):
    q, k, v = (torch.randn(2, 3, 5, 8).half().requires_grad_() for _ in range(3))
    mask = torch.rand(5, 5) > 0.3 if masked else None
    if mask is not None:
        mask[2] = False  # a row that sees nothing
    recorder = Recorder()
    torch.manual_seed(11)
    with lab.emulate("volta") as run, recorder:
        result = F.scaled_dot_product_attention(q, k, v, mask, dropout, causal)
        result.float().sum().backward()
    assert ops_of(recorder.calls) == {"bmm"} and run.total("emulated") == 6
    assert check(recorder.calls, "volta") == 18
    if dropout == 0:
        with torch.no_grad():
            reference = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), mask, 0, causal)
        assert (result.float() - reference).abs().max() < 0.01
    assert all(t.grad is not None and t.grad.isfinite().all() for t in (q, k, v))


def test_grouped_queries_and_scale():
    q, k, v = torch.randn(1, 4, 5, 8).half(), torch.randn(1, 2, 5, 8).half(), torch.randn(1, 2, 5, 8).half()
    with lab.emulate():
        result = F.scaled_dot_product_attention(q, k, v, scale=0.5, enable_gqa=True)
    reference = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), scale=0.5, enable_gqa=True)
    assert (result.float() - reference).abs().max() < 0.02


@pytest.mark.parametrize(
    "make, shape",
    [
        (lambda: nn.LSTM(8, 12, 2, batch_first=True), (3, 5, 8)),
        (lambda: nn.GRU(8, 12, bidirectional=True), (5, 3, 8)),
        (lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (2, 5, 16)),
        (lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval(), (2, 5, 16)),
    ],
)
def test_composite_layers(make, shape):
    network, x = make(), torch.randn(shape)

    def forward():
        result = network(x)
        return result[0] if isinstance(result, tuple) else result

    run, calls = emulated(forward)
    assert run.total("native") == 0 and check(calls, "volta", samples=1) > 8
    with torch.no_grad():
        seen = emulated(forward)[0].total("emulated")
    with torch.inference_mode():
        assert emulated(forward)[0].total("emulated") == seen > 3


# ---- what is refused, and the scope itself

_H = {n: torch.ones(n).half() for n in (3, 4)}
_M = {shape: torch.ones(shape).half() for shape in ((2, 4), (4, 4), (2, 2, 4), (3, 4, 2), (4, 3))}


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.mm(_M[2, 4], torch.ones(8, 4).half()[:3]),
        lambda: torch.mm(_M[2, 2, 4], _M[4, 4]),
        lambda: torch.mm(_M[4, 4], _H[4]),
        lambda: torch.bmm(_M[2, 2, 4], _M[3, 4, 2]),
        lambda: torch.mv(_M[2, 4], _H[3]),
        lambda: torch.dot(_H[3], _H[4]),
        lambda: torch.addmm(_H[4], _M[2, 4], _M[4, 4][:3]),
        lambda: torch.addmm(_H[4].float(), _M[2, 4], _M[4, 4]),
        lambda: torch.addmm(_H[3], _M[2, 4], _M[4, 4]),
        lambda: torch.baddbmm(_H[3], _M[2, 2, 4], _M[2, 2, 4]),
        lambda: torch.addmv(_H[4], _M[2, 4], _H[3]),
        lambda: torch.addr(_M[4, 4], _M[4, 4], _H[4]),
        lambda: torch.addbmm(_M[2, 4], _M[2, 2, 4], _M[2, 2, 4]),
        lambda: torch.mm(_M[2, 4], _M[4, 4], out=torch.empty(2, 4)),
        lambda: nn.Linear(3, 4).half()(_M[2, 4]),
        lambda: F.conv2d(torch.ones(1, 2, 4, 4).half(), torch.ones(4, 2, 3, 3).half(), _H[3]),
        lambda: F.conv2d(torch.ones(1, 2, 4, 4).half(), torch.ones(4, 2, 3, 3).half(), stride=0),
        lambda: F.conv2d(torch.ones(1, 3, 4, 4).half(), torch.ones(4, 2, 3, 3).half()),
    ],
)
def test_what_does_not_fit_is_torchs_own_error(call):
    with pytest.raises((RuntimeError, IndexError)) as plain:
        call()
    with lab.emulate(f32="fma"), pytest.raises(type(plain.value)) as emulated:
        call()
    assert not isinstance(emulated.value, lab.EmulationError)


def test_integers_fp8_and_products_of_layers_are_counted():
    a = torch.ones(32, 32, dtype=torch.int8)
    with lab.emulate("ampere") as run:
        torch._int_mm(a, a)
        torch.mm(_M[2, 4].to(torch.float8_e4m3fn), _M[4, 4].to(torch.float8_e4m3fn))
        torch.ops.fp16lab.matmul(_M[2, 4], _M[4, 4], "volta")
    counted = {(row["op"], row["dtype"], row["computed"]) for row in run.op_stats() if row["shapes"]}
    assert counted == {
        ("_int_mm", "int8", "native"),
        ("mm", "float8_e4m3fn", "native"),  # as torch's CPU has it; lab.emulate has _scaled_mm
        ("fp16lab::matmul", "f16", "emulated"),
    }


def test_a_scope_that_emulates_nothing_says_so():
    with pytest.warns(UserWarning, match=r"emulated none of this scope's products \(1\)"), lab.emulate():
        torch.mm(torch.ones(2, 2), torch.ones(2, 2))


@pytest.mark.parametrize(
    "call, named",
    [
        (lambda: torch.linalg.inv(torch.eye(3)), "aten::linalg_inv_ex"),
        (lambda: torch.fft.fft(torch.ones(4)), "aten::_fft_r2c"),
        (lambda: torch.eye(3).to_sparse(), "aten::_to_sparse"),
        (lambda: torch.ones(2, 2, dtype=torch.complex64).mm(torch.ones(2, 2, dtype=torch.complex64)), "mm"),
        (
            lambda: F.embedding_bag(
                torch.zeros(1, 2, dtype=torch.long),
                torch.ones(3, 4),
                mode="sum",
                per_sample_weights=torch.ones(1, 2),
            ),
            "_embedding_bag",
        ),
    ],
)
def test_what_is_on_no_list_is_one_error(call, named):
    with lab.emulate(), pytest.raises(lab.EmulationError, match=named) as error:
        call()
    assert "\n" not in str(error.value)


def _a_rank_of_an_emulated_training(rank, folder):
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2))
    model = nn.parallel.DistributedDataParallel(network)
    model.register_comm_hook(None, lab.comm_hook())
    with lab.emulate("volta") as run, lab.autocast(torch.float16):
        model(torch.randn(2, 1, 4, 4)).square().mean().backward()
    assert run.total("native") == run.total("let through") == 0 and run.total("emulated") == 5


def test_distributed_training(tmp_path):
    on_ranks(2, _a_rank_of_an_emulated_training, tmp_path)


def test_an_unknown_operation_can_be_let_through():
    library = torch.library.Library("emulate_test", "FRAGMENT")
    library.define("doubled(Tensor x) -> Tensor")
    library.impl("doubled", lambda x: x * 2, "CPU")
    try:
        x = torch.ones(3)
        with lab.emulate(), pytest.raises(lab.EmulationError, match="let_through"):
            torch.ops.emulate_test.doubled(x)
        with lab.emulate(let_through=["emulate_test::doubled"]) as run:
            assert torch.ops.emulate_test.doubled(x).sum() == 6
        assert run.total("let through") == 1 and "emulate_test::doubled" in run.table()
    finally:
        library._destroy()


@pytest.mark.parametrize(
    "names, told",
    [
        (3, "let_through is 3; a list is needed"),
        ("aten::_fft_r2c", 'a list is needed: \\["aten::_fft_r2c"\\]'),
        (["_fft_r2c"], 'no operation "_fft_r2c"'),
        (["aten::fast_product"], 'no operation "aten::fast_product"'),
    ],
)
def test_let_through_takes_names_of_operations(names, told):
    with pytest.raises(ValueError, match=told):
        lab.emulate(let_through=names)


_HALF = {"dtype": torch.float16}
_ROWS, _PICKED = torch.ones(4, 3), torch.ones(1, 2, dtype=torch.int64)
_REFUSED_AT_TIMES = {
    "aten::_embedding_bag_forward_only": (
        lambda: F.embedding_bag(_PICKED, _ROWS, per_sample_weights=torch.ones(1, 2), mode="sum"),
        lambda: F.embedding_bag(_PICKED, _ROWS, mode="sum"),
    ),
    "aten::mm": (
        lambda: torch.ones(2, 3, dtype=torch.complex64) @ torch.ones(3, 2, dtype=torch.complex64),
        lambda: torch.ones(2, 3, **_HALF) @ torch.ones(3, 2, **_HALF),
    ),
}


@pytest.mark.parametrize("name", _REFUSED_AT_TIMES)
def test_let_through_leaves_the_calls_that_would_be_refused_and_emulates_the_others(name):
    refused, emulated = _REFUSED_AT_TIMES[name]
    with lab.emulate("volta") as run:
        want = emulated()
        with pytest.raises(lab.EmulationError, match=rf'^{name}.*let_through=\["{name}"\]\) leaves it to') as error:
            refused()
        products = run.total("emulated")
    assert "\n" not in str(error.value) and run.total("native") == run.total("let through") == 0
    with lab.emulate("volta", let_through=[name]) as run:
        assert torch.equal(emulated(), want) and run.total("emulated") == products
        result = refused()
    assert torch.equal(result, refused())
    assert (run.total("emulated"), run.total("let through")) == (products, 1)
    assert name.removeprefix("aten::") in run.table()


@pytest.mark.parametrize(
    "arguments, told",
    [
        ((nn.Linear(2, 2),), 'model is of Linear; a name such as "volta" is needed: the network is called in .*'),
        ((None,), 'model is of NoneType; a name such as "volta" is needed'),
        (("volta", 16), 'accumulator is of int; a name such as "f32" is needed'),
    ],
)
def test_takes_names(arguments, told):
    with pytest.raises(TypeError, match=f"^lab.emulate: {told}$"):
        lab.emulate(*arguments)


def test_flex_attention_is_refused():
    from torch.nn.attention.flex_attention import flex_attention

    q = torch.ones(1, 1, 8, 4)
    with lab.emulate(), pytest.raises(lab.EmulationError, match="flex_attention"):
        flex_attention(q, q, q)


def test_compiled_modules_run_uncompiled():
    layer, x = nn.Linear(4, 2).half(), torch.randn(3, 4).half()
    compiled = torch.compile(layer, backend="aot_eager")
    outside = compiled(x)  # compiled once before the scope
    with lab.emulate("volta") as run:
        compiled(x).sum().backward()
    assert run.total("emulated") == 2 and run.total("native") == 0
    assert compiled(x).equal(outside)


def test_the_scope_leaves_torch_as_it_was():
    fast, mkldnn = torch.backends.mha.get_fastpath_enabled(), torch.backends.mkldnn.enabled
    q = torch.randn(1, 1, 4, 8)
    before = F.scaled_dot_product_attention(q, q, q)
    with pytest.raises(KeyError), lab.emulate():
        raise KeyError
    with pytest.warns(UserWarning, match="emulated none"), lab.emulate():
        with pytest.raises(RuntimeError, match="do not nest"), lab.emulate():
            pass
        assert F.scaled_dot_product_attention(q, q, q).allclose(before)
    assert torch.backends.mha.get_fastpath_enabled() == fast
    assert torch.backends.mkldnn.enabled == mkldnn
    assert F.scaled_dot_product_attention(q, q, q).equal(before)


def test_what_cannot_be_is_refused_at_once():
    with pytest.raises(ValueError, match="voltage"):
        lab.emulate("voltage")
    with pytest.raises(ValueError, match="f32 is 'tf16'"):
        lab.emulate(f32="tf16")
    with lab.emulate("volta"), pytest.raises(ValueError, match="volta"):
        torch.mm(torch.ones(2, 2).bfloat16(), torch.ones(2, 2).bfloat16())
    with lab.emulate(), pytest.raises(RuntimeError, match="same dtype|expected"):
        torch.mm(torch.ones(2, 2).half(), torch.ones(2, 2))


def test_stats(tmp_path):
    network = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2))
    x = torch.randn(3, 4)
    run, _ = emulated(lambda: network(x))
    rows = {(row["op"], row["shapes"]): row for row in run.op_stats()}
    assert rows["addmm", "(3, 4) x (4, 8)"] == {
        "op": "addmm",
        "shapes": "(3, 4) x (4, 8)",
        "dtype": "f16",
        "computed": "emulated",
        "count": 1,
    }
    assert rows["native_layer_norm", ""]["computed"] == "torch"
    text = run.save(tmp_path / "ops.csv").read_text().splitlines()
    assert text[0] == "op,shapes,dtype,computed,count" and len(text) == len(run.op_stats()) + 1
