# torch_ocl_compile/reference/__init__.py: what every op of the IR means, computed with plain torch ops.
