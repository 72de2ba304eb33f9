"""Plans: problems, learners and settings in strings, tables and TOML files, and what is refused."""

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparisons import PLAN
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import s4q
from s4q.baselines import LEARNERS
from s4q.baselines.named_learners import named_learner
from s4q.cli import app
from s4q.comparing.plan import Named, plan_of, read_plan, written
from s4q.problems.named_problems import BUILDERS, named_problem


def test_a_plan_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    plan = read_plan(path, {"seeds": 2})
    assert (plan.seeds, plan.episodes, plan.first_seed) == (2, 70, 0)
    assert plan.problems == (Named("chain", "chain"), Named("DeepSea 4", "deep_sea", {"size": 4}))
    assert plan.learners == (Named("s4q", "s4q"), Named("lsvi_ucb:beta=0.3", "lsvi_ucb", {"beta": 0.3}))


def test_settings_in_a_string_are_those_of_a_table() -> None:
    text = 'X-v0:reward_range=[-1, 0],horizon=3,low=[0.0,1.0],name_of="a b"'
    [one] = plan_of([text], ["s4q"], 1, 1).problems
    assert one.settings == {"reward_range": [-1, 0], "horizon": 3, "low": [0.0, 1.0], "name_of": "a b"}
    table = {"problem": "X-v0", "horizon": 3, "low": [0.0, 1.0], "reward_range": [-1, 0], "name_of": "a b", "name": "y"}
    [other] = plan_of([table], ["s4q"], 1, 1).problems
    assert (one.name, other.name, one.key) == (text, "y", other.key)
    [whole], [real] = (plan_of(["chain"], [f"lsvi_ucb:beta={beta}"], 1, 1).learners for beta in ("1", "1.0"))
    assert whole.key == real.key
    kinds = ("1", "1.0")  # which the code of an environment may tell apart
    [whole], [real] = (plan_of([f"My-v0:env_kwargs={{size={one}}}"], ["s4q"], 1, 1).problems for one in kinds)
    assert whole.key != real.key


SETTINGS = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(),
    lambda ones: st.lists(ones, max_size=3) | st.dictionaries(st.text(), ones, max_size=3),
    max_leaves=6,
)


NAMES = st.text(max_size=5) | st.builds("Some-v0:{}".format, st.text(max_size=5))
KEYS = st.from_regex(r"[a-z_]+", fullmatch=True).filter(lambda key: key not in ("name", "problem"))


@given(st.none() | NAMES, st.dictionaries(KEYS, SETTINGS, max_size=3))
def test_what_a_page_says_to_type_is_what_was_played(name: str | None, settings: dict[str, Any]) -> None:
    given_name = {} if name is None else {"name": name}
    [one] = plan_of([{"problem": "Some-v0", **given_name, **settings}], ["s4q"], 1, 1).problems
    [again] = plan_of([written(one)], ["s4q"], 1, 1).problems
    assert (again.name, again.what, again.key) == (one.name, one.what, one.key)


def test_an_id_may_name_its_module() -> None:
    ids = ["my_module:My-v0", "my_module:Mine-v0:horizon=5", 'Some-v0:horizon=5,name_of="a:b"', "chain:n_states=3"]
    plan = plan_of(ids, ["s4q"], 1, 1)
    assert [one.what for one in plan.problems] == ["my_module:My-v0", "my_module:Mine-v0", "Some-v0", "chain"]
    assert [one.settings for one in plan.problems][1:3] == [{"horizon": 5}, {"horizon": 5, "name_of": "a:b"}]
    assert [written(one) for one in plan.problems][:2] == ids[:2]


def test_a_name_may_stand_in_a_string() -> None:
    plan = plan_of(['chain:n_states=3,name="my chain, short"', {"problem": "chain", "n_states": 3}], ["s4q"], 1, 1)
    named, same = plan.problems
    assert (named.name, named.key) == ("my chain, short", same.key)
    assert [written(one) for one in plan.problems] == ['chain:n_states=3,name="my chain, short"', "chain:n_states=3"]


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    """The same cell whether a script got its numbers from NumPy or not."""
    learner = {"learner": "lsvi_ucb", "beta": np.float64(0.5), "name": "x"}
    problem = {"problem": "chain", "n_states": np.int64(3), "horizon": 2, "name": "p"}
    counts = {"seeds": np.int64(2), "episodes": np.int32(4), "first_seed": np.uint8(250)}
    rows = s4q.compare([problem], [learner], **counts, processes=1, results=tmp_path / "r.sqlite").rows  # type: ignore[arg-type]
    assert json.dumps(rows[0])  # holds no number of NumPy
    same = [{**problem, "n_states": 3}], [{**learner, "beta": 0.5}]
    plain_ones = s4q.compare(*same, seeds=2, episodes=4, first_seed=250, processes=1, results=tmp_path / "r.sqlite")
    assert list(plain_ones) == rows  # from the file: the CPU times are the same too


BAD: list[tuple[str, Callable[[], object], str]] = [
    ("learner", lambda: s4q.compare(["chain"], ["s5q"]), r"learner must be one of s4q, .*got 's5q'"),
    (
        "problem",
        lambda: s4q.compare(["chian"], ["s4q"]),
        r"problem must be one of .*got 'chian', did you mean chain\? \(",
    ),
    ("size", lambda: s4q.compare(["chain:length=3"], ["s4q"]), r"chain has no length; it has n_states, horizon"),
    ("runs", lambda: s4q.compare(["chain"], ["s4q"], seeds=10**9), r"seeds must leave at most 1,000,000 runs in all"),
    (
        "twice",
        lambda: s4q.compare(["chain:n_states=3,n_states=4"], ["s4q"]),
        r"^n_states is there twice in 'chain:n_st",
    ),
    ("round", lambda: s4q.compare(["Some-v0:reward_range=(0,1)"], ["s4q"]), r"lists and ranges in \[\.\.\.\]"),
    (
        "no number",
        lambda: s4q.compare(["chain"], ['q_learning:discount="a"']),
        r"^q_learning:discount=\"a\" on chain: discount is the factor of the next value, so .* in \(0, 1\]; got 'a'$",
    ),
    ("flag", lambda: s4q.compare(["chain"], ["no_replay:keep=true"]), r"keep is the share .*in \(0, 1\]; got True$"),
    ("trace", lambda: s4q.compare(["chain"], ["sarsa:trace=[]"]), r"trace is lambda, .*in \[0, 1\]; got \[\]$"),
    ("power", lambda: s4q.compare(["chain"], ["sarsa:decay=1.5"]), r"decay is the power of n .*in \[0, 1\]; got 1.5$"),
    ("star", lambda: s4q.compare(['baird:discount="a"'], ["s4q"]), r"discount is the chance .*in \(0, 1\]; got 'a'$"),
    ("forever", lambda: s4q.compare(["baird:discount=1"], ["s4q"]), r"discount is the chance .*below 1; got 1$"),
    (
        "text for a number",
        lambda: s4q.compare(["CartPole-v1:order=2,low=['a',1,1,1],high=[1,1,1,1]"], ["s4q"]),
        r"low must be an array of numbers",
    ),
    ("setting", lambda: s4q.compare(["chain"], ["psrl:c=3"]), r"PSRL has no setting 'c'; it has seed"),
    ("value", lambda: s4q.compare(["chain"], ["ucbvi:c=-1"]), r"ucbvi:c=-1 on chain: c is .*got -1"),
    ("text", lambda: s4q.compare(["chain:n_states"], ["s4q"]), r"settings are written name:key=value"),
    ("twice", lambda: s4q.compare(["chain"], ["s4q", "s4q"]), r"'s4q' is there twice; add name"),
    ("none", lambda: s4q.compare([], ["s4q"]), r"problems must name at least one"),
    ("string", lambda: s4q.compare("chain", ["s4q"]), r"problems must be a list of names; got 'chain'"),
    ("number", lambda: s4q.compare([3], ["s4q"]), r"a problem is a name, or a table.*got 3"),  # type: ignore[list-item]
    ("misfit", lambda: s4q.compare(["low_rank"], ["psrl"]), r"no learner suits any problem: .*one-hot"),
    ("like", lambda: s4q.compare(["CartPole-v1:ordr=3"], ["s4q"]), r"got 'ordr', did you mean order\?$"),
    (
        "env",
        lambda: s4q.compare(["CartPole-v1:x=3"], ["s4q"]),
        r"settings of an environment are .*order, env_kwargs; got 'x'$",
    ),
    (
        "one number",
        lambda: s4q.compare(["MountainCar-v0:reward_range=5"], ["s4q"]),
        r"reward_range .*got 5",
    ),
    (
        "infinite range",
        lambda: s4q.compare(["CartPole-v1:order=3"], ["s4q"]),
        r"^a Fourier basis needs the range of each observation.*add low=\[\.\.\.\] and high",
    ),
    (
        "argument of the env",
        lambda: s4q.compare(['FrozenLake-v1:env_kwargs={map="8x8"}'], ["s4q"]),
        r"^FrozenLake-v1 cannot be made: .*map",
    ),
    ("arguments", lambda: s4q.compare(["FrozenLake-v1:env_kwargs=3"], ["s4q"]), r"env_kwargs must be a table.*got 3"),
    (
        "whole numbers",
        lambda: s4q.compare(["FrozenLake-v1:order=2"], ["s4q"]),
        r"^order is for a Fourier basis of real numbers, but observations are Discrete\(16\)",
    ),
    (
        "too few",
        lambda: s4q.compare(["CartPole-v1:order=2,low=[-1,-1],high=[1,1]"], ["s4q"]),
        r"^low must have a number for each dimension of an observation, so the shape \(4,\); got \[-1, -1\]",
    ),
    ("capitals", lambda: named_learner("S4Q"), r"did you mean s4q\?$"),
    ("range", lambda: s4q.compare(["Pendulum-v1"], ["s4q"]), r"DiscreteActions"),
    ("seeds", lambda: s4q.compare(["chain"], ["s4q"], seeds=0), r"seeds .*got 0"),
    ("episodes", lambda: s4q.compare(["chain"], ["s4q"], episodes=0), r"episodes .*got 0"),
    ("first seed", lambda: s4q.compare(["chain"], ["s4q"], first_seed=-1), r"first_seed .*got -1"),
    (
        "large seed",
        lambda: s4q.compare(["chain"], ["s4q"], first_seed=2**63 - 3),
        r"first_seed must .* 2\*\*63; got 92",
    ),
    ("large episodes", lambda: s4q.compare(["chain"], ["s4q"], episodes=2**64), r"episodes must .*2\*\*63; got 184"),
    ("kind", lambda: s4q.compare([{"problem": "chain", "horizon": 3j}], ["s4q"]), r"horizon must be a number.*got 3j"),
    ("quote", lambda: s4q.compare(['X-v0:env_kwargs={a="b}'], ["s4q"]), r"settings are written name:key=value"),
    ("processes", lambda: s4q.compare(["chain"], ["s4q"], processes=0), r"processes .*got 0"),
    ("ray", lambda: s4q.compare(["chain"], ["s4q"], ray="local"), r"ray must be s4q.Ray\(\), or None.*got 'local'"),  # type: ignore[arg-type]
    ("like a learner", lambda: named_learner("ucbiv"), r"got 'ucbiv', did you mean ucbvi\?$"),
    ("name", lambda: named_learner("x"), r"learner must be one of .*got 'x'"),
]


@pytest.mark.parametrize(("call", "message"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_input(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


TOML: list[tuple[str, str]] = [
    ("problems = [", r"is no TOML file: Invalid value"),
    ("problems = ['chain']", r"has no learners; add a line"),
    ("problems = ['chain']\nlearners = ['s4q']\nseed = 3", r"has an entry 'seed'; known are problems"),
    ("problems = ['chain']\nlearners = ['s4q']\nseeds = 'many'", r"seeds is the number of seeds.*got 'many'"),
    ("problems = 'chain'\nlearners = ['s4q']", r"problems must be a list of names; got 'chain'"),
    ("problems = [{name = 'x'}]\nlearners = ['s4q']", r"a table with problem"),
    ("problems = ['chain']\nlearners = ['nobody']", r"learner must be one of .*got 'nobody'"),
]


@pytest.mark.parametrize(("text", "message"), TOML)
def test_malformed_files_are_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as refused:
        read_plan(path)
    assert "\n" not in str(refused.value)
    result = CliRunner(env={"COLUMNS": "1000"}).invoke(app, ["compare", str(path)])
    assert result.exit_code == 2
    assert str(path) in result.output
    with pytest.raises(ValueError, match="cannot be read"):
        read_plan(tmp_path / "nowhere.toml")


@pytest.mark.parametrize("wrong", ["a", [1], {"x": 1}], ids=str)
def test_a_setting_of_the_wrong_kind_is_refused_as_a_value(wrong: object) -> None:
    """Of every learner and of every problem: never a TypeError, which the command would call a defect."""
    for learner in LEARNERS.values():
        for name in set(inspect.signature(learner.make).parameters) - {"problem"}:
            with pytest.raises(ValueError, match=r"\S"):
                learner.build(s4q.problems.chain(3, 3), 0, 5, {name: wrong})
    for problem, build in BUILDERS.items():
        for name in inspect.signature(build).parameters:
            with pytest.raises(ValueError, match=r"\S"):
                named_problem(problem, {name: wrong})
