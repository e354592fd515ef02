# torch_ocl_compile/lowering/complex_numbers/__init__.py: ops on the parts of complex numbers; Fourier transforms, Jacobi rotations.
