// csrc/distributed/nccl_engine.cpp: runs collectives with NCCL; see nccl_engine.h.
#include "csrc/distributed/nccl_engine.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "csrc/distributed/failure.h"
#include "csrc/runtime/allocator.h"
#include "csrc/runtime/event.h"
#include "csrc/runtime/queue.h"

namespace ocl::distributed {
namespace {

constexpr std::chrono::seconds kLookAtPeers{1};
constexpr const char* kFailedKey = "failed";

}  // namespace

/// What NCCL gets for a buffer.
struct NcclEngine::Staged {
  uint64_t address = 0;   // CUDA's.
  void* block = nullptr;  // A copy of the buffer. nullptr if NCCL gets the tensor's own memory.
};

NcclEngine::NcclEngine(std::unique_ptr<NcclCommunicator> communicator, runtime::Device& device,
                       c10::intrusive_ptr<c10d::Store> store, RankNames names, std::chrono::milliseconds timeout)
    : EngineThread(std::move(names)),
      communicator_(std::move(communicator)),
      device_(device),
      store_(std::move(store)),
      timeout_(timeout) {}

void NcclEngine::submit(const std::vector<JobPtr>& jobs) {
  if (jobs.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    check_open();
    inbox_.push_back(jobs);
  }
  for (const JobPtr& job : jobs) watch_stream(job, [self = shared_from_this()] { self->wake(); });
}

void NcclEngine::set_timeout(std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  timeout_ = timeout;
}

/// True if the next batch can start. The caller holds the mutex.
bool NcclEngine::has_ready_batch() const {
  if (inbox_.empty()) return false;
  const Batch& next = inbox_.front();
  return std::all_of(next.begin(), next.end(), [](const JobPtr& job) { return job->ready.load(); });
}

void NcclEngine::run() {
  const at::AutoDispatchBelowADInplaceOrView no_gradients;
  const runtime::CudaContextGuard context(runtime::CudaDevice::of(device_.info()));
  while (true) {
    Batch batch;
    std::string abort_reason;
    {
      std::unique_lock lock(mutex_);
      woken_.wait(lock, [&] { return !abort_reason_.empty() || has_ready_batch() || (stopping_ && inbox_.empty()); });
      abort_reason = std::exchange(abort_reason_, {});
      if (abort_reason.empty()) {
        if (inbox_.empty()) break;
        batch = std::move(inbox_.front());
        inbox_.pop_front();
      }
    }
    try {
      if (!abort_reason.empty()) TORCH_CHECK_WITH(DistBackendError, false, abort_reason);
      execute(batch);
    } catch (...) {
      fail(batch, std::current_exception());
    }
  }
  communicator_.reset();
}

/// Throws if the group was aborted, if the work takes too long, or if another rank has failed.
void NcclEngine::give_up_if_hopeless() {
  const auto now = std::chrono::steady_clock::now();
  {
    const std::lock_guard lock(mutex_);
    if (!abort_reason_.empty()) TORCH_CHECK_WITH(DistBackendError, false, std::exchange(abort_reason_, {}));
    TORCH_CHECK_WITH(DistBackendError, now < deadline_, "it took longer than the timeout of ", timeout_.count(), " ms");
  }
  if (now < next_look_) return;
  next_look_ = now + kLookAtPeers;
  TORCH_CHECK_WITH(DistBackendError, !store_->check({kFailedKey}), "another rank failed");
}

/// Returns memory with the contents of a buffer that CUDA can use. Copies are enqueued on the thread's stream.
NcclEngine::Staged NcclEngine::stage(const NcclBuffer& buffer) {
  runtime::Allocator& allocator = device_.allocator();
  size_t bytes = 0;
  for (const Span& span : buffer.spans) bytes += static_cast<size_t>(span.count) * span.element_bytes();
  if (bytes == 0) return {};
  const void* first = buffer.spans.front().address;
  if (buffer.spans.size() == 1 && first != nullptr)
    if (const uint64_t address = allocator.cuda_address(first)) return {address, nullptr};
  Staged staged;
  staged.block = allocator.allocate(bytes, stream_, runtime::Sharing::kCuda);
  staged.address = allocator.cuda_address(staged.block);
  if (buffer.use == Use::kWrite) return staged;
  copy_spans(buffer, staged, true);
  return staged;
}

/// Copies the buffer's tensors to its memory for CUDA, or back.
void NcclEngine::copy_spans(const NcclBuffer& buffer, const Staged& staged, bool to_block) {
  runtime::Location block = device_.allocator().resolve(staged.block);
  for (const Span& span : buffer.spans) {
    const size_t part = static_cast<size_t>(span.count) * span.element_bytes();
    if (part == 0 || span.address == nullptr) continue;
    const runtime::Location tensor = device_.allocator().use(span.address, stream_);
    const runtime::Location &from = to_block ? tensor : block, &to = to_block ? block : tensor;
    device_.queue(stream_).copy(from.mem, from.offset_bytes, to.mem, to.offset_bytes, part);
    block.offset_bytes += part;
  }
}

/// Copies results to the tensors, and frees the copy.
void NcclEngine::unstage(const NcclBuffer& buffer, const Staged& staged) {
  if (staged.block == nullptr) return;
  if (buffer.use != Use::kRead) copy_spans(buffer, staged, false);
  device_.allocator().free(staged.block);  // Later work of the stream reuses it, after these copies.
}

void NcclEngine::execute(const Batch& batch) {
  {
    const std::lock_guard lock(mutex_);
    deadline_ = std::chrono::steady_clock::now() + timeout_;
  }
  if (stream_ < 0) stream_ = device_.next_stream();
  std::vector<std::vector<Staged>> staged(batch.size());
  const auto free_copies = [&] {
    for (const std::vector<Staged>& of_job : staged)
      for (const Staged& one : of_job) device_.allocator().free(one.block);
  };
  try {
    for (size_t i = 0; i < batch.size(); ++i) {
      if (batch[i]->error) std::rethrow_exception(batch[i]->error);
      for (const NcclBuffer& buffer : batch[i]->nccl->buffers) staged[i].push_back(stage(buffer));
    }
    // The last copies of an earlier batch may still read memory that was now allocated for this batch.
    runtime::Event(device_.queue(stream_), false).wait();
    const auto calls = [&] {
      for (size_t i = 0; i < batch.size(); ++i) {
        std::vector<uint64_t> addresses;
        for (const Staged& one : staged[i]) addresses.push_back(one.address);
        batch[i]->nccl->enqueue(*communicator_, addresses);
      }
    };
    communicator_->run(calls, [this] { give_up_if_hopeless(); });
  } catch (...) {
    communicator_->abort();  // Afterwards CUDA does not use the memory any more.
    free_copies();
    throw;
  }
  for (size_t i = 0; i < batch.size(); ++i)
    for (size_t k = 0; k < staged[i].size(); ++k) unstage(batch[i]->nccl->buffers[k], staged[i][k]);
  finish(batch);
}

void NcclEngine::finish(const Batch& batch) {
  device_.queue(stream_).flush();
  for (const JobPtr& job : batch) {
    for (const at::Tensor& tensor : job->work->result())
      if (tensor.numel() > 0) device_.allocator().wrote(tensor.storage().data(), stream_);
    job->work->complete(stream_, -1);
  }
}

/// Fails every job of the group. Errors in this function are ignored: every job learns of the failure, but perhaps
/// without the full text.
void NcclEngine::fail(const Batch& batch, const std::exception_ptr& error) noexcept {
  communicator_->abort();
  std::string message;
  std::exception_ptr thrown = error;
  attempt([&] {
    message = message_of(error);
    if (!batch.empty()) {
      store_->set(kFailedKey, names_.of(names_.rank));
      message = describe_failure(*batch.front()->work, message, *store_, names_);
    }
    thrown = torch_error(message, is_out_of_memory(error));
  });
  std::deque<Batch> refused;
  {
    const std::lock_guard lock(mutex_);
    refuse(message);
    refused.swap(inbox_);
  }
  refused.push_front(batch);
  for (const Batch& jobs : refused)
    for (const JobPtr& job : jobs) attempt([&] { job->work->fail(thrown, message); });
}

}  // namespace ocl::distributed
