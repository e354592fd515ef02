# torch_ocl_compile/user_kernel/__init__.py: OpenCL C kernels of the user as torch ops (docs/user_kernels.md).
