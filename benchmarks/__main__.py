"""`make bench`: every benchmark, one table each. Speed is a ratio within one run, by CPU time, on one BLAS thread."""

from rich.console import Console
from threadpoolctl import threadpool_limits

from benchmarks import audit, certificates, collectors, effective_dim, least_squares, s3q, s4q


def main() -> None:
    console = Console(width=130)
    tables = (
        least_squares.table,
        s3q.table,
        s4q.cost_table,
        s4q.slope_table,
        s4q.counts_table,
        certificates.gap_table,
        certificates.stopping_table,
        certificates.share_table,
        certificates.spread_table,
        effective_dim.table,
        audit.table,
        collectors.rate_table,
        collectors.blocks_table,
        collectors.tabular_table,
        collectors.single_table,
    )
    with threadpool_limits(limits=1):
        for table in tables:
            console.print(table())


if __name__ == "__main__":
    main()
