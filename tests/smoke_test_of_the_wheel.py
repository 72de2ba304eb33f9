"""`make dist` runs this file with the wheel installed in an empty environment: is the package whole?

It needs nothing but the package and what the package requires. It must not be run in the source tree, where modules
and files that the wheel lacks would be found all the same.
"""

import subprocess
import sys
import tempfile
from importlib import import_module, metadata, resources
from importlib.util import find_spec
from pathlib import Path


def main() -> None:
    """Import, learn, write a file, and call the command line."""
    import s4q

    place = Path(s4q.__file__).parent
    assert "site-packages" in place.parts, f"this is not the installed package: {place}"
    assert find_spec("gymnasium") is None, "the environment is not empty"
    about = metadata.metadata("s4q")
    assert about["Version"] == s4q.__version__
    assert about["License-Expression"] == "MIT"
    assert about["Requires-Python"] == ">=3.11"
    assert about["Summary"]
    assert about.get_all("Classifier")
    assert about.get_all("Provides-Extra")
    for name in ("py.typed", "report/page.html", "report/page.css", "report/page.js", "report/comparison.html"):
        assert (resources.files("s4q") / name).is_file(), f"{name} is missing from the wheel"
    mdp = s4q.problems.deep_sea(5)
    learner = s4q.S4Q(mdp)
    run = s4q.run(learner, s4q.collectors.CountCollector(mdp, seed=0), episodes=200)
    assert run.gap is not None
    assert run.gap < 1e-9, f"DeepSea 5 was not solved in 200 episodes: {run}"
    for name in {*s4q.__all__} - {"wrappers"}:
        getattr(s4q, name)
    refusal = ""
    try:
        import_module("s4q.wrappers")
    except ImportError as error:
        refusal = str(error)
    assert 'pip install "s4q[gym]"' in refusal, f"no help where an extra is missing: {refusal!r}"
    with tempfile.TemporaryDirectory() as folder:
        s4q.save(Path(folder) / "run.s4q", learner, seed=0)
        assert s4q.load(Path(folder) / "run.s4q").learner.n_episodes == 200
    command = Path(sys.executable).with_name("s4q")
    for arguments in (["--version"], ["problems"], ["train", "chain", "--episodes", "20", "--seed", "0"]):
        for program in ([str(command)], [sys.executable, "-I", "-m", "s4q"]):
            done = subprocess.run([*program, *arguments], capture_output=True, text=True, check=False)
            assert done.returncode == 0, (arguments, done.stderr)
            assert done.stdout.strip(), arguments
    missing = subprocess.run([str(command), "train", "CartPole-v1"], capture_output=True, text=True, check=False)
    assert missing.returncode != 0
    assert "Traceback" not in missing.stderr, missing.stderr
    print(f"s4q {s4q.__version__} from the wheel works: {place}")


if __name__ == "__main__":
    main()
