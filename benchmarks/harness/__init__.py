# benchmarks/harness/__init__.py: times this backend beside eager PyTorch and Inductor.
