"""The list of planted faults: each still applies, and says something else."""

import ast
import tomllib

import pytest
from mutants.areas import AREAS, ROOT, module, pytest_arguments
from mutants.planted import PLANTED


@pytest.mark.parametrize("fault", PLANTED, ids=lambda fault: f"{fault.file}: {fault.old.strip()[:40]}")
def test_a_planted_fault_still_applies(fault) -> None:  # type: ignore[no-untyped-def]
    code = module(fault.file).read_text()
    assert code.count(fault.old) == 1
    assert fault.old != fault.new
    ast.parse(code.replace(fault.old, fault.new))
    for argument in pytest_arguments(fault.file, fault.tests):
        assert (ROOT / argument.split("::")[0]).is_file()


def test_every_area_has_one_module_and_its_tests() -> None:
    for name in AREAS:
        for argument in pytest_arguments(name):
            path, *test = argument.split("::")
            assert f"def {test[0]}(" in (ROOT / path).read_text() if test else (ROOT / path).is_file()


def test_equivalent_mutants_still_stand_in_their_modules() -> None:
    rows = tomllib.loads((ROOT / "mutants" / "equivalent.toml").read_text()).get("equivalent", [])
    for row in rows:
        lines = [line.strip() for line in module(row["file"]).read_text().splitlines()]
        assert row["old"] in lines or row["old"] in " ".join(lines), row
        assert row["reason"]
