"""lab.emulate computes under torch.inference_mode() what it computes under torch.no_grad(): every operation of
PyTorch's own test suite, whose inputs these are, in and out of autocast.

Inference mode hands composite operations over whole, which otherwise arrive in parts.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

import fp16lab.torch as lab

pytest.importorskip("expecttest")  # PyTorch's suite needs it
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

#: Operations whose result has no values yet.
UNWRITTEN = frozenset(
    "empty empty_like empty_strided empty_permuted new_empty new_empty_strided resize_ resize_as_".split()
)


@contextmanager
def island() -> Iterator[None]:
    with lab.autocast(torch.float16), torch.autocast("cpu", enabled=False):
        yield


CONTEXTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "plain": nullcontext,
    "autocast": lambda: lab.autocast(torch.float16),
    "an island": island,
}


def outcome(op: Any, sample: Any, mode: Any, context: Any) -> list[Any] | str:
    """What the operation gives: tensors, or the error."""
    torch.default_generator.manual_seed(5)  # torch.manual_seed formats a stack for CUDA
    given = tree_map(
        lambda value: value.clone() if isinstance(value, torch.Tensor) else value,
        (sample.input, sample.args, sample.kwargs),
    )
    try:
        with mode(), context():
            return tree_leaves(op(given[0], *given[1], **given[2]))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def bits(value: Any) -> Any:
    """To be compared: NaN equals NaN, and -0 is not 0."""
    if not isinstance(value, torch.Tensor):
        return repr(value)
    dense = value.detach().to_dense() if value.layout != torch.strided else value.detach()
    data = dense.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
    return value.dtype, value.shape, bytes(data.numpy())


def different(dtype: torch.dtype, samples: int) -> tuple[int, list[str]]:
    """How many pairs were compared, and the calls whose two outcomes differ."""
    calls = [
        (op, sample)
        for op in op_db
        if op.name not in UNWRITTEN and dtype in op.dtypes
        # op.sample_inputs looks for the test in the stack, which takes most of the time
        for sample, _ in zip(op.sample_inputs_func(op, "cpu", dtype, False), range(samples))
    ]
    pairs = []
    with lab.emulate("hopper", f32="tf32"):
        for op, sample in calls:
            for name, context in CONTEXTS.items():
                both = [outcome(op, sample, mode, context) for mode in (torch.no_grad, torch.inference_mode)]
                pairs.append((f"{op.name} {op.variant_test_name} of {dtype}, {name}", *both))
    return len(pairs), [name for name, first, second in pairs if compared(first) != compared(second)]


def compared(result: list[Any] | str) -> Any:
    return result if isinstance(result, str) else [bits(value) for value in result]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_every_operation_is_the_same(dtype):
    count, found = different(dtype, samples=1)
    assert found == []
    assert count > 1500


def test_an_fp32_network_stays_fp32():
    network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    with lab.emulate("hopper", f32="fma") as run, torch.inference_mode():
        assert network(torch.ones(2, 3)).dtype == torch.float32
    assert {row["dtype"] for row in run.op_stats() if row["shapes"]} == {"f32"}
