"""lab.autocast beside CUDA's own autocast, operation by operation.

CUDA's autocast runs without a GPU: on tensors of the device "cuda" that have no memory (FakeTensorMode), by
PyTorch's own kernels of the key AutocastCUDA.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
from torch._subclasses import FakeTensorMode

import fp16lab.torch as lab
from autocast_calls import CALLS, Seen, cuda_autocast, run
from fp16lab.torch.autocast_kernels import CPU_LISTED, CUDA_LISTED
from fp16lab.torch.autocast_lists import CUDA_POLICIES, NO_16_BIT_KERNEL

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of PyTorch, on operations that it deprecates
F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
HERE = Path(__file__)
HEADER = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"
MACROS = {
    "LOWER_PRECISION_FP": "lower_precision_fp",
    "FP32": "fp32",
    "FP32_SET_OPT_DTYPE": "fp32_set_opt_dtype",
    "PROMOTE": "promote",
}
#: Listed by PyTorch elsewhere than in the header: autocast_mode.cpp, cudnn/AutocastRNN.cpp.
BESIDE_THE_HEADER = {
    "aten::binary_cross_entropy",
    "aten::cudnn_convolution",
    "aten::cudnn_convolution_transpose",
    "aten::linalg_matrix_sqrth",
    "aten::_cudnn_rnn",
}
#: Operations with kernels for CUDA alone, which no CPU tensor reaches: shapes of their tensors, for what
#: CUDA's autocast makes of them. cuDNN's convolutions ask for the GPU before they say anything.
CUDA_ONLY = {
    "cudnn_convolution": None,
    "cudnn_convolution_transpose": None,
    "_thnn_fused_lstm_cell": ((2, 8), (2, 8), (2, 2)),
    "_thnn_fused_gru_cell": ((2, 6), (2, 6), (2, 2)),
    "_scaled_dot_product_flash_attention": ((1, 2, 4, 8),) * 3,
    "_cudnn_rnn": None,  # test_recurrent_networks_take_16_bits_as_cudnn_does
}
#: Same dtypes in and out of the operation, other kernels inside.
OTHER_KERNELS = {
    "softmax.int": "CUDA's kernel converts as it reads",
    "log_softmax.int": "CUDA's kernel converts as it reads",
    "rms_norm": "one kernel on CUDA",
    "lstm_cell": "one kernel on CUDA",
    "gru_cell": "one kernel on CUDA",
    "scaled_dot_product_attention": "the device chooses",
    "avg_pool3d": "the CPU computes in FP32 and rounds",
}
#: Errors on both devices: banned, or never in 16 bits.
REFUSING = {"binary_cross_entropy", "quantile.scalar", "nanquantile.scalar"}


def header():
    """Operation -> policy, by the macros of the header."""
    text = HEADER.read_text().replace("\\\n", " ")
    policies = {}
    for macro, policy in MACROS.items():
        (body,) = re.findall(rf"#define AT_FORALL_{macro}\(_\)(.*)", text)
        for names in re.findall(r"_\(([\w, ]+)\)", body):
            policies["aten::" + ".".join(names.replace(" ", "").split(","))] = policy
    (body,) = re.findall(r"#define AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE\(_\)(.*)", text)
    for name, policy in re.findall(r'"([\w.]+)".*?(fp32_append_dtype)', body):
        policies[f"aten::{name}"] = policy
    return policies


@pytest.mark.skipif(not HEADER.exists(), reason="this PyTorch has no headers")
def test_the_table_is_that_of_pytorchs_header():
    policies = header()
    assert len(policies) > 100
    assert set(policies.values()) == set(CUDA_POLICIES.values()) - {"banned", "cudnn_rnn"}
    assert {name: CUDA_POLICIES.get(name) for name in policies} == policies
    assert CUDA_LISTED - set(policies) <= BESIDE_THE_HEADER


def test_every_operation_that_pytorch_lists_is_in_the_table_and_tried():
    assert CUDA_LISTED <= set(CUDA_POLICIES)
    tried = {f"aten::{name}" for name in [*CALLS, *CUDA_ONLY]}
    assert CUDA_LISTED <= tried <= CUDA_LISTED | CPU_LISTED
    assert set(NO_16_BIT_KERNEL) <= tried & CPU_LISTED - CUDA_LISTED


@pytest.mark.parametrize("name", CALLS)
def test_dtypes_are_those_of_cudas_autocast(name):
    """The dtypes of results, and of the inputs that kernels see below autocast."""
    inputs = [(F16, F32), (F16, F16), (F16, F64), (BF16, F32), (BF16, BF16)]
    listed = f"aten::{name}" in CUDA_LISTED
    for dtype, *dtypes in inputs + [(F16, F16, F32), (F16, F32, F16), (BF16, BF16, F32)] * listed:
        result, kernels = run(name, "cpu", dtypes, lambda: lab.autocast(dtype))
        with FakeTensorMode():
            wanted, wanted_kernels = run(name, "cuda", dtypes, lambda: cuda_autocast(dtype))
        assert result == wanted, (dtype, dtypes)
        assert isinstance(result, list) != (name in REFUSING) or F64 in dtypes or dtypes == [F32]
        if name not in OTHER_KERNELS:
            assert kernels == wanted_kernels, (dtype, dtypes)


def test_a_difference_between_the_devices_lists_is_seen():
    """The comparison above can fail: torch.autocast("cpu") does not pass it."""
    differing = set()
    for name in CALLS:
        if f"aten::{name}" in CUDA_LISTED:
            result, kernels = run(name, "cpu", [F16], lambda: lab.autocast(F16, lists="cpu"))
            with FakeTensorMode():
                wanted = run(name, "cuda", [F16], lambda: cuda_autocast(F16))
            if (result, kernels) != wanted and name not in OTHER_KERNELS or result != wanted[0]:
                differing.add(name)
    assert {"softmax.int", "layer_norm", "exp", "sum", "norm.Scalar", "logsumexp"} <= differing
    assert len(differing) > 50 and not {"mm", "linear", "conv2d", "mse_loss"} & differing


def test_policies_of_operations_that_cuda_alone_has():
    for name, shapes in CUDA_ONLY.items():
        if shapes:
            with FakeTensorMode(), cuda_autocast(F16), Seen() as seen:
                tensors = [torch.rand(*shape, device="cuda") for shape in shapes]
                getattr(torch.ops.aten, name).default(*tensors)
            assert seen.kernels == [(name, [F16] * 3)]
            assert CUDA_POLICIES[f"aten::{name}"] == "lower_precision_fp"


@pytest.mark.skipif(not torch.backends.cuda.is_built(), reason="this PyTorch has no cuDNN")
def test_recurrent_networks_take_16_bits_as_cudnn_does():
    """aten::_cudnn_rnn, given weights in FP16: casting those takes a GPU."""
    for dtype in (F16, BF16):
        with FakeTensorMode(), cuda_autocast(dtype):
            x, h, c = (torch.rand(*size, device="cuda") for size in ((3, 2, 4), (1, 2, 5), (1, 2, 5)))
            sizes = ((20, 4), (20, 5), (20,), (20,))
            weights = [torch.rand(*size, device="cuda", dtype=F16) for size in sizes]
            flat = torch.rand(220, device="cuda", dtype=F16)
            out, hidden, cell = torch.ops.aten._cudnn_rnn.default(
                x, weights, 4, flat, h, c, 2, 5, 0, 1, False, 0.0, False, False, [], None
            )[:3]
        with lab.autocast(dtype):
            got = torch.nn.LSTM(4, 5)(torch.rand(3, 2, 4))
        assert (got[0].dtype, got[1][0].dtype, got[1][1].dtype) == (out.dtype, hidden.dtype, cell.dtype)


def test_the_engines_list_agrees():
    """engine/amp/levels/op_lists.cpp, the dialect "torch": of the same operations it says the same."""
    text = (HERE.parents[3] / "engine" / "amp" / "levels" / "op_lists.cpp").read_text()
    (rows,) = re.findall(r"constexpr std::array torch_lists = \{(.*?)\n\};", text, re.S)
    lists = {"white": {"lower_precision_fp"}, "black": {"fp32", "fp32_set_opt_dtype"}}
    policies = {}
    for name, policy in CUDA_POLICIES.items():
        policies.setdefault(name.removeprefix("aten::").partition(".")[0], policy)
    named = re.findall(r'(white|black|follows)\(Op::\w+, "(\w+)"\)', rows)
    assert len(named) > 40
    for kind, name in named:
        assert policies.get(name) in lists.get(kind, {None}), name
    assert "banned_cross_entropy()" in rows and policies["binary_cross_entropy"] == "banned"
    # What the engine has without a name is its own: not on PyTorch's lists.
    unnamed = set(re.findall(r"(?:white|black)\(Op::(\w+)\)", rows))
    assert unnamed == {"conv2d_input_gradient", "conv2d_weight_gradient", "mean"}
    assert "mean" not in policies


def test_torch_autocast_stays_what_it_was():
    """Outside of lab.autocast, and inside of lists="cpu", when CUDA's lists are installed."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import torch; from autocast_calls import CALLS, run\n"
        "scope = lambda: torch.autocast('cpu', torch.float16)\n"
        "for name in CALLS: print(name, *run(name, 'cpu', [torch.float16, torch.float32], scope))\n"
    )
    plain = subprocess.run(
        [sys.executable, "-P", "-c", script, str(HERE.parent)], capture_output=True, text=True, check=True
    )
    with lab.autocast():
        pass
    for scope in (lambda: torch.autocast("cpu", F16), lambda: lab.autocast(F16, lists="cpu")):
        lines = [" ".join(map(str, (name, *run(name, "cpu", [F16, F32], scope)))) for name in CALLS]
        assert lines == plain.stdout.splitlines()
