"""The lines that keep modules in FP32, in the words of PyTorch, Paddle and MindSpore."""

from __future__ import annotations

from collections.abc import Sequence

_TORCH = """\
from torch.utils._pytree import tree_map

def in_fp32(forward):
    def wide(x):
        return x.float() if isinstance(x, torch.Tensor) and x.is_floating_point() else x
    def run(*args, **kwargs):
        with torch.autocast("{device}", enabled=False):
            return forward(*tree_map(wide, args), **tree_map(wide, kwargs))
    return run

for name in [{names}]:
    module = model.get_submodule(name)
    module.forward = in_fp32(module.forward)"""
_LOOSE = '# and around what no module computes itself: with torch.autocast("{device}", enabled=False)'

#: Paddle's names in dygraph (paddle.amp.amp_lists) of operations that PyTorch has under other ones.
_PADDLE = {
    "addmm": ("matmul_v2", "elementwise_add"),
    "mm": ("matmul_v2",),
    "bmm": ("matmul_v2",),
    "baddbmm": ("matmul_v2", "elementwise_add"),
    "convolution": ("conv2d", "elementwise_add"),
    "_softmax": ("softmax",),
    "_log_softmax": ("log_softmax",),
    "native_layer_norm": ("layer_norm",),
    "native_batch_norm": ("batch_norm",),
    "native_group_norm": ("group_norm",),
    "add": ("elementwise_add",),
    "sub": ("elementwise_sub",),
    "mul": ("elementwise_mul",),
    "div": ("elementwise_div",),
    "sum": ("reduce_sum",),
    "mean": ("reduce_mean",),
    "embedding": ("lookup_table_v2",),
}
#: What moves numbers and computes none.
_MOVES = ("cast", "clone", "copy_", "cat", "index", "constant_pad_nd", "detach")


def lines_for(framework: str, modules: Sequence[str], ops: Sequence[str], device: str) -> str:
    """`modules`: names as named_modules gives them; "": what no module computes, or the model itself. `ops`: the
    operations in them, as PyTorch's dispatcher calls them. ValueError: a framework of another name."""
    named = [name for name in modules if name]
    if framework in ("torch", "pytorch"):
        text = _TORCH.format(device=device, names=", ".join(f'"{name}"' for name in named)) if named else ""
        loose = _LOOSE.format(device=device) if len(named) < len(modules) else ""
        return "\n".join(filter(None, (text, loose)))
    if framework == "paddle":
        black = sorted({name for op in ops if op not in _MOVES for name in _PADDLE.get(op, (op.strip("_"),))})
        names = ", ".join(f'"{name}"' for name in black)
        return (
            f"# all operations of these kinds, since Paddle's list has no layers:\n"
            f"with paddle.amp.auto_cast(custom_black_list={{{names}}}):\n"
            f"    ...\n"
            f"# or, in the forward of {', '.join(named) or 'the network'} alone:\n"
            f"with paddle.amp.auto_cast(enable=False):\n"
            f"    ..."
        )
    if framework == "mindspore":
        return "\n".join(f"{_cell(name)}.to_float(mindspore.float32)" for name in modules)
    raise ValueError(f'lines: framework is {framework!r}; "torch", "paddle" or "mindspore" is needed')


def _cell(name: str) -> str:
    """ "net.layers[0].attn" of "layers.0.attn"."""
    return "net" + "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in name.split(".") if part)
