"""Orders of sums: of numpy's, of loops, of tensor cores, beside the program's answer; refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fp16lab
from fp16lab import program


def added_up(order):
    def total(terms):
        result = np.float32(0)
        for i in order:
            result = result + np.float32(terms[i])
        return result

    return total


def test_loops_are_chains():
    assert fp16lab.reveal(added_up(range(50)), 50).in_words == "ascending chain of 50"
    down = fp16lab.reveal(added_up(range(49, -1, -1)), 50)
    assert down.in_words == "descending chain of 50" and str(down) == "[49 48 .. 0]"
    assert down == fp16lab.reveal(lambda terms: added_up(range(50))(terms[::-1]), 50)
    assert down != fp16lab.reveal(added_up(range(50)), 50) and down != "[49 48 .. 0]"
    assert len({down, fp16lab.SummationTree(50, down.joins)}) == 1


def test_a_tree_is_saved_as_json_and_as_a_figure(tmp_path):
    tree = fp16lab.SummationTree(8, [[0, 1, 2, 3], [8, 4, 5, 6, 7]])
    assert tree.save(tmp_path / "tree.json") == tmp_path / "tree.json"
    told = json.loads((tmp_path / "tree.json").read_text())
    assert told["terms"] == 8 and told["joins"] == tree.joins and told["in_words"] == tree.in_words
    pytest.importorskip("matplotlib")
    assert tree.save(str(tmp_path / "tree.svg")).read_text().count("<svg") == 1


def test_pairwise_and_wide_types():
    def pairwise(terms):
        terms = terms.astype("f4")
        while terms.size > 1:
            terms = terms[0::2] + terms[1::2]
        return terms

    tree = fp16lab.reveal(pairwise, 32)
    assert tree.in_words == "pairwise tree of 32, neighbours first"
    assert tree.depth == 5 and tree.widest_join == 2
    assert fp16lab.reveal(lambda terms: np.cumsum(terms)[-1], 3000).in_words == "ascending chain of 3000"
    assert fp16lab.reveal(lambda terms: terms[0], 1).joins == []


@pytest.mark.parametrize("accumulator", ["f32", "f16"])
@pytest.mark.parametrize("model", ["volta", "ampere", "hopper", "hopper-wgmma"])
def test_tensor_cores_as_the_program_says(model, accumulator):
    ones = np.ones(40, np.float16)
    tree = fp16lab.reveal(
        lambda terms: fp16lab.matmul(terms.astype(np.float16), ones, model, accumulator),
        40,
        big=2.0**15,
        unit=2.0**-22,
        most_units=256,
    )
    told = json.loads(program.run("reveal", "--model", model, "--acc", accumulator, "-k", "40", "--json"))
    assert tree.joins == told["joins"] and tree.in_words == told["in_words"] and str(tree) == told["short"]


def test_what_is_no_order_is_refused_in_one_line():
    def refused(function, k=20, **more):
        with pytest.raises((ValueError, TypeError)) as caught:
            fp16lab.reveal(function, k, **more)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    exact = refused(lambda terms: sum(int(t) for t in terms))
    assert "nothing is lost between them" in exact
    assert "expected the sum of the terms" in refused(lambda terms: 2 * terms.sum())
    assert "one number" in refused(lambda terms: terms) and "(20,)" in refused(lambda terms: terms)
    assert "one number" in refused(lambda terms: None)
    assert "something to call" in refused(3)
    assert "a whole number" in refused(np.sum, 2.0) and "1 to 16384" in refused(np.sum, 0)
    assert "big above unit" in refused(np.sum, big=1.0)
    assert "child 0" in str(pytest.raises(ValueError, fp16lab.SummationTree, 2, [[0, 0]]).value)
    calls = []

    def unsteady(terms):
        calls.append(1)
        return added_up(range(20) if len(calls) % 9 else range(19, -1, -1))(terms)

    assert "order" in refused(unsteady)
    with pytest.raises(ZeroDivisionError):
        fp16lab.reveal(lambda terms: 1 / 0, 4)


def test_drawn():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    figure, axes = pyplot.subplots()
    tree = fp16lab.SummationTree(8, [[0, 1, 2, 3], [8, 4, 5, 6, 7]])
    assert tree.plot(axes) is axes and "chain of 2 blocks of 4" in axes.get_title()
    assert len(axes.collections) == 4
    pyplot.close(figure)
