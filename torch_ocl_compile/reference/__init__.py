# torch_ocl_compile/reference/__init__.py: computes every op of the IR with plain torch ops, which defines its meaning.
