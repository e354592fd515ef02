# torch_ocl_compile/lightning.py: the names for programs that use Lightning.
"""OclAccelerator is for strategies that a program makes itself. The Trainer and Fabric need nothing from here. It serves the packages
lightning, pytorch_lightning and lightning_fabric alike."""

from torch_ocl_compile.device.lightning_trainer import OclAccelerator

__all__ = ["OclAccelerator"]
