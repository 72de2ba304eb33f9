"""GridLayout: where the states of a problem lie on a grid, so that values and policies can be drawn.

Builders of grid-like problems pass one to FiniteMDP. Only drawings read it; nothing is computed from it.
"""

from dataclasses import dataclass
from typing import final

from s4q.core.validation import require_count


@final
@dataclass(frozen=True, slots=True)
class GridLayout:
    """A grid of cells and the states that stand in them.

    Args:
        n_rows: Rows of the grid.
        n_columns: Columns of the grid.
        cells: Row and column of every state, in the order of the states; None for a state that has no cell.
        row_is_level: True if the row is the level, as in DeepSea. A state then stands for a whole column, and the
            row in `cells` is not read. False (default): the grid is the same at every level.

    >>> GridLayout(2, 2, ((0, 0), (0, 1), (1, 0), (1, 1))).n_rows
    2
    """

    n_rows: int
    n_columns: int
    cells: tuple[tuple[int, int] | None, ...]
    row_is_level: bool = False

    def __post_init__(self) -> None:
        require_count("n_rows", self.n_rows, "the number of rows")
        require_count("n_columns", self.n_columns, "the number of columns")
        for state, cell in enumerate(self.cells):
            if cell is not None and not (0 <= cell[0] < self.n_rows and 0 <= cell[1] < self.n_columns):
                raise ValueError(
                    f"cells[{state}] must lie in a grid of {self.n_rows} rows and {self.n_columns} columns; got {cell}"
                )

    @classmethod
    def rectangle(cls, n_rows: int, n_columns: int, n_states: int) -> "GridLayout":
        """States in reading order; those after the last cell have none.

        Args:
            n_rows: Rows of the grid.
            n_columns: Columns of the grid.
            n_states: States of the problem, at least as many as there are cells.
        """
        inside = [(row, column) for row in range(n_rows) for column in range(n_columns)]
        return cls(n_rows, n_columns, (*inside, *[None] * (n_states - len(inside))))
