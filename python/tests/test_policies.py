"""fp16lab.Policy: policies decide as the command line does; the traces of all are asked of the engine
(tests/engine/amp/policy_traces_test.cpp)."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import fp16lab
from fp16lab import program


def scales(policy: fp16lab.Policy, sequence: str) -> list[float]:
    result = []
    for step in sequence:
        policy.update(found_inf=step == "O")
        result.append(policy.scale)
    return result


@pytest.mark.parametrize("name,parameters", [("torch", {"growth_interval": 3.0}), ("metaseq", {}), ("chainer", {})])
def test_a_policy_decides_as_the_command_line(name, parameters):
    sequence = "FFFFFOFFFFOOFFFFFFFFOOOFFFFFFF"
    arguments = [part for key, value in parameters.items() for part in ("--set", f"{key}={value:g}")]
    answer = program.run("policy", "--policy", name, *arguments, "--trace", sequence, "--quiet")
    rows = [line.split(",") for line in answer.splitlines()[1:]]
    assert [float(row[2]) for row in rows] == scales(fp16lab.Policy(name, **parameters), sequence)


def test_a_rule_that_ends_the_run_says_so():
    policy = fp16lab.Policy("deepspeed", initial_scale=2, hysteresis=1)
    assert scales(policy, "O") == [1] and policy.stop is None
    assert scales(policy, "O") == [1] and "raise_error_at_min_scale" in policy.stop


def test_statistics_policies_read_histograms():
    names = [n for n, p in fp16lab.policies().items() if p["wants_statistics"]]
    assert "lost-mass" in names
    tiny = fp16lab.histogram(np.full(100, 2.0**-30, np.float32))
    large = fp16lab.histogram(np.full(100, 2.0**10, np.float32))
    moved = []
    for name in names:
        ends = []
        for counts in (tiny, large):
            policy = fp16lab.Policy(name)
            assert policy.wants_statistics
            for _ in range(50):
                policy.update(found_inf=False, weights=counts, activations=counts)
            ends.append(policy.scale)
        moved.append(ends[0] > ends[1])
    assert any(moved)  # tiny gradients are given a higher scale than large ones


def test_the_state_travels():
    policy = fp16lab.Policy("megatron", growth_interval=4, hysteresis=2)
    scales(policy, "FFFOF")
    other = fp16lab.Policy("megatron", growth_interval=4, hysteresis=2)
    other.state = policy.state
    twins = [other, pickle.loads(pickle.dumps(policy)), copy.deepcopy(policy)]
    expected = scales(policy, "OFFFFFFFOOFFFF")
    for twin in twins:
        assert twin.settings == policy.settings
        assert scales(twin, "OFFFFFFFOOFFFF") == expected
    assert "megatron" in repr(policy)


def test_found_inf_may_be_a_number_or_an_array():
    for one in (True, 1, 1.0, np.bool_(True), np.float32(1), np.array([1.0])):
        policy = fp16lab.Policy("torch")
        policy.update(one)
        assert policy.scale == 32768


def test_policies_says_what_there_is():
    policies = fp16lab.policies()
    assert len(policies) >= 38 and {"torch", "megatron", "apex", "lost-mass"} <= policies.keys()
    assert all(p["rule"] and p["source"] for p in policies.values())
    assert fp16lab.Policy("torch").scale == policies["torch"]["parameters"]["initial_scale"]["default"]


@pytest.mark.parametrize(
    "name,parameters,line",
    [
        ("megatrom", {}, "megatron"),
        ("torch", {"growth": 2}, "growth"),
        ("torch", {"growth_interval": 0}, "growth_interval"),
        ("torch", {"initial_scale": float("inf")}, "initial_scale"),
        ("torch", {"growth_interval": "long"}, "growth_interval is 'long'; a number is needed"),
    ],
)
def test_wrong_names_and_values_are_one_clear_line(name, parameters, line):
    with pytest.raises(ValueError) as error:
        fp16lab.Policy(name, **parameters)
    assert line in str(error.value) and "\n" not in str(error.value)
    with pytest.raises(TypeError, match="weights is a int; a Histogram is needed, or None"):
        fp16lab.Policy("torch").update(False, weights=3)
    with pytest.raises(ValueError, match="this is no state of a loss-scale policy"):
        fp16lab.Policy("torch").state = b"123"
