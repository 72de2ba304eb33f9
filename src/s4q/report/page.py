"""The report: one HTML file that shows a run, needs no network, and is the same bytes for the same run.

`s4q report` and users call `write_report`. Plots become SVG inside the page; every name that comes from outside is
escaped by Jinja2. This module decides what is shown where; the words are in `sentences`, the layout in `page.html`.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from s4q.core.version import __version__
from s4q.learners.diagnostics import Finding
from s4q.learners.s4q import S4Q
from s4q.report import captions, learner_plots, run_plots, sentences
from s4q.report.drawing import inline_svg, thinned
from s4q.report.grid_plots import plot_policy
from s4q.report.html_files import rendered, write_page
from s4q.report.run_source import RunSource
from s4q.report.value_plots import plot_value
from s4q.theory.auditing import Audit, audit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_ROWS = 40


@final
@dataclass(frozen=True, slots=True)
class Picture:
    """A plot of the page and what it says."""

    name: str
    title: str
    svg: str
    text: str


@final
@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page: pictures that answer one question."""

    name: str
    title: str
    pictures: tuple[Picture, ...]


def write_report(path: str | PathLike[str], source: RunSource) -> Path:
    """Write the report of a run to one file, which replaces the one that was there.

    Args:
        path: The file to write, such as "report.html".
        source: The run.

    Returns:
        The path of the file.
    """
    return write_page(path, render(source))


def render(source: RunSource) -> str:
    """The whole page as text.

    Args:
        source: The run.
    """
    checked = _audit(source)
    return rendered(
        "page.html",
        source=source,
        headline=sentences.headline(source),
        tiles=sentences.tiles(source),
        guarantee=sentences.guarantee_of(source),
        certificate=sentences.certificate_of(source),
        no_certificate=sentences.no_certificate(source),
        findings=findings_of(source),
        sections=[asdict(one) for one in _sections(source)],
        audit=checked,
        audit_rows=[] if checked is None else [_audit_row(row) for row in checked.rows],
        curve=[_curve_row(point) for point in thinned(run_plots.played_points(source.run), _MOST_ROWS)],
        explanation=source.learner.explain() if isinstance(source.learner, S4Q) else "",
        configuration=configuration(source),
    )


def findings_of(source: RunSource) -> list[Finding]:
    """What the learner finds wrong with its own run."""
    return source.learner.diagnose() if isinstance(source.learner, S4Q) else []


def configuration(source: RunSource) -> dict[str, str]:
    """Everything that was chosen, by name."""
    spec, learner = source.learner.spec, source.learner
    found: dict[str, Any] = {"problem": source.problem, "algorithm": sentences.algorithm(source)}
    if source.max_steps is not None:
        found |= {"steps": source.max_steps}
    found |= {"episodes": source.episodes_asked or source.run.episodes, "seed": source.seed, "s4q": __version__}
    found |= {"horizon": spec.horizon, "actions": spec.n_actions}
    blocks = f"{spec.n_blocks} block{'s' * (spec.n_blocks > 1)} of {spec.block_dim}"
    found |= {"features": f"{spec.dim} ({blocks}), {'exact' if spec.well_specified else 'not declared exact'}"}
    found |= {"reward of a step": f"{spec.reward_min:g} to {spec.reward_max:g}"}
    if isinstance(learner, S4Q):
        c = learner.constants
        found |= {"delta": c.delta, "memory": c.memory, "memory bytes": c.memory_bytes, "pooled steps": c.pool}
        given = {"ridge": c.fixed_ridge, "bonus width": c.fixed_width, "trigger": c.fixed_trigger}
        found |= {name: value for name, value in given.items() if value is not None}
    known = {name.replace("-", " ").replace("_", " ") for name in found}
    for name, value in source.settings.items():
        if name.replace("_", " ") not in known and name != "preset":
            found[name.replace("_", " ")] = value
    return {name: _shown(value) for name, value in found.items() if value is not None}


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) and value > 9_999 and value < 10**12 else str(value)


def _sections(source: RunSource) -> Iterator[Section]:
    for name, title, pictures in (
        ("learning", "How it learned", _learning(source)),
        ("policy", "What it learned", _policy(source)),
        ("knowledge", "What it knows, and how well", _knowledge(source)),
        ("cost", "What it cost", _cost(source)),
    ):
        shown = tuple(pictures)
        if shown:
            yield Section(name, title, shown)


def _learning(source: RunSource) -> Iterator[Picture]:
    run, mdp = source.run, source.mdp
    points = run_plots.played_points(run)
    if any(point.mean_return is not None for point in points):
        best = mdp.v_star if mdp is not None else None
        said = captions.PROMISE
        yield _picture("promise", "Promise against return", run_plots.plot_run(run, best_return=best), said)
    if points and run.regret is not None:
        gap = None if mdp is None else mdp.v_star - mdp.facts().v_uniform
        bound = sentences.regret_bound(source)
        said = captions.REGRET
        if bound is None:
            said += captions.NO_BOUND if isinstance(source.learner, S4Q) else ""
        yield _picture("regret", "Regret", run_plots.plot_regret(run, bound=bound, uniform_gap=gap), said)
    if points and run.gap is not None:
        proved = sentences.certified_gap(source)
        short = f"{run.gap:.3g} short of" if run.gap > 1e-9 else "as good as"
        said = f"The newest policy is {short} the best."
        yield _picture("gap", "Gap of each policy", run_plots.plot_gap(run, certified=proved), said)
    if any(point.phases for point in points):
        said = captions.PHASES
        yield _picture("phases", "Length of the phases", run_plots.plot_phases(run), said)


def _policy(source: RunSource) -> Iterator[Picture]:
    mdp, learner, run = source.mdp, source.learner, source.run
    if mdp is not None and mdp.layout is not None and source.policy_fits:
        said = captions.POLICY_BY_ROWS if mdp.layout.row_is_level else captions.POLICY
        yield _picture("policy", "The policy to keep", plot_policy(mdp, run.best), said)
    ranges = source.ranges
    if source.features is None or ranges is None or len(ranges.low) < 2 or not run.episodes:
        return
    dims = [d for d in range(len(ranges.low)) if abs(ranges.low[d]) < 1e30 and abs(ranges.high[d]) < 1e30][:2]
    if len(dims) == 2:
        said = captions.VALUE + (captions.OTHERS_IN_THE_MIDDLE if len(ranges.low) > 2 else "")
        ax = plot_value(_linear(source), source.features, learner.spec, ranges, (dims[0], dims[1]))
        yield _picture("value", "The value it has in mind", ax, said)


def _linear(source: RunSource) -> Any:
    return source.learner.best if isinstance(source.learner, S4Q) else source.run.q


def _knowledge(source: RunSource) -> Iterator[Picture]:
    learner, mdp = source.learner, source.mdp
    if not isinstance(learner, S4Q) or not learner.n_episodes:
        return
    if learner.memory.keeps_steps or learner.memory.policies:
        yield _picture(
            "memory-holds", "What the memory holds", learner_plots.plot_memory_contents(learner), f"{learner.memory!r}."
        )
    if learner_plots.samples_behind(learner):
        dims = None if mdp is None or not source.policy_fits else learner_plots.effective_dims_of(mdp, learner)
        said = captions.INFORMATION
        yield _picture(
            "information", "Information by level", learner_plots.plot_information(learner, effective=dims), said
        )
    if mdp is not None and source.policy_fits:
        said = captions.BONUS
        yield _picture("bonus", "Bonus by level", learner_plots.plot_bonus(mdp, learner.q, scale=mdp.v_star), said)


def _cost(source: RunSource) -> Iterator[Picture]:
    run = source.run
    if not run_plots.played_points(run):
        return
    said = sentences.where_episodes_went(run)
    if run.main_episodes < run.episodes:
        yield _picture("episodes", "Where the episodes went", run_plots.plot_episodes(run), said)
    each = sentences.bytes_a_step(source)
    kept = (
        f"A learner that keeps every step needs {each:,} bytes for one: the features of its action, those of all "
        "actions afterwards, and the reward."
    )
    yield _picture("memory", "Memory", run_plots.plot_memory(run, bytes_a_step=each), kept)
    whole = f"{run.cpu_seconds:.3g} CPU seconds for {sentences.count(run.steps)} steps."
    whole += f" {said}" if run.main_episodes == run.episodes else ""  # else another picture says it
    yield _picture("cpu", "CPU time", run_plots.plot_cpu(run), whole)


def _picture(name: str, title: str, ax: "Axes", text: str) -> Picture:
    return Picture(name, title, inline_svg(ax, name, f"{title}. {text}"), text)


def _audit(source: RunSource) -> Audit | None:
    """The audit of a recorded run on a known problem."""
    known = source.run.record is not None and source.mdp is not None and isinstance(source.learner, S4Q)
    return audit(source.run, source.mdp) if known and source.mdp is not None else None


def _audit_row(row: Any) -> list[str]:
    numbers = ["" if value is None else f"{value:.4g}" for value in (row.measured, row.bound)]
    relation = "" if row.measured is None else "≥" if row.above else "≤"
    return [row.statement, row.where, numbers[0], relation, numbers[1], row.verdict, row.place, row.note]


def _curve_row(point: Any) -> list[str]:
    numbers = [point.mean_return, point.optimistic_value, point.gap, point.regret]
    shown = ["" if value is None else f"{value:.4g}" for value in numbers]
    return [f"{point.episodes:,}", f"{point.phases:,}", *shown, f"{point.nbytes:,}", f"{point.cpu_seconds:.3g}"]
