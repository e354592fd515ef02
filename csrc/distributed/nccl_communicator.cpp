// csrc/distributed/nccl_communicator.cpp: calls NCCL; see nccl_communicator.h.
#include "csrc/distributed/nccl_communicator.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "csrc/runtime/opencl/cl.h"

namespace ocl::distributed {
namespace {

using c10d::ReduceOp;

constexpr int kBytes = 1;  // NCCL's number of uint8.
constexpr int kAverage = 4;
constexpr int kHostValue = 1;  // ncclScalarHostImmediate

/// Returns NCCL's number of a value, its place in `numbers`, and -1 if it has none.
template <class Value, size_t N>
int number_of(const Value (&numbers)[N], Value value) {
  const auto* found = std::ranges::find(numbers, value);
  return found == std::end(numbers) ? -1 : static_cast<int>(found - numbers);
}

int op_number(ReduceOp::RedOpType op) {
  static constexpr ReduceOp::RedOpType kNumbers[] = {ReduceOp::SUM, ReduceOp::PRODUCT, ReduceOp::MAX, ReduceOp::MIN};
  return number_of(kNumbers, op);
}

/// Waits a little. Short waits poll often, because most collectives are short.
void pause(int round) {
  if (round < 1000)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(std::chrono::microseconds(round < 2000 ? 50 : 500));
}

void* pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

int nccl_type(at::ScalarType dtype) {
  static constexpr at::ScalarType kNumbers[] = {at::kChar,   at::kByte, at::kInt,   at::kUInt32, at::kLong,
                                                at::kUInt64, at::kHalf, at::kFloat, at::kDouble, at::kBFloat16};
  return number_of(kNumbers, dtype);
}

bool nccl_reduces(const Reduction& reduction) { return nccl_type(reduction.seen) >= 0 && op_number(reduction.op) >= 0; }

/// NCCL's number of a reduction. A sum with a factor is an operation of the communicator, until the object is destroyed.
class NcclCommunicator::Op {
 public:
  Op(const NcclCommunicator& owner, const Reduction& reduction) : owner_(owner), number(op_number(reduction.op)) {
    if (reduction.divisor != 1) number = kAverage;
    if (!reduction.factor) return;
    const at::Tensor factor = at::full({1}, *reduction.factor, at::TensorOptions().dtype(reduction.seen));
    owner_.check(
        owner_.nccl_.create_scaled_sum(&number, factor.data_ptr(), nccl_type(reduction.seen), kHostValue, owner_.comm_),
        "ncclRedOpCreatePreMulSum");
    created_ = true;
  }
  ~Op() {
    if (created_) owner_.nccl_.destroy_op(number, owner_.comm_);
  }
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;

 private:
  const NcclCommunicator& owner_;
  bool created_ = false;

 public:
  int number;
};

NcclCommunicator::NcclCommunicator(const NcclLibrary& library, const NcclId& id, int ranks, int rank, const GiveUp& give_up)
    : nccl_(library.functions) {
  NcclConfig config;
  const int status = nccl_.init(&comm_, ranks, id, rank, &config);
  try {
    finish(status, "ncclCommInitRankConfig", give_up);
  } catch (...) {
    abort();
    throw;
  }
}

NcclCommunicator::~NcclCommunicator() { close(); }

void NcclCommunicator::close() noexcept {
  if (comm_ == nullptr || !runtime::runtimes_usable()) return;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  const auto late = [&] {
    if (std::chrono::steady_clock::now() > deadline) fail(ErrorKind::kDevice, "the other ranks do not close their connections");
  };
  try {
    finish(nccl_.finalize(comm_), "ncclCommFinalize", late);
    nccl_.destroy(comm_);
    comm_ = nullptr;
  } catch (const Error&) {
    abort();
  }
}

void NcclCommunicator::abort() noexcept {
  if (comm_ != nullptr) nccl_.abort(comm_);
  comm_ = nullptr;
}

void NcclCommunicator::check(int status, const char* call) const {
  if (status == kNcclSuccess || status == kNcclInProgress) return;
  fail(ErrorKind::kDevice, std::string(call) + " failed: " + nccl_.error_text(status));
}

/// Waits until NCCL has completed a call that returned `status`.
void NcclCommunicator::finish(int status, const char* call, const GiveUp& give_up) const {
  for (int round = 0; status == kNcclInProgress; ++round) {
    give_up();
    pause(round);
    const int answer = nccl_.state(comm_, &status);
    if (answer != kNcclSuccess) status = answer;
  }
  check(status, call);
}

void NcclCommunicator::enqueue(const std::function<void()>& calls, const GiveUp& give_up) {
  OCL_ASSERT(comm_ != nullptr, "the communicator was not aborted");
  check(nccl_.group_start(), "ncclGroupStart");
  try {
    calls();
  } catch (...) {
    nccl_.group_end();
    throw;
  }
  finish(nccl_.group_end(), "ncclGroupEnd", give_up);
}

void NcclCommunicator::check_running() const {
  int status = kNcclSuccess;
  check(nccl_.state(comm_, &status), "ncclCommGetAsyncError");
  check(status, "a collective of NCCL");
}

void NcclCommunicator::all_reduce(uint64_t in_place, int64_t count, const Reduction& reduction) {
  const Op op(*this, reduction);
  check(
      nccl_.all_reduce(pointer(in_place), pointer(in_place), count, nccl_type(reduction.seen), op.number, comm_, stream_.get()),
      "ncclAllReduce");
}

void NcclCommunicator::reduce(uint64_t in_place, int64_t count, const Reduction& reduction, int root) {
  const Op op(*this, reduction);
  check(nccl_.reduce(pointer(in_place), pointer(in_place), count, nccl_type(reduction.seen), op.number, root, comm_,
                     stream_.get()),
        "ncclReduce");
}

void NcclCommunicator::reduce_scatter(uint64_t from, uint64_t to, int64_t count, const Reduction& reduction) {
  const Op op(*this, reduction);
  check(nccl_.reduce_scatter(pointer(from), pointer(to), count, nccl_type(reduction.seen), op.number, comm_, stream_.get()),
        "ncclReduceScatter");
}

void NcclCommunicator::broadcast(uint64_t in_place, int64_t bytes, int root) {
  check(nccl_.broadcast(pointer(in_place), pointer(in_place), bytes, kBytes, root, comm_, stream_.get()), "ncclBroadcast");
}

void NcclCommunicator::all_gather(uint64_t from, uint64_t to, int64_t bytes) {
  check(nccl_.all_gather(pointer(from), pointer(to), bytes, kBytes, comm_, stream_.get()), "ncclAllGather");
}

void NcclCommunicator::send(uint64_t from, int64_t bytes, int peer) {
  check(nccl_.send(pointer(from), bytes, kBytes, peer, comm_, stream_.get()), "ncclSend");
}

void NcclCommunicator::receive(uint64_t to, int64_t bytes, int peer) {
  check(nccl_.receive(pointer(to), bytes, kBytes, peer, comm_, stream_.get()), "ncclRecv");
}

}  // namespace ocl::distributed
