// csrc/exec/user_kernel.cpp: see user_kernel.h.
#include "csrc/exec/user_kernel.h"

#include <algorithm>

#include "csrc/exec/executor.h"
#include "csrc/runtime/build/large_groups.h"
#include "csrc/runtime/queues/queue.h"

namespace ocl::exec {

UserKernel::UserKernel(runtime::Device& device, const runtime::KernelText& text, const runtime::BinaryStore& store,
                       const std::string& failed_dir)
    : device_(device), name_(text.name), origin_(text.where), name_id_(runtime::kernel_name_id(text.name)) {
  program_ = runtime::build_programs(device, {text}, store, failed_dir).front();
  kernel_ = program_->create_kernel(name_, ErrorKind::kUnsupported);
  OCL_CHECK(
      clGetKernelWorkGroupInfo(kernel_.get(), device.id(), CL_KERNEL_WORK_GROUP_SIZE, sizeof(size_t), &most_items_, nullptr),
      name_);
  OCL_CHECK(clGetKernelWorkGroupInfo(kernel_.get(), device.id(), CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof(required_local_),
                                     required_local_.data(), nullptr),
            name_);
  const auto most = static_cast<size_t>(device.caps().max_group_size);
  if (device.profile()) most_items_ = std::min(most_items_, most);
  if (most_items_ < most && runtime::understates(device)) most_items_ = most;
}

runtime::LaunchInfoPtr UserKernel::describe(const std::array<size_t, 3>& global, const std::array<size_t, 3>& local,
                                            const std::string& op, size_t bytes) const {
  const int dims = global[2] > 1 ? 3 : global[1] > 1 ? 2 : 1;
  auto info = std::make_shared<runtime::LaunchInfo>();
  info->kernel = name_;
  info->kind = "user";
  info->origin = origin_;
  info->global = global;
  info->local = local;
  info->ops = 1;
  info->bytes = static_cast<int64_t>(bytes);
  info->title =
      name_ + " " + runtime::sizes_text(dims, global) + " @ " + op + ", " + runtime::amount(static_cast<double>(bytes), "B");
  return info;
}

void UserKernel::launch(int stream, const std::vector<UserArgument>& arguments, const std::array<size_t, 3>& global,
                        const std::array<size_t, 3>& local, const std::string& op) {
  if (global[0] == 0 || global[1] == 0 || global[2] == 0 || launches_skipped()) return;
  const std::lock_guard lock(mutex_);
  cl_uint slot = 0;
  size_t touched = 0;
  const auto set = [&](size_t bytes, const void* value) {
    OCL_CHECK(clSetKernelArg(kernel_.get(), slot++, bytes, value), "argument " + std::to_string(slot - 1) + " of " + name_);
  };
  for (const UserArgument& argument : arguments) {
    if (const auto* memory = std::get_if<runtime::Location>(&argument)) {
      const cl_ulong offset = memory->offset_bytes;
      set(sizeof(cl_mem), &memory->mem);
      set(sizeof offset, &offset);
      touched += memory->remaining_bytes;
    } else if (const auto* value = std::get_if<std::string>(&argument)) {
      set(value->size(), value->data());
    } else {
      set(std::get<LocalMemory>(argument).bytes, nullptr);
    }
  }
  const runtime::LaunchInfoPtr info = runtime::wanted() ? describe(global, local, op, touched) : nullptr;
  device_.queue(stream).launch(kernel_.get(), 3, global, local, nullptr, name_id_, info);
}

}  // namespace ocl::exec
