#!/usr/bin/env python3
"""Levels and loss scalers against Paddle's and MindSpore's own: scripts/compare_with_frameworks.py PROGRAM

Both frameworks run on the CPU, each in a process of its own. For every level, and overrides that change it, each op is called
on FP32 and on 16-bit inputs, and the dtype of its result is compared with what the rules and lists of `fp16lab list --json`
say. Paddle builds a static graph without running it, in BF16: its CPU casts nothing while it computes, and has no FP16 kernels;
the lists of both dtypes are the same. MindSpore's O1 to O3 hand on FP32 always: there the values show if they were FP16
before. Then every loss scaler of the two steps through random traces of overflows beside `fp16lab policy`. A difference is
printed with the op's name; exit code 1 unless KNOWN says why it is one. Last, MindSpore trains LeNet-5 from the initial weights
that `exp_tutorials --weights` writes, on its tutorial's images in its own order: the tutorial's ten losses.
Needs paddlepaddle, mindspore and numpy < 2 (PyPI); the target `frameworks` installs them.
"""
import collections
import contextlib
import importlib.metadata
import io
import json
import os
import random
import subprocess
import sys
import tempfile

LOW = "low"  # f16 in MindSpore, bf16 in Paddle
F32 = "f32"

# (framework, level, op, inputs): why ours differs.
KNOWN = {
    ("paddle", "O2", "conv_transpose2d", LOW):
        "a product of a low model is low here where its inputs differ; conv2d_transpose, unlisted, takes the wider type",
    ("mindspore", "auto", "sum", LOW): "ops.ReduceSum is in no list; ours is SumExt, which mint.sum calls",
    ("mindspore", "auto", "softmax_cross_entropy", LOW):
        "nn.SoftmaxCrossEntropyWithLogits is in no list; ours is LogSoftmax and NLLLoss. Its inputs are FP32 in a training",
}


# What MindSpore r1.7's mixed-precision tutorial prints.
PRINTED = (2.3018966, 2.2965345, 2.3021417, 2.2995133, 2.3040886, 2.3131478, 2.2919555, 2.311748, 2.304955, 2.2682834)


# ---- what fp16lab says ----

class Level:
    """The decision of engine/amp/levels/autocast.hpp, from the rules and lists that the program prints."""

    def __init__(self, rules, white=(), black=(), promote=True):
        self.rules = rules
        lists = rules.get("op_lists", {"white": [], "black": []})
        self.lists = {row["op"]: name for name in ("black", "white") for row in lists[name]}
        self.lists |= {op: "white" for op in white} | {op: "black" for op in black}
        self.promote = promote

    def result(self, op, inputs):
        """The dtype that `op` hands on for inputs that are FP32 or low each."""
        where = self.lists.get(op)
        if where == "white":
            return F32 if self.rules["widens_white_results"] else LOW
        if where == "black":
            return LOW if self.rules["narrows_black_results"] else F32
        if not self.promote or (self.rules["low_model"] and op in ("matmul", "linear", "conv2d", "conv_transpose2d")
                                and len(set(inputs)) > 1):
            return LOW
        if self.rules["unlisted"] == "f32":
            return F32
        return LOW if set(inputs) == {LOW} else F32

    def computed(self, op):
        """In what a network of this op alone computes on FP32 inputs, which a low model casts."""
        where = self.lists.get(op)
        return LOW if where == "white" or (self.rules["low_model"] and where != "black") else F32

    def layer(self, op, inputs, bias):
        """The result of a layer whose bias has this dtype; "" if it has none."""
        if bias == "":
            return self.result(op if self.rules["fuses_bias"] or op != "linear" else "matmul", inputs)
        if self.rules["fuses_bias"]:
            return self.result(op, [*inputs, bias])
        return self.result("add", [self.result("matmul" if op == "linear" else op, inputs), bias])


def levels_of(program, dialect):
    everything = json.loads(subprocess.run([program, "list", "--json"], check=True, capture_output=True).stdout)
    return {level["level"]: level for one in everything["dialects"] if one["name"] == dialect for level in one["levels"]}


# ---- what Paddle says ----

def paddle_calls(paddle, dtype):
    """Ops by our names, on inputs of this dtype; parameters without a cast are FP32."""
    F = paddle.nn.functional
    data = paddle.static.data
    x, image = data("x", [2, 4], dtype), data("image", [2, 1, 4, 4], dtype)
    w, filters, deconvolution = data("w", [4, 4]), data("f", [2, 1, 3, 3]), data("d", [1, 2, 3, 3])
    bias4, bias2, labels = data("b4", [4]), data("b2", [2]), data("labels", [2], "int64")
    return {
        "matmul": lambda: paddle.matmul(x, w), "linear": lambda: F.linear(x, w), "linear+bias": lambda: F.linear(x, w, bias4),
        "conv2d": lambda: F.conv2d(image, filters), "conv2d+bias": lambda: F.conv2d(image, filters, bias2),
        "conv_transpose2d": lambda: F.conv2d_transpose(image, deconvolution),
        "conv_transpose2d+bias": lambda: F.conv2d_transpose(image, deconvolution, bias2),
        "exp": lambda: paddle.exp(x), "log": lambda: paddle.log(x), "log1p": lambda: paddle.log1p(x),
        "square_root": lambda: paddle.sqrt(x), "reciprocal_square_root": lambda: paddle.rsqrt(x),
        "absolute": lambda: paddle.abs(x), "sigmoid": lambda: F.sigmoid(x), "tanh": lambda: paddle.tanh(x),
        "relu": lambda: F.relu(x), "gelu": lambda: F.gelu(x), "softmax": lambda: F.softmax(x),
        "log_softmax": lambda: F.log_softmax(x), "layer_norm": lambda: F.layer_norm(x, [4]),
        "sum": lambda: paddle.sum(x), "mean": lambda: paddle.mean(x), "max": lambda: paddle.max(x),
        "add": lambda: x + x, "subtract": lambda: x - x, "multiply": lambda: x * x, "divide": lambda: x / x,
        "maximum": lambda: paddle.maximum(x, x), "minimum": lambda: paddle.minimum(x, x),
        "reshape": lambda: paddle.reshape(x, [8]), "permute": lambda: paddle.transpose(x, [1, 0]),
        "concat": lambda: paddle.concat([x, x]), "max_pool2d": lambda: F.max_pool2d(image, 2),
        "average_pool2d": lambda: F.avg_pool2d(image, 2), "dropout": lambda: F.dropout(x, 0.5),
        "softmax_cross_entropy": lambda: F.cross_entropy(x, labels), "mse_loss": lambda: F.mse_loss(x, x),
        "huber_loss": lambda: F.smooth_l1_loss(x, x),
        "binary_cross_entropy_with_logits": lambda: F.binary_cross_entropy_with_logits(x, x),
    }


def paddle_side(_):
    import paddle
    paddle.enable_static()
    names = {paddle.float32: F32, paddle.bfloat16: LOW}
    overrides = [{}, {"white": ["elementwise_add"]}, {"white": ["exp"]}, {"black": ["matmul_v2"]}, {"black": ["relu"]},
                 {"white": ["exp", "relu"], "black": ["elementwise_add"]}]
    settings = [(level, override) for level in ("OD", "O1", "O2") for override in overrides] + [("O2", {"promote": False})]
    dtypes, refused = [], []
    for level, override in settings:
        for given in ("float32", "bfloat16"):
            with paddle.static.program_guard(paddle.static.Program(), paddle.static.Program()):
                for op, call in paddle_calls(paddle, given).items():
                    try:
                        with paddle.amp.auto_cast(level=level, dtype="bfloat16", custom_white_list=override.get("white"),
                                                  custom_black_list=override.get("black"),
                                                  use_promote=override.get("promote", True)):
                            seen = names[call().dtype]
                    except Exception:  # a type that an op does not take on this machine, in words of many kinds
                        refused.append(f"{level} {op} of {given}")
                        continue
                    dtypes.append([level, override, op, LOW if given == "bfloat16" else F32, seen])

    class Model(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.weight, self.batch_norm, self.layer_norm = (paddle.nn.Linear(4, 4), paddle.nn.BatchNorm1D(4),
                                                             paddle.nn.LayerNorm(4))

    paddle.disable_static()
    decorate = paddle.amp.auto_cast.__globals__["amp_initialize"]
    parameters = []
    for excluded in (None, "weight"):
        model = Model()
        decorate(models=[model], dtype="float16", excluded_layers=excluded and [getattr(model, excluded)])
        for name, parameter in model.named_parameters():
            if name.endswith(".weight"):
                low = LOW if parameter.dtype == paddle.float16 else F32
                parameters.append([excluded, name.removesuffix(".weight"), low])
    return {"dtypes": dtypes, "refused": refused, "scalers": paddle_scalers(paddle), "parameters": parameters}


def paddle_scalers(paddle):
    from unittest import mock
    scalers = {}

    def dynamic(options, trace):
        with mock.patch("paddle.amp.grad_scaler._dygraph_tracer"):  # which says that this is a GPU
            scaler = paddle.amp.GradScaler(**options)
        scales = []
        for letter in trace:
            scaler._cache_found_inf = letter == "O"
            with contextlib.redirect_stdout(io.StringIO()):
                scaler._update()
            scales.append(float(scaler._scale))
        return scales

    def static(options, trace):
        scale = paddle.to_tensor([options["init_loss_scaling"]], "float32")
        good, bad = paddle.zeros([1], "int32"), paddle.zeros([1], "int32")
        scales = []
        for letter in trace:
            gradient = paddle.full([2], float("inf") if letter == "O" else 1.0)
            paddle._C_ops.update_loss_scaling_([gradient], paddle.to_tensor([letter == "O"]), scale, good, bad,
                                               options["incr_every_n_steps"], options["decr_every_n_nan_or_inf"],
                                               options["incr_ratio"], options["decr_ratio"], False)
            assert letter != "O" or not gradient.any(), "an overflow leaves zeros (scaler.on_overflow = \"zero\")"
            scales.append(float(scale))
        return scales

    for bad in (1, 2):
        options = {"init_loss_scaling": 256.0, "incr_ratio": 2.0, "decr_ratio": 0.5, "incr_every_n_steps": 4,
                   "decr_every_n_nan_or_inf": bad}
        ours = {"initial_scale": 256, "growth_interval": 4, "bad_steps": bad}
        for name, run in (("paddle", dynamic), ("paddle-static", static)):
            scalers[f"{name} {bad}"] = [name, ours, [[trace, run(options, trace)] for trace in traces()]]
    return scalers


# ---- what MindSpore says ----

# Networks that are one op. MindSpore's rewriter (O1) reads them from a file, as classes that no other encloses.
NETWORKS = """from mindspore import nn


class OfOne(nn.Cell):
    def __init__(self, op):
        super().__init__()
        self.op = op

    def construct(self, x):
        y = self.op(x)
        return y


class OfTwo(nn.Cell):
    def __init__(self, op):
        super().__init__()
        self.op = op

    def construct(self, x, y):
        z = self.op(x, y)
        return z
"""


def mindspore_side(weights):
    with open("networks.py", "w") as file:
        file.write(NETWORKS)
    sys.path.insert(0, os.getcwd())
    import networks
    import mindspore as ms
    import numpy as np
    from mindspore import nn, ops
    from mindspore.train import amp
    ms.set_device("CPU")
    names = {ms.float32: F32, ms.float16: LOW}

    def tensors(kind, dtype):
        draw = np.random.RandomState(7)
        shapes = {"x": [(2, 4)], "xx": [(2, 4)] * 2, "xw": [(2, 4), (4, 4)], "image": [(2, 1, 4, 4)]}[kind]
        return [ms.Tensor(draw.uniform(0.1, 1, shape).astype(dtype)) for shape in shapes]

    def was_half(values):
        return bool((values.astype(np.float16).astype(np.float32) == values).all())

    calls = {
        "matmul": ("xw", ops.MatMul), "linear": ("x", lambda: nn.Dense(4, 4, has_bias=False)),
        "linear+bias": ("x", lambda: nn.Dense(4, 4)), "conv2d": ("image", lambda: nn.Conv2d(1, 2, 3)),
        "conv2d+bias": ("image", lambda: nn.Conv2d(1, 2, 3, has_bias=True)),
        "conv_transpose2d": ("image", lambda: nn.Conv2dTranspose(1, 2, 3)),
        "conv_transpose2d+bias": ("image", lambda: nn.Conv2dTranspose(1, 2, 3, has_bias=True)),
        "exp": ("x", ops.Exp), "log": ("x", ops.Log), "log1p": ("x", ops.Log1p), "square_root": ("x", ops.Sqrt),
        "reciprocal_square_root": ("x", ops.Rsqrt), "absolute": ("x", ops.Abs), "sigmoid": ("x", ops.Sigmoid),
        "tanh": ("x", ops.Tanh), "erf": ("x", ops.Erf), "relu": ("x", ops.ReLU), "gelu": ("x", ops.GeLU),
        "softmax": ("x", ops.Softmax), "log_softmax": ("x", ops.LogSoftmax), "layer_norm": ("x", lambda: nn.LayerNorm((4,))),
        "batch_norm": ("image", lambda: nn.BatchNorm2d(1)), "group_norm": ("image", lambda: nn.GroupNorm(1, 1)),
        "sum": ("x", ops.ReduceSum), "mean": ("x", ops.ReduceMean), "max": ("x", ops.ReduceMax),
        "add": ("xx", ops.Add), "subtract": ("xx", ops.Sub), "multiply": ("xx", ops.Mul), "divide": ("xx", ops.RealDiv),
        "maximum": ("xx", ops.Maximum), "minimum": ("xx", ops.Minimum), "negate": ("x", ops.Neg),
        "max_pool2d": ("image", lambda: ops.MaxPool(2, 2)), "average_pool2d": ("image", lambda: ops.AvgPool(2, 2)),
        "softmax_cross_entropy": ("xx", lambda: nn.SoftmaxCrossEntropyWithLogits()),
        "huber_loss": ("xx", ops.SmoothL1Loss),
    }
    dtypes, values, refused = [], [], []
    settings = [("auto", {}, np.float32), ("auto", {}, np.float16), ("O1", {}, np.float32), ("O2", {}, np.float32),
                ("O3", {}, np.float32), ("O1", {"white": ["exp"]}, np.float32),
                ("O1", {"white": ["relu", "tanh"]}, np.float32)]
    classes = {"exp": ops.Exp, "relu": ops.ReLU, "tanh": ops.Tanh}
    for level, override, given in settings:
        for op, (kind, make) in calls.items():
            inputs = tensors(kind, given)
            network = (networks.OfOne if len(inputs) == 1 else networks.OfTwo)(make())
            try:
                if override:
                    white = amp.get_white_list() + [classes[name] for name in override["white"]]
                    network = amp.custom_mixed_precision(network, white_list=white)
                else:
                    network = amp.auto_mixed_precision(network, level)
                result = network(*inputs)
            except Exception:  # a type that an op does not take on this machine, in words of many kinds
                refused.append(f"{level} {op} of {given.__name__}")
                continue
            result = result[0] if isinstance(result, tuple) else result
            if level == "auto":
                dtypes.append([level, override, op, LOW if given == np.float16 else F32, names[result.dtype]])
            elif names[result.dtype] == F32 and op not in ("layer_norm", "batch_norm", "group_norm"):  # see cells
                values.append([level, override, op, LOW if was_half(result.asnumpy()) else F32])

    class Network(nn.Cell):
        def __init__(self):
            super().__init__()
            self.conv2d, self.batch_norm, self.layer_norm = nn.Conv2d(1, 1, 3), nn.BatchNorm2d(1), nn.LayerNorm((4,))

        def construct(self, x):
            return self.layer_norm(self.batch_norm(self.conv2d(x)))

    # to_float says in what a cell computes; _OutputTo16 around it, what it hands on.
    cells = []

    def note_cells(level, override, network):
        for name, cell in getattr(network, "_backbone", network).name_cells().items():
            handed_on = LOW if isinstance(cell, amp._OutputTo16) or getattr(cell, "fp16", False) else F32
            cell = getattr(cell, "_backbone", cell)
            cells.append([level, override, name, LOW if getattr(cell, "fp16", False) else F32, handed_on])

    for level in ("O2", "O3"):
        for override in ({}, {"keep_batchnorm_fp32": True}, {"keep_batchnorm_fp32": False}):
            config = {**amp._config_level[level], **override}
            note_cells(level, override, amp._auto_mixed_precision_process(Network(), config, level))
    blacker = amp.get_black_list() + [nn.Conv2d]
    note_cells("O2", {"black": ["conv2d"]}, amp.custom_mixed_precision(Network(), black_list=blacker))
    return {"dtypes": dtypes, "refused": refused, "values": values, "cells": cells,
            "scalers": mindspore_scalers(ms, nn), "losses": mindspore_tutorial(ms, nn, weights)}


def mindspore_tutorial(ms, nn, weights):
    """The loss of the last batch of each of ten epochs."""
    import numpy as np
    ms.set_seed(0)
    rows = []
    for _ in range(1024):
        image = np.random.randn(1, 32, 32).astype(np.float32)
        rows.append((image, np.eye(10, dtype=np.float32)[np.random.randint(0, 10)]))
    batches = ms.dataset.GeneratorDataset(rows, ["data", "label"]).batch(32, drop_remainder=True)
    network, losses = nn.SequentialCell(collections.OrderedDict(
        conv1=nn.Conv2d(1, 6, 5, pad_mode="valid"), relu1=nn.ReLU(), pool1=nn.MaxPool2d(2, 2),
        conv2=nn.Conv2d(6, 16, 5, pad_mode="valid"), relu2=nn.ReLU(), pool2=nn.MaxPool2d(2, 2), flatten=nn.Flatten(),
        fc1=nn.Dense(400, 120, bias_init="zeros"), relu3=nn.ReLU(), fc2=nn.Dense(120, 84, bias_init="zeros"),
        relu4=nn.ReLU(), fc3=nn.Dense(84, 10, bias_init="zeros"))), []
    for name, values in ms.load_checkpoint(weights, format="safetensors").items():
        network.parameters_dict()[name].set_data(values)
    optimizer = nn.Momentum(network.trainable_params(), 0.01, 0.9, loss_scale=1024.0)
    model = ms.Model(network, nn.SoftmaxCrossEntropyWithLogits(reduction="mean"), optimizer, amp_level="O0",
                     loss_scale_manager=ms.FixedLossScaleManager(1024.0, False))

    class Losses(ms.Callback):
        def on_train_epoch_end(self, run_context):
            losses.append(float(run_context.original_args().net_outputs.asnumpy()))

    model.train(10, batches, callbacks=[Losses()], dataset_sink_mode=False)
    return losses


def mindspore_scalers(ms, nn):
    def manager(trace):
        scaler = ms.amp.DynamicLossScaleManager(256, 2, 4)
        scales = []
        for letter in trace:
            scaler.update_loss_scale(letter == "O")
            scales.append(float(scaler.get_loss_scale()))
        return scales

    def cell(trace):
        update = nn.DynamicLossScaleUpdateCell(256, 2, 4)
        scale = ms.Parameter(ms.Tensor(256, ms.float32), name="scale")
        scales = []
        for letter in trace:
            update(scale, ms.Tensor(letter == "O"))
            scales.append(float(scale.asnumpy()))
        return scales

    def functional(trace):
        scaler = ms.amp.DynamicLossScaler(256, 2, 4)
        scales = []
        for letter in trace:
            scaler.adjust(ms.Tensor(letter != "O"))
            scales.append(float(scaler.scale_value.asnumpy()))
        return scales

    def fixed(trace):
        scaler = ms.amp.FixedLossScaleManager(256)
        for letter in trace:
            scaler.update_loss_scale(letter == "O")
        return [float(scaler.get_loss_scale())] * len(trace)

    ours = {"initial_scale": 256, "growth_interval": 4}
    return {name: [name, ours, [[trace, run(trace)] for trace in traces()]]
            for name, run in (("mindspore", manager), ("mindspore-cell", cell), ("mindspore-amp", functional))} | {
        "mindspore-fixed": ["mindspore-fixed", {"initial_scale": 256}, [[trace, fixed(trace)] for trace in traces()]]}


# ---- the comparison ----

def traces():
    """F: finite, O: an overflow; rare ones, frequent ones, almost nothing else."""
    draw = random.Random(7)
    return ["".join("O" if draw.random() < rate else "F" for _ in range(60)) for rate in (0.05, 0.2, 0.5, 0.9)
            for _ in range(3)]


class Comparison:
    def __init__(self):
        self.equal, self.known, self.wrong = 0, 0, 0

    def same(self, where, theirs, ours, why=None):
        if theirs == ours:
            self.equal += 1
            return
        self.wrong, self.known = self.wrong + (why is None), self.known + (why is not None)
        print(f"{'DIFFERS' if why is None else 'known'}: {where}: theirs {theirs}, ours {ours}" + (f" ({why})" if why else ""))


def compare_dtypes(comparison, framework, levels, rows):
    names = {"elementwise_add": "add", "matmul_v2": "matmul"}
    for level, override, op, given, theirs in rows:
        lists = [[names.get(name, name) for name in override.get(which, [])] for which in ("white", "black")]
        ours = Level(levels[level], *lists, override.get("promote", True))
        op_name, _, bias = op.partition("+")
        parameters = F32  # without a cast
        if op_name in ("linear", "conv2d", "conv_transpose2d"):
            said = ours.layer(op_name, [given, parameters], parameters if bias else "")
        elif framework == "paddle" and op_name == "matmul":
            said = ours.result(op_name, [given, parameters])
        else:
            said = ours.result(op_name, [given])
        why = KNOWN.get((framework, level, op, given))
        comparison.same(f"{framework} {level} {override or ''} {op} of {given}", theirs, said, why)


def compare_values(comparison, levels, rows):
    for level, override, op, theirs in rows:
        ours = Level(levels[level], override.get("white", [])).computed(op.partition("+")[0])
        comparison.same(f"mindspore {level} {override or ''} {op} computes in", theirs, ours)


def compare_cells(comparison, levels, cells):
    for level, override, op, computed, handed_on in cells:
        kept = override.get("keep_batchnorm_fp32", levels[level]["uses_lists"])
        ours = Level(levels["O2" if kept else "O3"], (), override.get("black", ()))
        comparison.same(f"mindspore {level} {override} {op} computes in", computed,
                        F32 if ours.lists.get(op) == "black" else LOW)
        comparison.same(f"mindspore {level} {override} {op} hands on", handed_on, ours.result(op, [LOW]))


def compare_scalers(comparison, program, scalers):
    for name, (policy, settings, runs) in scalers.items():
        for trace, theirs in runs:
            said = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
            rows = subprocess.run([program, "policy", "--policy", policy, *said, "--trace", trace], check=True,
                                  capture_output=True, text=True).stdout.splitlines()
            column = rows[0].split(",").index("scale")
            comparison.same(f"{name} {trace}", theirs, [float(row.split(",")[column]) for row in rows[1:]])


def compare_losses(comparison, losses):
    for epoch, (loss, printed) in enumerate(zip(losses, PRINTED, strict=True), 1):
        comparison.same(f"mindspore's tutorial, epoch {epoch}: {loss:.7f} is", True, abs(loss - printed) <= 1e-5)


def main():
    if sys.argv[1] == "--side":  # the last line: the frameworks print what they like before it
        print(json.dumps({"paddle": paddle_side, "mindspore": mindspore_side}[sys.argv[2]](sys.argv[3])))
        return 0
    program, comparison = sys.argv[1], Comparison()
    for framework, package in (("paddle", "paddlepaddle"), ("mindspore", "mindspore")):
        print(f"{package} {importlib.metadata.version(package)}", flush=True)
        with tempfile.TemporaryDirectory() as folder:  # MindSpore leaves files where it works
            weights = os.path.join(folder, "weights.safetensors")
            tutorials = os.path.join(os.path.dirname(os.path.abspath(program)), "exp_tutorials")
            subprocess.run([tutorials, "--quiet", "--weights", weights], check=True)
            run = subprocess.run([sys.executable, os.path.abspath(__file__), "--side", framework, weights],
                                 capture_output=True, text=True, cwd=folder)
        if run.returncode != 0:
            print(run.stderr[-4000:], file=sys.stderr)
            return 1
        theirs = json.loads(run.stdout.splitlines()[-1])
        if theirs["refused"]:
            print("it refuses on this machine, not compared:", ", ".join(dict.fromkeys(theirs["refused"])))
        levels = levels_of(program, framework)
        compare_dtypes(comparison, framework, levels, theirs["dtypes"])
        for excluded, name, dtype in theirs.get("parameters", []):
            kept = name == excluded or (name != "weight" and levels["O2"][name + "_f32"])
            comparison.same(f"paddle O2, excluded {excluded}, {name}'s parameters", dtype, F32 if kept else LOW)
        compare_values(comparison, levels, theirs.get("values", []))
        compare_cells(comparison, levels, theirs.get("cells", []))
        compare_scalers(comparison, program, theirs["scalers"])
        if "losses" in theirs:
            compare_losses(comparison, theirs["losses"])
    print(f"{comparison.equal} equal, {comparison.known} known differences, {comparison.wrong} others")
    return 1 if comparison.wrong or not comparison.equal else 0


if __name__ == "__main__":
    sys.exit(main())
