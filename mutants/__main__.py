"""`make mutants`: plant faults one at a time and see whether the tests of their area notice; see docs/mutants.md."""

import argparse
import json
import os
import sys
import tomllib
from collections import Counter
from hashlib import blake2b
from pathlib import Path

from mutants.areas import AREAS, ROOT, module, pytest_arguments
from mutants.planted import PLANTED
from mutants.runner import Outcome, Task, preload, run_all

RESULTS = ROOT / ".mutants" / "results.jsonl"
MOST_SURVIVORS = 0.03


def main() -> int:
    """Run, print survivors and a table; 1 if a planted fault or too many mutants survive."""
    options = _options()
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ[name] = "1"  # before numpy is imported
    preload()
    known = {} if options.fresh else _read_results()
    names = options.only.split(",") if options.only else list(AREAS)
    _run(_baseline(names, options.only is None), known, options.jobs, must_survive=True)
    failed = _planted(options, names, known)
    if options.planted:
        return failed
    return max(failed, _generated(options, names, known))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=400, help="mutants to try, spread over the modules")
    parser.add_argument("--only", help="modules, as in presets.py,widths.py")
    parser.add_argument("--planted", action="store_true", help="only the list of planted faults")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--fresh", action="store_true", help="forget what earlier runs found")
    return parser.parse_args()


def _planted(options: argparse.Namespace, names: list[str], known: dict[str, dict[str, object]]) -> int:
    tasks = []
    for fault in PLANTED:
        if options.only and fault.file not in names:
            continue
        code = module(fault.file).read_text()
        if code.count(fault.old) != 1:
            raise SystemExit(f"planted fault of {fault.file} no longer applies: {fault.old!r}")
        text = code.replace(fault.old, fault.new)
        key = f"planted {fault.file}: {fault.old.strip()}  ->  {fault.new.strip()}"
        tasks.append(Task(key, fault.file, text, pytest_arguments(fault.file, fault.tests)))
    results = _run(tasks, known, options.jobs)
    alive = [key for key, result in results.items() if result == "survived"]
    print(f"planted faults: {len(results)}, survived {len(alive)}")
    for key in alive:
        print("  SURVIVED", key)
    return int(bool(alive))


def _generated(options: argparse.Namespace, names: list[str], known: dict[str, dict[str, object]]) -> int:
    from mutants.generated import mutants_of, places_in

    reasons = _equivalents()
    by_module = {name: places_in(name) for name in names}
    total = sum(len(found) for found in by_module.values())
    share = min(1.0, options.sample / total)
    tasks, lines = [], {}
    for name, found in by_module.items():
        for one in mutants_of(name, found[: max(1, round(share * len(found)))]):
            lines[one.key] = one.line
            if one.key not in reasons:
                tasks.append(Task(one.key, name, one.text, pytest_arguments(name)))
    equivalent = Counter(key.split(":")[0] for key in lines if key in reasons)
    results = _run(tasks, known, options.jobs)
    survivors = [key for key, result in results.items() if result == "survived"]
    for key in sorted(survivors):
        print(f"SURVIVED {key}  (line {lines[key]})")
    tried, alive = (Counter(key.split(":")[0] for key in keys) for keys in (results, survivors))
    print(f"{'module':20} {'of':>6} {'tried':>6} {'killed':>6} {'survived':>8} {'equivalent':>10}")
    for name, found in by_module.items():
        killed = tried[name] - alive[name]
        print(f"{name:20} {len(found):6} {tried[name]:6} {killed:6} {alive[name]:8} {equivalent[name]:10}")
    rate = len(survivors) / max(len(results), 1)
    print(f"{len(results)} of {total} mutants, {len(survivors)} survived: {rate:.1%} (at most {MOST_SURVIVORS:.0%})")
    return int(rate > MOST_SURVIVORS)


def _run(
    tasks: list[Task], known: dict[str, dict[str, object]], jobs: int, must_survive: bool = False
) -> dict[str, str]:
    """Results by key. What is known already is not run again."""
    results, waiting, marks = {}, [], {}
    library = _digest(*(path.read_text() for path in sorted((ROOT / "src").rglob("*.py"))))
    for task in tasks:
        code = library if must_survive else _digest(task.text)
        marks[task.key] = (code, _digest(*(_text_of(test) for test in task.tests)))
        old = known.get(task.key, {})
        # Tests only grow: who was killed stays dead, and a survivor is tried again when its tests change.
        killed = old.get("result") in ("killed", "timeout") and old.get("code") == marks[task.key][0]
        if killed or (old.get("code"), old.get("tests")) == marks[task.key]:
            results[task.key] = str(old["result"])
        else:
            waiting.append(task)

    def report(outcome: Outcome) -> None:
        results[outcome.key] = outcome.result
        code, tests = marks[outcome.key]
        print(f"[{len(results)}/{len(tasks)}] {outcome.seconds:5.1f} s {outcome.result:8} {outcome.key}", flush=True)
        if must_survive and outcome.result != "survived":
            raise SystemExit(f"the tests fail without any fault: {outcome.output}")
        RESULTS.parent.mkdir(exist_ok=True)
        with RESULTS.open("a") as file:
            row = {"key": outcome.key, "result": outcome.result, "code": code, "tests": tests}
            file.write(json.dumps(row) + "\n")

    run_all(waiting, jobs, report)
    return results


def _baseline(names: list[str], whole: bool) -> list[Task]:
    """The tests of the areas without any fault: they must pass, or every mutant would look killed.

    Areas share tests, so each file is run once; the whole of `src` decides whether it must be run again.
    """
    wanted = [test for name in names for test in pytest_arguments(name)]
    if whole:
        wanted += [test for fault in PLANTED for test in pytest_arguments(fault.file, fault.tests)]
    name = names[0]
    text = module(name).read_text()
    picked = [test for test in dict.fromkeys(wanted) if "::" not in test or test.split("::")[0] not in wanted]
    return [Task(f"no fault, {test}", name, text, [test]) for test in picked]


def _read_results() -> dict[str, dict[str, object]]:
    if not RESULTS.exists():
        return {}
    rows = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    return {str(row["key"]): row for row in rows}


def _equivalents() -> dict[str, str]:
    """Mutants that change no result, with the reason."""
    rows = tomllib.loads((Path(__file__).parent / "equivalent.toml").read_text()).get("equivalent", [])
    return {f"{row['file']}: {row['old']}  ->  {row['new']}": row["reason"] for row in rows}


def _digest(*texts: str) -> str:
    return blake2b("\0".join(texts).encode(), digest_size=8).hexdigest()


def _text_of(test: str) -> str:
    return (ROOT / test.split("::")[0]).read_text()


if __name__ == "__main__":
    sys.exit(main())
