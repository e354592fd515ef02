# torch_ocl_compile/lowering/products/__init__.py: matrix products, convolutions and attention.
