"""Plots show the numbers of the run, take Axes and give them back, and leave matplotlib as it was."""

import builtins
from typing import Any

import gymnasium
import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from saved_runs import counted_run, stepped_agent

import s4q
from s4q.report import learner_plots, run_plots
from s4q.report.drawing import inline_svg
from s4q.report.grid_plots import mean_moves, plot_policy


@pytest.fixture(scope="module")
def counted() -> tuple[s4q.FiniteMDP, s4q.S4Q, s4q.Run]:
    return counted_run()


@pytest.fixture(scope="module")
def agent() -> s4q.Agent:
    return stepped_agent()


def line(ax: Any, label: str) -> tuple[list[float], list[float]]:
    (found,) = [one for one in ax.get_lines() if one.get_label() == label]
    return list(found.get_xdata()), list(found.get_ydata())


def test_run_plot_shows_return_and_promise(counted: Any) -> None:
    mdp, _, run = counted
    ax = run.plot()
    points = [p for p in run.curve if p.mean_return is not None]
    episodes, returns = line(ax, "mean return of a phase")
    assert episodes == [p.episodes for p in points]
    assert returns == [p.mean_return for p in points]
    assert line(ax, "promised by its policy")[1] == [p.optimistic_value for p in points]
    assert min(line(ax, "promised by its policy")[1]) >= mdp.v_star - 1e-9  # optimism, as this preset proves


def test_agent_plot_has_promises_too(agent: s4q.Agent) -> None:
    """Without exact values a promise is the mean of the phase over the starts it saw, in the env's own rewards."""
    assert agent.last_run is not None
    _, promises = line(agent.plot(), "promised by its policy")
    assert len(promises) > 2
    assert all(-20 <= value <= 0 for value in promises)
    assert promises[0] > -20  # the first phase knows nothing, and hopes
    running, last = agent.learner.open_phase, agent.learner.last_phase
    assert running is not None and last is not None and last.start_value_sum is not None  # noqa: PT018
    assert last.n_episodes > 1
    points = agent.last_run.curve
    assert points[-2].optimistic_value == pytest.approx(last.start_value_sum / last.n_episodes - 20)
    if running.n_episodes and running.start_value_sum is not None:
        assert points[-1].optimistic_value == pytest.approx(running.start_value_sum / running.n_episodes - 20)


def test_axes_in_and_out(counted: Any) -> None:
    _, learner, run = counted
    plots = [run_plots.plot_run, run_plots.plot_regret, run_plots.plot_gap, run_plots.plot_episodes]
    plots += [run_plots.plot_cpu, run_plots.plot_memory, run_plots.plot_phases]
    before, figure = dict(mpl.rcParams), Figure()
    for plot in plots:
        ax = figure.add_subplot()
        assert plot(run, ax) is ax
        assert plot(run) is not plot(run)
    ax = figure.add_subplot()
    assert learner_plots.plot_memory_contents(learner, ax) is ax
    inline_svg(run.plot(), "x", "y")
    assert dict(mpl.rcParams) == before
    assert mpl.pyplot.get_fignums() == [] if hasattr(mpl, "pyplot") else True


def test_regret_and_its_guides(counted: Any) -> None:
    mdp, _, run = counted
    ax = run_plots.plot_regret(run, bound=lambda k: 5.0 * k, uniform_gap=0.5)
    episodes, regret = line(ax, "regret of the run")
    assert regret[-1] == run.regret
    assert line(ax, "random actions")[1] == [0.5 * k for k in episodes]
    assert line(ax, "the bound of Theorem 1")[1] == [5.0 * k for k in episodes]
    guide = line(ax, "square root of the episodes")[1]
    assert guide[-1] == pytest.approx(regret[-1])
    assert guide[0] == pytest.approx(regret[-1] * (episodes[0] / episodes[-1]) ** 0.5)
    del mdp


def test_phases_are_as_long_as_they_were(counted: Any) -> None:
    _, _, run = counted
    ax = run_plots.plot_phases(run)
    heights = [patch.get_height() for patch in ax.patches]
    assert sum(heights) == run.main_episodes
    assert len(heights) in (run.phases, run.phases + 1)


def test_episodes_add_up(counted: Any) -> None:
    _, _, run = counted
    ax = run_plots.plot_episodes(run)
    shares = np.array([line(ax, name)[1] for name in ("new policies", "replay of past policies")])
    np.testing.assert_allclose(shares.sum(axis=0), 100.0)


def test_memory_beside_every_step_kept(counted: Any) -> None:
    _, _, run = counted
    ax = run_plots.plot_memory(run, bytes_a_step=10)
    assert line(ax, "held by this learner")[1][-1] == run.nbytes
    assert line(ax, "every step kept (LSVI-UCB)")[1][-1] == 10 * run.steps


def test_memory_contents(counted: Any, agent: s4q.Agent) -> None:
    _, learner, _ = counted
    policies = learner_plots.plot_memory_contents(learner)
    assert [patch.get_height() for patch in policies.patches] == [e.n_episodes for e in learner.memory.entries]
    steps = learner_plots.plot_memory_contents(agent.learner)
    assert agent.last_run is not None
    assert steps.patches[0].get_height() == agent.last_run.steps  # pooled: one bar for all that came


def test_information_against_a_literal_determinant(counted: Any) -> None:
    """Tabular features: the log determinant is a sum over pairs. It never exceeds its caps."""
    mdp, learner, _ = counted
    phase = learner_plots.phase_of(learner)
    assert phase is not None
    literal = [
        sum(np.log1p(float(cell) / ridge) for cell in gram.ravel())
        for gram, ridge in zip(phase.cov_ref + phase.increment, phase.ridge, strict=True)
    ]
    np.testing.assert_allclose(learner_plots.information(learner), literal)
    dims = learner_plots.effective_dims_of(mdp, learner)
    assert dims is not None
    cap = mdp.dim * np.log1p(learner_plots.samples_behind(learner) / phase.ridge / mdp.dim)
    assert (dims <= cap + 0.02 * cap).all()
    learner_plots.plot_information(learner, effective=dims)


def test_bonus_is_the_rest_of_the_optimistic_value(counted: Any) -> None:
    """Along its own policy a value without clips is the rewards it expects and the bonuses it meets."""
    mdp, learner, _ = counted
    bonuses, visits = learner_plots.mean_bonuses(mdp, learner.q), mdp.occupancies(learner.q)
    for h in range(mdp.horizon):
        phi = mdp.features.level(h)
        linear = np.einsum("sak,sak->sa", phi.vectors, learner.q.levels[h].theta[phi.blocks])
        expected = (visits[h] * (learner.q.optimistic(h, phi) - linear)).sum()
        assert bonuses[h] == pytest.approx(expected)
    assert (bonuses > 0).all()


def test_moves_of_grids() -> None:
    lake = s4q.problems.from_gymnasium("FrozenLake-v1", horizon=5)
    cliff = s4q.problems.from_gymnasium("CliffWalking-v1", horizon=20)
    grid = s4q.problems.slippery_grid(4, horizon=10)
    up, right, down, left = [-1, 0], [0, 1], [1, 0], [0, -1]
    assert lake.layout is not None and cliff.layout is not None and grid.layout is not None  # noqa: PT018
    assert mean_moves(lake, lake.layout).tolist() == [left, down, right, up]
    assert mean_moves(cliff, cliff.layout).tolist() == [up, right, down, left]
    assert mean_moves(grid, grid.layout).tolist() == [up, right, down, left]
    assert s4q.problems.from_gymnasium("Taxi-v4", horizon=2).layout is None


def test_policy_on_a_grid_shows_exact_values() -> None:
    """The optimal policy of DeepSea: the diagonal is worth what Q* says, and cells above it are empty."""
    mdp = s4q.problems.deep_sea(4)
    (mesh,) = [one for one in mdp.plot().collections if type(one).__name__ == "QuadMesh"]
    shown = np.ma.filled(np.ma.masked_array(mesh.get_array()), np.nan).reshape(4, 4)
    for row in range(4):
        for column in range(4):
            best = mdp.q_star[row, column].max()
            assert (shown[row, column] == pytest.approx(best)) if column <= row else np.isnan(shown[row, column])


def test_cells_that_are_never_visited_are_empty() -> None:
    mdp = s4q.problems.slippery_grid(3, slip=0.0, horizon=6)
    goes_right = s4q.LinearQ.from_arrays(np.tile(np.eye(4)[1], (6, 9)).reshape(6, 36, 1))
    (mesh,) = [one for one in plot_policy(mdp, goes_right).collections if type(one).__name__ == "QuadMesh"]
    empty = np.ma.getmaskarray(np.ma.masked_array(mesh.get_array())).reshape(3, 3)
    assert empty.tolist() == [[False] * 3, [True] * 3, [True] * 3]
    everywhere = plot_policy(mdp, goes_right, level=2)
    (mesh,) = [one for one in everywhere.collections if type(one).__name__ == "QuadMesh"]
    assert np.ma.getmaskarray(np.ma.masked_array(mesh.get_array())).sum() == 1  # the goal


def test_value_over_two_numbers(agent: s4q.Agent) -> None:
    ax = agent.plot_value()
    (image,) = ax.get_images()
    drawn = np.asarray(image.get_array())
    space = agent.env.observation_space
    corner = np.array([[space.low[0], space.high[1]]], dtype=np.float64)  # left, top
    promise = agent.learner.best.value(0, agent.features(0, corner))[0] - 20
    assert drawn[-1, 0] == pytest.approx(max(promise, -20.0))
    assert drawn.min() >= -20


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a, m, r: a.plot_value(dims=(0, 2)), "dims must name two different numbers"),
        (lambda a, m, r: a.plot_value(dims=(1, 1)), "dims must name two different numbers"),
        (lambda a, m, r: a.plot_value(level=20), r"level must lie in 0\.\.19"),
        (lambda a, m, r: a.plot_value(low=[0.0]), "low must hold 2 numbers"),
        (lambda a, m, r: a.plot_value(at=[0.0]), "at must hold 2 numbers"),
        (lambda a, m, r: a.plot_value(low=[1.0, 1.0]), "no finite range"),
        (lambda a, m, r: m.plot(level=1), "leave level out"),
        (lambda a, m, r: s4q.problems.slippery_grid(3, horizon=6).plot(level=6), r"level must lie in 0\.\.5"),
        (lambda a, m, r: s4q.problems.chain().plot(), "this problem is no grid"),
        (lambda a, m, r: run_plots.plot_regret(a.last_run), "known only on a FiniteMDP"),
        (lambda a, m, r: run_plots.plot_gap(a.last_run), "known only on a FiniteMDP"),
        (lambda a, m, r: s4q.problems.GridLayout(1, 1, ((0, 1),)), r"cells\[0\] must lie in a grid"),
        (
            lambda a, m, r: s4q.FiniteMDP(np.ones((1, 1, 1)), [[0.5]], [1.0], horizon=1, layout=5),
            "must be a GridLayout",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused(counted: Any, agent: s4q.Agent, call: Any, message: str) -> None:
    mdp, _, run = counted
    with pytest.raises(ValueError, match=message):
        call(agent, mdp, run)


def test_ranges_of_the_features_go_before_infinite_ones_of_the_env() -> None:
    env = gymnasium.make("CartPole-v1")
    ends = {"low": [-2.4, -3.0, -0.21, -3.0], "high": [2.4, 3.0, 0.21, 3.0]}
    features = s4q.features.PerAction(s4q.features.Fourier(**ends, order=1, clip=True), 2)
    agent = s4q.Agent(env, features, horizon=5, reward_range=(0, 1), seed=0)
    assert agent.plot_value(dims=(1, 3)).get_xlim() == (-3.0, 3.0)
    assert agent.plot_value(dims=(1, 3), low=[-1] * 4, high=[1] * 4).get_xlim() == (-1.0, 1.0)
    with pytest.raises(ValueError, match="has not learned yet"):
        agent.plot()


def test_without_matplotlib_one_line_says_what_to_install(counted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ImportError, match=r'pip install "s4q\[report\]"'):
        counted[2].plot()


def test_svg_is_the_same_every_time_and_takes_the_colours_of_the_page(counted: Any) -> None:
    _, _, run = counted
    first, second = (inline_svg(run.plot(), "promise", 'a "quoted" <name>') for _ in range(2))
    assert first == second
    assert first != inline_svg(run.plot(), "other", "")  # identifiers of two plots never meet
    assert first.startswith("<svg")
    assert "aria-label='a \"quoted\" &lt;name&gt;'" in first
    assert "var(--blue)" in first
    assert "#0b6fb3" not in first
    for word in ("<metadata", "<?xml", "DOCTYPE", "matplotlib", "Date"):
        assert word not in first
