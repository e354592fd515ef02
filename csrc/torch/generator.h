// csrc/torch/generator.h: the random state of a device: a Philox key (seed) and the next unused counter (offset).
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <cstdint>
#include <optional>
#include <utility>

namespace ocl::aten {

class OclGenerator final : public c10::GeneratorImpl {
 public:
  explicit OclGenerator(c10::DeviceIndex device);
  static c10::DeviceType device_type() { return c10::kPrivateUse1; }

  void set_current_seed(uint64_t seed) override;
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override;  // Draws a new seed, sets it and returns it.
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  /// Returns the state as 16 bytes on the CPU: seed and offset, both little-endian uint64.
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  void set_state(const c10::TensorImpl& state) override;

  /// Reserves `count` counters for the caller. Returns (seed, first counter). Takes the generator's lock.
  std::pair<uint64_t, uint64_t> reserve(uint64_t count);

 private:
  OclGenerator* clone_impl() const override;
  uint64_t seed_, offset_ = 0;
};

const at::Generator& default_generator(int device);
/// Seeds the default generators of all devices. Does not set the devices up.
void seed_default_generators(uint64_t seed);
/// Returns the generator for a random op: the given one if it is valid, otherwise the device's default.
OclGenerator& generator_for(const std::optional<at::Generator>& given, int device);
/// Returns a CPU generator whose numbers depend only on (seed, counter), for random ops that run on the CPU.
at::Generator cpu_generator(uint64_t seed, uint64_t counter);

}  // namespace ocl::aten
