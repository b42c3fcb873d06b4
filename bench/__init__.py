"""The benchmarks. `python -m bench --help`; figures are only comparable within one run."""
