"""lab.mismatch on engines with one injected cause, and on networks computed again by hand."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import fp16lab
import fp16lab.torch as lab
from fp16lab.torch import Engine


class Net(nn.Module):
    """A kernel for each module, and two operations between them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.embed, self.norm = nn.Embedding(24, 64), nn.LayerNorm(64)
        self.fc, self.head = nn.Linear(64, 64), nn.Linear(64, 24)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        return self.head(x + torch.tanh(self.fc(self.norm(x))))


class Attends(nn.Module):
    """Causal attention, so that padding on the right reaches no token before it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.embed, self.qkv, self.head = nn.Embedding(24, 32), nn.Linear(32, 96), nn.Linear(32, 24)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
        q, k, v = self.qkv(self.embed(input_ids)).chunk(3, -1)
        return self.head(F.scaled_dot_product_attention(q, k, v, is_causal=True))


@pytest.fixture
def model() -> nn.Module:
    return Net().eval()


IDS = [torch.randint(24, (4, 12), generator=torch.Generator().manual_seed(i)) for i in range(3)]


def of_logits(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """The formula, one token after another."""
    found = []
    for row in range(ids.shape[0]):
        for at in range(1, ids.shape[1]):
            values = logits[row, at - 1].tolist()
            top = max(values)
            found.append(values[int(ids[row, at])] - top - math.log(sum(math.exp(v - top) for v in values)))
    return torch.tensor(found, dtype=torch.float64)


NATIVE = Engine("native", dtype=None)


@pytest.mark.parametrize("engine", [Engine("h100"), Engine("v100", dtype="f16"), NATIVE])
def test_equal_engines_have_no_gap(model, engine):
    told = lab.mismatch(model, IDS, engine, engine)
    assert told.gap.is_zero and told.gap.mean_abs == told.gap.k3 == told.gap.outside == 0
    assert told.causes == [] and told.rest == 0 and "every log-probability is equal" in str(told)
    assert told.twin is not None and (engine.dtype or not told.twin.is_zero)  # or casts hide it
    assert told.tokens == 3 * 4 * 11 and told.runs == 2  # a, which is b, and the twin


#: What changes no bit: the instruction's order knows no batch, and no sum of this network is of rows.
NOTHING = {"batch": 2, "pad": 16}


@pytest.mark.parametrize(
    "name, value",
    [("storage", "bf16"), ("head", "f32"), ("weights", "bf16"), ("dtype", "f16"), ("storage", "f16")],
)
def test_an_injected_cause_is_found_and_the_others_are_zero(model, name, value):
    told = lab.mismatch(model, IDS, "h100", {name: value, **NOTHING, "row": "h200"})  # h200: the same row
    found = {each.name: each for each in told.causes}
    assert set(found) == {name, "batch", "pad", "row"}
    assert told.causes[0].name == name and not told.gap.is_zero
    assert found[name].without.is_zero and found[name].alone == told.gap
    for other in ("batch", "pad", "row"):
        assert found[other].alone.is_zero and found[other].without == told.gap
    assert told.rest == 0 and told.runs == 3 + 2 * 4


def test_log_probabilities_are_the_formula(model):
    told = lab.mismatch(model, IDS[0], NATIVE, Engine("native", dtype=None, weights="bf16"))
    before = of_logits(model(IDS[0]), IDS[0])
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    rounded = Net().eval()
    rounded.load_state_dict({name: value.bfloat16().float() for name, value in kept.items()})
    gaps = of_logits(rounded(IDS[0]), IDS[0]) - before
    assert told.gap.mean_abs == pytest.approx(float(gaps.abs().mean()), rel=1e-9)
    assert told.gap.mean == pytest.approx(float(gaps.mean()), rel=1e-7)
    assert told.gap.k3 == pytest.approx(float(((-gaps).exp() - 1 + gaps).mean()), rel=1e-6)
    worst = int(gaps.abs().argmax())
    assert (told.worst["row"], told.worst["position"]) == (worst // 11, worst % 11 + 1)
    assert told.worst["token"] == int(IDS[0][worst // 11, worst % 11 + 1])
    assert all(torch.equal(value, kept[name]) for name, value in model.state_dict().items())


def test_storage_rounds_each_kernel_once(model):
    """By hand: modules without modules, and the two operations between them; nothing inside of a module."""

    def r(x: torch.Tensor) -> torch.Tensor:
        return x.bfloat16().float()

    told = lab.mismatch(model, IDS[0], NATIVE, Engine("native", dtype=None, storage="bf16"))
    wide = lab.mismatch(model, IDS[0], NATIVE, Engine("native", dtype=None, storage="bf16", head="f32"))
    with torch.no_grad():
        x = r(model.embed(IDS[0]))
        x = r(x + r(torch.tanh(r(model.fc(r(model.norm(x)))))))
        logits, before = model.head(x), of_logits(model(IDS[0]), IDS[0])
    assert told.gap.mean == pytest.approx(float((of_logits(r(logits), IDS[0]) - before).mean()), rel=1e-7)
    assert wide.gap.mean == pytest.approx(float((of_logits(logits, IDS[0]) - before).mean()), rel=1e-7)


@pytest.mark.filterwarnings("ignore:lab.emulate emulated none")
def test_a_row_and_tf32_are_found(model):
    """Volta's sums are cut at 2^-23 of a block of 4, Hopper's at 2^-25 of 16: a few FP16 results differ."""
    a, b = Engine("v100", dtype="f16"), Engine("h100", dtype="f16")
    told = lab.mismatch(Net().eval(), IDS, a, b)
    assert [each.name for each in told.causes] == ["row"]
    assert told.gap == told.causes[0].alone and not told.gap.is_zero
    each = [lab.mismatch(Net().eval(), ids, a, b).gap.mean_abs for ids in IDS]
    assert told.gap.of_batches == tuple(each) and told.gap.mean_abs == pytest.approx(sum(each) / 3, rel=1e-9)
    tf32 = lab.mismatch(Net().eval(), IDS, Engine("a100", dtype=None), Engine("a100", dtype=None, f32="tf32"))
    assert [each.name for each in tf32.causes] == ["f32"] and not tf32.gap.is_zero


def cancels() -> nn.Module:
    """Sums of large terms that cancel: what is left is the order in which they were added."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(16, 256), nn.Linear(256, 8, bias=False)).eval()
    with torch.no_grad():
        half = 1e5 * torch.randn(16, 128) * torch.exp(2 * torch.randn(16, 128))
        model[0].weight.copy_(torch.cat([half, -half[:, torch.randperm(128)]], 1))
        model[1].weight.copy_(torch.ones(8, 256) + (torch.arange(8) == 3).view(8, 1) * 2.0**-7)
    return model


def test_a_plan_that_follows_the_batch_makes_the_batch_a_cause():
    """oneDNN's order is another one up to 4096 multiplications: 2 tokens x 256 x 8 of one row, not those of
    four."""
    ids = torch.randint(8, (4, 2), generator=torch.Generator().manual_seed(1))
    cpu = {"row": "avx512_bf16", "library": "onednn"}
    told = lab.mismatch(cancels(), ids, cpu, {**cpu, "batch": 1})
    fixed = lab.mismatch(cancels(), ids, "avx512_bf16", {"row": "avx512_bf16", "batch": 1})
    assert [each.name for each in told.causes] == ["batch"] == [each.name for each in fixed.causes]
    assert not told.gap.is_zero and fixed.gap.is_zero


def test_a_split_is_a_cause():
    ids = torch.randint(8, (4, 6), generator=torch.Generator().manual_seed(1))
    split = {"library": fp16lab.Plan("split-k", parts=4, partials="bf16")}
    told = lab.mismatch(cancels(), ids, "h100", {**split, "batch": 2})
    found = {each.name: each for each in told.causes}
    assert found["library"].b == "split-k, parts 4, partials bf16"
    assert found["library"].alone == told.gap and not told.gap.is_zero and found["batch"].alone.is_zero


def test_more_runs_than_64_are_refused(model, monkeypatch):
    monkeypatch.setattr(sys.modules["fp16lab.torch.mismatch"], "MOST_RUNS", 8)
    with pytest.raises(ValueError, match=r"\d+ engine runs a batch are needed, and 8 are the most"):
        lab.mismatch(model, IDS[0], "h100", {"storage": "bf16"}, by_operation=True)


def test_what_is_possible_together_alone_is_one_cause(model):
    told = lab.mismatch(model, IDS[0], Engine("h100"), Engine("v100", dtype="f16", storage="f16"))
    assert sorted(each.name for each in told.causes) == ["row+dtype", "storage"]
    assert [each.a for each in told.causes if "+" in each.name] == ["h100, bf16"]


def test_padded_tokens_are_the_same_tokens():
    model = Attends().eval()
    batch = {"input_ids": IDS[0], "attention_mask": torch.ones_like(IDS[0])}
    batch["attention_mask"][0, 8:] = 0
    told = lab.mismatch(model, batch, Engine(), Engine(pad=16))
    assert told.tokens == 4 * 11 - 4 and told.gap.largest < 0.05
    labels = {**batch, "labels": torch.where(torch.arange(12) < 3, -100, IDS[0])}
    assert lab.mismatch(model, labels, Engine(), Engine()).tokens == 4 * 9 - 4


def test_by_operation_finds_the_one_that_differs(model):
    told = lab.mismatch(model, IDS, "h100", {"storage": "bf16"}, by_operation=True)
    found = {each["kind"]: each["alone"] for each in told.kinds}
    assert told.first == ("embed", "Embedding")  # FP32 under autocast; BF16 in storage
    assert {"Embedding", "LayerNorm", "add", "tanh", "addmm"} <= set(found)
    assert found["addmm"].is_zero and found["Linear"].is_zero  # BF16 already
    assert not found["Embedding"].is_zero
    engines = Engine("v100", dtype="f16"), Engine("h100", dtype="f16")
    row = lab.mismatch(model, IDS, *engines, by_operation=True)
    assert {each["kind"] for each in row.kinds if each["alone"] == row.gap} >= {"addmm"}
    assert all(each["alone"].is_zero for each in row.kinds if each["kind"] != "addmm")


def test_a_classifier_takes_targets():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 3)).eval()
    told = lab.mismatch(model, (torch.randn(6, 8), torch.arange(6) % 3), Engine(), Engine(head="f32"))
    assert told.tokens == 6 and told.worst["position"] == ()


class Many(nn.Module):
    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return ids.float()  # no third dimension


@pytest.mark.parametrize(
    "change, error, told",
    [
        (lambda model: lab.mismatch(model.train(), IDS), ValueError, "model.eval()"),
        (lambda model: lab.mismatch("model", IDS), TypeError, "an nn.Module is needed"),
        (lambda model: lab.mismatch(model, []), ValueError, "empty list"),
        (lambda model: lab.mismatch(model, torch.ones(2, 3)), TypeError, "token ids"),
        (lambda model: lab.mismatch(model, IDS[0][:, :1]), ValueError, "no target that counts"),
        (lambda model: lab.mismatch(model, IDS, b=Engine(batch=3)), ValueError, "4 rows are not divisible"),
        (lambda model: lab.mismatch(model, IDS, b=Engine(pad=4)), ValueError, "a batch has 12 positions"),
        (lambda model: lab.mismatch(model, IDS, b={"rows": 3}), ValueError, "no field of lab.Engine: row"),
        (lambda model: lab.mismatch(model, IDS, b=3), TypeError, "a lab.Engine or a name"),
        (lambda model: lab.mismatch(model, IDS, b="h1000"), ValueError, "h1000"),
        (lambda model: lab.mismatch(model, IDS, head="tail"), ValueError, "names no module"),
        (lambda model: lab.mismatch(model, IDS, band=(2, 3)), ValueError, "band is"),
        (lambda model: lab.mismatch(model, IDS, "native", by_operation=True), ValueError, "tensor cores"),
        (lambda model: lab.mismatch(Many().eval(), IDS), ValueError, "do not fit targets"),
        (lambda model: lab.mismatch(model, (IDS[0], IDS[0] + 2)), ValueError, "24 logits; a target is"),
        (lambda model: lab.mismatch(model, IDS[0] + 24), ValueError, "refuses a batch of ids from"),
        (lambda model: Engine(storage="f8"), ValueError, "storage is 'f8'"),
        (lambda model: Engine("v100"), ValueError, "v100"),
        (lambda model: Engine("native", f32="tf32"), ValueError, "torch itself"),
        (lambda model: Engine(batch=0), ValueError, "batch is 0"),
    ],
)
def test_errors(model, change, error, told):
    with pytest.raises(error) as raised:
        change(model)
    assert told in str(raised.value)


def test_the_page_runs(capsys):
    pytest.importorskip("transformers")
    page = (Path(__file__).resolve().parents[3] / "docs/do/mismatch.md").read_text()
    exec("\n".join(re.findall(r"```python\n(.*?)```", page, re.S)), {})
    shown = capsys.readouterr().out
    assert "both engines" in shown and "'Embedding') Embedding" in shown and "fixed size" in shown


def test_dtypes_may_be_torchs():
    assert Engine("h100", dtype=torch.float16, storage=torch.bfloat16) == Engine("h100", dtype="f16", storage="bf16")
    with pytest.raises(ValueError, match="Engine: dtype is torch.float8_e5m2; one of None, 'f16', 'bf16' is needed"):
        Engine("h100", dtype=torch.float8_e5m2)
    with pytest.raises(TypeError, match=r"of torch.float32 and 2 dimensions; integer token ids \(rows, length\)"):
        lab.mismatch(Net().eval(), torch.ones(2, 3))


def test_a_run_folder_shows_the_split(model, tmp_path):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with lab.watch(model, every=1, optimizer=optimizer, name="mine", seed=1) as watched:
        model(IDS[0]).sum().backward()
        optimizer.step()
    watched.save(tmp_path / "run")
    told = lab.mismatch(model, IDS, "h100", Engine("h100", dtype="f16", head="f32"), by_operation=True)
    assert told.save(tmp_path / "run") == tmp_path / "run" / "mismatch.json"
    fp16lab.program.run("report", tmp_path / "run", "--quiet")
    page = (tmp_path / "run" / "report.html").read_text()
    assert '"mismatch":{"targets":132,"batches":3' in page and '"name":"dtype=f16"' in page
    assert all(f'{{"name":"{kind["kind"]}"' in page for kind in told.kinds) and told.kinds
    with pytest.raises(RuntimeError, match="nowhere"):
        told.save(tmp_path / "nowhere")
