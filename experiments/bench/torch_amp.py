#!/usr/bin/env python3
"""Times the tutorials' two networks with PyTorch: FP32 with TF32 off and on, torch.amp, eager and compiled.

The same work as the rows step/ of bench_device: paddle_linear9 (nine Linear layers of 8192, batch 2048) and
paddle_mlp3 (three of 4096 with ReLU between them, batch 512), MSE, SGD with a learning rate of 1e-4 and no momentum,
GradScaler with an initial scale of 1024, new random inputs and targets in every step. One JSON object goes to stdout;
with `--beside FILE`, what bench_device wrote on the same card, each row has our times, too.

  experiments/bench/torch_amp.py > torch.json
  build/bin/bench_device --benchmark_out=ours.json && experiments/bench/torch_amp.py --beside ours.json
  experiments/bench/torch_amp.py --device cpu --scale-down 256 --repetitions 1
"""

import argparse
import json
import platform
import statistics
import sys
import time

SYSTEMS = {
    "paddle_linear9": {"width": 8192, "layers": 9, "batch": 2048, "activation": False, "data": "uniform"},
    "paddle_mlp3": {"width": 4096, "layers": 3, "batch": 512, "activation": True, "data": "normal"},
}
PRECISIONS = ("fp32", "tf32", "amp")
MODES = ("eager", "compile")
# Rows of bench_device that do the same work.
OURS = {"fp32": ("FP32_cuBLAS",), "tf32": ("TF32_cuBLAS",), "amp": ("O2", "O2_cuBLAS")}


def our_times(path):
    """Milliseconds by "SYSTEM/VARIANT"."""
    with open(path, encoding="utf-8") as file:
        rows = json.load(file)["benchmarks"]
    return {"/".join(row["name"].split("/")[1:3]): row["real_time"] for row in rows
            if row["name"].startswith("step/") and not row.get("error_occurred")}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--scale-down", type=int, default=1, help="divides widths and batches (a check without a GPU)")
    parser.add_argument("--warm-up", type=int, default=5, help="steps before anything is timed; compiling is one of them")
    parser.add_argument("--repetitions", type=int, default=15, help="steps that are timed; the median counts")
    parser.add_argument("--mode", choices=MODES, action="append", help="only this one (repeatable)")
    parser.add_argument("--beside", metavar="FILE", help="what bench_device --benchmark_out=FILE wrote on this card")
    given = parser.parse_args()
    try:
        given.ours = our_times(given.beside) if given.beside else {}
    except (OSError, ValueError, KeyError) as error:
        parser.error(f"--beside {given.beside}: expected what bench_device --benchmark_out=FILE wrote ({error!r})")
    for name in ("scale_down", "warm_up", "repetitions"):
        if getattr(given, name) < 1:
            parser.error(f"--{name.replace('_', '-')}: expected 1 or more")
    return given


def make_model(torch, system, scale_down):
    """Linear layers as Paddle initialises them: Xavier uniform weights, biases 0."""
    width = system["width"] // scale_down
    layers = []
    for number in range(system["layers"]):
        if number > 0 and system["activation"]:
            layers.append(torch.nn.ReLU())
        linear = torch.nn.Linear(width, width)
        torch.nn.init.xavier_uniform_(linear.weight)
        torch.nn.init.zeros_(linear.bias)
        layers.append(linear)
    return torch.nn.Sequential(*layers)


class Clock:
    """Milliseconds of one call: CUDA events on the current stream, or the host's clock."""

    def __init__(self, torch, device):
        self.torch, self.on_gpu = torch, device.type == "cuda"

    def time(self, work):
        if not self.on_gpu:
            start = time.perf_counter()
            work()
            return (time.perf_counter() - start) * 1e3
        first, last = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        work()
        last.record()
        last.synchronize()
        return first.elapsed_time(last)


def time_case(torch, device, system, precision, mode, given):
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    model = make_model(torch, system, given.scale_down).to(device)
    loss_function = torch.nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    amp = precision == "amp"
    # A CPU multiplies FP16 as well; only the scaler's device differs.
    scaler = torch.amp.GradScaler(device.type, init_scale=1024.0, enabled=amp)
    shape = (system["batch"] // given.scale_down, system["width"] // given.scale_down)
    inputs, targets = (torch.empty(shape, device=device) for _ in range(2))

    def forward(x, y):
        with torch.autocast(device.type, dtype=torch.float16, enabled=amp):
            return loss_function(model(x), y)

    if mode == "compile":
        forward = torch.compile(forward)

    def step():
        for tensor in (inputs, targets):
            tensor.uniform_() if system["data"] == "uniform" else tensor.normal_()
        scaler.scale(forward(inputs, targets)).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)

    clock = Clock(torch, device)
    for _ in range(given.warm_up):
        step()
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    times = [clock.time(step) for _ in range(given.repetitions)]
    row = {"milliseconds": statistics.median(times), "fastest": min(times), "slowest": max(times)}
    if device.type == "cuda":
        row["peak_bytes"] = torch.cuda.max_memory_allocated()
    return row


def main():
    given = arguments()
    try:
        import torch
    except ImportError as error:
        sys.exit(f"torch_amp.py: error: PyTorch is not installed for {sys.executable} ({error}); "
                 "install it with: pip install torch")
    if given.device == "cuda" and not torch.cuda.is_available():
        print("torch_amp.py: error: PyTorch sees no GPU; expected one, or --device cpu with --scale-down",
              file=sys.stderr)
        sys.exit(3)
    device = torch.device(given.device)
    results = []
    for name, system in SYSTEMS.items():
        for precision in PRECISIONS:
            if precision == "tf32" and device.type == "cpu":
                continue
            for mode in given.mode or MODES:
                row = {"system": name, "precision": precision, "mode": mode}
                print(f"torch_amp.py: {name} {precision} {mode}", file=sys.stderr)
                try:
                    row.update(time_case(torch, device, system, precision, mode, given))
                except Exception as error:  # one case that fails is reported, the others go on
                    row["error"] = f"{type(error).__name__}: {error}".splitlines()[0]
                ours = {one: given.ours[f"{name}/{one}"] for one in OURS[precision] if f"{name}/{one}" in given.ours}
                if ours and "milliseconds" in row:
                    row["ours"] = {one: {"milliseconds": ms, "times_torch": ms / row["milliseconds"]}
                                   for one, ms in ours.items()}
                results.append(row)
                if mode == "compile":
                    torch.compiler.reset()
                if device.type == "cuda":
                    torch.cuda.empty_cache()
    print(json.dumps({
        "format": "fp16lab-torch-amp",
        "version": 1,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "device": torch.cuda.get_device_name(0) if device.type == "cuda" else f"cpu ({platform.processor() or 'unknown'})",
        "scale_down": given.scale_down,
        "repetitions": given.repetitions,
        "command": sys.argv,
        "results": results,
    }, indent=2))


if __name__ == "__main__":
    main()
