# torch_ocl_compile/bench/__init__.py: timing this backend beside eager PyTorch and Inductor.
