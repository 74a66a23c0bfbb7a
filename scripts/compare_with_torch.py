#!/usr/bin/env python3
"""Gradients of one step at O0 against PyTorch's: python3 scripts/compare_with_torch.py resnet20|gpt_words DUMP...

Each DUMP is what `fp16lab train -c NAME --seed SEED --dump-gradients 1 DUMP` wrote. The network is built anew in PyTorch
with the dump's weights and batch; PyTorch in FP64 is the truth. The error of a tensor is the L2 norm of the difference by
that of the gradient, root mean square over the dumps. Exit code 1 where ours is more than twice that of PyTorch in FP32.
Needs torch and safetensors (PyPI).

With `--chain` PyTorch adds up the gradient of the head's input as we do (ARCHITECTURE.md, bit rule 3), in one chain over
all words, and not in blocks.
"""
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file


def resnet20(w, x):
    def normed(x, name):
        return F.batch_norm(x, None, None, w[name + ".weight"], w[name + ".bias"], training=True)

    def block(x, name, stride):
        y = F.relu(normed(F.conv2d(x, w[name + ".conv1.weight"], stride=stride, padding=1), name + ".bn1"))
        y = normed(F.conv2d(y, w[name + ".conv2.weight"], padding=1), name + ".bn2")
        if name + ".downsample.0.weight" in w:
            x = normed(F.conv2d(x, w[name + ".downsample.0.weight"], stride=stride), name + ".downsample.1")
        return F.relu(y + x)

    x = F.relu(normed(F.conv2d(x, w["conv1.weight"], padding=1), "bn1"))
    for layer in range(1, 4):
        for position in range(3):
            x = block(x, f"layer{layer}.{position}", 2 if layer > 1 and position == 0 else 1)
    return F.linear(F.adaptive_avg_pool2d(x, 1).flatten(1), w["fc.weight"], w["fc.bias"])


def gpt_words(w, ids, heads=4, head=F.linear):
    x = w["tokens.weight"][ids.long()] + w["positions.weight"]
    batch, length, width = x.shape

    def normed(x, name):
        return F.layer_norm(x, (width,), w[name + ".weight"], w[name + ".bias"])

    def linear(x, name):
        return F.linear(x, w[name + ".weight"], w[name + ".bias"])

    for h in ("h0", "h1"):
        q, k, v = linear(normed(x, h + ".ln1"), h + ".attn.qkv").split(width, dim=2)
        q, k, v = (t.reshape(batch, length, heads, width // heads).transpose(1, 2) for t in (q, k, v))
        scores = q @ k.transpose(2, 3) / (width // heads) ** 0.5
        scores = scores.masked_fill(torch.ones(length, length, dtype=torch.bool).triu(1), float("-inf"))
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width)
        x = x + linear(mixed, h + ".attn.out")
        x = x + linear(F.gelu(linear(normed(x, h + ".ln2"), h + ".mlp.fc"), approximate="tanh"), h + ".mlp.proj")
    return head(normed(x, "ln_f").flatten(0, 1), w["head.weight"])


class ChainedHead(torch.autograd.Function):
    """x @ w.T, whose dX is one chain of sums over the rows of w."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w.T

    @staticmethod
    def backward(ctx, gradient):
        x, w = ctx.saved_tensors
        total = torch.zeros_like(x)
        for k in range(w.shape[0]):
            total = torch.addcmul(total, gradient[:, k:k + 1], w[k:k + 1])
        return total, gradient.T @ x


def gradients(network, dump, dtype):
    prefix = "parameter."
    weights = {name[len(prefix):]: value.detach().clone().to(dtype).requires_grad_()
               for name, value in dump.items() if name.startswith(prefix)}
    inputs = dump["batch.0.inputs"]
    output = network(weights, inputs.to(dtype) if inputs.is_floating_point() else inputs)
    F.cross_entropy(output, dump["batch.0.targets"].long()).backward()
    return {name: weight.grad for name, weight in weights.items()}


def chained(w, ids):
    return gpt_words(w, ids, head=ChainedHead.apply)


def main():
    networks = {"resnet20": resnet20, "gpt_words": gpt_words}
    arguments = [argument for argument in sys.argv[1:] if argument != "--chain"]
    if len(arguments) < 2 or arguments[0] not in networks:
        sys.exit(__doc__)
    network = networks[arguments[0]]
    judged_by = chained if "--chain" in sys.argv else network
    squares = {}  # by tensor: of our errors and of PyTorch's, over the dumps
    for dump in map(load_file, arguments[1:]):
        truth = gradients(network, dump, torch.float64)
        theirs = gradients(judged_by, dump, torch.float32)
        for name, true in truth.items():
            errors = [((value.double() - true).norm() / true.norm()).item() ** 2 for value in (dump[name], theirs[name])]
            squares[name] = [a + b for a, b in zip(squares.get(name, [0, 0]), errors)]
    rows = sorted(((ours / torchs) ** 0.5, name, ours ** 0.5, torchs ** 0.5) for name, (ours, torchs) in squares.items())
    count = (len(arguments) - 1) ** 0.5
    print(f"{len(rows)} tensors; ours by PyTorch's: median {rows[len(rows) // 2][0]:.2f}; the greatest:")
    for ratio, name, ours, torchs in rows[:-4:-1]:
        print(f"  {ratio:.2f}  {name}: {ours / count:.2e} and {torchs / count:.2e}")
    sys.exit(0 if rows[-1][0] <= 2 else 1)


main()
