// csrc/torch/eager_key.h: the arguments of one eager call as a flat list of leaves, and the key under which its plan is kept.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string>
#include <vector>

namespace ocl::aten {

/// How much of a call its plan depends on. A plan of a higher level serves more calls and knows less of each.
enum class KeyLevel : uint8_t {
  kExact,    // every size and every number
  kNumbers,  // floats are arguments of the plan; of an optimizer's, those of its learning rate alone
  kSizes,    // so are sizes; ranks, sizes of 1 and which sizes are equal still count
};

/// The arguments in schema order, with the elements of lists; None is a leaf too.
struct EagerArguments {
  std::vector<c10::IValue> leaves;
  std::vector<int> argument;  // of each leaf, by position in the schema
  std::vector<int> same;      // first leaf that is the same tensor, or the same float of a list; usually the leaf itself
  int free = -1;              // the argument whose floats may vary, -1 for all
  bool has_floats = false;    // some leaf is not part of a key of level kNumbers
  bool varies = false;        // such a leaf is of a kind that changes with every call: a learning rate, a list of numbers
  bool supported = true;      // false: complex numbers, sparse tensors, CPU tensors with elements to copy
};

EagerArguments flatten(const c10::OperatorHandle& op, const torch::jit::Stack& stack);
std::string key_of(const c10::OperatorHandle& op, const EagerArguments& arguments, KeyLevel level);
/// The same for a call on `device` in any process: without addresses and numbers of devices. "" if a tensor is on another one.
std::string portable_key_of(const c10::OperatorHandle& op, const EagerArguments& arguments, KeyLevel level, int device);
/// The device that the arguments name, the current one if they name none.
int device_of(const EagerArguments& arguments);

/// A tensor whose one element is a number: a Python number that met a tensor, or a CPU scalar.
bool is_host_scalar(const at::Tensor& tensor);

}  // namespace ocl::aten
