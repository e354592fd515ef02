# torch_ocl_compile/lowering/reductions/__init__.py: ops that fold or scan dimensions: sums, extremes, running sums, norms, softmax.
