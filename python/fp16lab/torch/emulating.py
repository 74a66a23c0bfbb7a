"""lab.emulate: any PyTorch program with the products of a tensor core."""

from __future__ import annotations

import os
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..products import Plan
from ..tensor_memory import in_memory
from . import product_sums
from .attention import attention
from .autocast_kernels import listed
from .autocast_scopes import thread
from .counting import on_host
from .emulated_ops import product_handler
from .emulation import EmulationError, Handler
from .layers import float_tensors, op_name
from .passing_ops import passes
from .scopes import Opened, Switch, fused_encoders_off, onednn_off, uncompiled
from .tables import aligned, save_csv
from .tensor_products import PlanError, TensorProducts

_aten = torch.ops.aten
_attention_of_torch = _aten.scaled_dot_product_attention.default
_HEADER = ("op", "shapes", "dtype", "computed", "count")
_SHORT = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.float64: "f64"}
_HALVES = frozenset((torch.float16, torch.bfloat16))
_SYMBOLIC = tuple(
    getattr(torch._C._TorchDispatchModeKey, name) for name in ("FAKE", "PROXY", "FUNCTIONAL")
)
_COPIES = frozenset((_aten._to_copy.default, _aten.clone.default))
_SCALED = frozenset(
    getattr(_aten, name).default
    for name in ("_scaled_mm", "_scaled_mm_v2", "_scaled_grouped_mm", "_scaled_grouped_mm_v2")
    if hasattr(_aten, name)
)
_FP8 = frozenset((torch.float8_e4m3fn, torch.float8_e5m2, getattr(torch, "float4_e2m1fn_x2", torch.float8_e5m2)))
#: Kernels of torch that multiply by calling other operations alone.
IN_PARTS = frozenset(("aten::_grouped_mm", "aten::_trilinear", "aten::_euclidean_dist", "aten::_cdist_forward"))
_THEIR_KEYS = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional", "CPU")


class emulate:
    """Computes every matrix product and convolution of this thread in the scope as a tensor core does, bit by
    bit.

        with lab.emulate("volta") as run:
            with lab.autocast(torch.float16):
                loss = loss_of(model(x), y)
            scaler.scale(loss).backward()
        print(run.table())

    Nothing is rewritten: products are caught after autocast and autograd, so the backward pass and gradients
    of gradients have theirs emulated as well. An operation that multiplies and is not known is an error.

    model: a name of fp16lab.models(), "volta" to "blackwell-tcgen05", or a chip, "v100" to "b200", in any case.
    accumulator: "f32" or "f16", of FP16 products; BF16 and FP8 have sums in FP32. FP8 products (_scaled_mm,
    _scaled_grouped_mm, with scales of tensors or rows) are one instruction's sum over all of K; block scales (MXFP8,
    MXFP4, NVFP4 by torch.nn.functional.scaled_mm or _scaled_mm, as torchao's modules call them) enter Blackwell's own
    sums: "b200";
    library="cublaslt-12.8" cuts K into cuBLASLt's chains.
    f32: what becomes of FP32 products: "native" leaves them to torch, "tf32" rounds operands to TF32 for the
    tensor core, "fma" makes one chain of fused multiply-adds over ascending k. FP64 is always torch's. Triangular
    systems are torch's, counted as native, and refused by the other two: the order of a GPU's substitution is not
    known.
    library: a name of fp16lab.plans() or a Plan, whose calls 16-bit and FP8 products and convolutions follow: with
    "avx512_bf16" and "onednn" they have the bits of PyTorch itself on a processor with AVX512_BF16, with
    "hopper-wgmma" and Plan("cublaslt-12.8", parts=2) those of _scaled_mm on an H100 that splits K in two. A call
    without a known rule (a dilated convolution, flash attention) is an EmulationError; the number of threads is
    torch's. A watch sees the rounded side of these products. Other operations are torch's own on both sides.
    let_through: names of operations ("torchvision::roi_align", "aten::_fft_r2c") of which torch computes what would
    be refused; that is counted as "let through". What is emulated of them stays so. A backward pass has operations
    of its own ("aten::convolution_backward").

    A lab.watch in this scope counts what products give on both sides of their rounding, and so separates what
    underflowed in them from what was zero.

    What is not a product stays torch's own. Attention (scaled_dot_product_attention) is its plain algorithm
    (fp16lab.torch.attention); LSTM and GRU are decomposed, transformer encoders too; compiled modules run
    uncompiled. A scope belongs to the thread that enters and leaves it: each thread may have one open, and
    products of other threads are torch's. Three switches of torch are the whole process's, so that other
    threads compute without them: while a scope is open, the fused inference kernels of transformer encoders
    and torch.compile are off; while an LSTM is computed in it, oneDNN is. The last scope of all threads puts
    them back.

    ValueError: a model without these formats; let_through names no operation. TypeError: a model that is no name.
    RuntimeError: entered in a thread that has a scope open, or left in another one. EmulationError (a
    NotImplementedError): an operation that is on no list; tensors of a device; sparse, quantized or complex
    products; flex_attention.

    >>> layer = torch.nn.Linear(4, 2).half()
    >>> with emulate("volta") as run, torch.no_grad():
    ...     _ = layer(torch.ones(3, 4).half())
    >>> print(run.table())
    op     shapes           dtype  computed  count
    addmm  (3, 4) x (4, 2)  f16    emulated      1
    <BLANKLINE>
    """

    def __init__(
        self,
        model: str = "hopper",
        accumulator: str = "f32",
        f32: str = "native",
        let_through: Iterable[str] = (),
        library: str | Plan = "instruction",
    ) -> None:
        if f32 not in ("native", "tf32", "fma"):
            raise ValueError(f'f32 is {f32!r}; "native", "tf32" or "fma" is needed')
        for name, value, example in (("model", model, "volta"), ("accumulator", accumulator, "f32")):
            if not isinstance(value, str):
                raise TypeError(
                    f'lab.emulate: {name} is of {type(value).__name__}; a name such as "{example}" is needed'
                    + (": the network is called in the scope" if isinstance(value, torch.nn.Module) else "")
                )
        self.model, self.accumulator, self.f32 = model, accumulator, f32
        self.products = TensorProducts(model, accumulator, f32, library)
        self._let_through = _operations(let_through)
        self._mode = _Emulation(self)
        self._opened = Opened("lab.emulate")
        self._autocast_is_below = False  # of the parts of an operation whose own autocast has been
        self._products_seen: Counter[tuple[Any, tuple[torch.Size, ...], Any, str]] = Counter()
        self._passed: Counter[tuple[Any, Any]] = Counter()

    def __enter__(self) -> emulate:
        self._opened.require_closed()
        if _of_thread.run is not None:
            raise RuntimeError(
                f'lab.emulate("{_of_thread.run.model}") is open in this thread: scopes do not nest, leave it first'
            )
        if torch.compiler.is_compiling():
            raise RuntimeError("lab.emulate cannot open in a compiled function: open it around the call")
        self._warn_of_switches()
        with ExitStack() as scope:
            scope.enter_context(fused_encoders_off)
            scope.enter_context(_above_autograd)
            scope.enter_context(uncompiled)
            scope.enter_context(self._mode)
            scope.callback(setattr, _of_thread, "run", None)
            self._opened.hold(scope)
            _of_thread.run = self
        return self

    def __exit__(self, *error: Any) -> None:
        self._opened.close(*error)
        if error[0] is None and self.f32 == "native" and self.total("native") > self.total("emulated") == 0:
            warnings.warn(
                f"lab.emulate emulated none of this scope's products ({self.total('native')}): no operand was"
                ' FP16 or BF16. lab.autocast(torch.float16) makes them FP16; f32="tf32" or "fma" emulates FP32',
                stacklevel=2,
            )

    def _warn_of_switches(self) -> None:
        """Torch's switches for a GPU's products are arguments here."""
        of_cuda = torch.backends.cuda.matmul
        narrow = of_cuda.allow_fp16_accumulation and self.accumulator == "f32"
        tf32 = of_cuda.fp32_precision == "tf32" and self.f32 == "native"
        for is_on, switch, argument in (
            (narrow, "allow_fp16_accumulation", 'accumulator="f16"'),
            (tf32, "fp32_precision", 'f32="tf32"'),
        ):
            if is_on:
                warnings.warn(
                    f"torch.backends.cuda.matmul.{switch} is on, and lab.emulate does not follow it: "
                    f"{argument} emulates it",
                    stacklevel=3,
                )

    # ---- what was done

    def op_stats(self) -> list[dict[str, str | int]]:
        """A row for each operation, shapes and dtype: op, shapes (of a product's operands), dtype, computed
        and count. computed: "emulated" by the tensor core (or as `f32` says), "native" for a product that
        torch computed, "let through" for what let_through names, "torch" for what is no product. Products
        come first."""
        rows: list[dict[str, str | int]] = []
        for (func, shapes, dtype, how), count in self._products_seen.items():
            text = " x ".join(str(tuple(shape)) for shape in shapes)
            rows.append(_row(func, text, dtype, how, count))
        for (func, dtype), count in self._passed.items():
            rows.append(_row(func, "", dtype, "torch", count))
        return rows

    def total(self, computed: str) -> int:
        """Operations that were "emulated", "native", "let through" or "torch"."""
        return sum(int(row["count"]) for row in self.op_stats() if row["computed"] == computed)

    def table(self) -> str:
        """The products of op_stats, and what was let through, as text."""
        rows = [[str(row[c]) for c in _HEADER] for row in self.op_stats() if row["computed"] != "torch"]
        return aligned([list(_HEADER), *rows])

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes op_stats as CSV, as a whole or not at all; returns the path."""
        return save_csv(path, _HEADER, ([row[column] for column in _HEADER] for row in self.op_stats()))

    # ---- what the table of operations asks (emulation.Run)

    def emulates(self, func: Any, *operands: torch.Tensor, unless: str = "") -> bool:
        """Counts a product; False: torch computes it."""
        dtype = operands[0].dtype
        if dtype in _HALVES:
            how = "emulated"
        elif dtype == torch.float32:
            how = "native" if self.f32 == "native" else "emulated"
        elif dtype in _FP8 and func in _SCALED:
            how = "emulated"
        else:
            how = "native"
        if dtype.is_complex:
            raise EmulationError(f"{func.name()} of complex numbers is not emulated")
        if how == "emulated":
            if unless:
                raise EmulationError(f"{func.name()}: {unless}")
            for operand in operands:
                try:
                    in_memory(operand, "an operand")
                except ValueError as error:
                    raise EmulationError(f"{func.name()}: {error}") from None
        self._products_seen[func, tuple([t.shape for t in operands]), dtype, how] += 1
        # torch raises an error for other dtypes.
        return how == "emulated" and all([t.dtype == dtype or {t.dtype, dtype} <= _FP8 for t in operands])

    def count_emulated(self, func: Any, *operands: torch.Tensor) -> None:
        self._products_seen[func, tuple([t.shape for t in operands]), operands[0].dtype, "emulated"] += 1

    def _handler(self, func: Any) -> Handler | None:
        """What to do with an operation; None: it is torch's own."""
        if not isinstance(func, torch._ops.OpOverload):
            return _refused
        if func is _attention_of_torch:
            return _attended
        handler = product_handler(func)
        if handler is not None:
            return _or_let_through(handler)
        if func._schema.name in self._let_through:
            return _left_to_torch
        if func._schema.name in IN_PARTS and func._overloadname == "default":
            return _taken_apart
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
            return _decomposed
        return None if passes(func) else _refused


class _OfThread(threading.local):
    run: emulate | None = None  # the open scope


_of_thread = _OfThread()


def running() -> emulate | None:
    """The scope that is open in this thread."""
    return _of_thread.run


def _operations(names: Iterable[str]) -> frozenset[str]:
    """The names of let_through. ValueError: one that is no operation."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ValueError(f'let_through is {names!r}; a list is needed: ["{names}"]')
    for name in names:
        space, _, op = name.partition("::")
        if not op or not hasattr(getattr(torch.ops, space), op):
            raise ValueError(
                f'let_through: there is no operation "{name}"; "torchvision::nms" is such a name'
            )
    return frozenset(names)


def _row(func: Any, shapes: str, dtype: Any, how: str, count: int) -> dict[str, str | int]:
    name = _SHORT.get(dtype, str(dtype).removeprefix("torch.")) if dtype is not None else ""
    return {"op": op_name(func), "shapes": shapes, "dtype": name, "computed": how, "count": count}


def _own_kernel(func: Any, *args: Any, **kwargs: Any) -> Any:
    """The composite operation as PyTorch's own kernel computes it. (`decompose` prefers kernels in Python, which
    torch.compile traces, and which compute some interpolations otherwise.)"""
    return func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


def _in_parts(func: Any, *args: Any, **kwargs: Any) -> Any:
    """The same in operations that the scope knows: oneDNN's LSTM is a single one."""
    if func is not _aten.lstm.input:
        return _own_kernel(func, *args, **kwargs)
    with onednn_off:
        return _own_kernel(func, *args, **kwargs)


def _decomposed(run: emulate, func: Any, *args: Any, **kwargs: Any) -> Any:
    """What inference mode leaves whole. Its parts meet autocast where they would outside of inference mode: if
    it was on when the operation was called, and has not cast for this operation already."""
    with torch._C._RestorePythonTLSSnapshot():  # type: ignore[attr-defined]
        on = torch.is_autocast_enabled("cpu")
    with _parts_of(run, on and not run._autocast_is_below and func.name() not in listed(thread.lists())):
        return _in_parts(func, *args, **kwargs)


def _taken_apart(run: emulate, func: Any, *args: Any, **kwargs: Any) -> Any:
    """What torch computes by other operations, after autocast."""
    key = next(key for key in _THEIR_KEYS if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key))
    with _parts_of(run, False):
        return func._op_dk(getattr(torch._C.DispatchKey, key), *args, **kwargs)


@contextmanager
def _parts_of(run: emulate, meet_autocast: bool) -> Iterator[None]:
    """The parts of an operation are called in the scope."""
    above, switched_off = run._autocast_is_below, torch._C._dispatch_tls_local_exclude_set()
    kept = switched_off.remove(torch._C.DispatchKey.AutocastCPU) if meet_autocast else switched_off
    run._autocast_is_below = not meet_autocast
    try:
        with torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), kept), run._mode:
            yield
    finally:
        run._autocast_is_below = above


def _attention(run: emulate, query: Any, *args: Any, **kwargs: Any) -> Any:
    if run.products.planned and query.dtype in _HALVES:
        if not torch.backends.cuda.flash_sdp_enabled():
            return _in_parts(_attention_of_torch, query, *args, **kwargs)
        raise EmulationError(
            "aten::scaled_dot_product_attention: the order of its flash kernel is not known; "
            "torch.nn.attention.sdpa_kernel(SDPBackend.MATH) around both sides is right"
        )
    if query.dtype in _HALVES or query.dtype == torch.float32 and run.f32 != "native":
        return attention(query, *args, **kwargs)
    return _in_parts(_attention_of_torch, query, *args, **kwargs)


def _attended(run: emulate, func: Any, *args: Any, **kwargs: Any) -> Any:
    with run._mode:
        return _attention(run, *args, **kwargs)


def _catch_above_autograd() -> Callable[[], object]:
    """Composite operations that are caught before autograd sees their parts. In threads without a scope they are
    torch's own."""

    def caught_attention(*args: Any, **kwargs: Any) -> Any:
        run = _of_thread.run
        return _own_kernel(_attention_of_torch, *args, **kwargs) if run is None else _attention(run, *args, **kwargs)

    def caught_lstm(*args: Any) -> Any:
        return (_own_kernel if _of_thread.run is None else _in_parts)(_aten.lstm.input, *args)

    library = torch.library.Library("aten", "IMPL")
    library.impl(_attention_of_torch, caught_attention, "AutogradCPU")
    library.impl(_aten.lstm.input, caught_lstm, "AutogradCPU")
    return library._destroy


_above_autograd = Switch(_catch_above_autograd)


def _or_let_through(product: Handler) -> Handler:
    """Some products have calls that are not emulated."""

    def handle(run: emulate, func: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return product(run, func, *args, **kwargs)
        except (EmulationError, PlanError) as error:
            name = func._schema.name
            if name not in run._let_through:
                what = f"{func.name()}: " if isinstance(error, PlanError) else ""
                raise EmulationError(f"{what}{error}. {_remedy(name)}") from None
        return _left_to_torch(run, func, *args, **kwargs)

    return handle


def _remedy(name: str) -> str:
    return f'lab.emulate(..., let_through=["{name}"]) leaves it to torch, counted as "let through"'


def _left_to_torch(run: emulate, func: Any, *args: Any, **kwargs: Any) -> Any:
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    dtype = tensors[0].dtype if tensors else None
    run._products_seen[func, tuple([t.shape for t in tensors]), dtype, "let through"] += 1
    return func(*args, **kwargs)


def _refused(run: emulate, func: Any, *args: Any, **kwargs: Any) -> Any:
    if not isinstance(func, torch._ops.OpOverload):
        raise EmulationError(f"{func.name()} is a higher-order operation, which is not emulated")
    name = func._schema.name
    if not float_tensors((args, kwargs)) and not any(
        isinstance(a, torch.Tensor) and a.dtype.is_complex for a in args
    ):
        result = func(*args, **kwargs)
        if not float_tensors(result):
            run._passed[func, None] += 1
            return result
    raise EmulationError(
        f"{name} is on no list of lab.emulate: it may multiply matrices, and nothing here emulates it."
        f" {_remedy(name)}"
    )


def _require_host(run: emulate, func: Any, args: tuple) -> None:
    """EmulationError: an operand is on a device."""
    for each in args:
        if isinstance(each, torch.Tensor) and not on_host(each) and each.device.type != "meta" and float_tensors(each):
            name = func.name().partition(".")[0]
            if name not in run._let_through:
                raise EmulationError(
                    f"{func.name()}: an operand is on {each.device}, and lab.emulate multiplies on the CPU: model.cpu()"
                    f" and batches there; {_remedy(name)}"
                )


class _Emulation(TorchDispatchMode):
    supports_higher_order_operators = True  # to refuse them

    def __init__(self, run: emulate) -> None:
        super().__init__()
        self._run = run
        self._handlers: dict[Any, Handler | None] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        run = self._run
        if any([each is not torch.Tensor for each in types]):
            if any([torch._C._get_dispatch_mode(mode) is not None for mode in _SYMBOLIC]):
                return func(*args, **(kwargs or {}))  # shapes alone: nothing is multiplied
            return NotImplemented  # a wrapper class's own dispatch is next; its products of plain tensors come here
        try:
            handler = self._handlers[func]
        except KeyError:
            handler = self._handlers[func] = run._handler(func)
        if handler is not None:
            if handler is not _decomposed:
                _require_host(run, func, args)
            if any([isinstance(each, torch.Tensor) and each.is_nested for each in args]):
                raise EmulationError(
                    f"{func.name()}: an operand is a nested tensor of layout torch.strided; those of layout"
                    " torch.jagged are emulated"
                )
            return handler(run, func, *args, **(kwargs or {}))
        first = args[0] if args else None
        run._passed[func, first.dtype if isinstance(first, torch.Tensor) else None] += 1
        result = func(*args, **kwargs) if kwargs else func(*args)
        if func in _COPIES and product_sums.wanted():
            product_sums.follow(result, args[0])
        return result
