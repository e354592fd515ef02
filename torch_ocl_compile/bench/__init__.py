# torch_ocl_compile/bench/__init__.py: times this backend beside eager PyTorch and Inductor.
