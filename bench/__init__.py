"""Ours against others, in one run. `python -m bench --help` says how; none of it runs in the test suite."""
