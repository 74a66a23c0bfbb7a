"""Any PyTorch training with the products of a tensor core."""

import torch
from torch import nn

import fp16lab.torch as lab

torch.manual_seed(1)
inputs = torch.randn(4096, 32)
targets = (inputs[:, :10] * inputs[:, 10:20]).argmax(1)
model = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
scaler = lab.GradScaler("torch", device="cpu")

with lab.emulate("volta") as run:  # every product from here on has Volta's bits
    for step in range(30):
        picked = torch.randint(len(inputs), (64,))
        optimizer.zero_grad()
        with lab.autocast(torch.float16):
            loss = nn.functional.cross_entropy(model(inputs[picked]), targets[picked])
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

print(f"loss {loss.item():.3f}, loss scale {scaler.get_scale():g}")
print(run.table())  # every product: shapes, dtype, who computed it, how often
print(run.total("native"), "products were left to torch")
