"""The README is true: its code runs and prints what it shows, its commands and files exist.

The tables it links to, those of docs/results.md, are what the benchmarks compute.
"""

import contextlib
import io
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from shown_output import blocks, differences
from typer.testing import CliRunner

import s4q
from s4q.cli import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
RESULTS = (ROOT / "docs" / "results.md").read_text()
BLOCKS = list(blocks(README))


@pytest.mark.slow
@pytest.mark.parametrize(("code", "shown"), BLOCKS, ids=range(len(BLOCKS)))
def test_code_blocks_run_and_print(code: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block on its own, and what it prints where the README shows it."""
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    assert printed.getvalue().strip()
    assert not shown or not differences(shown, printed.getvalue())


def test_the_first_screen_has_what_a_stranger_needs() -> None:
    """Code with its output, a picture and the two commands, in what fits on a screen; and the README stays short."""
    first, _, _ = README.partition("\n## ")
    assert len(BLOCKS[0][0].strip().splitlines()) <= 7
    assert BLOCKS[0][1]
    assert BLOCKS[0][0] in first
    (picture,) = re.findall(r'<img src="([^"]+)"', first)
    assert (ROOT / picture).stat().st_size > 1_000
    assert "make demo" in first
    assert "make test" in first
    assert len(first.split()) < 350
    assert len(README.split()) <= 1_200


def test_commands_are_targets_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    commands = set(re.findall(r"\bmake (demo|test|bench|slow|docs|dist)\b", README))
    assert {"demo", "test", "docs"} <= commands
    for command in commands:
        assert re.search(rf"^{command}: ", makefile, re.M), command


@pytest.mark.slow
def test_shell_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every `s4q ...` line, in order, in one folder."""
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^    s4q (.*)$", README, re.M)
    assert {command.split()[0] for command in commands} == {"train", "explain", "audit", "compare"}
    for command in commands:
        done = CliRunner().invoke(app, shlex.split(command))
        assert done.exit_code == 0, done.output
        assert done.output.strip()


def test_links_and_files_named_exist() -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", README)
    assert len(links) > 20
    for link in links:
        assert link.startswith("https://") or (ROOT / link).exists(), link
    for name in re.findall(r"`((?:src|docs|examples|CITATION)[^` ]*)`", README):
        assert (ROOT / name).exists(), name


@pytest.mark.slow
def test_table_of_errors_is_what_the_benchmark_computes() -> None:
    """The two smaller rows; the last one takes seconds and comes from `make bench`."""
    rows = re.findall(r"^\| ([\d,]+) \| ([\d.]+) \| ([\d.]+) \| (\d+) \|$", RESULTS, re.M)
    assert len(rows) == 3
    mdp = s4q.problems.low_rank()
    for episodes_text, error_text, scaled_text, held in rows[:2]:
        episodes = int(episodes_text.replace(",", ""))
        errors = []
        for seed in range(5):
            learner = s4q.S3Q(mdp, controller=s4q.UniformPolicy(mdp.n_actions))
            run = s4q.run(learner, s4q.collectors.EpisodeCollector(mdp, seed=seed), episodes)
            errors.append(np.abs(mdp.q_values(run.q) - mdp.q_star)[mdp.reachable].max())
            assert run.nbytes == int(held)
        assert np.mean(errors) == pytest.approx(float(error_text), abs=6e-5)
        assert np.mean(errors) * episodes**0.5 == pytest.approx(float(scaled_text), abs=6e-3)


@pytest.mark.slow
def test_table_of_exploration_is_what_the_benchmark_computes() -> None:
    """Rows that take a second or two; the others come from `make bench`."""
    pattern = r"^\| (river_swim\(6, 12\)|low_rank\(\)) \| (\w+) \| 10\^(\d+) \| (\d+) \| (\S+) \| (\S+) \| (\S+) \|"
    rows = re.findall(pattern, RESULTS, re.M)
    assert len(rows) == 6
    for name, preset, power, phases, regret, gap, held in rows:
        if name.startswith("river") and int(power) > 4:
            continue
        mdp = s4q.problems.river_swim(6, 12) if name.startswith("river") else s4q.problems.low_rank()
        run = s4q.run(s4q.S4Q(mdp, preset), s4q.collectors.CountCollector(mdp, seed=0), 10 ** int(power))  # type: ignore[arg-type]
        assert run.phases == int(phases)
        assert f"{run.regret:.3g}" == regret
        assert f"{run.gap:.1e}" == gap
        assert f"{run.nbytes:,}" == held


def test_numbers_of_the_readme_are_those_of_the_results() -> None:
    row = re.search(r"^\| DeepSea 20 \| [^|]+ \| [^|]+ \| (\d+) \((\d+)\) \|", RESULTS, re.M)
    assert row is not None
    assert re.search(rf"after {row[1]} \(mean of 10 seeds, worst {row[2]}\)", README)
    row = re.search(
        r"^\| river_swim\(6, 12\) \| realisable \| 10\^12 \| [^|]+ \| [^|]+ \| [^|]+ \| (\S+) \|", RESULTS, re.M
    )
    assert row is not None
    assert f"{row[1]} bytes after 10^12 episodes of RiverSwim" in README
    assert f"{1 / s4q.problems.deep_sea(20).facts().chance:,.0f} episodes" in README


@pytest.mark.slow
@pytest.mark.parametrize("name", ["DeepSea 10", "chain"])
def test_rows_of_practical_are_what_the_benchmark_computes(name: str) -> None:
    """Two quick rows, all seeds; the others come from `make bench-practical`."""
    found = re.search(rf"^\| {name} \| [\d,]+ \| ([\d.]+) \|", RESULTS, re.M)
    assert found is not None
    regrets = []
    for seed in range(10):
        deep = name == "DeepSea 10"
        mdp = s4q.problems.deep_sea(10, seed=seed) if deep else s4q.problems.chain()
        learner = s4q.S4Q(mdp)
        run = s4q.run(learner, s4q.collectors.CountCollector(mdp, seed=seed), 500 if deep else 5000)
        regrets.append(run.regret)
    assert f"{np.mean(regrets):.1f}" == found[1]  # type: ignore[arg-type]
