"""Scopes of several threads, and left in any order: what they leave to other threads, and as it was."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest
import torch
import torch._dynamo
from torch import nn

import fp16lab.torch as lab


def emulate():
    return lab.emulate("volta")


def autocast():
    return lab.autocast("cuda", torch.float16)


def switches():
    stance = torch._dynamo.eval_frame._stance.stance
    return torch.backends.mha.get_fastpath_enabled(), stance, torch._C._get_mkldnn_enabled()


def in_another_thread(body):
    """What `body` returns or raises there."""
    results = []

    def run():
        try:
            results.append(body())
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=run, name="the other thread")
    thread.start()
    thread.join()
    return results[0]


BOTH = pytest.mark.parametrize("first, second", [(a, b) for a in (emulate, autocast) for b in (emulate, autocast)])


@BOTH
@pytest.mark.parametrize("crossed", [True, False])
def test_scopes_of_two_threads_leave_torch_as_it_was(first, second, crossed):
    before, opened, left, seen = switches(), threading.Event(), threading.Event(), []

    def other():
        with first():
            opened.set()
            assert left.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    assert opened.wait(60)
    with second():
        if crossed:
            left.set()
            thread.join()
        seen.append(switches())
    left.set()
    thread.join()
    assert seen == [(False, "force_eager", before[2])] and switches() == before


@pytest.mark.parametrize("first, second", [(emulate, autocast), (autocast, emulate), (autocast, autocast)])
def test_scopes_that_are_left_in_crossed_order_leave_torch_as_it_was(first, second):
    before, one, other = switches(), first(), second()
    for scope in (one, other):
        scope.__enter__()
    one.__exit__(None, None, None)
    assert switches()[:2] == (False, "force_eager")
    other.__exit__(None, None, None)
    assert switches() == before and not torch.is_autocast_enabled("cpu")
    assert torch.compile(nn.Linear(2, 2), backend=lambda *_: lambda *_: ("compiled",))(torch.ones(2, 2)) == "compiled"


def test_an_lstm_puts_onednn_back_in_whatever_order_scopes_end():
    lstm, x = nn.LSTM(4, 4), torch.randn(3, 2, 4)
    before, entered, seen = switches(), threading.Event(), []

    def other():
        with autocast(), torch.no_grad():
            entered.set()
            for _ in range(50):
                seen.append(lstm(x)[0].dtype)

    thread = threading.Thread(target=other)
    with torch.no_grad():
        thread.start()
        assert entered.wait(60)
        for _ in range(10):
            with emulate(), autocast():
                lstm(x)
        thread.join()
    assert set(seen) == {torch.float16} and switches() == before


def test_products_of_other_threads_are_torchs():
    q = torch.randn(2, 2, 33, 16)
    lstm, convolution, image = nn.LSTM(32, 32), nn.Conv2d(8, 8, 3), torch.randn(2, 8, 16, 16)

    def products():
        with torch.no_grad():
            attended = [nn.functional.scaled_dot_product_attention(each, each, each) for each in (q, q.half())]
            return [*attended, lstm(torch.ones(5, 3, 32))[0], convolution(image), image[0, 0] @ image[0, 1]]

    want = products()
    with emulate() as run:
        got = in_another_thread(products)
    assert run.op_stats() == [] and all(torch.equal(a, b) for a, b in zip(got, want))


def test_each_thread_may_emulate_and_scopes_of_one_do_not_nest():
    a = torch.randn(64, 300).half()

    def product(model="hopper"):
        with lab.emulate(model) as run:
            result = a @ a.T
        return result, run.total("emulated")

    alone = {model: product(model)[0] for model in ("volta", "hopper")}
    with lab.emulate("volta") as run:
        other, count = in_another_thread(product)
        own = a @ a.T
        with pytest.raises(RuntimeError, match=r'lab.emulate\("volta"\) is open in this thread.*leave it first'):
            lab.emulate("hopper").__enter__()
        with pytest.raises(RuntimeError, match="this lab.emulate is open already"):
            run.__enter__()
    assert count == run.total("emulated") == 1
    assert torch.equal(own, alone["volta"]) and torch.equal(other, alone["hopper"])


MAKERS = pytest.mark.parametrize(
    "make, name",
    [
        (emulate, "lab.emulate"),
        (autocast, "lab.autocast"),
        (lambda: lab.op_stats(), "lab.op_stats"),
        (lambda: lab.recipe("mxfp8"), "lab.recipe"),
        (lambda: lab.watch(nn.Linear(2, 2)), "lab.watch"),
    ],
)


@MAKERS
def test_what_is_not_open_cannot_be_left(make, name):
    before, scope = switches(), make()
    with pytest.raises(RuntimeError, match=f"^this {name} is not open.*never entered.*left already$"):
        scope.__exit__(None, None, None)
    with scope:
        pass
    with pytest.raises(RuntimeError, match=f"^this {name} is not open"):
        scope.__exit__(None, None, None)
    with scope:  # again is possible
        pass
    assert switches() == before


@MAKERS
def test_a_scope_ends_in_its_own_thread(make, name):
    scope = make()
    with ExitStack() as stack:
        stack.enter_context(scope)
        error = in_another_thread(lambda: scope.__exit__(None, None, None))
        if name == "lab.watch":  # which listens to all threads
            assert error is None
            stack.pop_all()
            return
        assert isinstance(error, RuntimeError) and name in str(error) and "thread" in str(error)
        assert "\n" not in str(error)
    assert torch._C._len_torch_dispatch_stack() == 0 and not torch.is_autocast_enabled("cpu")
