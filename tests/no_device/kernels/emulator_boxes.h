// tests/no_device/kernels/emulator_boxes.h: tensor maps and copies of boxes, for emulator.cpp.
extern "C" {
struct TensorMap {
  const char* matrix;
  uint width, rows, heads, batches;
  ulong row, head, batch;  // strides in elements
  uint box_rows;
};
ulong emulated_map(const void* matrix, uint width, uint rows, uint heads, uint batches, ulong row, ulong head, ulong batch,
                   uint box_rows) {
  static std::deque<TensorMap> maps;
  const bool aligned = (row % 8 == 0 || rows == 1) && (head % 8 == 0 || heads == 1) && (batch % 8 == 0 || batches == 1);
  if (reinterpret_cast<uintptr_t>(matrix) % 16 || !aligned || box_rows > 256) std::abort();
  maps.push_back({static_cast<const char*>(matrix), width, rows, heads, batches, row, head, batch, box_rows});
  return reinterpret_cast<ulong>(&maps.back());
}
void emulated_box(uint to, ulong map, int column, int row, int head, int batch, uint bar) {
  const TensorMap& from = *reinterpret_cast<const TensorMap*>(map);
  if (to % 1024 || head < 0 || batch < 0) std::abort();
  const bool inside = static_cast<uint>(head) < from.heads && static_cast<uint>(batch) < from.batches;
  for (uint r = 0; r < from.box_rows; ++r)
    for (uint e = 0; e < 64; ++e) {
      const ulong at_row = static_cast<ulong>(row) + r, at = static_cast<ulong>(column) + e;
      char* element = reinterpret_cast<char*>(static_cast<uintptr_t>(to + r * 128 + ((e / 8) ^ (r & 7)) * 16 + e % 8 * 2));
      std::memset(element, 0, 2);
      if (inside && at_row < from.rows && at < from.width)
        std::memcpy(element, from.matrix + 2 * (batch * from.batch + head * from.head + at_row * from.row + at), 2);
    }
  Bar& b = g_bars[bar / 8 % 4096];
  b.bytes -= 128 * static_cast<long>(from.box_rows);
  b.end_phase();
}
}
