# torch_ocl_compile/lowering/core/__init__.py: what every lowering works with: context, rows, sizes, scalar formulas.
