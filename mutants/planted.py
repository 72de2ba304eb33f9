"""Faults that were once planted and not noticed, and others of their kind. All of them must be killed.

Each is (file, old text, new text, tests to try first). The old text must stand in the file exactly once; a fast test
checks, so that this list cannot rot.
"""

from mutants.fault import Fault
from mutants.planted_collectors import COLLECTORS

_NESTED = ("test_s4q.py::test_s4q_equals_nested_loops",)

PLANTED = [
    # The trigger, the ridge and the width of S4Q.
    Fault("s4q.py", "self.constants.threshold(self._phase,", "self.constants.threshold(self._phase + 1,", _NESTED),
    Fault("s4q.py", "self.constants.ridge(self._phase, n_total)", "self.constants.ridge(self._phase, 1)", _NESTED),
    Fault("s4q.py", "bonus = self._bonus_rule(n_total)", "bonus = self._bonus_rule(1)", _NESTED),
    Fault("s4q.py", "scale = self.memory.n_episodes / max(s3q.n_fitted, 1)", "scale = 1.0", _NESTED),
    Fault("s4q.py", "self._gram = loop.cov_ref + loop.increment", "self._gram = loop.cov_ref", _NESTED),
    Fault("s4q.py", "self.memory.append(loop.q, loop.n_episodes)", "self.memory.append(loop.q, 1)", _NESTED),
    Fault(
        "s3q.py",
        "theta = constrained_fit(moments, float(self.ridge[level]), self.radius[level])",
        "theta = constrained_fit(moments, float(self.ridge[0]), self.radius[level])",
    ),
    Fault(
        "s3q.py",
        "theta = constrained_fit(moments, float(self.ridge[level]), self.radius[level])",
        "theta = constrained_fit(moments, float(self.ridge[level]), self.radius[0])",
    ),
    Fault(
        "s3q.py",
        "self._finish_level(held.moments(self._level, self._next_target))",
        "self._finish_level(held.moments(self._level, None))",
        _NESTED,
    ),
    Fault("widths.py", "np.linalg.slogdet(gram / ridge + np.eye(k))", "np.linalg.slogdet(gram + np.eye(k))"),
    Fault(
        "widths.py",
        "return np.asarray(noise + ball * sqrt(ridge))  # [Thm:PooledRadius]",
        "return np.asarray(noise + ball)",
    ),
    Fault("widths.py", "noise=residual + floor**2", "noise=residual + floor * value_bound", _NESTED),
    Fault("widths.py", "return TABLE if block_dim == 1 else EXACT", "return EXACT", _NESTED),
    Fault("widths.py", "return TABLE if block_dim == 1 else EXACT", "return TABLE", _NESTED),
    Fault("widths.py", "return INEXACT", "return EXACT", _NESTED),
    Fault("widths.py", "scale.one_level / sqrt(horizon)", "scale.one_level / horizon", _NESTED),
    Fault("widths.py", "scale.floor * root_of_levels(horizon)", "scale.floor", _NESTED),
    Fault("widths.py", "ceiling=value_bound**2 / 4", "ceiling=value_bound / 4", _NESTED),
    Fault("presets.py", '(1.0 if self.epochs == "single" else 4.0) / self.c_replay', "1.0 / self.c_replay"),
    Fault("presets.py", "ball=self.spec.block_radius[level],", "ball=self.spec.radius[level],"),
    Fault(
        "presets.py",
        "return largest / 2 if self.spec.well_specified else largest",
        "return largest / 2",
    ),
    Fault("presets.py", "log(self.spec.n_blocks / self.delta_fit(phase))", "log(1 / self.delta_fit(phase))"),
    Fault("presets.py", "n=self._n(self.samples_a_level(n_total)),", "n=self._n(n_total),"),
    Fault(
        "presets.py", "self.delta / (8 * self.spec.horizon * phase**2)", "self.delta / (8 * self.spec.horizon * phase)"
    ),
    # What diagnose() must see.
    Fault("signs.py", "max(mean, record.return_sum_sq / record.return_sum)", "mean"),
    Fault("signs.py", "best, largest_return=max(self.largest_return, some_return(record))", "best"),
    Fault("signs.py", "new.lower > self.best.lower else self.best", "new.mean > self.best.mean else self.best"),
    Fault("level_sums.py", "(n + SHRINKAGE)[..., None]", "n[..., None]"),
    Fault("level_sums.py", "kept.levels * n_groups // horizon", "0 * kept.levels"),
    Fault("diagnostics.py", "n_before -= last.n_episodes", "pass"),
    Fault("diagnostics.py", "running.n_episodes >= last.n_episodes", "False"),
    Fault(
        "main_loop.py",
        "whitener(gram, lam) for gram, lam in",
        "whitener(gram, self.ridge[0]) for gram, lam in",
        _NESTED,
    ),
    Fault(
        "optimism.py",
        "return self.clipped(highest(self.optimistic(phi, known)))",
        "return highest(self.optimistic(phi, known))",
        ("test_linear_q.py",),
    ),
    Fault(
        "optimism.py",
        "best_actions(np, self.optimistic(phi))",
        "best_actions(np, self.clipped(self.optimistic(phi)))",
        ("test_linear_q.py",),
    ),
    Fault("optimism.py", "1.0 / xp.clip(samples, 1.0, None)", "1.0 / (samples + 1.0)", _NESTED),
    Fault(
        "policy_replay.py",
        "counts / counts.sum())  # [Alg2:Controller]",
        "np.full(len(counts), 1 / len(counts)))",
        _NESTED,
    ),
    Fault("shelf.py", "np.add.at(self.weights, places, counts.astype(np.float64))", "self.weights[places] += 1"),
    Fault("step_memory.py", "weights[order] = shelf.weights[order] / chances", "weights[order] = shelf.weights[order]"),
    Fault("step_memory.py", "new = shelf.weights if shelf.settled is None else", "new = shelf.weights if True else"),
    Fault("step_memory.py", "sums if before.sums is None else before.sums + sums", "sums"),
    Fault("sorted_rows.py", "weights * new_powers - settled * old_powers", "weights * (new_powers - old_powers)"),
    Fault("sorted_rows.py", "scale * sums[4], squares,", "sums[4], squares,"),
    Fault("step_memory.py", "np.where(last, kept.states, kept.next_states)", "kept.next_states"),
    Fault("transitions.py", "0 if shared else self.actions", "0", ("test_literal_player.py",)),
    Fault("sketch.py", "missing = gram - sampled_gram", "missing = gram"),
    Fault("sketch.py", "_UNIFORM * evenly", "evenly"),
    Fault("sketch.py", "max(squares - in_sample, 0.0)", "squares - in_sample"),
    Fault("state_table.py", "self.blocks[0 if len(self.blocks) == 1 else states, actions]", "self.blocks[0, actions]"),
    Fault("distinct_rows.py", "hashes[wrong] += np.uint64(1)", "break"),
    # Rounding, and the radius that exact features need.
    Fault("messages.py", "ROUNDING = 1e-9", "ROUNDING = 0.0", ("test_rounding.py",)),
    Fault("optimism.py", "TIE = 1e-11", "TIE = 0.0", ("test_rounding.py",)),
    Fault("radius.py", "worth & (onto > 0).any(axis=0)", "worth & visited", ("test_needed_radius.py",)),
    Fault("radius.py", "ended, bound = spec.ended_value(h),", "ended, bound = 0.0,", ("test_needed_radius.py",)),
    Fault(
        "radius.py", "high = fixed + bound * np.maximum", "high = fixed + 0 * np.maximum", ("test_needed_radius.py",)
    ),
    Fault("presets.py", "np.where(halves > 0,", "np.where(halves > -1,", ("test_needed_radius.py",)),
    *COLLECTORS,
]
