"""A call of every operation on CUDA's autocast lists, and what runs then."""

import itertools
from collections.abc import Callable, Iterable
from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

#: Name -> what calls the operation's overload with tensors of `f` (floating point, values in (0, 1), of the
#: shape given) and `i` (integers below 3). Names as the dispatcher has them, without aten::.
CALLS: dict[str, Callable] = {}


def call(names: str, arguments: Callable) -> None:
    for name in names.split():
        CALLS[name] = arguments


class Seen(TorchDispatchMode):
    """What runs below autocast: (operation, dtypes of its floating-point inputs), but for casts and views."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels: list[tuple[str, list[torch.dtype]]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        inputs = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        dtypes = [t.dtype for t in inputs if t.is_floating_point()]
        views = any(value.alias_info for value in func._schema.returns)
        name = func._schema.name.removeprefix("aten::")
        if dtypes and not views and name not in ("_to_copy", "_unsafe_view", "clone", "prim::device"):
            self.kernels.append((name, dtypes))
        return result


def run(name: str, device: str, dtypes: Iterable[torch.dtype], scope: Callable) -> tuple[object, list]:
    """(dtypes of the results, or the error; what ran), floating-point inputs having `dtypes` in turn."""
    packet, _, overload = name.partition(".")
    op = getattr(getattr(torch.ops.aten, packet), overload or "default")
    turn = itertools.cycle(dtypes)
    args = CALLS[name](
        lambda *shape: torch.rand(*shape, device=device).to(next(turn)),
        lambda *shape: torch.ones(*shape, dtype=torch.int64, device=device),
    )
    with scope(), Seen() as seen:
        try:
            result = [t.dtype for t in tree_leaves(op(*args)) if isinstance(t, torch.Tensor)]
        except (RuntimeError, NotImplementedError) as error:
            result = type(error)
    return result, seen.kernels


@contextmanager
def cuda_autocast(dtype: torch.dtype):
    """torch.autocast("cuda", dtype), which refuses itself where there is no GPU."""
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", dtype)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", False)
        torch.set_autocast_dtype("cuda", torch.float16)
        torch.clear_autocast_cache()


# lower_precision_fp
_CONV = ([1], [0], [1])
call("mm matmul chain_matmul", lambda f, i: (f(2, 3), f(3, 2)))
CALLS["chain_matmul"] = lambda f, i: ([f(2, 3), f(3, 2), f(2, 2)],)
CALLS["linalg_multi_dot"] = CALLS["chain_matmul"]
call("mv", lambda f, i: (f(2, 3), f(3)))
call("linalg_vecdot dot vdot", lambda f, i: (f(3), f(3)))
call("linear", lambda f, i: (f(2, 3), f(4, 3), f(4)))
call("addmm", lambda f, i: (f(2, 2), f(2, 3), f(3, 2)))
call("addmv", lambda f, i: (f(2), f(2, 3), f(3)))
call("addr", lambda f, i: (f(2, 3), f(2), f(3)))
call("bmm", lambda f, i: (f(2, 2, 3), f(2, 3, 2)))
call("baddbmm", lambda f, i: (f(2, 2, 2), f(2, 2, 3), f(2, 3, 2)))
call("addbmm", lambda f, i: (f(2, 2), f(2, 2, 3), f(2, 3, 2)))
call("einsum", lambda f, i: ("ij,jk->ik", [f(2, 3), f(3, 2)]))
call("prelu", lambda f, i: (f(2, 3), f(3)))
call("conv1d", lambda f, i: (f(1, 2, 4), f(3, 2, 2), f(3)))
call("conv2d", lambda f, i: (f(1, 2, 4, 4), f(3, 2, 2, 2), f(3)))
call("conv3d", lambda f, i: (f(1, 2, 4, 4, 4), f(3, 2, 2, 2, 2), f(3)))
call("conv1d.padding", lambda f, i: (f(1, 2, 4), f(3, 2, 3), f(3), [1], "same"))
call("conv2d.padding", lambda f, i: (f(1, 2, 4, 4), f(3, 2, 3, 3), f(3), [1], "same"))
call("conv3d.padding", lambda f, i: (f(1, 2, 4, 4, 4), f(3, 2, 3, 3, 3), f(3), [1], "same"))
call("conv_tbc", lambda f, i: (f(4, 1, 2), f(2, 2, 3), f(3)))
call("conv_transpose1d", lambda f, i: (f(1, 2, 4), f(2, 3, 2), f(3)))
call("conv_transpose2d.input", lambda f, i: (f(1, 2, 4, 4), f(2, 3, 2, 2), f(3)))
call("conv_transpose3d.input", lambda f, i: (f(1, 2, 4, 4, 4), f(2, 3, 2, 2, 2), f(3)))
call("convolution", lambda f, i: (f(1, 2, 4), f(3, 2, 2), f(3), *_CONV, False, [0], 1))
call("_convolution", lambda f, i: (*CALLS["convolution"](f, i), False, False, True, True))
call("_convolution.deprecated", lambda f, i: (*CALLS["convolution"](f, i), False, False, True))
_LSTM_CELL = lambda f, gates: (f(gates, 3), f(gates, 2), f(gates), f(gates))
call("lstm_cell", lambda f, i: (f(4, 3), [f(4, 2), f(4, 2)], *_LSTM_CELL(f, 8)))
call("gru_cell", lambda f, i: (f(4, 3), f(4, 2), *_LSTM_CELL(f, 6)))
call("rnn_tanh_cell rnn_relu_cell", lambda f, i: (f(4, 3), f(4, 2), *_LSTM_CELL(f, 2)))
call("scaled_dot_product_attention", lambda f, i: (f(1, 1, 4, 8), f(1, 1, 4, 8), f(1, 1, 4, 8)))

# fp32
call("acos asin cosh erfinv exp expm1 log log10 log2 log1p", lambda f, i: (f(2, 3),))
call("reciprocal rsqrt sinh tan softplus", lambda f, i: (f(2, 3),))
call("pow.Tensor_Scalar", lambda f, i: (f(2, 3), 1.5))
call("pow.Tensor_Tensor atan2", lambda f, i: (f(2, 3), f(2, 3)))
call("pow.Scalar", lambda f, i: (1.5, f(2, 3)))
call("layer_norm", lambda f, i: (f(2, 3), [3], f(3), f(3)))
call("native_layer_norm", lambda f, i: (f(2, 3), [3], f(3), f(3), 1e-5))
call("rms_norm", lambda f, i: (f(2, 3), [3], f(3)))
call("group_norm", lambda f, i: (f(2, 4, 3), 2, f(4), f(4)))
call("frobenius_norm.dim", lambda f, i: (f(2, 3), [0, 1]))
call("nuclear_norm", lambda f, i: (f(3, 3),))
call("nuclear_norm.dim", lambda f, i: (f(3, 3), [0, 1]))
call("linalg_matrix_sqrth", lambda f, i: (f(3, 3),))
call("cosine_similarity", lambda f, i: (f(2, 3), f(2, 3)))
call("l1_loss mse_loss smooth_l1_loss huber_loss kl_div", lambda f, i: (f(2, 3), f(2, 3)))
call("soft_margin_loss hinge_embedding_loss dist", lambda f, i: (f(2, 3), f(2, 3)))
call("binary_cross_entropy binary_cross_entropy_with_logits", lambda f, i: (f(2, 3), f(2, 3)))
call("poisson_nll_loss", lambda f, i: (f(2, 3), f(2, 3), True, False, 1e-8, 1))
call("cosine_embedding_loss", lambda f, i: (f(2, 3), f(2, 3), f(2)))
call("margin_ranking_loss", lambda f, i: (f(2), f(2), f(2)))
call("triplet_margin_loss", lambda f, i: (f(2, 3), f(2, 3), f(2, 3)))
call("nll_loss cross_entropy_loss multi_margin_loss", lambda f, i: (f(2, 3), i(2)))
call("nll_loss2d", lambda f, i: (f(2, 3, 2, 2), i(2, 2, 2)))
call("multilabel_margin_loss", lambda f, i: (f(2, 3), i(2, 3)))
call("pdist", lambda f, i: (f(3, 2),))
call("cdist", lambda f, i: (f(3, 2), f(3, 2)))
call("renorm", lambda f, i: (f(3, 2), 2, 0, 0.5))
call("logsumexp", lambda f, i: (f(2, 3), [1]))
call("upsample_nearest1d _upsample_nearest_exact1d", lambda f, i: (f(1, 2, 4), [8]))
call("upsample_nearest2d _upsample_nearest_exact2d", lambda f, i: (f(1, 2, 4, 4), [8, 8]))
call("upsample_nearest3d _upsample_nearest_exact3d", lambda f, i: (f(1, 2, 4, 4, 4), [8, 8, 8]))
call("upsample_linear1d", lambda f, i: (f(1, 2, 4), [8], False))
call("upsample_bilinear2d upsample_bicubic2d", lambda f, i: (f(1, 2, 4, 4), [8, 8], False))
call("_upsample_bilinear2d_aa _upsample_bicubic2d_aa", lambda f, i: (f(1, 2, 4, 4), [8, 8], False))
call("upsample_trilinear3d", lambda f, i: (f(1, 2, 4, 4, 4), [8, 8, 8], False))

# fp32_set_opt_dtype, fp32_append_dtype
call("prod sum linalg_vector_norm norm.Scalar", lambda f, i: (f(2, 3),))
call("prod.dim_int softmax.int log_softmax.int cumprod cumsum", lambda f, i: (f(2, 3), 1))
call("sum.dim_IntList", lambda f, i: (f(2, 3), [1]))
call("linalg_matrix_norm", lambda f, i: (f(3, 3), 1))
call("linalg_matrix_norm.str_ord", lambda f, i: (f(3, 3), "fro"))
call("norm.ScalarOpt_dim", lambda f, i: (f(2, 3), 2, [1]))

# promote
call("addcdiv addcmul", lambda f, i: (f(2, 3), f(2, 3), f(2, 3)))
call("bilinear", lambda f, i: (f(2, 3), f(2, 4), f(5, 3, 4), f(5)))
call("cross", lambda f, i: (f(2, 3), f(2, 3)))
call("grid_sampler", lambda f, i: (f(1, 2, 4, 4), f(1, 2, 2, 2), 0, 0, False))
call("index_put", lambda f, i: (f(3), [i(2)], f(2)))
call("scatter_add", lambda f, i: (f(3), 0, i(2), f(2)))
call("tensordot", lambda f, i: (f(2, 3), f(3, 2), [1], [0]))

# On the CPU's lists only: some of what CUDA's autocast passes on
call("cat stack", lambda f, i: ([f(2, 3), f(2, 3)],))
call("index_copy", lambda f, i: (f(3, 2), 0, i(1), f(1, 2)))
call("trace", lambda f, i: (f(3, 3),))
call("avg_pool3d max_pool3d", lambda f, i: (f(1, 2, 4, 4, 4), [2, 2, 2]))
call("adaptive_avg_pool3d adaptive_max_pool3d", lambda f, i: (f(1, 2, 4, 4, 4), [2, 2, 2]))
call("reflection_pad1d replication_pad1d", lambda f, i: (f(1, 2, 4), [1, 1]))
call("reflection_pad2d replication_pad2d", lambda f, i: (f(1, 2, 4, 4), [1, 1, 1, 1]))
call("replication_pad3d", lambda f, i: (f(1, 2, 4, 4, 4), [1, 1, 1, 1, 1, 1]))
call("quantile.scalar nanquantile.scalar", lambda f, i: (f(4), 0.5))
call("grid_sampler_2d", CALLS["grid_sampler"])
call("grid_sampler_3d", lambda f, i: (f(1, 2, 4, 4, 4), f(1, 2, 2, 2, 3), 0, 0, False))
