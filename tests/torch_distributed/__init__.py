# tests/torch_distributed/__init__.py: PyTorch's own tests of torch.distributed, with the process group `ocl`.
