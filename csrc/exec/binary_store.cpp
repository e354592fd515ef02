// csrc/exec/binary_store.cpp: see binary_store.h.
#include "csrc/exec/binary_store.h"

#include <string>

namespace ocl::exec {

runtime::BinaryStore binary_store(const std::shared_ptr<cache::KernelCache>& cache) {
  if (!cache) return {};
  return {[cache](const std::string& key) { return cache->find("kernels", key); },
          [cache](const std::string& key, const std::string& binary) { cache->store("kernels", key, binary); },
          [cache](const std::string& key) { return cache->claim(key); },
          [cache](const std::string& key) { cache->release(key); }};
}

}  // namespace ocl::exec
