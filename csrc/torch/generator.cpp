// csrc/torch/generator.cpp: random generators of the devices; see generator.h.
#include "csrc/torch/generator.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>

#include <cstring>
#include <mutex>
#include <vector>

#include "csrc/torch/device_state.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/tensor_location.h"

namespace ocl::aten {

namespace {

constexpr int64_t kStateBytes = 16;

// The default generators are made when the devices are known. A seed that is set before is kept in g_first_seed.
std::mutex g_generator_mutex;
std::vector<at::Generator>* g_defaults = nullptr;
uint64_t g_first_seed = c10::default_rng_seed_val;

/// Computes one step of splitmix64, a bijection that distributes neighbouring inputs over all bits.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

OclGenerator::OclGenerator(c10::DeviceIndex device)
    : GeneratorImpl(c10::Device(c10::kPrivateUse1, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      seed_(c10::default_rng_seed_val) {}

void OclGenerator::set_current_seed(uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
}

uint64_t OclGenerator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return seed_;
}

c10::intrusive_ptr<c10::TensorImpl> OclGenerator::get_state() const {
  // Not at::empty, whose result is a fake tensor under FakeTensorMode.
  const at::Tensor state = at::detail::empty_cpu({kStateBytes}, at::TensorOptions(at::kByte));
  auto* bytes = state.mutable_data_ptr<uint8_t>();
  std::memcpy(bytes, &seed_, sizeof seed_);
  std::memcpy(bytes + sizeof seed_, &offset_, sizeof offset_);
  return state.getIntrusivePtr();
}

void OclGenerator::set_state(const c10::TensorImpl& state) {
  TORCH_CHECK_TYPE(state.device_type() == c10::kCPU && state.dtype() == caffe2::TypeMeta::Make<uint8_t>() &&
                       state.numel() == kStateBytes && state.is_contiguous(),
                   "an ocl generator's state is a contiguous uint8 tensor of ", kStateBytes,
                   " elements on the CPU, not one of ", state.numel(), " elements of ", state.dtype().name(), " on ",
                   state.device());
  const auto* bytes = static_cast<const uint8_t*>(state.data());
  std::memcpy(&seed_, bytes, sizeof seed_);
  std::memcpy(&offset_, bytes + sizeof seed_, sizeof offset_);
}

std::pair<uint64_t, uint64_t> OclGenerator::reserve(uint64_t count) {
  const std::lock_guard lock(mutex_);
  const uint64_t first = offset_;
  offset_ += count;
  return {seed_, first};
}

OclGenerator* OclGenerator::clone_impl() const {
  auto* copy = new OclGenerator(device().index());
  copy->seed_ = seed_;
  copy->offset_ = offset_;
  return copy;
}

const at::Generator& default_generator(int device) {
  if (device < 0) device = current_device();
  at_boundary([&] { device_at(device); });  // Throws if there is no such index.
  const std::lock_guard lock(g_generator_mutex);
  if (g_defaults == nullptr) {
    g_defaults = new std::vector<at::Generator>;  // Never destroyed, so that it outlives every tensor.
    for (int i = 0; i < device_count(); ++i) {
      g_defaults->push_back(at::make_generator<OclGenerator>(static_cast<c10::DeviceIndex>(i)));
      g_defaults->back().set_current_seed(g_first_seed);
    }
  }
  return (*g_defaults)[device];
}

void seed_default_generators(uint64_t seed) {
  const std::lock_guard lock(g_generator_mutex);
  g_first_seed = seed;
  if (g_defaults == nullptr) return;
  for (at::Generator& generator : *g_defaults) {
    const std::lock_guard generator_lock(generator.mutex());
    generator.set_current_seed(seed);
  }
}

OclGenerator& generator_for(const std::optional<at::Generator>& given, int device) {
  if (!given.has_value() || !given->defined()) return *default_generator(device).get<OclGenerator>();
  TORCH_CHECK(given->device().type() == c10::kPrivateUse1 && given->device().index() == device,
              "expected a generator of ocl:", device, ", got one of ", given->device(),
              "; create it with torch.Generator('ocl:", device, "')");
  return *given->get<OclGenerator>();
}

at::Generator cpu_generator(uint64_t seed, uint64_t counter) {
  return at::detail::createCPUGenerator(mix(seed ^ mix(counter)));
}

std::pair<uint64_t, uint64_t> reserve_philox(int device, uint64_t count) {
  return default_generator(device).get<OclGenerator>()->reserve(count);
}

}  // namespace ocl::aten
