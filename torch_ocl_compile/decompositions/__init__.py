# torch_ocl_compile/decompositions/__init__.py: aten ops as formulas of simpler ops. table.py puts them together.
