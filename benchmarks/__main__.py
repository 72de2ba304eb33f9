"""`make bench`: every benchmark, one table each. Speed is a ratio within one run, by CPU time, on one BLAS thread."""

from rich.console import Console
from threadpoolctl import threadpool_limits

from benchmarks import least_squares, s3q


def main() -> None:
    console = Console(width=110)
    with threadpool_limits(limits=1):
        for table in (least_squares.table(), s3q.table()):
            console.print(table)


if __name__ == "__main__":
    main()
