#!/usr/bin/env python3
"""One step of training, forward and backward, of every architecture of timm, torchvision and transformers, and of
torchao's FP8 training, under lab.emulate and FP16 autocast: which run at the first try, and what stops the others.

  python scripts/sweep_models.py timm [--only NAME]... [--table FILE]     also: torchvision, transformers, torchao

Weights are random and configurations small; nothing is downloaded. An architecture that does not run alone, in FP32 and
without fp16lab, or in FP16 autocast alone, in the configuration that is made here, is not counted. It needs the packages
that it sweeps; each architecture has two minutes. --table adds a line of Markdown for each one that was refused, and the
sum.
"""

from __future__ import annotations

import argparse
import inspect
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

import fp16lab.torch as lab

_Made = tuple[nn.Module, dict[str, Any] | tuple[Any, ...]]


# ---- timm and torchvision: the architecture of fewest parameters in each module


def smallest(names: list[str], make: Callable[[str], nn.Module]) -> str:
    """By parameters, of the eight whose names promise few."""
    few = ("test_", "atto", "femto", "pico", "nano", "tiny", "xxs", "_xs", "_s", "18", "12", "16", "050", "b0")
    likely = sorted(names, key=lambda name: (not any(mark in name for mark in few), len(name)))[:8]
    sizes = {}
    for name in likely:
        try:
            with torch.device("meta"):
                sizes[name] = sum(parameter.numel() for parameter in make(name).parameters())
        except Exception:  # what cannot be made on meta is large enough
            continue
    return min(sizes, key=lambda name: sizes[name]) if sizes else likely[0]


def timm_models() -> Iterator[tuple[str, Callable[[], _Made]]]:
    import timm

    for family in timm.list_modules():
        names = timm.list_models(module=family)
        if not names:
            continue

        def make(names: list[str] = names) -> _Made:
            model = timm.create_model(smallest(names, timm.create_model), num_classes=4)
            channels, *extents = model.default_cfg.get("input_size", (3, 224, 224))
            small = torch.randn(2, channels, 128, 128)
            try:
                with torch.no_grad():
                    model(small)
                return model, (small,)
            except Exception:  # it takes images of one size
                return model, (torch.randn(2, channels, *extents),)

        yield family, make


def torchvision_models() -> Iterator[tuple[str, Callable[[], _Made]]]:
    from torchvision import models

    families: dict[str, list[str]] = {}
    for name in models.list_models():
        module = models.get_model_builder(name).__module__.removeprefix("torchvision.models.")
        families.setdefault(module, []).append(name)
    without = {"weights": None}
    for family, names in sorted(families.items()):

        def make(family: str = family, names: list[str] = names) -> _Made:
            parts = family.startswith(("detection", "segmentation"))
            backbone: dict[str, Any] = {"weights_backbone": None} if parts else {}
            name = smallest(names, lambda name: models.get_model(name, **without, **backbone))
            if "rcnn" in name or name.startswith(("fcos", "retinanet")):
                backbone |= {"min_size": 64, "max_size": 64}
            model = models.get_model(name, **without, **backbone)
            if family.startswith("detection"):
                target = {"boxes": torch.tensor([[4.0, 4.0, 40.0, 40.0]]), "labels": torch.tensor([1])}
                target["masks"] = torch.ones(1, 64, 64, dtype=torch.uint8)
                target["keypoints"] = torch.ones(1, 17, 3) * 8
                return model, ([torch.rand(3, 64, 64)] * 2, [target] * 2)
            if family.startswith("video"):
                extents = (16, 224) if "mvit" in name else (14, 224) if "s3d" in name else (8, 56)
                return model, (torch.randn(1, 3, extents[0], extents[1], extents[1]),)
            if "raft" in family:
                return model, (torch.randn(1, 3, 128, 128), torch.randn(1, 3, 128, 128))
            size = 299 if "inception" in name else 224 if "vit" in name else 64
            return model, (torch.randn(2, 3, size, size),)

        yield family, make


# ---- transformers: every type, in a small configuration

_TINY: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embed_dim", "encoder_hidden_size"), 64),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "n_inner"), 128),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_decoder_layers", "num_encoder_layers", "decoder_num_hidden_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "num_key_value_heads", "num_kv_heads"), 4),
    **dict.fromkeys(("head_dim", "d_kv", "attention_head_dim", "global_head_dim", "v_head_dim"), 16),
    **dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim", "rotary_dim"), 8),
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank", "linear_key_head_dim", "linear_value_head_dim"), 16),
    **dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads"), 4),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "moe_k", "top_k_experts"), 2),
    **dict.fromkeys(("n_group", "topk_group", "num_nextn_predict_layers", "first_k_dense_replace"), 1),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 32),
    **dict.fromkeys(("vocab_size", "max_position_embeddings", "n_positions", "max_source_positions"), 128),
    "vocab_size_per_layer_input": 128,
    "d_head": 16,
    "hidden_size_per_layer_input": 16,
    "image_size": 32,
    "patch_size": 8,
}


def tiny(value: Any, tokens: Iterator[int]) -> Any:
    """A configuration as a dictionary, made small."""
    if not isinstance(value, dict):
        return value
    small: dict[Any, Any] = {}
    layers = next((value[name] for name in ("num_hidden_layers", "num_layers") if value.get(name)), None)
    for key, old in value.items():
        if key in _TINY and isinstance(old, int):
            small[key] = min(_TINY[key], old) if old > 0 else old
        elif str(key).endswith(("_token_id", "_token_index")) and isinstance(old, int):
            small[key] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}.get(key, 0) or next(tokens)
        elif isinstance(old, list) and len(old) == layers:  # one entry a layer: of each kind
            small[key] = (list(dict.fromkeys(old)) * 2)[:2]
        elif key == "per_layer_config" and isinstance(old, dict):
            small[key] = {layer: each for layer, each in old.items() if int(layer) < 2}
        elif key == "mrope_section":
            small[key] = [4, 2, 2]
        else:
            small[key] = tiny(old, tokens)
    if "mamba_n_heads" in small and "mamba_d_ssm" not in small:
        small.update(mamba_n_heads=8, mamba_d_head=16)
    if small.get("qk_rope_head_dim") and "head_dim" in small:
        small["head_dim"] = small["qk_rope_head_dim"]
    return small


def inputs_of(model: nn.Module) -> dict[str, Any]:
    takes = inspect.signature(model.forward).parameters
    words = torch.randint(3, 60, (2, 16))
    config: Any = model.config
    vision = getattr(config, "vision_config", config)
    size = getattr(vision, "image_size", None) or 32
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    channels = getattr(vision, "num_channels", 3)
    bins = next((getattr(config, name) for name in ("num_mel_bins", "feature_size") if hasattr(config, name)), 80)
    known = {
        "input_ids": words,
        "decoder_input_ids": words,
        "pixel_values": torch.randn(2, channels if isinstance(channels, int) else 3, height, width),
        "input_values": torch.randn(2, 4000),
        "input_features": torch.randn(2, bins, 2 * getattr(config, "max_source_positions", 64)),
        "bbox": torch.zeros(2, 16, 4, dtype=torch.long),
    }
    first = model.main_input_name
    wanted = {name for name in ("bbox", "decoder_input_ids") if name in takes} | {first}
    return {name: known[name] for name in wanted}


def transformers_models() -> Iterator[tuple[str, Callable[[], _Made]]]:
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as causal
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES as plain

    transformers.logging.set_verbosity_error()
    for kind in sorted({*causal, *plain}):

        def make(kind: str = kind) -> _Made:
            of_kind = transformers.CONFIG_MAPPING[kind]
            config = of_kind.from_dict(tiny(of_kind().to_dict(), iter(range(100, 128))))
            auto = transformers.AutoModelForCausalLM if kind in causal else transformers.AutoModel
            model = auto.from_config(config)
            return model, {**inputs_of(model), **({"use_cache": False} if kind in causal else {})}

        yield kind, make


def torchao_models() -> Iterator[tuple[str, Callable[[], _Made]]]:
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    for recipe in ("tensorwise", "rowwise", "rowwise_with_gw_hp"):

        def make(recipe: str = recipe) -> _Made:
            model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 32)).bfloat16()
            convert_to_float8_training(model, config=Float8LinearConfig.from_recipe_name(recipe))
            return model, (torch.randn(16, 64).bfloat16(),)

        yield f"float8 {recipe}", make


SWEEPS = {
    "timm": timm_models,
    "torchvision": torchvision_models,
    "transformers": transformers_models,
    "torchao": torchao_models,
}


# ---- the sweep


def total(value: Any) -> torch.Tensor:
    """One loss from all results of a network that have gradients."""
    leaves = torch.utils._pytree.tree_leaves(dict(value) if hasattr(value, "items") else value)
    found = [x.float().square().mean() for x in leaves if isinstance(x, torch.Tensor) and x.requires_grad]
    return torch.stack(found).sum()


def step(model: nn.Module, inputs: Any, cast: Any) -> None:
    torch.manual_seed(1)
    model.train()
    with cast:
        loss = total(model(**inputs) if isinstance(inputs, dict) else model(*inputs))
    loss.backward()


class TooLong(Exception):
    pass


def bounded(seconds: int, call: Callable[[], Any]) -> Any:
    def stop(*_: Any) -> None:
        raise TooLong(f"longer than {seconds} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        return call()
    finally:
        signal.alarm(0)


def line_of(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep", choices=SWEEPS)
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--table", metavar="FILE")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    native, refused, apart = 0, [], 0

    def autocast() -> Any:  # torchao casts by itself
        return nullcontext() if asked.sweep == "torchao" else lab.autocast(torch.float16)

    ran = 0
    for name, make in SWEEPS[asked.sweep]():
        if asked.only and name not in asked.only:
            continue
        try:
            torch.manual_seed(1)
            model, inputs = bounded(120, make)
            bounded(120, lambda: step(model, inputs, nullcontext()))
        except Exception as error:
            apart += 1
            print(f"{name}\tnot alone\t{line_of(error)}", flush=True)
            continue
        run = lab.emulate("hopper")
        try:
            with run:
                bounded(120, lambda: step(model, inputs, autocast()))
        except Exception as error:
            try:
                bounded(120, lambda: step(model, inputs, autocast()))
            except Exception as own:  # it does not run in FP16
                apart += 1
                print(f"{name}\tnot alone\t{line_of(own)}", flush=True)
                continue
            refused.append((name, line_of(error)))
            print(f"{name}\tREFUSED\t{refused[-1][1]}", flush=True)
            continue
        ran += 1
        native += run.total("native") > 0
        print(f"{name}\temulated {run.total('emulated')}\tnative {run.total('native')}", flush=True)
    print(f"{asked.sweep}: {ran} of {ran + len(refused)} ran, {native} with FP32 products; {apart} not alone")
    if asked.table:
        with open(asked.table, "a", encoding="utf-8") as table:
            table.writelines(f"| {asked.sweep} | {name} | {error} |\n" for name, error in refused)
            table.write(f"| {asked.sweep} | {ran} of {ran + len(refused)} | |\n")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
