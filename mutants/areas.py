"""Which modules are mutated, and the tests meant to kill their mutants: the one place that knows of paths.

Modules go by the name of their file, wherever under `src` it stands. The doctests of a module are run first; then its
tests, the quickest killers first. None of them needs more than `fast` tests.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_SOLVER = ["test_least_squares.py"]
_LEARNER = [
    "test_s4q.py::test_s4q_equals_nested_loops",
    "test_s4q.py::test_tell_is_strict_and_a_refusal_loses_nothing",
    "test_s4q.py::test_policies_with_equal_parameters_are_merged",
    "test_s4q.py::test_the_first_phase_needs_no_s3q_and_is_greedy_for_the_bonus",
]
_COUNTS = ["test_draws.py", "test_counts.py", "test_count_sums.py", "test_literal_tables.py"]
_STEPS = ["test_literal_player.py", "test_gym_env.py", "test_vector.py", "test_bad_envs.py", "test_stream.py"]

AREAS: dict[str, list[str]] = {
    "least_squares.py": [*_SOLVER, "test_s3q.py"],
    "factors.py": [*_SOLVER, "test_linear_q.py", "test_s3q.py"],
    "optimism.py": ["test_linear_q.py", "test_batches.py", *_SOLVER],
    "linear_q.py": ["test_linear_q.py", "test_bad_input.py", "test_s3q.py", *_LEARNER],
    "s3q.py": ["test_s3q.py", "test_bad_input.py", *_LEARNER],
    "s4q.py": [*_LEARNER, "test_s4q.py", "test_bad_input.py"],
    "presets.py": ["test_presets.py", "test_step_memory.py::test_pooling_is_refused_with_the_reason", *_LEARNER],
    "widths.py": ["test_presets.py", *_LEARNER],
    "policy_replay.py": [*_LEARNER, "test_s4q.py"],
    "main_loop.py": [*_LEARNER, "test_s4q.py", "test_certificate.py"],
    "step_memory.py": ["test_step_memory.py", "test_sketch.py", *_LEARNER],
    "shelf.py": ["test_step_memory.py"],
    "sorted_rows.py": ["test_step_memory.py", "test_sketch.py", *_LEARNER],
    "sketch.py": ["test_step_memory.py", "test_sketch.py"],
    "state_table.py": ["test_step_memory.py"],
    "distinct_rows.py": ["test_step_memory.py"],
    "bonus_rules.py": ["test_s3q.py", "test_bad_input.py", *_LEARNER],
    "messages.py": ["test_rounding.py", "test_bad_input.py", *_STEPS, *_LEARNER],
    "transitions.py": ["test_literal_player.py", "test_step_memory.py", *_LEARNER],
    "level_sums.py": ["test_diagnostics.py"],
    "signs.py": ["test_diagnostics.py", "test_checkpoint.py"],
    "diagnostics.py": ["test_diagnostics.py"],
    "radius.py": ["test_needed_radius.py"],
    "counts.py": _COUNTS,
    "state_counts.py": _COUNTS,
    "draws.py": [*_COUNTS, "test_episodes.py"],
    "sums.py": _STEPS,
    "step_features.py": [*_STEPS, "test_feature_errors.py"],
    "episode.py": _STEPS,
    "greedy_actor.py": ["test_gym_env.py", "test_linear_q.py", "test_vector.py", "test_stream.py"],
}


def module(name: str, root: Path = ROOT) -> Path:
    """The one file of this name under `src`."""
    found = sorted((root / "src").rglob(name))
    if len(found) != 1:
        raise ValueError(f"{len(found)} files under src are called {name}; an area needs exactly one")
    return found[0]


def pytest_arguments(name: str, first: tuple[str, ...] = ()) -> list[str]:
    """What pytest is to run for a module, in order, from the root of the tree; `first` goes before the others."""
    wanted = dict.fromkeys([*first, *AREAS.get(name, [])])
    whole = {one for one in wanted if "::" not in one}
    # A file that runs as a whole later would run its picked tests twice.
    return [str(module(name).relative_to(ROOT)), *(_test_path(one) for one in _ordered(list(wanted), whole))]


def _test_path(test: str) -> str:
    """The path of a test file, wherever under `tests` it stands, with the test picked in it."""
    name, *picked = test.split("::")
    (path,) = (ROOT / "tests").rglob(name)
    return "::".join([str(path.relative_to(ROOT)), *picked])


def _ordered(wanted: list[str], whole: set[str]) -> list[str]:
    return [one for one in wanted if "::" not in one or one.split("::")[0] not in whole]
