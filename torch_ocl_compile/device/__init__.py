# torch_ocl_compile/device/__init__.py: the device `ocl` in PyTorch. Empty, because `import torch` loads this package.
