# torch_ocl_compile/lowering/graphs/__init__.py: a whole FX graph: its nodes, the calls that are no plan, what a call of it needs.
