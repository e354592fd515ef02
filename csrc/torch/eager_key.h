// csrc/torch/eager_key.h: the arguments of an eager call as a flat list of leaves, and the key of its plan.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string>
#include <vector>

namespace ocl::aten {

/// How much of a call its plan depends on. A plan of a higher level serves more calls but is less specialised.
enum class KeyLevel : uint8_t {
  kExact,  // All sizes and all numbers.
  // Floats, and integers that a tensor is combined with, are arguments of the plan. In optimizers, this holds only for the
  // learning rate.
  kAnyNumbers,
  // Sizes, strides and integers that act as sizes (acts_as_size) are arguments too. The key still has ranks, sizes of 1, and
  // which sizes and which strides are equal.
  kAnySizes,
};

/// The arguments in the order of the schema, with lists flattened. None is a leaf too.
struct EagerArguments {
  std::vector<c10::IValue> leaves;
  std::vector<int> argument;  // For each leaf, the position of its argument in the schema.
  // For each leaf, the first leaf that is the same tensor, or the same float of a list. Usually the leaf itself.
  std::vector<int> same;
  int free = -1;             // The argument whose floats may vary. -1: all arguments.
  bool has_numbers = false;  // True if a key of level kAnyNumbers ignores some leaf.
  // True if a leaf that such a key ignores changes with every call, like a learning rate or a list of numbers.
  bool varies = false;
  std::string unsupported;  // What kernels cannot read: sparse tensors, CPU tensors with dimensions. "": nothing.
};

/// True if an argument is a number of any type, or a list of such numbers.
bool is_number(const c10::Argument& argument);
/// True for an argument whose integers above 1 only say how much or how far: the shift of a roll, the k of a topk.
bool acts_as_size(const std::string& argument);
/// Makes floats of the integers that are combined with floating-point tensors, because one plan serves all floats. Integers
/// that decide which kernels run stay.
void integers_to_floats(const c10::OperatorHandle& op, torch::jit::Stack& stack);
EagerArguments flatten(const c10::OperatorHandle& op, const torch::jit::Stack& stack);
std::string key_of(const c10::OperatorHandle& op, const EagerArguments& arguments, KeyLevel level);
/// Returns the key of a call on `device` for any process, without addresses and device numbers. "" if a tensor is on
/// another device.
std::string portable_key_of(const c10::OperatorHandle& op, const EagerArguments& arguments, KeyLevel level, int device);
/// Returns the device that the arguments name, or the current device.
int device_of(const EagerArguments& arguments);

/// True for a tensor that stands for a number: a Python number combined with a tensor, or a CPU scalar.
bool is_host_scalar(const at::Tensor& tensor);

}  // namespace ocl::aten
