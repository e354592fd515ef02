// csrc/kernels/matrix_instructions.h: the instructions by which a subgroup or warp multiplies small matrices.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace ocl {

/// What a device has for kernels of the level subgroup_matrix. kernels/tensor_core/subgroup_matrix.cl describes them. kMma8 is
/// for the level warp: the mma instructions of compute capability 7.5, where tensor_core/warp.cl otherwise takes those of 8.0.
enum class MatrixInstructions : uint8_t { kNone, kDpas8, kDpas16, kWmma11, kWmma12, kMfma2, kMfma4, kMma8 };

struct MatrixRow {
  MatrixInstructions id;
  const char* name;
  const char* macro;  // The macro that selects the instructions, and its value.
  int value;
  int lanes;    // Work-items of a subgroup.
  bool floats;  // They also multiply floats, or TF32, of which three products make one of floats.
};
inline constexpr std::array<MatrixRow, 7> kMatrixRows = {{
    {MatrixInstructions::kDpas8, "dpas8", "MATRIX_DPAS", 8, 8, false},
    {MatrixInstructions::kDpas16, "dpas16", "MATRIX_DPAS", 16, 16, true},
    {MatrixInstructions::kWmma11, "wmma11", "MATRIX_WMMA", 11, 32, false},
    {MatrixInstructions::kWmma12, "wmma12", "MATRIX_WMMA", 12, 32, false},
    {MatrixInstructions::kMfma2, "mfma2", "MATRIX_MFMA", 2, 64, true},
    {MatrixInstructions::kMfma4, "mfma4", "MATRIX_MFMA", 4, 64, true},
    {MatrixInstructions::kMma8, "mma8", "NARROW_MMA", 1, 32, false},
}};

/// Returns the row of `id`, which is not kNone.
constexpr const MatrixRow& matrix_row(MatrixInstructions id) { return kMatrixRows[static_cast<size_t>(id) - 1]; }
/// Returns the instructions with this name; kNone if there are none.
constexpr MatrixInstructions matrix_instructions(std::string_view name) {
  for (const MatrixRow& row : kMatrixRows)
    if (name == row.name) return row.id;
  return MatrixInstructions::kNone;
}

}  // namespace ocl
