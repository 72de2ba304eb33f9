"""Mutants made by the operators of cosmic-ray: one small change of one line each."""

import ast
import difflib
from collections import Counter
from hashlib import blake2b
from typing import NamedTuple

from cosmic_ray.ast import Visitor, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

from mutants.areas import module

# Those that can pass for a slip of the pen. Operators of another type of number only raise, and prove nothing.
_OPERATORS = [
    *(f"ReplaceBinaryOperator_{pair}" for pair in ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "Pow_Mul")),
    *(f"ReplaceBinaryOperator_{pair}" for pair in ("FloorDiv_Mul", "Mod_Mul", "BitAnd_BitOr", "BitOr_BitAnd")),
    *(f"ReplaceComparisonOperator_{pair}" for pair in ("Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is")),
    *(f"ReplaceComparisonOperator_{pair}" for pair in ("Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Lt_Gt", "LtE_GtE")),
    *(f"ReplaceComparisonOperator_{pair}" for pair in ("Gt_Lt", "GtE_LtE")),
    *("ReplaceUnaryOperator_Delete_USub", "ReplaceUnaryOperator_Delete_Not", "ReplaceUnaryOperator_Delete_Invert"),
    *("ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd", "AddNot"),
    *("ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "NumberReplacer", "ZeroIterationForLoop"),
]
# What these do is seen in files, messages and pages: other tests, not those of the area, look there.
_LEFT_OUT = {"check_restored", "__repr__"}


class Mutant(NamedTuple):
    """A module with one line changed."""

    file: str
    line: int
    old: str  # the line, without the spaces around it
    new: str
    text: str  # of the whole module

    @property
    def key(self) -> str:
        """The same wherever in the file, and in which folder, the line stands."""
        return f"{self.file}: {self.old}  ->  {self.new}"


class Place(NamedTuple):
    """Where an operator can change a line."""

    operator: str
    occurrence: int
    lot: str


def places_in(name: str) -> list[Place]:
    """All of a module, in the order of their lots: a larger sample has all of a smaller one."""
    code = module(name).read_text()
    rows = code.splitlines()
    skip, spans = _lines_left_out(code), _spans_left_out(code)
    found = []
    for operator in _OPERATORS:
        seen: Counter[str] = Counter()
        for occurrence, (line, column) in enumerate(_positions(code, get_operator(f"core/{operator}")())):
            text = rows[line - 1]
            if (
                line in skip
                or any(first <= (line, column) < end for first, end in spans)
                or text[column : column + 2] == "*,"
            ):
                continue
            # Wherever in the file the line stands.
            what = f"{name} {operator} {text.strip()} {seen[text]}"
            seen[text] += 1
            found.append(Place(operator, occurrence, blake2b(what.encode(), digest_size=8).hexdigest()))
    return sorted(found, key=lambda place: place.lot)


def mutants_of(name: str, places: list[Place]) -> list[Mutant]:
    """The mutants at these places; equal ones once."""
    code = module(name).read_text()
    found: dict[str, Mutant] = {}
    for operator, occurrence, _ in places:
        text = mutate_code(code, get_operator(f"core/{operator}")(), occurrence)
        if text is not None and text != code and _compiles(text):
            one = _described(name, code, text)
            found.setdefault(one.key, one)
    return list(found.values())


def _positions(code: str, operator: object) -> list[tuple[int, int]]:
    """Line and column of every occurrence, in the order in which `mutate_code` counts them."""
    places: list[tuple[int, int]] = []

    class Collect(Visitor):  # type: ignore[misc]
        def visit(self, node):  # type: ignore[no-untyped-def]
            places.extend(start for start, _ in operator.mutation_positions(node))  # type: ignore[attr-defined]
            return node

    Collect().walk(get_ast(code))
    return places


def _described(name: str, code: str, text: str) -> Mutant:
    before, after = code.splitlines(), text.splitlines()
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            old, new = (" ".join(line.strip() for line in part) for part in (before[i1:i2], after[j1:j2]))
            return Mutant(name, i1 + 1, old, new, text)
    raise AssertionError("a mutant without a change")


def _compiles(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def _lines_left_out(code: str) -> set[int]:
    """Lines of functions and statements whose mutants say nothing about the algorithm."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(code)):
        named = isinstance(node, ast.FunctionDef) and node.name in _LEFT_OUT
        if named or isinstance(node, (ast.Raise, ast.Import, ast.ImportFrom)):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            for decorator in node.decorator_list:
                lines.update(range(decorator.lineno, (decorator.end_lineno or decorator.lineno) + 1))
    return lines


def _spans_left_out(code: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Annotations: Python never looks at them again."""
    nodes: list[ast.expr | None] = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.FunctionDef):
            nodes.append(node.returns)
        elif isinstance(node, (ast.arg, ast.AnnAssign)):
            nodes.append(node.annotation)
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "Literal":
            nodes.append(node)
    return [((n.lineno, n.col_offset), (n.end_lineno or 0, n.end_col_offset or 0)) for n in nodes if n is not None]
