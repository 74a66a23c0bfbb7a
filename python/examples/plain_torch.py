"""A plain PyTorch training in FP16, with fp16lab beside it: another loss-scale policy, and every tensor's
exponents."""

import torch
from torch import nn

import fp16lab.torch as lab

torch.manual_seed(1)
inputs = torch.randn(4096, 32)
targets = (inputs[:, :10] * inputs[:, 10:20]).argmax(1)
model = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
scaler = lab.GradScaler("lost-mass", device="cpu")  # was: torch.amp.GradScaler("cpu")

with lab.watch(model, every=10, optimizer=optimizer, scaler=scaler) as w:
    for step in range(100):
        picked = torch.randint(len(inputs), (64,))
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(inputs[picked]), targets[picked])
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

print(f"loss {loss.item():.3f}, loss scale {scaler.get_scale():g}")
print(w.table())
print(w.save("results/mine", replace=True))  # then: fp16lab hist results/mine
