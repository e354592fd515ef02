# benchmarks/__init__.py: programs that measure this backend beside others; `python -m benchmarks --help` lists those for networks and ops.
