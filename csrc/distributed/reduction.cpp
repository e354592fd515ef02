// csrc/distributed/reduction.cpp: chooses types and operations of reductions; see reduction.h.
#include "csrc/distributed/reduction.h"

#include "csrc/support/error.h"

namespace ocl::distributed {
namespace {

using c10d::ReduceOp;

const char* op_name(ReduceOp::RedOpType op) {
  constexpr const char* kNames[] = {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"};
  return op < std::size(kNames) ? kNames[op] : "unknown";
}

bool is_bitwise(ReduceOp::RedOpType op) { return op == ReduceOp::BAND || op == ReduceOp::BOR || op == ReduceOp::BXOR; }

/// Returns the operation on bytes 0 and 1 that has the effect of `op` on bool. UNUSED if there is none.
ReduceOp::RedOpType op_of_bool(ReduceOp::RedOpType op) {
  switch (op) {
    case ReduceOp::SUM:
    case ReduceOp::MAX:
    case ReduceOp::BOR:
      return ReduceOp::MAX;
    case ReduceOp::PRODUCT:
    case ReduceOp::MIN:
    case ReduceOp::BAND:
      return ReduceOp::MIN;
    case ReduceOp::BXOR:
      return ReduceOp::BXOR;
    default:
      return ReduceOp::UNUSED;
  }
}

/// Returns the type in which elements of `dtype` are combined; nullopt if they cannot be combined.
std::optional<at::ScalarType> compute_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
    case at::kDouble:
    case at::kChar:
    case at::kByte:
    case at::kInt:
    case at::kLong:
      return dtype;
    case at::kHalf:
    case at::kBFloat16:
      return at::kFloat;
    case at::kShort:
    case at::kUInt16:
      return at::kInt;
    case at::kUInt32:
      return at::kLong;
    default:
      return std::nullopt;
  }
}

double factor_of(const ReduceOp& op) {
  const auto* supplement = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  OCL_ASSERT(supplement != nullptr, "PREMUL_SUM has a factor");
  return supplement->tensor_factor.defined() ? supplement->tensor_factor.item<double>() : supplement->double_factor;
}

}  // namespace

Reduction reduction_for(at::ScalarType dtype, const ReduceOp& reduce_op, int ranks, const std::string& title) {
  Reduction r;
  r.op = reduce_op.op_;
  r.seen = dtype;
  const bool averages = r.op == ReduceOp::AVG, scales = r.op == ReduceOp::PREMUL_SUM;
  bool possible = true;
  if (dtype == at::kBool) {
    r.seen = at::kByte;
    r.op = op_of_bool(r.op);
    possible = r.op != ReduceOp::UNUSED;
  } else if (at::isComplexType(dtype)) {
    r.seen = at::toRealValueType(dtype);
    possible = r.op == ReduceOp::SUM || averages || scales;
  }
  const std::optional<at::ScalarType> compute = compute_type(r.seen);
  const bool floats = at::isFloatingType(r.seen);
  if (!possible || !compute || (floats ? is_bitwise(r.op) : averages || scales))
    fail(ErrorKind::kUnsupported, title + ": ReduceOp." + op_name(reduce_op.op_) + " is not defined for " +
                                      at::toString(dtype) + ".\n  do: convert the tensor to another type first");
  r.compute = *compute;
  if (scales) r.factor = factor_of(reduce_op);
  if (averages) r.divisor = ranks;
  if (averages || scales) r.op = ReduceOp::SUM;
  return r;
}

at::Tensor Reduction::prepare(const at::Tensor& elements) const {
  at::Tensor values = elements.to(compute, /*non_blocking=*/false, /*copy=*/true);
  if (factor) values.mul_(*factor);
  return values;
}

void Reduction::divide(at::Tensor& values) const {
  if (divisor != 1) values.div_(divisor);
}

at::Tensor Reduction::combine(const at::Tensor& rows) const {
  at::Tensor values = rows[0].clone();
  for (int64_t rank = 1; rank < rows.size(0); ++rank) {
    const at::Tensor next = rows[rank];
    switch (op) {
      case ReduceOp::SUM:
        values.add_(next);
        break;
      case ReduceOp::PRODUCT:
        values.mul_(next);
        break;
      case ReduceOp::MIN:
        at::minimum_out(values, values, next);
        break;
      case ReduceOp::MAX:
        at::maximum_out(values, values, next);
        break;
      case ReduceOp::BAND:
        values.bitwise_and_(next);
        break;
      case ReduceOp::BOR:
        values.bitwise_or_(next);
        break;
      case ReduceOp::BXOR:
        values.bitwise_xor_(next);
        break;
      default:
        ocl::fail(ErrorKind::kInternal, "a reduction without an operation");
    }
  }
  divide(values);
  return values;
}

}  // namespace ocl::distributed
