"""Ten networks as their papers and PyTorch's tutorials write them: nothing in here knows of fp16lab."""

from __future__ import annotations

import torch
from torch import nn

F = nn.functional


class Seq2Seq(nn.Module):
    """torch.nn's Transformer (Vaswani et al. 2017)."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.core = nn.Transformer(16, 2, 1, 1, 32, dropout=0.1, batch_first=True)
        self.head = nn.Linear(16, 20)

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        return self.head(self.core(self.embedding(source), self.embedding(target), tgt_mask=mask))


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
        )

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    """He et al. 2016."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1), Block(8, 8, 1), Block(8, 16, 2))
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        return self.head(F.adaptive_avg_pool2d(self.layers(x), 1).flatten(1))


class Tagger(nn.Module):
    """A bidirectional LSTM over packed sentences."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.lstm = nn.LSTM(8, 12, num_layers=2, bidirectional=True, dropout=0.1, batch_first=True)
        self.head = nn.Linear(24, 5)

    def forward(self, words):
        packed = nn.utils.rnn.pack_padded_sequence(
            self.embedding(words), torch.tensor([6, 4, 3]), batch_first=True
        )
        hidden, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.head(hidden)


class UNet(nn.Module):
    """Ronneberger et al. 2015, one level deep."""

    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU())
        self.bottom = nn.Sequential(
            nn.Conv2d(8, 16, 3, padding=1, dilation=1), nn.InstanceNorm2d(16), nn.ReLU()
        )
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.out = nn.Conv2d(16, 1, 1)

    def forward(self, x):
        skip = self.down(x)
        deep = self.bottom(F.max_pool2d(skip, 2))
        deep = deep + F.interpolate(F.avg_pool2d(deep, 2), scale_factor=2, mode="bilinear")
        return self.out(torch.cat([skip, self.up(deep)], 1))


class GraphConvolution(nn.Module):
    """Messages over edges, summed by index_add (Kipf & Welling 2017)."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 16), nn.Linear(16, 4)

    def hop(self, layer, x, edges, degree):
        messages = layer(x)
        summed = torch.zeros_like(messages).index_add(0, edges[1], messages[edges[0]])
        return summed / degree

    def forward(self, x, edges):
        degree = torch.bincount(edges[1], minlength=len(x)).clamp(min=1).unsqueeze(1)
        return self.hop(self.second, F.elu(self.hop(self.first, x, edges, degree)), edges, degree)


class ViT(nn.Module):
    """Dosovitskiy et al. 2021."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4)
        self.token = nn.Parameter(torch.zeros(1, 1, 16))
        self.places = nn.Parameter(torch.randn(1, 5, 16) * 0.02)
        layer = nn.TransformerEncoderLayer(16, 4, 32, 0.0, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        return self.head(self.encoder(x)[:, 0])


class VAE(nn.Module):
    """Kingma & Welling 2014."""

    def __init__(self):
        super().__init__()
        self.encoder, self.mean, self.log_variance = nn.Linear(20, 16), nn.Linear(16, 4), nn.Linear(16, 4)
        self.decoder = nn.Sequential(nn.Linear(4, 16), nn.Softplus(), nn.Linear(16, 20))

    def forward(self, x):
        h = torch.tanh(self.encoder(x))
        mean, log_variance = self.mean(h), self.log_variance(h)
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
        return (
            F.binary_cross_entropy_with_logits(self.decoder(z), torch.sigmoid(x), reduction="sum")
            + divergence
        )


class CellByCell(nn.Module):
    """A GRUCell in a loop."""

    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.GRUCell(5, 12), nn.Linear(12, 1)

    def forward(self, x):
        h = x.new_zeros(x.shape[1], 12)
        for step in x:
            h = self.cell(step, h)
        return self.head(h)


class MixtureOfExperts(nn.Module):
    """Top-2 routing (Shazeer et al. 2017)."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(8, 4)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)) for _ in range(4)
        )

    def forward(self, x):
        weights, chosen = self.router(x).softmax(-1).topk(2)
        result = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows, place = (chosen == i).nonzero(as_tuple=True)
            if len(rows):
                part = expert(x[rows]) * weights[rows, place].unsqueeze(1)
                result = result.index_add(0, rows, part.to(result.dtype))
        return result


class Pitch(nn.Module):
    """A 1-d convolution net, as CREPE's (Kim et al. 2018)."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(1, 8, 16, 4, 6), nn.ReLU(), nn.BatchNorm1d(8), nn.MaxPool1d(2),
            nn.Conv1d(8, 16, 5, padding=2, groups=2), nn.LeakyReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
            nn.Linear(16, 12), nn.Softmax(-1),
        )  # fmt: skip

    def forward(self, x):
        return self.layers(x)


def ten_models():
    """Name, network, inputs."""
    words = torch.randint(20, (3, 6))
    return [
        ("transformer", Seq2Seq(), (words, words[:, :5])),
        ("resnet", ResNet(), (torch.randn(2, 3, 12, 12),)),
        ("lstm", Tagger(), (words,)),
        ("unet", UNet(), (torch.randn(2, 1, 16, 16),)),
        ("gnn", GraphConvolution(), (torch.randn(9, 6), torch.randint(9, (2, 30)))),
        ("vit", ViT(), (torch.randn(2, 3, 8, 8),)),
        ("vae", VAE(), (torch.randn(6, 20),)),
        ("gru_cell", CellByCell(), (torch.randn(4, 3, 5),)),
        ("moe", MixtureOfExperts(), (torch.randn(12, 8),)),
        ("conv1d", Pitch(), (torch.randn(3, 1, 128),)),
    ]
