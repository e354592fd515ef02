# torch_ocl_compile/decompositions/__init__.py: formulas of aten ops in terms of simpler ops. table.py collects them.
