# torch_ocl_compile/lowering/elementwise/__init__.py: ops whose elements do not depend on each other, and tensors made from nothing.
