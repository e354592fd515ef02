# torch_ocl_compile/device/__init__.py: the device `ocl` in PyTorch. Empty: `import torch` loads this package.
